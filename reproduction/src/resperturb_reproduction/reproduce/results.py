"""One JSON for each experiment, whose rows each say at which preset they were measured.

A row may be there at several presets; the best of them is shown, the others stay in the file. Rows are compared with
each other only at the same preset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import read_json, write_json
from resperturb.training import environment
from resperturb_reproduction.reproduce.declarations import BY_ID, ExperimentKind, Printed
from resperturb_reproduction.reproduce.presets import PRESETS, Preset

SCHEMA = 2
NOT_COMPARED = "smoke test only: no comparison"


@dataclass(frozen=True)
class Spread:
    """A number over seeds.

    Attributes:
        error: The standard deviation over seeds; with one seed the sampling error of that measurement.
        seeds: The seed of each value.
    """

    mean: float
    error: float
    values: tuple[float, ...]
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Threshold:
    """The paper's attack at one threshold; no precision where it accepts no record as a member."""

    threshold: float
    precision: float | None
    recall: float


@dataclass(frozen=True)
class Roc:
    """A ROC curve in a few points."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


@dataclass(frozen=True)
class AuditSummary:
    """The strongest of the audit's attacks on a row's first training, and the bound on epsilon.

    It is the best of ``attacks`` in hindsight, so its AUC is a little too high.
    """

    attacks: int
    shadows: int
    draws: tuple[int, ...]
    strongest: str
    auc: float
    auc_interval: tuple[float, float]
    tpr_at_1_percent_fpr: float | None
    epsilon_lower: float
    confidence: float
    delta: float
    epsilon_upper: float
    verdict: str
    design: str | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class Row:
    """One row of an experiment at one preset.

    Attributes:
        measured: By metric: ``auc``, ``adaptive_auc``, ``train_accuracy``, ``test_accuracy``, ``gap``. The prefixes
            ``averaged_`` and ``noiseless_`` mean several draws of the noise and no noise.
        runs: The digest of each seed's training.
        why: Why a training, an attack or the audit is missing.
        attack_units: The hidden units of the attack network.
        trained: The seconds of all trainings that the row rests on, by digest.
    """

    key: str
    name: str
    data: str
    preset: str
    strategy: str
    gamma: float
    paper: Printed | None
    measured: dict[str, Spread | None]
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    epochs: int | None = None
    why: tuple[str, ...] = ()
    audit: AuditSummary | None = None
    thresholds: tuple[Threshold, ...] = ()
    roc: Roc | None = None
    attack_units: str = "relu"
    attack_learning_rates: tuple[float, ...] = ()
    trained: dict[str, float] = field(default_factory=dict)

    def of(self, metric: str) -> Spread | None:
        """Look up a metric; None if it was not measured."""
        return self.measured.get(metric)

    def mean(self, metric: str) -> float:
        """Give the mean of a metric that was measured."""
        found = self.of(metric)
        assert found is not None
        return found.mean

    @property
    def rank(self) -> int:
        """The rank of its preset."""
        return PRESETS[self.preset].rank


@dataclass(frozen=True)
class DataUsed:
    """The images that the rows of a preset were trained on, and how far that is from the paper's settings."""

    name: str
    shown: str
    spec: str
    fingerprint: str
    training_images: int
    a_quarter: int
    test_images: int
    classes: int
    groups: int | None
    epochs: int
    dpsgd_epochs: int
    batch_size: int
    dpsgd_batch_size: int
    reduced: str


@dataclass(frozen=True)
class Made:
    """The versions, data and trainings behind the rows of one preset."""

    preset: str
    environment: dict[str, str]
    data: tuple[DataUsed, ...] = ()
    trainings: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Theorem:
    """Theorem 3's factor by gamma, and the gap that it would predict from the measured one without noise."""

    power: float
    time: float
    ratios: dict[str, float]
    predicted_gap: dict[str, float] | None
    verdict: str
    assumptions: tuple[str, ...]
    bounds: JsonValue = None


@dataclass(frozen=True)
class Trained:
    """The result of an experiment whose rows are trained."""

    id: str
    kind: ExperimentKind
    made: tuple[Made, ...]
    rows: tuple[Row, ...]
    theorem: Theorem | None = None
    schema: int = SCHEMA

    def data_of(self, row: Row) -> DataUsed:
        """Find the images that a row was trained on."""
        made = next(made for made in self.made if made.preset == row.preset)
        return next(data for data in made.data if data.name == row.data)

    @property
    def shown(self) -> tuple[Row, ...]:
        """Each row once, at the best preset at which it was trained and attacked, in the order of the declaration."""
        found: dict[tuple[str, str], Row | None] = {(cell.data, cell.key): None for cell in BY_ID[self.id].cells}
        for row in sorted(self.rows, key=lambda row: (bool(row.seeds), row.of("auc") is not None, row.rank)):
            found[row.data, row.key] = row
        return tuple(row for row in found.values() if row is not None)

    @property
    def attacked(self) -> tuple[Row, ...]:
        """The rows with attacks that the paper did not make, in the order of the declaration.

        Each at the best preset at which it was audited, and at the best with the adaptive attack.
        """
        found: dict[tuple[str, str, str], Row] = {}
        for shown in self.shown:
            alike = sorted((r for r in self.rows if (r.data, r.key) == (shown.data, shown.key)), key=lambda r: r.rank)
            for some in ([r for r in alike if r.audit], [r for r in alike if r.of("adaptive_auc")]):
                found |= {(r.data, r.key, r.preset): r for r in some[-1:]}
        return tuple(found.values())


