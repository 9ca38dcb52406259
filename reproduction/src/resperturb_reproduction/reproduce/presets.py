"""At which size the paper is repeated: a smoke test, what two cores can do, sixty epochs, and the paper's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from resperturb.errors import UsageError
from resperturb_reproduction.reproduce.declarations import Cell, Experiment, Size

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
    """A size for everything; ``rank`` says which of two results of the same experiment is the better one.

    ``seeds`` is how many trainings a row of a table is the mean of (each has its own quarters), ``costly_seeds`` the
    same for DP-SGD and for ensembles. The audit attacks the first of them with ``shadows`` shadow models
    (``dpsgd_shadows`` for DP-SGD, 0 for the attacks that need none), and one of more than ``audit_networks`` networks
    not at all.
    """

    name: str
    rank: int
    about: str
    table: Mapping[str, Scale]
    sweep: Mapping[str, Scale]
    choice: Mapping[str, Scale]
    seeds: int
    costly_seeds: int
    shadows: int
    draws: tuple[int, ...]
    audit_networks: int = 99
    dpsgd_shadows: int | None = None

    def scale(self, data: str, size: Size) -> Scale:
        """How a data set is trained on in tables, in sweeps, or to choose between settings."""
        return {"table": self.table, "sweep": self.sweep, "choice": self.choice}[size][data]

    def shadows_of(self, dpsgd: bool) -> int:
        """How many shadow models an audit trains."""
        return self.shadows if self.dpsgd_shadows is None or not dpsgd else self.dpsgd_shadows

    def seeds_of(self, experiment: Experiment, cell: Cell) -> int:
        """How many trainings a row is the mean of."""
        if experiment.size != "table":
            return 1
        return self.costly_seeds if cell.variant.dpsgd or cell.variant.networks > 1 else self.seeds


def _everywhere(scale: Scale) -> dict[str, Scale]:
    return dict.fromkeys(("mnist", "cifar10", "cifar100", "idc"), scale)


# He et al. train 64,000 steps and divide the rate at 50% and 75% of them; on a quarter of the images the paper does
# not say how many epochs that is. 200, with the same shares, is our reading and what EnResNet's code does.
_PAPER = {
    "mnist": Scale("mnist", 200, 100),
    "cifar10": Scale("cifar10", 200, 100),
    "cifar100": Scale("cifar100", 200, 100),
    "idc": Scale("idc", 100, 100, schedule="quarter"),
}
_CIFAR100_ON_TWO_CORES = Scale("cifar100", 20, 20, limit=10_000, batch_size=32)
_IDC_ON_TWO_CORES = Scale("idc", 40, 40, limit=3_400, batch_size=32, schedule="quarter")

# Whole quarters and the paper's batches, so that only the epochs are missing.
_CHOICE = {name: replace(scale, epochs=30, dpsgd_epochs=30) for name, scale in _PAPER.items()}
_LONG = {name: replace(scale, epochs=60) for name, scale in _PAPER.items()}

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="quick",
            rank=0,
            about="a smoke test of minutes: 40 images of the built-in fashion sample stand in for every data set, "
            "so the numbers mean nothing",
            table=_everywhere(Scale(STAND_IN, 6, 6, limit=160, batch_size=20, dpsgd_batch_size=20)),
            sweep=_everywhere(Scale(STAND_IN, 6, 6, limit=160, batch_size=20, dpsgd_batch_size=20)),
            choice=_everywhere(Scale(STAND_IN, 6, 6, limit=160, batch_size=20, dpsgd_batch_size=20)),
            seeds=2,
            costly_seeds=1,
            shadows=4,
            draws=(1, 2),
            audit_networks=1,
        ),
        Preset(
            name="cpu",
            rank=1,
            about="what two cores can do: few epochs, smaller batches, subsets for the sweeps, CIFAR100 and IDC",
            # Half or a quarter of the paper's batches: so many more steps to memorise the images in, which is what
            # the paper's long trainings do and the first thing that too few epochs lose. CIFAR100 and IDC have
            # one scale each, so that their tables and sweeps share trainings.
            table={
                "mnist": Scale("mnist", 6, 6, batch_size=64),
                "cifar10": Scale("cifar10", 15, 15, batch_size=64),
                "cifar100": _CIFAR100_ON_TWO_CORES,
                "idc": _IDC_ON_TWO_CORES,
            },
            sweep={
                "cifar10": Scale("cifar10", 20, 20, limit=10_000, batch_size=32),
                "cifar100": _CIFAR100_ON_TWO_CORES,
                "idc": _IDC_ON_TWO_CORES,
            },
            choice=_CHOICE,
            seeds=3,
            costly_seeds=1,
            shadows=4,
            draws=(1, 4),
            audit_networks=1,
            dpsgd_shadows=0,
        ),
        Preset(
            name="long",
            rank=2,
            about="the paper's settings but for the epochs: 60 on whole quarters (DP-SGD: 100, as in the paper)",
            table=_LONG,
            sweep=_LONG,
            choice=_LONG,
            seeds=1,
            costly_seeds=1,
            shadows=4,
            draws=(1, 4),
            audit_networks=1,
            dpsgd_shadows=0,
        ),
        Preset(
            name="paper",
            rank=3,
            about="the paper's settings as we read them: 200 epochs (IDC and DP-SGD: 100) on whole quarters",
            table=_PAPER,
            sweep=_PAPER,
            choice=_PAPER,
            seeds=3,
            costly_seeds=3,
            shadows=16,
            draws=(1, 16),
        ),
    )
}


def preset_named(name: str, seeds: int | None = None, shadows: int | None = None) -> Preset:
    """Find a preset; ``seeds`` trainings of every table row and ``shadows`` of an audit replace its own numbers.

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
        preset = replace(preset, seeds=seeds, costly_seeds=seeds)
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
