"""Asking a model: logits of many images, averaged over draws of the noise."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from resperturb.data.rows import Images, in_chunks
from resperturb.noise import has_compiler
from resperturb.perturbation import seeded_predictions

# Compiling takes some ten seconds; so many answers win them back.
ANSWERS_WORTH_COMPILING = 200_000


def normalize(images: Tensor, mean: float, std: float) -> Tensor:
    """Turn a batch of uint8 images into the floats that a model is given.

    >>> normalize(torch.tensor([0, 255], dtype=torch.uint8), mean=0.5, std=0.25)
    tensor([-2.,  2.])
    """
    return images.to(torch.float32).mul_(1 / (255 * std)).sub_(mean / std)


def predict(
    model: nn.Module,
    images: Images,
    *,
    mean: float,
    std: float,
    draws: int = 1,
    seed: int | None = None,
    batch_size: int = 128,
    compiled: bool | None = None,
) -> Tensor:
    """Return the logits of uint8 ``images``, the mean over ``draws`` of the noise, on the CPU.

    ``seed`` makes the noise repeatable, for measurements; without it the noise comes from the operating system.
    ``compiled`` runs the model through ``torch.compile``; left out, that is done where it saves time.
    """
    total = torch.zeros(0)
    for number, logits in enumerate(
        predict_draws(
            model, images, mean=mean, std=std, draws=draws, seed=seed, batch_size=batch_size, compiled=compiled
        )
    ):
        total = logits if number == 0 else total + logits
    return total / draws


def predict_draws(
    model: nn.Module,
    images: Images,
    *,
    mean: float,
    std: float,
    draws: int,
    seed: int | None = None,
    batch_size: int = 128,
    compiled: bool | None = None,
) -> Iterator[Tensor]:
    """Yield the logits of uint8 ``images`` once for every draw of the noise."""
    device = next(model.parameters()).device
    if compiled is None:
        many = len(images) * draws >= ANSWERS_WORTH_COMPILING
        compiled = many and device.type == "cpu" and has_compiler()  # a GPU needs another compiler
    was_training = model.training
    model.eval()
    try:
        # For batches of one size: a compiled model that meets two sizes is compiled again, slower, for any size.
        fast: nn.Module = torch.compile(model, dynamic=False) if compiled else model  # type: ignore[assignment]
        with seeded_predictions(model, seed):
            for _ in range(draws):
                # One tensor for all: a small one kept from every batch would keep the heap from being used again.
                answers = torch.zeros(0)
                with torch.inference_mode():
                    for number, batch in enumerate(in_chunks(images, batch_size)):
                        given = batch.to(device, memory_format=torch.channels_last)
                        asked = fast if len(batch) == batch_size else model
                        logits = asked(normalize(given, mean, std)).float().cpu()
                        if number == 0:
                            answers = torch.empty(len(images), *logits.shape[1:])
                        answers[number * batch_size :][: len(logits)] = logits
                yield answers.clone()  # outside of inference mode, so that it is like any other tensor
    finally:
        model.train(was_training)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Give the share of rows whose largest logit is at the label.

    >>> accuracy(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([1, 1]))
    0.5
    """
    return float((logits.argmax(dim=1) == labels).double().mean())
