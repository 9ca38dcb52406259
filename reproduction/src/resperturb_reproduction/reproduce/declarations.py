"""What the paper shows, one small object for each table and figure, read from ``experiments.yaml``."""

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from resperturb.errors import UsageError
from resperturb.files import parse_yaml

ExperimentKind = Literal["table", "sweep", "ensemble", "roc", "generalisation", "curve", "computed"]
Size = Literal["table", "sweep", "choice"]
AttackName = Literal["paper", "adaptive", "audit"]
PageName = Literal["table", "sweeps", "open-row", "settings"]
Metric = Literal["auc", "train_accuracy", "test_accuracy", "gap"]
Topic = Literal["lower AUC", "AUC below DP-SGD", "beats DP-SGD", "beats non-private", "narrower gap"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
Value = bool | int | float | str
# Settings that differ from the paper's: a mapping in the file, pairs here.
Overrides = Annotated[tuple[tuple[str, Value], ...], BeforeValidator(lambda given: tuple(dict(given).items()))]

DATA_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "idc": "IDC"}
DATA_TITLES["idc-random"] = "IDC cut at random"  # patches of one patient are on both sides
# The training images that the paper's IDC split has; fewer are a subset.
PAPER_IDC_TRAINING_IMAGES = 10_788 + 29_164
BFLOAT16 = "bfloat16"  # in the name of a row that is trained in 32 bits too
STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=STRICT)
class Printed:
    """The published numbers of a row; None where the paper's text does not say."""

    auc: float | None = None
    train_accuracy: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True, config=STRICT)
class Cell:
    """One trained model of an experiment: its data, its network, and what the paper published of it.

    Attributes:
        additive: Gamma of additive noise; likewise ``multiplicative``.
        networks: The number of networks of the ensemble.
        pi: The standard deviation of the input noise; None for half of gamma.
        changes: Settings of the training that differ from the paper's; ``label`` is their name in the row's.
        network: A variant of ResNet8 in ``resperturb_reproduction.networks``.

    >>> Cell("cifar10", networks=5, additive=0.75).name
    'En5 ResNet8, gamma 0.75'
    >>> Cell("cifar10").name, Cell("cifar10", dpsgd=True).name
    ('ResNet8, non-private', 'ResNet8, DP-SGD')
    >>> Cell("cifar10", additive=1.5, label="no input noise").key
    'gamma-1.5-no-input-noise'
    """

    data: str
    additive: float = 0.0
    multiplicative: float = 0.0
    networks: int = 1
    skip: bool = True
    dpsgd: bool = False
    pi: float | None = None
    noise: Overrides = ()
    changes: Overrides = ()
    label: str = ""
    network: str = ""
    paper: Annotated[Printed | None, BeforeValidator(lambda v: Printed(*v) if isinstance(v, list) else v)] = None

    @property
    def gamma(self) -> float:
        """The noise coefficient; 0 without noise."""
        return self.additive or self.multiplicative

    @property
    def strategy(self) -> str:
        """How the row is trained: by which noise, without noise, or by DP-SGD."""
        named = {"dpsgd": self.dpsgd, "additive": self.additive, "multiplicative": self.multiplicative}
        return next((name for name, given in named.items() if given), "none")

    @property
    def name(self) -> str:
        """What the row is called."""
        base = f"En{self.networks} ResNet8, gamma {self.gamma:.4g}" if self.gamma else "ResNet8, non-private"
        base = "ResNet8, DP-SGD" if self.dpsgd else base
        return base + ("" if self.skip else ", no skips") + (f", {self.label}" if self.label else "")

    @property
    def key(self) -> str:
        """What the row is called on the command line."""
        ensemble = f"En{self.networks} " if self.networks > 1 else ""
        return re.sub(r"[^a-z0-9.]+", "-", (ensemble + self.name.split(", ", 1)[1]).lower())

    @property
    def model(self) -> str:
        """The network by the name it is built by."""
        if self.network:
            return f"resperturb_reproduction.networks:{self.network}_resnet8"
        return "resnet8" if self.networks == 1 else f"en{self.networks}-resnet8"


