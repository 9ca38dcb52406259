"""Audit torchvision's ResNet-18 with residual noise, trained with AdamW, a cosine schedule and augmentation.

python examples/audit_torchvision.py --epochs 20 --shadows 16 --out runs/resnet18
"""

import argparse

import torch

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("--limit", type=int, default=4000)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--shadows", type=int, default=16)
parser.add_argument("--jobs", type=int, help="trainings at a time")
parser.add_argument("--out", default="runs/resnet18")
options = parser.parse_args()
data = rp.data.load_pair("fashion-sample", limit=options.limit)[0]  # or a folder of yours
pixels = data.images.float() / 255


def train(indices, seed):
    torch.manual_seed(seed)
    model = rp.perturb(rp.models.build("torchvision:resnet18", num_classes=10, in_channels=1), rp.Additive(gamma=0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    for _ in range(options.epochs):
        for batch in torch.from_numpy(indices)[torch.randperm(len(indices))].tensor_split(len(indices) // 32):
            images = pixels[batch].flip(3) if torch.rand(()) < 0.5 else pixels[batch]  # augmentation
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), data.labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return model, lambda rows: (pixels[part] for part in torch.from_numpy(rows).split(256))


found = rp.audit(train, labels=data.labels, shadows=options.shadows, jobs=options.jobs, out=options.out)
print("AUC", found.strongest.auc, "by", found.strongest.full_name, "see", found.report(f"{options.out}/report.html"))
