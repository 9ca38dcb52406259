"""The poisoning audit of Jagielski, Ullman and Oprea (2020), which the paper used.

Models are trained with and without copies of one record that is made to leave a trace, and epsilon is bounded by how
well the two kinds of model can be told apart. Each training gives one bit, but the bound rests on nothing except that
the trainings are independent. Two records of theirs:

- ``backdoor``: an ordinary image with a white square in its corner, and a wrong label;
- ``clipbkd``: an image of directions in which the data hardly varies, labelled as what it looks least like. No other
  record pulls the weights that way, so clipping gradients hardly weakens it. They take the one least direction; bytes
  cannot hold an image of the usual size along it, so ours is a pattern within the least quarter of directions.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from resperturb.bounds import LowerBound, clopper_pearson
from resperturb.data import ImageSet
from resperturb.engine import Engine, local_engine
from resperturb.errors import UsageError
from resperturb.perturbation import noise_off
from resperturb.privacy import Guarantee
from resperturb.sealed import write_bound_json
from resperturb.training import DataConfig, Run, TrainConfig, load_inputs, predict, train_many

Kind = Literal["backdoor", "clipbkd"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MIDDLE = 127.5
# Of larger images the middle is used: finding a direction takes the cube of the number of pixels.
LARGEST_PATCH = 32
MOST_IMAGES = 5000
LEAST_SHARE = 0.25


@dataclass(frozen=True)
class PoisonSettings:
    """Which poison, in how many ``copies``; ``trials`` models are trained with it and as many without."""

    kind: Kind = "clipbkd"
    copies: int = 1
    trials: int = 20
    delta: float = 1e-5
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"the poison is {' or '.join(KINDS)}, not {self.kind!r}.")
        if self.copies < 1 or self.trials < 1:
            raise UsageError(f"copies and trials must be at least 1, not {self.copies} and {self.trials}.")


@dataclass(frozen=True)
class PoisonAudit:
    """What models trained with and without the poison show, and what is proven.

    Attributes:
        hash: The digest of the run's configuration.
        noticed_with: How many of the models with the poison give its label more than half of the probability.
        scores_with: The log-odds of the poison's label under each model with the poison.
        most_that_could_be_shown: The epsilon that a perfect attack would show with this many trials.
        guarantee: What is proven, if that is about records that are added.
    """

    run: str
    hash: str
    poison: Kind
    copies: int
    trials: int
    noticed_with: int
    noticed_without: int
    scores_with: tuple[float, ...]
    scores_without: tuple[float, ...]
    epsilon_lower: LowerBound
    most_that_could_be_shown: float
    guarantee: Guarantee | None


def poison_audit(
    target: Run,
    settings: PoisonSettings = PoisonSettings(),  # noqa: B008 - it is frozen
    on_done: Callable[[int, int], None] = lambda done, count: None,
    jobs: int | None = None,
    engine: Engine = local_engine,
) -> PoisonAudit:
    """Train the models that are missing, look for the poison in each, and bound epsilon.

    The models and their two data sets are kept in a folder next to the run and used again. The result is written to
    ``poison.json`` in the run.
    """
    target.result  # noqa: B018 - unfinished runs are refused here
    folder = target.path.parent / f".poison-{target.config.digest}"
    poison, configs = poison_configs(target.config, settings, folder)
    on_done(0, len(configs))
    done = itertools.count(1)
    runs = train_many(configs, folder, jobs, lambda run: on_done(next(done), len(configs)), engine=engine)
    scores = np.array([poison_score(run, poison) for run in runs])
    poisoned, clean = scores[::2], scores[1::2]
    # The data sets differ by records that were added, which only the guarantee of DP-SGD is about.
    proven = target.guarantee(settings.delta)
    found = PoisonAudit(
        run=str(target.path),
        hash=target.config.digest,
        poison=settings.kind,
        copies=settings.copies,
        trials=settings.trials,
        noticed_with=int((poisoned > 0).sum()),
        noticed_without=int((clean > 0).sum()),
        scores_with=tuple(poisoned.tolist()),
        scores_without=tuple(clean.tolist()),
        epsilon_lower=_bound(poisoned, clean, settings),
        most_that_could_be_shown=most(settings),
        guarantee=proven if proven.neighbours == "add_remove" and proven.claimed_epsilon < math.inf else None,
    )
    write_bound_json(target.path / "poison.json", found, target.digests)
    return found


def poison_configs(target: TrainConfig, settings: PoisonSettings, folder: Path) -> tuple[ImageSet, list[TrainConfig]]:
    """Write the images with and without the poison to ``folder``; return the poison and how the models are trained.

    Every other model has the poison, and each has a seed of its own. Canaries are left out of all.
    """
    inputs = load_inputs(target.data.model_copy(update={"canaries": None}))
    members = inputs.train.select(inputs.member_indices)
    poison = make_poison(members, settings.kind)
    folder.mkdir(parents=True, exist_ok=True)
    data = []
    for copies in (settings.copies, 0):
        path = folder / f"{settings.kind}-{copies}.npz"
        added, labels = poison.images[:].expand(copies, -1, -1, -1), poison.labels.expand(copies)
        if not path.exists():
            np.savez(
                path,
                x_train=torch.cat([members.images[:], added]).numpy(),
                y_train=torch.cat([members.labels, labels]).numpy(),
                x_test=inputs.test.images[:].numpy(),
                y_test=inputs.test.labels.numpy(),
            )
        data.append(DataConfig(spec=str(path.resolve())))
    return poison, [
        target.model_copy(update={"data": data[number % 2], "seed": target.seed + 1 + number})
        for number in range(2 * settings.trials)
    ]


def poison_score(run: Run, poison: ImageSet) -> float:
    """Return the log-odds of the poison's label under a model, its noise off."""
    model = run.load_model()
    with noise_off(model):
        logits = predict(model, poison.images, mean=run.config.mean, std=run.config.std)[0].double()
    label = int(poison.labels[0])
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return float(logits[label] - others.logsumexp(0))


