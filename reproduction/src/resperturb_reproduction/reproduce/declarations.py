"""What the paper shows, one small object for each table and figure, read from ``experiments.yaml``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

from resperturb.errors import UsageError
from resperturb.files import parse_yaml

ExperimentKind = Literal["table", "sweep", "ensemble", "roc", "generalisation", "curve", "computed", "budgets"]
Size = Literal["table", "sweep", "choice"]
AttackName = Literal["paper", "adaptive", "audit"]
Metric = Literal["auc", "train_accuracy", "test_accuracy", "gap"]
Topic = Literal["lower AUC", "AUC below DP-SGD", "beats DP-SGD", "beats non-private", "narrower gap"]
TOPICS: tuple[Topic, ...] = ("lower AUC", "AUC below DP-SGD", "beats DP-SGD", "beats non-private", "narrower gap")
Value = bool | int | float | str
Override = tuple[str, Value]

DATA_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "idc": "IDC"}
# The training images that the paper's IDC split has; fewer are a subset.
PAPER_IDC_TRAINING_IMAGES = 10_788 + 29_164
BFLOAT16 = "bfloat16"  # in the name of a row that is trained in 32 bits too


@dataclass(frozen=True)
class Variant:
    """A network and how it is trained; ``changes`` are settings of the training that differ from the paper's.

    >>> Variant(networks=5, strategy="additive", gamma=0.75).name
    'En5 ResNet8, gamma 0.75'
    >>> Variant().name, Variant(dpsgd=True).name
    ('ResNet8, non-private', 'ResNet8, DP-SGD')
    >>> Variant(strategy="additive", gamma=1.5, label="no input noise").key
    'gamma-1.5-no-input-noise'
    """

    networks: int = 1
    strategy: Literal["none", "additive", "multiplicative"] = "none"
    gamma: float = 0.0
    skip: bool = True
    dpsgd: bool = False
    noise: tuple[Override, ...] = ()
    changes: tuple[Override, ...] = ()
    label: str = ""
    network: str = "resnet8"

    @property
    def name(self) -> str:
        """What the row is called."""
        if self.dpsgd:
            return "ResNet8, DP-SGD"
        if self.strategy == "none":
            base = "ResNet8, non-private"
        else:
            base = f"En{self.networks} ResNet8, gamma {self.gamma:.4g}"
        return base + ("" if self.skip else ", no skips") + (f", {self.label}" if self.label else "")

    @property
    def key(self) -> str:
        """What the row is called on the command line."""
        ensemble = f"En{self.networks} " if self.networks > 1 else ""
        return re.sub(r"[^a-z0-9.]+", "-", (ensemble + self.name.split(", ", 1)[1]).lower())

    @property
    def model(self) -> str:
        """The network by the name it is built by."""
        return self.network if self.networks == 1 else f"en{self.networks}-{self.network}"


@dataclass(frozen=True)
class Printed:
    """What the paper printed of a row; None where its text does not say."""

    auc: float | None = None
    train_accuracy: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True)
class Cell:
    """One trained model of an experiment: on which data, which network, and what the paper printed of it."""

    data: str
    variant: Variant
    paper: Printed | None = None

    @property
    def name(self) -> str:
        """What the row is called."""
        return self.variant.name

    @property
    def key(self) -> str:
        """What the row is called on the command line."""
        return self.variant.key


@dataclass(frozen=True)
class Claim:
    """A comparison that the paper makes in words: ``metric`` of ``lower`` is below that of ``higher``.

    ``topic`` is its row of the matrix on top of the page, if it has one.
    """

    text: str
    metric: Metric
    lower: Cell
    higher: Cell
    topic: Topic | None = None


PLAIN = Variant()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or something that stands beside them.

    ``size`` is the one of a preset's three sizes that it is trained at; ``attacks`` are made on each of its models:
    the paper's, the same by somebody who knows of the noise, the audit with its many. ``answers`` asks for the
    accuracy with the noise averaged over draws and switched off too. ``standard`` is the network that the paper's
    attacker trains. ``needs`` names data sets that are looked at without training on them.
    """

    id: str
    title: str
    place: str
    kind: ExperimentKind
    size: Size = "sweep"
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    attacks: tuple[AttackName, ...] = ("paper",)
    answers: bool = False
    standard: Variant = PLAIN
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that it needs."""
        return tuple(dict.fromkeys([*(cell.data for cell in self.cells), *self.needs]))


@dataclass(frozen=True)
class PrintedBudget:
    """What the paper's remark says of one training: its epsilon, and the epsilon that an attack showed."""

    data: str
    variant: Variant
    epsilon: float
    lower: float


class _Row(BaseModel):
    """A row as it is written in the file."""

    model_config = ConfigDict(extra="forbid")

    data: str = ""
    additive: float = 0.0
    multiplicative: float = 0.0
    networks: int = 1
    skip: bool = True
    dpsgd: bool = False
    pi: float | None = None
    noise: dict[str, Value] = {}
    changes: dict[str, Value] = {}
    label: str = ""
    network: str = ""
    paper: str | tuple[float | None, float | None, float | None] | None = None
    epsilon: float = 0.0
    lower: float = 0.0

    def cell(self, data: str, published: dict[str, Printed], changes: dict[str, Value]) -> Cell:
        """Make the object; ``changes`` are those of all rows of a list."""
        noise = {} if self.pi is None else {"input_std": self.pi}
        network = f"resperturb_reproduction.networks:{self.network}_resnet8" if self.network else "resnet8"
        variant = Variant(
            networks=self.networks,
            strategy="additive" if self.additive else "multiplicative" if self.multiplicative else "none",
            gamma=self.additive or self.multiplicative,
            skip=self.skip,
            dpsgd=self.dpsgd,
            noise=tuple({**noise, **self.noise}.items()),
            changes=tuple({**changes, **self.changes}.items()),
            label=self.label,
            network=network,
        )
        paper = published[self.paper] if isinstance(self.paper, str) else self.paper and Printed(*self.paper)
        return Cell(self.data or data, variant, paper)