@dataclass(frozen=True)
class Computed:
    """The result of an experiment that is computed; ``numbers`` is all it found."""

    id: str
    kind: Literal["computed"]
    made: tuple[Made, ...]
    verdict: str
    numbers: dict[str, JsonValue]
    schema: int = SCHEMA


AnyResult = Trained | Computed


def made_now(preset: Preset, data: Sequence[DataUsed] = (), trainings: int = 0, seconds: float = 0.0) -> Made:
    """Describe what a result is being made with."""
    return Made(preset.name, environment(), tuple(data), trainings, seconds)


def merged(present: Trained, new: Trained) -> Trained:
    """Add new rows to those that are there.

    A row replaces the one of the same preset, unless that one has more seeds or audits at the same settings. Rows of
    other presets stay. Rows that the experiment no longer declares are dropped.
    """
    declared = [(cell.data, cell.key) for cell in BY_ID[new.id].cells]
    rows = {(row.data, row.key, row.preset): row for row in present.rows if (row.data, row.key) in declared}
    added: dict[str, float] = {}
    for row in new.rows:
        place = (row.data, row.key, row.preset)
        known = rows.get(place)
        if known is not None and _has_more(present, known, new, row):
            continue
        added |= {run: seconds for run, seconds in row.trained.items() if known is None or run not in known.trained}
        rows[place] = row
    kept = sorted(rows.values(), key=lambda row: (declared.index((row.data, row.key)), row.rank))
    made = {m.preset: m for m in present.made if any(row.preset == m.preset for row in kept)}
    for fresh in new.made:
        before = made.get(fresh.preset)
        if before is not None and before.data:
            data = {used.name: used for used in (*before.data, *fresh.data)}
            total = before.trainings + len(added), before.seconds + sum(added.values())
            fresh = replace(fresh, data=tuple(data.values()), trainings=total[0], seconds=total[1])
        made[fresh.preset] = fresh
    ordered = tuple(sorted(made.values(), key=lambda m: PRESETS[m.preset].rank))
    return replace(new, made=ordered, rows=tuple(kept), theorem=new.theorem or present.theorem)


def _has_more(present: Trained, known: Row, new: Trained, row: Row) -> bool:
    if present.data_of(known).reduced != new.data_of(row).reduced:
        return False
    return len(row.seeds) < len(known.seeds) or (row.audit is None and known.audit is not None)


def save(folder: Path, result: AnyResult) -> AnyResult:
    """Keep a result together with what is there already, and return the whole."""
    present = load(folder, result.id)
    refuse_smoke_test(present, folder, result.made[-1].preset)
    if isinstance(result, Trained) and isinstance(present, Trained):
        result = merged(present, result)
    elif present is not None and best_rank(present) > best_rank(result):
        return present
    write_json(folder / f"{result.id}.json", result)
    return result


def best_rank(result: AnyResult) -> int:
    """Give the rank of the best preset of a result."""
    return max(PRESETS[made.preset].rank for made in result.made)


def refuse_smoke_test(present: AnyResult | None, folder: Path, preset: str) -> None:
    """Refuse to put numbers that mean nothing among those that do."""
    if preset == "quick" and present is not None and best_rank(present) > PRESETS[preset].rank:
        raise UsageError(
            f"{folder / present.id}.json has better rows than those of preset quick, which mean nothing; choose "
            "another --results folder, or delete it."
        )


def load(folder: Path, experiment: str) -> AnyResult | None:
    """Read a result; None if there is none, or it is damaged or of another version of this program."""
    try:
        found: AnyResult = read_json(AnyResult, folder / f"{experiment}.json")  # type: ignore[arg-type]
    except ResperturbError:
        return None
    whole = found.schema == SCHEMA and found.id == experiment and all(made.preset in PRESETS for made in found.made)
    return found if whole and found.made else None


def load_all(folder: Path) -> dict[str, AnyResult]:
    """Read every result in a folder, by the ID of its experiment."""
    found = {name: load(folder, name) for name in BY_ID}
    return {name: result for name, result in found.items() if result is not None}


def trained(found: Iterable[AnyResult]) -> list[Trained]:
    """Choose the results whose rows are trained."""
    return [result for result in found if isinstance(result, Trained)]
