"""A stock torchvision ResNet-18 on a folder of images, one subfolder a class, with noise in every residual sum.

python examples/perturb_torchvision.py ./patches --gamma 0.5 --epochs 10
"""

import argparse

import torch
import torchvision
from torch.utils.data import DataLoader, random_split
from torchvision import transforms

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--gamma", type=float, default=0.5)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--size", type=int, default=64)
parser.add_argument("--out", default="resnet18.safetensors")
options = parser.parse_args()

torch.manual_seed(0)
prepare = transforms.Compose(
    [transforms.Resize((options.size, options.size)), transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]
)
images = torchvision.datasets.ImageFolder(options.folder, prepare)
held_out = max(1, len(images) // 5)
train, test = random_split(images, [len(images) - held_out, held_out])

model = torchvision.models.resnet18(num_classes=len(images.classes))
rp.perturb(model, rp.Additive(gamma=options.gamma))  # in place: names, weights and types stay
print("noise at", ", ".join(junction.name for junction in rp.junctions(model)))

optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
for epoch in range(options.epochs):
    model.train()
    for batch, labels in DataLoader(train, batch_size=32, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

rp.save(model, options.out)  # the noise travels with the weights
model = rp.load(lambda: torchvision.models.resnet18(num_classes=len(images.classes)), options.out).eval()

with torch.no_grad():  # eval() does not switch the noise off: every prediction is a fresh draw
    hits = [(model(batch).argmax(1) == labels) for batch, labels in DataLoader(test, batch_size=32)]
print(f"{rp.strategy_of(model)}: test accuracy {torch.cat(hits).float().mean():.3f} on {len(test)} images")
