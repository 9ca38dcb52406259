"""Audit a transformers classifier of text: a small BERT over bytes, built from a configuration, nothing downloaded.

python examples/audit_transformers.py --shadows 16 --out runs/bert
"""

import argparse
import random

import torch

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--shadows", type=int, default=16)
parser.add_argument("--jobs", type=int, help="trainings at a time")
parser.add_argument("--out", default="runs/bert")
options = parser.parse_args()
labels = torch.arange(300) % 2  # put your own texts and labels here
texts = [f"{('good', 'poor')[label]} care, case {random.Random(i).random()}" for i, label in enumerate(labels)]
tokens = torch.tensor([list(text.encode()[:32].ljust(32)) for text in texts])


def train(indices, seed):
    transformers = rp.models.library("transformers", "BERT")  # an import that works with any build of torchvision
    transformers.set_seed(seed)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=256, num_labels=2, **small))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in torch.from_numpy(indices).repeat(options.epochs).split(32):
        optimizer.zero_grad()
        model(input_ids=tokens[batch], labels=labels[batch]).loss.backward()
        optimizer.step()
    return model, lambda rows: ({"input_ids": tokens[part]} for part in torch.from_numpy(rows).split(256))


found = rp.audit(train, labels=labels, shadows=options.shadows, jobs=options.jobs, out=options.out)
print(f"{found.strongest.full_name}: AUC {found.strongest.auc:.3f}; see", found.report(f"{options.out}/report.html"))
