"""Predict the logits of many images, averaged over draws of the noise."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from resperturb.data.rows import Images, in_chunks
from resperturb.perturbation import seeded_predictions, verify_noise

# Draws that are made of a batch while it is loaded; their logits are kept in memory.
DRAWS_AT_ONCE = 32
CHECKED_FOR_NOISE = 4

# One number for all channels, or one per channel.
Constants = float | tuple[float, ...]


def normalize(images: Tensor, mean: Constants, std: Constants) -> Tensor:
    """Turn a batch of uint8 images into the floats that a model is given.

    Args:
        images: uint8, ``[N, C, H, W]``.
        mean: Mean, of pixels between 0 and 1, for all channels or per channel.
        std: Standard deviation, likewise.

    Returns:
        The images in single precision.

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
    """Return the logits of uint8 ``images``, averaged over ``draws`` of the noise.

    Args:
        model: The model; it is queried in ``eval()`` and left in the mode it was in.
        images: The images.
        mean: Mean of the normalisation, of pixels between 0 and 1.
        std: Standard deviation of the normalisation.
        draws: Number of draws, each with fresh noise for every image.
        seed: Seed of the noise; None for noise from the operating system.
        batch_size: Number of images that are predicted at once.

    Returns:
        The logits, on the CPU.
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
    """Measure on a few images that a perturbed model has its noise.

    Raises:
        NoiseLostError: Some of the noise is gone.
    """
    device = next(model.parameters()).device
    batch = images[: min(len(images), CHECKED_FOR_NOISE)].to(device)
    verify_noise(model, normalize(batch, mean, std)).require()


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Give the share of rows whose largest logit is at the label.

    Args:
        logits: One row per image.
        labels: The class of each image.

    Returns:
        The accuracy.

    >>> accuracy(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([1, 1]))
    0.5
    """
    return float((logits.argmax(dim=1) == labels).double().mean())
