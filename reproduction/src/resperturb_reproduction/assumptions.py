"""What Theorem 1 assumes, measured on a trained network.

The theorem wants every input within a radius R, and the output of every residual sum, over the draws of the noise,
normally distributed with a mean of norm at most G. Here are the radius of the images, the norm of the mean output of
each junction, and how far from normal the outputs are.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.data import in_chunks
from resperturb.errors import UsageError
from resperturb.perturbation import JunctionNoise, junctions, strategy_of
from resperturb.training import Run, load_inputs, normalize, predict

SIGNIFICANCE = 0.05
COORDINATES = 200


@dataclass(frozen=True)
class Outputs:
    """The output of one junction over records and noise draws.

    ``rejected`` is the share of output coordinates whose draws D'Agostino and Pearson's test calls not normal at the
    5% level; if all were normal it would be about 0.05.
    """

    junction: str
    mean_norm_largest: float
    mean_norm_median: float
    rejected: float


@dataclass(frozen=True)
class MeasuredAssumptions:
    """What was measured, on how much."""

    radius_largest: float
    radius_median: float
    images: int
    records: int
    draws: int
    outputs: tuple[Outputs, ...]

    @property
    def bound(self) -> float:
        """The largest norm of a mean output that was seen: no smaller G is true."""
        return max(output.mean_norm_largest for output in self.outputs)

    @property
    def normal(self) -> bool:
        """Whether no junction's outputs were told from normal ones by much more than chance."""
        return all(output.rejected <= 2 * SIGNIFICANCE for output in self.outputs)


def measure_assumptions(run: Run, *, records: int = 64, draws: int = 100, seed: int = 0) -> MeasuredAssumptions:
    """Measure a perturbed run: the radius over all of its training images, the rest on some of them."""
    model = run.load_model()
    if strategy_of(model) is None:
        raise UsageError(f"{run.path} is not perturbed, so Theorem 1 has nothing to say about it.")
    images = load_inputs(run.config.data).members().images
    norms = torch.cat(
        [normalize(batch, run.config.mean, run.config.std).flatten(1).norm(dim=1) for batch in in_chunks(images, 100)]
    )
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:records]
    recorders = _record(model, seed)
    for draw in range(draws):
        predict(model, images[chosen], mean=run.config.mean, std=run.config.std, seed=seed + draw, batch_size=records)
    return MeasuredAssumptions(
        radius_largest=float(norms.max()),
        radius_median=float(norms.median()),
        images=len(images),
        records=len(chosen),
        draws=draws,
        outputs=tuple(recorder.outputs(name) for name, recorder in recorders),
    )


def _record(model: nn.Module, seed: int) -> "list[tuple[str, _Recorder]]":
    recorders = []
    for number, junction in enumerate(junctions(model)):
        noise = junction.noise
        if noise is not None:
            recorder = _Recorder(noise, seed + number)
            junction.set_noise(recorder)
            recorders.append((junction.name, recorder))
    return recorders


class _Recorder:
    """Stands at a junction, notes the sums before their noise, and passes them on."""

    def __init__(self, noise: JunctionNoise, seed: int) -> None:
        self.noise = noise
        self.generator = torch.Generator().manual_seed(seed)
        self.total: Tensor | None = None
        self.places: Tensor | None = None
        self.samples: list[Tensor] = []

    def __call__(self, left: Tensor, right: Tensor | None, shortcut: Tensor | None, training: bool) -> Tensor:
        flat = (left if right is None else left + right).flatten(1).float()
        if self.total is None or self.places is None:
            self.total = torch.zeros_like(flat)
            self.places = torch.randint(0, flat.numel(), (COORDINATES,), generator=self.generator)
        self.total += flat
        self.samples.append(flat.flatten()[self.places])
        return self.noise(left, right, shortcut, training)

    def outputs(self, name: str) -> Outputs:
        from scipy import stats

        assert self.total is not None
        norms = (self.total / len(self.samples)).norm(dim=1)
        samples = torch.stack(self.samples).double().numpy()
        varying = samples[:, samples.std(axis=0) > 0]
        pvalues = stats.normaltest(varying, axis=0).pvalue if varying.shape[1] else np.ones(1)
        return Outputs(name, float(norms.max()), float(norms.median()), float(np.mean(pvalues < SIGNIFICANCE)))