@dataclass(frozen=True, config=STRICT)
class Claim:
    """A comparison that the paper makes in words: ``metric`` of ``lower`` is below that of ``higher``.

    ``topic`` is its row of the summary's matrix of claims, if it has one.
    """

    text: str
    metric: Metric
    lower: Cell
    higher: Cell
    topic: Topic | None = None


@dataclass(frozen=True, config=STRICT)
class Experiment:
    """A table or figure of the paper, or something that is compared with them.

    Attributes:
        size: Which of a preset's three scales its rows have.
        page: The page that shows it; ``settings`` are a part of that of the open row.
        answers: Whether accuracies are also measured with the noise averaged over draws and switched off.
        standard: Changes of the network that the paper's attacker trains.
        needs: Data sets that are used without training on them.
    """

    id: str
    title: str
    place: str
    kind: ExperimentKind
    page: PageName | None = None
    size: Size = "sweep"
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    attacks: tuple[AttackName, ...] = ("paper",)
    answers: bool = False
    standard: Overrides = ()
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that it needs."""
        return tuple(dict.fromkeys([*(cell.data for cell in self.cells), *self.needs]))

    @property
    def data_title(self) -> str:
        """The name of its data set, with its mark."""
        return DATA_TITLES[self.data[0]] + self.mark

    @property
    def mark(self) -> str:
        """What marks multiplicative noise, the paper's Strategy II."""
        return " (II)" if any(cell.multiplicative for cell in self.cells) else ""


@dataclass(frozen=True, config=STRICT)
class PrintedBudget:
    """What the paper's remark says of one training: its epsilon, and the epsilon that a poisoning audit showed."""

    cell: Cell
    epsilon: float
    lower: float


def _experiment(written: dict[str, Any]) -> Experiment:
    """Make an experiment as the file has it: rows share ``data`` and ``changes``, claims count rows from 0."""
    shared = {"data": written.pop("data", None)}
    changes = written.pop("changes", {})
    rows = [
        *(cell for name in written.pop("rows_of", ()) for cell in BY_ID[name].cells),
        *({**shared, **row, "changes": {**changes, **row.get("changes", {})}} for row in written.pop("rows", ())),
    ]
    cells = TypeAdapter(tuple[Cell, ...]).validate_python(rows)
    claims = [
        Claim(text, metric, cells[lower], cells[higher], *topic)
        for text, metric, lower, higher, *topic in written.pop("claims", ())
    ]
    return TypeAdapter(Experiment).validate_python({**written, "cells": cells, "claims": claims})


_FILE = parse_yaml((files("resperturb_reproduction.reproduce") / "experiments.yaml").read_text(), "experiments.yaml")
BY_ID: dict[str, Experiment] = {}
for _written in _FILE["experiments"]:
    BY_ID[_written["id"]] = _experiment(_written)
EXPERIMENTS = tuple(BY_ID.values())
READINGS = BY_ID["readings"].cells


def on_page(*pages: PageName) -> tuple[str, ...]:
    """List the IDs of the experiments that pages show.

    >>> on_page("open-row")
    ('weight-decay', 'readings')
    """
    return tuple(e.id for e in EXPERIMENTS if e.page in pages)


COMPARED = (*on_page("table"), "weight-decay")  # whose rows the published ones are compared with
# The remark of Sec. IV-F: budgets for G = R = 30, delta = 1e-5.
BUDGET_RADIUS, BUDGET_DELTA = 30.0, 1e-5
BUDGETS = TypeAdapter(tuple[PrintedBudget, ...]).validate_python(_FILE["budgets"])


def chosen(ids: Sequence[str], rows: Sequence[str] = (), data: Sequence[str] = ()) -> list[Experiment]:
    """Find experiments by their IDs, in the paper's order; ``all`` is all of them.

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
    """Leave out the attacks that are not named; without any named, none.

    >>> with_attacks([BY_ID["cifar10-table"]], ["paper"])[0].attacks
    ('paper',)
    """
    for name in attacks:
        if name not in get_args(AttackName):
            raise UsageError(f"there is no attack {name!r}; choose {', '.join(get_args(AttackName))}.")
    if not attacks:
        return list(experiments)
    return [replace(e, attacks=tuple(name for name in e.attacks if name in attacks)) for e in experiments]
