"""The worst case that a proof of DP-SGD allows: crafted initial weights, a crafted canary, many short trainings.

A proof of DP-SGD holds for every initial network and every other record, so an audit may choose them (Annamalai and
De Cristofaro, "Nearly Tight Black-Box Auditing of Differentially Private Machine Learning", 2024, arXiv:2405.14106).
The network starts where all other records are fitted, so that their gradients vanish; the canary is what this network
is most wrong about, so that its gradient is clipped at every step. Then half of many trainings get the canary, each
with noise of its own, and only the final answers are looked at: how much does each believe in the canary's label?

A few *pilot* trainings say whether the canary raises or lowers that belief, and serve nothing else. With full batches
the noisy sums compose to one Gaussian mechanism, so its curve is no assumption but what the proof is about; with
sampled batches the curve is another, and the bound has to do without.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.attacks.signals import label_confidence
from resperturb.bounds.audit_result import Verdict, verdict_of
from resperturb.bounds.rates import clopper_pearson, gdp
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import Scores, check_probability
from resperturb.engine.local import local
from resperturb.engine.task import Engine, Task
from resperturb.errors import ResperturbError, UsageError
from resperturb.sealed import write_array

Weights = Mapping[str, Tensor]
# What a trained model says: logits of images.
Answer = Callable[[Tensor], Tensor]
# A private training from initial weights on images and labels; whatever is random in it must be new at every call,
# and may follow from the number that it is given.
Trainer = Callable[[Weights, Tensor, Tensor, int], Answer]

# The loss of the other records at which their gradients have vanished.
_FITTED = 1e-4
_AT_ONCE = 10
_RESULT = "scores.npy"


@dataclass(frozen=True, eq=False)
class WorstCase:
    """What the trainings show, and what is claimed of them."""

    bound: LowerBound
    claimed: float
    scores_with: Scores
    scores_without: Scores

    @property
    def verdict(self) -> Verdict:
        """Compare the bound with the claim; a true claim is refuted with probability 1 - ``confidence`` at most."""
        return verdict_of(self.claimed, self.bound.epsilon)

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        bound = self.bound
        shown = f"epsilon is at least {bound.epsilon:.3g} at delta {bound.delta:g}, {self.claimed:.3g} is claimed"
        if self.verdict != "refuted":
            return f"not refuted: {shown}."
        return f"refuted: {shown}; a true claim is refuted in {1 - bound.confidence:.2g} of audits at most."


def worst_case_audit(
    train: Trainer,
    initial: Weights,
    images: Tensor,
    labels: Tensor,
    canary: tuple[Tensor, int],
    claimed: float,
    *,
    trials: int = 100,
    pilots: int = 5,
    delta: float = 1e-5,
    confidence: float = 0.95,
    curve: Literal["gaussian", "any"] = "gaussian",
    jobs: int | None = None,
    engine: Engine = local,
    on_done: Callable[[int, int], None] = lambda done, count: None,
) -> WorstCase:
    """Train many times with and without the canary, and bound epsilon by what the final models say about it.

    Args:
        train: The private training under audit; with more than one job it must be picklable.
        initial: The weights to start from, see :func:`crafted_weights`.
        images: The other records, as ``train`` takes them.
        canary: The image and the label that half of the trainings get, see :func:`crafted_canary`.
        claimed: The epsilon that is claimed for adding or removing one record, at ``delta``.
        trials: Trainings with the canary, and as many without, that the bound is computed from.
        pilots: Further ones of each kind that choose the direction of the score.
        curve: ``"gaussian"`` where every step uses all records; ``"any"`` for sampled batches.
        jobs: Trainings at a time.
        on_done: Called with the number of trainings that are done, and of all.

    Raises:
        ResperturbError: A training failed.
    """
    check_probability("delta", delta)
    check_probability("confidence", confidence)
    if trials < 1 or pilots < 1:
        raise UsageError(f"trials and pilots must be at least 1, not {trials} and {pilots}.")
    each = trials + pilots
    count, done = 2 * each, 0

    def tell(task: Task, error: ResperturbError | None) -> None:
        nonlocal done
        assert isinstance(task, _Trainings)
        done += len(task.numbers)
        on_done(done, count)
        if error is not None:
            raise error

    with tempfile.TemporaryDirectory() as scratch:
        tasks = [
            _Trainings(Path(scratch) / f"{numbers[0]}", train, dict(initial), images, labels, canary, numbers)
            for numbers in (range(start, min(start + _AT_ONCE, count)) for start in range(0, count, _AT_ONCE))
        ]
        engine(tasks, jobs, tell)
        scores = np.concatenate([np.load(task.folder / _RESULT, allow_pickle=False) for task in tasks])
    with_it, without = scores[::2], scores[1::2]
    sign = 1.0 if with_it[:pilots].mean() >= without[:pilots].mean() else -1.0
    members, nonmembers = sign * with_it[pilots:], sign * without[pilots:]
    bounded = gdp if curve == "gaussian" else clopper_pearson
    bound = bounded(members, nonmembers, delta=delta, confidence=confidence)
    return WorstCase(bound, claimed, members, nonmembers)


def crafted_weights(model: nn.Module, images: Tensor, labels: Tensor, steps: int = 500, lr: float = 1e-2) -> Weights:
    """Fit the network to all other records until their gradients vanish; this is no part of the private training.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <...>
    >>> points, sides = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    >>> weights = crafted_weights(nn.Linear(1, 2), points, sides, steps=2000, lr=0.1)
    >>> bool(F.cross_entropy(points @ weights["weight"].T + weights["bias"], sides) < 1e-3)
    True
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for _ in range(steps):
        loss = F.cross_entropy(model(images), labels)
        if float(loss.detach()) < _FITTED:
            break
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def crafted_canary(answer: Answer, images: Tensor, seed: int = 0) -> tuple[Tensor, int]:
    """Choose the image and the label that the initial network is most wrong about.

    The images are blank ones, random ones, and negatives of ``images``, the other records.
    """
    low, high = images.min(), images.max()
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand((20, *images.shape[1:]), generator=generator) < 0.5
    made = torch.cat(
        [
            torch.stack([torch.zeros_like(images[0]) + low, torch.zeros_like(images[0]) + high]),
            torch.where(chance, low, high),
            (low + high) - images[:20],
        ]
    )
    with torch.no_grad():
        log_p = answer(made).log_softmax(dim=1)
    place = int(log_p.argmin())
    return made[place // log_p.shape[1]], place % log_p.shape[1]


@dataclass(frozen=True, eq=False)
class _Trainings(Task):
    """Some of the trainings: even numbers have the canary, odd ones do not."""

    folder: Path
    train: Trainer
    initial: dict[str, Tensor]
    images: Tensor
    labels: Tensor
    canary: tuple[Tensor, int]
    numbers: range

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Train, and keep how much each model believes in the canary's label."""
        write_array(folder / _RESULT, np.array([self._score(number) for number in self.numbers]))

    def results(self) -> tuple[str, ...]:
        """The scores."""
        return (_RESULT,)

    def _score(self, number: int) -> float:
        (canary, label), images, labels = self.canary, self.images, self.labels
        if number % 2 == 0:
            images, labels = torch.cat([images, canary[None]]), torch.cat([labels, torch.tensor([label])])
        answer = self.train(self.initial, images, labels, number)
        with torch.no_grad():
            logits = answer(canary[None]).double()
        return float(label_confidence(logits.numpy(), np.array([label]))[0])
