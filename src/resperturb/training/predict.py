"""Asking a model: logits of many images, averaged over draws of the noise."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from resperturb.data.rows import Images, in_chunks
from resperturb.noise import has_compiler
from resperturb.perturbation import seeded_predictions, verify_noise
from resperturb.perturbation.perturb import copies_of_a_batch, draws_share_a_start

# All draws of a batch are asked for while it is at hand, so many at most, since their answers are kept in memory.
DRAWS_AT_ONCE = 32
CHECKED_FOR_NOISE = 4


# One number for all channels, or one per channel.
Constants = float | tuple[float, ...]


def normalize(images: Tensor, mean: Constants, std: Constants) -> Tensor:
    """Turn a batch of uint8 images into the floats that a model is given.

    Args:
        images: uint8, ``[N, C, H, W]``.
        mean: What is taken from pixels between 0 and 1, for all channels or per channel.
        std: What they are then divided by.

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
    compiled: bool | None = None,
) -> Tensor:
    """Return the logits of uint8 ``images``, the mean over ``draws`` of the noise, on the CPU.

    See :func:`predict_draws` for the arguments.

    Args:
        model: The model.
        images: The images.
        mean: Of the normalisation.
        std: Of the normalisation.
        draws: Over which the logits are averaged.
        seed: Makes the noise repeatable.
        batch_size: How many images are asked about at once.
        compiled: Whether ``torch.compile`` is used.

    Returns:
        The mean logits.
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
    mean: Constants,
    std: Constants,
    draws: int,
    seed: int | None = None,
    batch_size: int = 128,
    compiled: bool | None = None,
) -> Iterator[Tensor]:
    """Yield the logits of uint8 ``images`` once for every draw of the noise.

    Args:
        model: The model; it is asked in ``eval()`` and left in the mode it was in.
        images: The images.
        mean: What is taken from pixels between 0 and 1.
        std: What they are then divided by.
        draws: How many times each image is asked about, each time with fresh noise.
        seed: Makes the noise repeatable; without it the noise comes from the operating system.
        batch_size: How many images are asked about at once.
        compiled: Whether ``torch.compile`` is used; left out, it is from where on that saves time.

    Yields:
        The logits of all images, on the CPU.
    """
    was_training = model.training
    model.eval()
    try:
        with seeded_predictions(model, seed):
            device = next(model.parameters()).device

            def given(rows: Tensor) -> Tensor:
                return _normalized(rows.to(device), (mean, std))

            shared = draws > 1 and len(images) > 1 and _answers_in_copies(model, given(images[:2]))
            for first in range(0, draws, DRAWS_AT_ONCE):
                at_once = min(DRAWS_AT_ONCE, draws - first)
                copies = at_once if shared and at_once <= batch_size else 1
                # A batch that is asked about once is normalised on the way, which a compiler does in one pass.
                constants = (mean, std) if at_once == copies else None
                asking = _Asking(model, at_once, copies, batch_size // copies, len(images), compiled, constants)
                # One tensor for all: a small one kept from every batch would keep the heap from being used again.
                answers = torch.zeros(asking.draws, 0)
                with torch.inference_mode():
                    for number, batch in enumerate(in_chunks(images, asking.rows)):
                        start = number * asking.rows
                        for draw, logits in enumerate(
                            asking(given(batch) if constants is None else batch.to(device))
                        ):
                            if start == draw == 0:
                                answers = torch.empty(asking.draws, len(images), *logits.shape[1:])
                            answers[draw, start : start + len(logits)] = logits
                for one in answers:
                    yield one.clone()  # outside of inference mode, so that it is like any other tensor
    finally:
        model.train(was_training)


@dataclass
class CompilingPays:
    """What is known about compiling: how long it takes, and what share of a batch's time it saves.

    A guess until it was done once in this process, a measurement from then on.
    """

    seconds: float = 15.0
    saves: float = 0.15

    def within(self, seconds: float) -> bool:
        """Whether to compile now wins back its time if the rest takes so many ``seconds`` as it is.

        >>> known = CompilingPays(seconds=15.0, saves=0.15)
        >>> known.within(60.0), known.within(120.0)
        (False, True)
        """
        return self.saves * seconds > self.seconds


_known = CompilingPays()


def _answers_in_copies(model: nn.Module, two: Tensor) -> bool:
    """Whether draws can be made in one call: a network may use again what it computed before its first junction."""
    if not draws_share_a_start(model):
        return False
    try:
        with torch.inference_mode(), copies_of_a_batch(model, len(two), copies=2):
            return len(model(two)) == 2 * len(two)
    except RuntimeError:  # of torch: what was copied met what was not
        return False


def _normalized(rows: Tensor, constants: tuple[Constants, Constants]) -> Tensor:
    return normalize(rows.to(memory_format=torch.channels_last), *constants)


def _ask(model: nn.Module, batch: Tensor, constants: tuple[Constants, Constants] | None) -> Tensor:
    logits: Tensor = model(batch if constants is None else _normalized(batch, constants))
    return logits


@cache
def _compiled() -> Callable[[nn.Module, Tensor, tuple[Constants, Constants] | None], Tensor]:
    # A function, since a module that has hooks is compiled in parts; of the model too, so that others like it are
    # served. For batches of one size: what meets two sizes is compiled again, slower, for any size.
    return torch.compile(_ask, dynamic=False)


class _Asking:
    """Asks a model several times about one batch after the other, and compiles it once that pays by their times.

    Draws in ``copies`` share what is computed before the noise; ``rows`` are so few that they take no more memory.
    With ``constants`` it is given bytes, which it normalises.
    """

    def __init__(
        self,
        model: nn.Module,
        draws: int,
        copies: int,
        rows: int,
        images: int,
        compiled: bool | None,
        constants: tuple[Constants, Constants] | None,
    ) -> None:
        self.model, self.draws, self.copies, self.rows = model, draws, copies, rows
        self.constants = constants
        self.left = -(-images // rows) * (draws // copies)
        self.fast = _compiled() if compiled else None
        # A GPU needs another compiler, and to look at the clock there is to wait for it.
        on_cpu = next(model.parameters()).device.type == "cpu"
        self.undecided = compiled is None and on_cpu and has_compiler()
        self.eager_seconds = 0.0
        self.times: list[float] = []

    def __call__(self, batch: Tensor) -> Iterator[Tensor]:
        """Yield the logits of a batch of at most ``rows`` images, once for each draw."""
        with copies_of_a_batch(self.model, len(batch), self.copies):
            for _ in range(self.draws // self.copies):
                yield from self._once(batch).chunk(self.copies)

    def _once(self, batch: Tensor) -> Tensor:
        whole = len(batch) == self.rows
        start = time.perf_counter()
        ask = self.fast if self.fast is not None and whole else _ask
        logits = ask(self.model, batch, self.constants).float().cpu()
        self.left -= 1
        if self.undecided and whole:
            self.times.append(time.perf_counter() - start)
            if len(self.times) == 3:
                self._decide(self.times[0], min(self.times[1:]))
                self.times = []
        return logits

    def _decide(self, first: float, seconds: float) -> None:
        """Draw the conclusion from the time of the ``first`` batch of a kind, which warms up, and of later ones."""
        if self.fast is None:
            self.eager_seconds = seconds
            self.undecided = _known.within(seconds * self.left)  # the rest only grows shorter
            self.fast = _compiled() if self.undecided else None
        else:
            _known.seconds, _known.saves = first, 1 - seconds / self.eager_seconds
            self.undecided = False
            if _known.saves <= 0:
                self.fast = None


def require_noise(model: nn.Module, images: Images, mean: Constants, std: Constants) -> None:
    """Measure on a few images that the noise of a perturbed model is there, before its answers are called noisy.

    Args:
        model: The model.
        images: uint8 images.
        mean: Of the normalisation.
        std: Of the normalisation.

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
