"""A Hugging Face ViT on a folder of images, one subfolder a class, trained by transformers' own Trainer.

python examples/perturb_transformers.py ./patches --pretrained google/vit-base-patch16-224
"""

import argparse

import torch
from datasets import load_dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument(
    "--pretrained", help="a name on the hub or a folder; left out, a small ViT is trained from scratch"
)
parser.add_argument("--gamma", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--out", default="vit")
options = parser.parse_args()

images = load_dataset("imagefolder", data_dir=options.folder, split="train").train_test_split(0.2, seed=0)
classes = images["train"].features["label"].num_classes
if options.pretrained:
    model = ViTForImageClassification.from_pretrained(
        options.pretrained, num_labels=classes, ignore_mismatched_sizes=True
    )
else:
    small = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    model = ViTForImageClassification(ViTConfig(image_size=32, patch_size=4, num_labels=classes, **small))
rp.perturb(model, rp.Additive(gamma=options.gamma))  # two junctions a layer: after attention and after the MLP


def collate(examples: list[dict]) -> dict:
    size = (model.config.image_size,) * 2
    pixels = [torch.frombuffer(e["image"].convert("RGB").resize(size).tobytes(), dtype=torch.uint8) for e in examples]
    batch = torch.stack(pixels).view(len(examples), *size, 3).permute(0, 3, 1, 2) / 127.5 - 1
    return {"pixel_values": batch, "labels": torch.tensor([e["label"] for e in examples])}


arguments = TrainingArguments(
    options.out, num_train_epochs=options.epochs, remove_unused_columns=False, report_to=[], save_strategy="no"
)
trainer = Trainer(model, arguments, collate, images["train"], images["test"])
trainer.train()
print(trainer.evaluate())

model.save_pretrained(options.out)  # transformers writes the weights, and resperturb's record into config.json
model = rp.load(
    ViTForImageClassification.from_pretrained(options.out), options.out
)  # from_pretrained alone: no noise
print(rp.strategy_of(model))
