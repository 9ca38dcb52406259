"""At which size the paper is repeated: a smoke test, what two cores can do, sixty epochs, and the paper's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from resperturb.errors import UsageError
from resperturb_reproduction.reproduce.declarations import Experiment, Size

Schedule = Literal["he", "quarter"]
STAND_IN = "fashion-sample"


@dataclass(frozen=True)
class Scale:
    """How one data set is trained on: at most ``limit`` training images before they are cut in quarters.

    DP-SGD has a batch size of its own: its noise is per batch, so small ones that only save time would ruin it.
    """

    spec: str
    epochs: int
    dpsgd_epochs: int
    limit: int | None = None
    batch_size: int = 128
    schedule: Schedule = "he"
    dpsgd_batch_size: int = 128


@dataclass(frozen=True)
class Preset:
    """A size for everything; of two results of one experiment that of the higher ``rank`` is shown.

    Attributes:
        table: The scale of each data set in tables; ``sweep`` and ``choice`` are for sweeps and choices of a setting.
        seeds: The number of trainings of a row of a table, each on its own quarters.
        shadows: The number of shadow models of an audit, which attacks the first seed.
        draws: The numbers of noise draws that the audit averages.
    """

    name: str
    rank: int
    about: str
    table: Mapping[str, Scale]
    sweep: Mapping[str, Scale]
    choice: Mapping[str, Scale]
    seeds: int
    shadows: int
    draws: tuple[int, ...]

    def scale(self, data: str, size: Size) -> Scale:
        """Say how a data set is trained on in tables, in sweeps, or to choose between settings."""
        scales: Mapping[str, Scale] = getattr(self, size)
        return scales[data]

    def seeds_of(self, experiment: Experiment) -> int:
        """Say how many trainings a row of an experiment is the mean of."""
        return self.seeds if experiment.size == "table" else 1


# He et al. train 64,000 steps and divide the rate at 50% and 75% of them; on a quarter of the images the paper does
# not say how many epochs that is. 200, with the same shares, is our reading and what EnResNet's code does.
_PAPER = {
    "mnist": Scale("mnist", 200, 100),
    "cifar10": Scale("cifar10", 200, 100),
    "cifar100": Scale("cifar100", 200, 100),
    "idc": Scale("idc", 100, 100, schedule="quarter"),
    "idc-random": Scale("idc-random", 100, 100, schedule="quarter"),
}
# Whole quarters and the paper's batches, so that only the epochs are missing.
_CHOICE = {name: replace(scale, epochs=30, dpsgd_epochs=30) for name, scale in _PAPER.items()}
_LONG = {name: replace(scale, epochs=60) for name, scale in _PAPER.items()}
_QUICK = dict.fromkeys(_PAPER, Scale(STAND_IN, 6, 6, limit=160, batch_size=20, dpsgd_batch_size=20))
# Half or a quarter of the paper's batches give that many more steps to memorise the images in. CIFAR100 and IDC have
# one scale each, so that their tables and sweeps share trainings.
_CPU_SWEEP = {
    "cifar10": Scale("cifar10", 20, 20, limit=10_000, batch_size=32),
    "cifar100": Scale("cifar100", 20, 20, limit=10_000, batch_size=32),
    "idc": Scale("idc", 40, 40, limit=3_400, batch_size=32, schedule="quarter"),
    "idc-random": Scale("idc-random", 40, 40, limit=3_400, batch_size=32, schedule="quarter"),
}
_CPU_TABLE = {
    **_CPU_SWEEP,
    "mnist": Scale("mnist", 6, 6, batch_size=64),
    "cifar10": Scale("cifar10", 15, 15, batch_size=64),
}
_ABOUT = {
    "quick": "a smoke test of minutes: 40 images of the built-in fashion sample stand in for every data set, so the "
    "numbers mean nothing",
    "cpu": "what two cores can do: few epochs, smaller batches, subsets for the sweeps, CIFAR100 and IDC",
    "long": "the paper's settings but for the epochs: 60 on whole quarters (DP-SGD: 100, as in the paper)",
    "paper": "the paper's settings as we read them: 200 epochs (IDC and DP-SGD: 100) on whole quarters",
}
PRESETS = {
    "quick": Preset("quick", 0, _ABOUT["quick"], _QUICK, _QUICK, _QUICK, seeds=2, shadows=4, draws=(1, 2)),
    "cpu": Preset("cpu", 1, _ABOUT["cpu"], _CPU_TABLE, _CPU_SWEEP, _CHOICE, seeds=3, shadows=4, draws=(1, 4)),
    "long": Preset("long", 2, _ABOUT["long"], _LONG, _LONG, _LONG, seeds=1, shadows=4, draws=(1, 4)),
    "paper": Preset("paper", 3, _ABOUT["paper"], _PAPER, _PAPER, _PAPER, seeds=3, shadows=16, draws=(1, 16)),
}


def preset_named(name: str, seeds: int | None = None, shadows: int | None = None) -> Preset:
    """Find a preset; ``seeds`` and ``shadows`` replace its own numbers.

    >>> preset_named("cpu").scale("cifar10", "table").epochs
    15
    >>> preset_named("huge")
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: there is no preset 'huge'; choose quick, cpu, long or paper.
    """
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}; choose quick, cpu, long or paper.")
    preset = PRESETS[name]
    if seeds is not None:
        preset = replace(preset, seeds=seeds)
    return preset if shadows is None else replace(preset, shadows=shadows)


def reduction(data: str, size: Size, preset: Preset) -> str:
    """Say in words how far a preset is from the paper's settings on a data set; nothing if it is not.

    >>> reduction("mnist", "table", PRESETS["cpu"])
    '6 epochs instead of 200 (DP-SGD: 6 instead of 100), batches of 64 instead of 128 (DP-SGD: 128)'
    >>> reduction("cifar10", "table", PRESETS["paper"])
    ''
    """
    scale, full = preset.scale(data, size), _PAPER[data]
    if scale.spec != full.spec:
        return f"{scale.spec} stands in for {full.spec}"
    parts = []
    tables = size == "table"  # which have rows of DP-SGD
    if scale.epochs != full.epochs:
        dpsgd = f" (DP-SGD: {scale.dpsgd_epochs} instead of {full.dpsgd_epochs})" if tables else ""
        parts.append(f"{scale.epochs} epochs instead of {full.epochs}{dpsgd}")
    if scale.batch_size != full.batch_size:
        dpsgd = f" (DP-SGD: {scale.dpsgd_batch_size})" if tables else ""
        parts.append(f"batches of {scale.batch_size} instead of {full.batch_size}{dpsgd}")
    if scale.limit is not None:
        parts.append(f"at most {scale.limit:,} training images before the cut in quarters")
    return ", ".join(parts)