class _Experiment(BaseModel):
    """An experiment as it is written in the file.

    ``rows_of`` are experiments whose rows it has too, ``changes`` are those of all of its own rows.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    title: str
    place: str
    kind: ExperimentKind
    size: Size = "sweep"
    data: str = ""
    rows: tuple[_Row, ...] = ()
    changes: dict[str, Value] = {}
    rows_of: tuple[str, ...] = ()
    claims: tuple[tuple[str, Metric, int, int] | tuple[str, Metric, int, int, Topic], ...] = ()
    attacks: tuple[AttackName, ...] = ("paper",)
    answers: bool = False
    standard: _Row = _Row()
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    published: dict[str, tuple[float, float, float]]
    budgets: tuple[_Row, ...]
    experiments: tuple[_Experiment, ...]


def _experiment(written: _Experiment, published: dict[str, Printed], known: dict[str, "Experiment"]) -> "Experiment":
    cells = (
        *(cell for name in written.rows_of for cell in known[name].cells),
        *(row.cell(written.data, published, written.changes) for row in written.rows),
    )
    claims = (
        Claim(text, metric, cells[lower], cells[higher], topic[0] if topic else None)
        for text, metric, lower, higher, *topic in written.claims
    )
    return Experiment(
        id=written.id,
        title=written.title,
        place=written.place,
        kind=written.kind,
        size=written.size,
        cells=cells,
        claims=tuple(claims),
        attacks=written.attacks,
        answers=written.answers,
        standard=written.standard.cell("", published, {}).variant,
        needs=written.needs,
        notes=written.notes,
    )


_TEXT = (files("resperturb_reproduction.reproduce") / "experiments.yaml").read_text()
_FILE = _File.model_validate(parse_yaml(_TEXT, "experiments.yaml"))
_PUBLISHED = {name: Printed(*values) for name, values in _FILE.published.items()}
BY_ID: dict[str, Experiment] = {}
for _written in _FILE.experiments:
    BY_ID[_written.id] = _experiment(_written, _PUBLISHED, BY_ID)
EXPERIMENTS = tuple(BY_ID.values())

TABLE_ATTACKS: tuple[AttackName, ...] = ("paper", "adaptive", "audit")
DPSGD = Variant(dpsgd=True)
WEIGHT_DECAY = BY_ID["weight-decay"]
READINGS = BY_ID["readings"].cells
# Budgets that the remark of Sec. IV-F prints, and the lower bounds it measured; G = R = 30, delta = 1e-5.
BUDGET_RADIUS = 30.0
BUDGET_DELTA = 1e-5
BUDGETS = tuple(
    PrintedBudget(row.data, row.cell("", _PUBLISHED, {}).variant, row.epsilon, row.lower) for row in _FILE.budgets
)


def chosen(ids: Sequence[str], rows: Sequence[str] = (), data: Sequence[str] = ()) -> list[Experiment]:
    """Find experiments by their IDs, in the order in which they are best run; ``all`` is all of them.

    With ``rows`` they are cut down to these rows, with ``data`` to the rows of these data sets.

    >>> [experiment.id for experiment in chosen(["budgets", "mnist-table"])]
    ['mnist-table', 'budgets']
    >>> [cell.name for cell in chosen(["cifar10-table"], ["non-private", "gamma-4.5"])[0].cells]
    ['ResNet8, non-private', 'En1 ResNet8, gamma 4.5']
    >>> chosen(["mnist-tabel"])
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: there is no experiment 'mnist-tabel'; did you mean mnist-table? ...
    """
    from difflib import get_close_matches

    for name in ids:
        if name not in BY_ID and name != "all":
            near = get_close_matches(name, BY_ID, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no experiment {name!r}; {hint}`resperturb reproduce list` shows them all.")
    found = [experiment for experiment in EXPERIMENTS if experiment.id in ids or "all" in ids]
    for what, kind, wanted in (("key", "row", rows), ("data", "data set", data)):
        known = list(dict.fromkeys(getattr(cell, what) for experiment in found for cell in experiment.cells))
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"there is no {kind} {name!r} in {', '.join(ids)}; its {kind}s are {', '.join(known)}."
                )
        if wanted:
            cut = [replace(e, cells=tuple(c for c in e.cells if getattr(c, what) in wanted)) for e in found]
            found = [experiment for experiment in cut if experiment.cells]
    return found


def with_attacks(experiments: Sequence[Experiment], attacks: Sequence[str]) -> list[Experiment]:
    """Leave out the attacks that are not asked for; without any asked for, none.

    >>> with_attacks([BY_ID["cifar10-table"]], ["paper"])[0].attacks
    ('paper',)
    """
    for name in attacks:
        if name not in TABLE_ATTACKS:
            raise UsageError(f"there is no attack {name!r}; choose {', '.join(TABLE_ATTACKS)}.")
    if not attacks:
        return list(experiments)
    return [replace(e, attacks=tuple(name for name in e.attacks if name in attacks)) for e in experiments]
