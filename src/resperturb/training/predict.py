"""Predict the logits of many images, averaged over draws of the noise, and score them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.bounds.metrics import auc
from resperturb.data.rows import Images, in_chunks
from resperturb.perturbation import seeded_predictions, verify_noise

# Draws that are made of a batch while it is loaded; their logits are kept in memory.
DRAWS_AT_ONCE = 32
CHECKED_FOR_NOISE = 4

# One number for all channels, or one per channel.
Constants = float | tuple[float, ...]


def normalize(images: Tensor, mean: Constants, std: Constants) -> Tensor:
    """Turn a batch of uint8 images into the floats that a model is given; constants are of pixels from 0 to 1.

    >>> normalize(torch.tensor([0, 255], dtype=torch.uint8), mean=0.5, std=0.25)
    tensor([-2.,  2.])
    """
    if not isinstance(mean, tuple) and not isinstance(std, tuple):
        return images.to(torch.float32).mul_(1 / (255 * std)).sub_(mean / std)
    means, stds = (
        torch.tensor(value, dtype=torch.float32, device=images.device).view(-1, 1, 1) for value in (mean, std)
    )
    return images.to(torch.float32).mul_(1 / (255 * stds)).sub_(means / stds)


def predict(
    model: nn.Module,
    images: Images,
    *,
    mean: Constants,
    std: Constants,
    draws: int = 1,
    seed: int | None = None,
    batch_size: int = 128,
) -> Tensor:
    """Return the logits of uint8 ``images`` on the CPU, averaged over ``draws`` of the noise.

    Args:
        model: The model; it is queried in ``eval()`` and left in the mode it was in.
        draws: Number of draws, each with fresh noise for every image.
        seed: Seed of the noise; None for noise from the operating system.
    """
    answers = predict_draws(model, images, mean=mean, std=std, draws=draws, seed=seed, batch_size=batch_size)
    return sum(answers, start=torch.zeros(())) / draws


def predict_draws(
    model: nn.Module,
    images: Images,
    *,
    mean: Constants,
    std: Constants,
    draws: int,
    seed: int | None = None,
    batch_size: int = 128,
) -> Iterator[Tensor]:
    """Yield the logits of all ``images``, on the CPU, once for every draw of the noise; see :func:`predict`."""
    was_training = model.training
    model.eval()
    try:
        with seeded_predictions(model, seed):
            device = next(model.parameters()).device
            for first in range(0, draws, DRAWS_AT_ONCE):
                at_once = min(DRAWS_AT_ONCE, draws - first)
                # One tensor for all: a small one kept from every batch would keep the heap from being used again.
                answers = torch.zeros(at_once, 0)
                with torch.inference_mode():
                    for number, rows in enumerate(in_chunks(images, batch_size)):
                        start = number * batch_size
                        batch = normalize(rows.to(device).to(memory_format=torch.channels_last), mean, std)
                        for draw in range(at_once):
                            logits = model(batch).float().cpu()
                            if start == draw == 0:
                                answers = torch.empty(at_once, len(images), *logits.shape[1:])
                            answers[draw, start : start + len(logits)] = logits
                for one in answers:
                    yield one.clone()  # outside of inference mode, so that it is like any other tensor
    finally:
        model.train(was_training)


def require_noise(model: nn.Module, images: Images, mean: Constants, std: Constants) -> None:
    """Measure on a few images that a perturbed model has its noise."""
    device = next(model.parameters()).device
    batch = images[: min(len(images), CHECKED_FOR_NOISE)].to(device)
    verify_noise(model, normalize(batch, mean, std)).require()


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Give the share of rows whose largest logit is at the label.

    >>> accuracy(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([1, 1]))
    0.5
    """
    return float((logits.argmax(dim=1) == labels).double().mean())


@dataclass(frozen=True)
class ClassScores:
    """Accuracy, area under the ROC curve, sensitivity and specificity on one set of images.

    Of two classes the second is the positive one. Of more, all but accuracy are means over the classes, each taken
    against the others. What cannot be computed, since a class has no image, is None.
    """

    accuracy: float
    auroc: float | None
    sensitivity: float | None
    specificity: float | None


def class_scores(logits: Tensor, labels: Tensor) -> ClassScores:
    """Score logits, with one row per image, against labels.

    >>> class_scores(torch.tensor([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    ClassScores(accuracy=0.6666666666666666, auroc=0.75, sensitivity=0.5, specificity=1.0)
    """
    answers, truth = logits.argmax(dim=1).numpy(), labels.numpy()
    probabilities = logits.double().softmax(dim=1).numpy()
    classes = logits.shape[1]
    positives = [1] if classes == 2 else range(classes)
    areas, found, spared = [], [], []
    for positive in positives:
        is_positive = truth == positive
        if not is_positive.any() or is_positive.all():
            continue
        # For two classes ties of probabilities near 1 are broken by the difference of the logits.
        scores = (logits[:, 1] - logits[:, 0]).numpy() if classes == 2 else probabilities[:, positive]
        areas.append(auc(scores[is_positive], scores[~is_positive]))
        found.append(float(np.mean(answers[is_positive] == positive)))
        spared.append(float(np.mean(answers[~is_positive] != positive)))
    return ClassScores(float(np.mean(answers == truth)), _mean(areas), _mean(found), _mean(spared))


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