def most(settings: PoisonSettings) -> float:
    """Return the epsilon that a perfect attack would show with this many trials: no result can be larger.

    >>> round(most(PoisonSettings(trials=20)), 2), round(most(PoisonSettings(trials=20, copies=4)), 2)
    (2.0, 0.5)
    """
    ones = np.ones(settings.trials)
    return _bound(ones, -ones, settings).epsilon


def _bound(poisoned: np.ndarray, clean: np.ndarray, settings: PoisonSettings) -> LowerBound:
    return jagielski(poisoned, clean, copies=settings.copies, delta=settings.delta, confidence=settings.confidence)


def jagielski(
    poisoned: np.ndarray, clean: np.ndarray, *, copies: int, delta: float = 1e-5, confidence: float = 0.95
) -> LowerBound:
    """Bound epsilon by models whose data differ in ``copies`` records (Jagielski, Ullman and Oprea, 2020).

    By group privacy an (e, d)-DP training is ``(k e, d (exp(k e) - 1)/(exp(e) - 1))``-DP for k records. The bound is
    the largest e for which :func:`~resperturb.bounds.clopper_pearson` refutes that.

    Args:
        poisoned: One score per model trained with the poison.
        clean: One score per model trained without.
        copies: The number of poisoned records in which the data sets differ.
        delta: Delta of the lower bound.
        confidence: Confidence of the lower bound.

    >>> models = np.linspace(-1, 1, 500)
    >>> one = jagielski(models + 1.5, models, copies=1)
    >>> eight = jagielski(models + 1.5, models, copies=8)
    >>> round(one.epsilon, 2), round(eight.epsilon, 2)
    (4.17, 0.52)
    """

    def bound(grown: float) -> LowerBound:
        return clopper_pearson(poisoned, clean, delta=grown, confidence=confidence)

    found = bound(delta)
    low, high = 0.0, found.epsilon / copies
    if copies > 1 and delta > 0:  # the delta grows with epsilon, and the bound falls with the delta
        for _ in range(20):
            middle = (low + high) / 2
            grown = delta * float(np.exp(middle * np.arange(copies)).sum())
            low, high = (middle, high) if grown < 1 and bound(grown).epsilon > copies * middle else (low, middle)
        high = low
    assumptions = (
        "Each score comes from a model trained anew, independently of all others.",
        f"The two data sets differ in exactly {copies} poisoned record{'s' if copies > 1 else ''}, fixed in advance.",
    )
    return replace(found, epsilon=high, delta=delta, method="jagielski", assumptions=assumptions)


def make_poison(images: ImageSet, kind: Kind) -> ImageSet:
    """Make the poisoned record for models that are trained on ``images``; the same images give the same record.

    >>> from resperturb.data import load_pair
    >>> poison = make_poison(load_pair("fashion-sample", limit=100)[0], "clipbkd")
    >>> poison.images.shape, poison.name
    (torch.Size([1, 1, 28, 28]), 'clipbkd poison')
    """
    pixels, label = _backdoor(images) if kind == "backdoor" else _clipbkd(images)
    return ImageSet(pixels[None], torch.tensor([label]), images.classes, None, f"{kind} poison")


def _backdoor(images: ImageSet) -> tuple[Tensor, int]:
    pixels = images.images[torch.tensor([0])][0].clone()
    side = max(2, min(images.size) // 6)
    pixels[:, -side:, -side:] = 255
    return pixels, (int(images.labels[0]) + 1) % images.num_classes


def _clipbkd(images: ImageSet) -> tuple[Tensor, int]:
    height, width = (min(side, LARGEST_PATCH) for side in images.size)
    top, left = (images.size[0] - height) // 2, (images.size[1] - width) // 2
    chosen = torch.linspace(0, len(images) - 1, min(len(images), MOST_IMAGES)).long()
    patches = images.images[chosen][:, :, top : top + height, left : left + width]
    rows = patches.flatten(1).to(torch.float64) - MIDDLE
    directions = torch.linalg.eigh(rows.T @ rows).eigenvectors
    least = directions[:, : max(1, int(LEAST_SHARE * len(directions)))]
    signs = torch.from_numpy(np.random.default_rng(0).choice([-1.0, 1.0], len(directions)))
    pattern = least @ (least.T @ signs)
    pattern *= rows.norm(dim=1).mean() / pattern.norm()
    patch = (MIDDLE + pattern).clamp(0, 255).round().to(torch.uint8).view(patches.shape[1:])
    pixels = torch.full((images.channels, *images.size), round(MIDDLE), dtype=torch.uint8)
    pixels[:, top : top + height, left : left + width] = patch
    look = rows @ (patch.flatten().to(torch.float64) - MIDDLE)
    labels = images.labels[chosen]
    present = sorted(set(labels.tolist()))
    return pixels, int(min(present, key=lambda c: float(look[labels == c].mean())))
