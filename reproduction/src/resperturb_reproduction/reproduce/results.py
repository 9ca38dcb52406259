"""What came out: one JSON for each experiment, whose rows each say at which preset they were measured.

A row may be there at several presets; the best of them is shown, the others stay in the file. Rows are compared with
each other only at the same preset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, JsonValue, Tag

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import read_json, write_json
from resperturb.training import environment
from resperturb_reproduction.reproduce.declarations import BY_ID, Experiment, ExperimentKind, Printed
from resperturb_reproduction.reproduce.presets import PRESETS, Preset

SCHEMA = 2
NOT_COMPARED = "smoke test only: no comparison"


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its mean and how far a single measurement of it is off.

    ``error`` is the standard deviation over seeds, or with one seed the sampling error of that measurement.
    ``seeds`` says which seed each value is of; it is empty where that is not known.
    """

    mean: float
    error: float
    values: tuple[float, ...]
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowMetrics:
    """What was measured of a row; None where it was not.

    ``averaged`` is the accuracy of the mean of several draws of the noise, ``noiseless`` with the noise switched off.
    """

    auc: Spread | None = None
    adaptive_auc: Spread | None = None
    train_accuracy: Spread | None = None
    test_accuracy: Spread | None = None
    gap: Spread | None = None
    averaged_train_accuracy: Spread | None = None
    averaged_test_accuracy: Spread | None = None
    noiseless_train_accuracy: Spread | None = None
    noiseless_test_accuracy: Spread | None = None

    def of(self, metric: str) -> Spread | None:
        """The number of a metric."""
        found: Spread | None = getattr(self, metric)
        return found


@dataclass(frozen=True)
class Threshold:
    """What the paper's attack does at one threshold; no precision where it calls nobody a member."""

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
    """The strongest of the audit's attacks on a row's first training, and the epsilon that the audit bounds.

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
class ProvenEpsilon:
    """The epsilon that the training of a row guarantees."""

    epsilon: float
    delta: float
    steps: int


@dataclass(frozen=True)
class Row:
    """One row of an experiment at one preset.

    ``trained`` are the trainings it rests on by their hash, with their seconds. ``memorised_after`` is the epoch
    at which the first seed reached a training accuracy of 1.000.
    """

    key: str
    name: str
    data: str
    preset: str
    networks: int
    strategy: str
    gamma: float
    paper: Printed | None
    measured: RowMetrics
    seeds: tuple[int, ...]
    seeds_wanted: int
    runs: tuple[str, ...]
    input_noise: bool = True
    epochs: int | None = None
    memorised_after: int | None = None
    why: tuple[str, ...] = ()
    audit: AuditSummary | None = None
    audit_why: str | None = None
    thresholds: tuple[Threshold, ...] = ()
    roc: Roc | None = None
    attack_units: str = "relu"
    attack_learning_rates: tuple[float, ...] = ()
    proven: ProvenEpsilon | None = None
    trained: dict[str, float] = field(default_factory=dict)

    @property
    def evidence(self) -> tuple[int, int]:
        """How many seeds and audits it has."""
        return len(self.seeds), int(self.audit is not None)


@dataclass(frozen=True)
class DataUsed:
    """On which images the rows of a preset were trained, and how far that is from the paper's settings."""

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
    """With what the rows of one preset were made."""

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
class ShownEpsilon:
    """What a lower bound on epsilon says, and by which method it was found."""

    epsilon: float
    confidence: float
    method: str
    assumptions: tuple[str, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True)
class BudgetRow:
    """A printed budget beside what the formula gives, and what attacks on our model of that row show.

    ``radius_needed`` and ``bound_needed`` are how small R and G would have to be for the printed epsilon.
    """

    data: str
    name: str
    printed: float
    printed_lower: float
    epsilon: float
    setting: str
    protects: str
    assumptions: tuple[str, ...]
    verdict: str
    epsilon_exact: float | None = None
    epsilon_from_blocks: float | None = None
    radius_needed: float | None = None
    bound_needed: float | None = None
    preset: str | None = None
    paper_attack: ShownEpsilon | None = None
    audit: ShownEpsilon | None = None
    why: str | None = None


@dataclass(frozen=True)
class Trained:
    """The result of an experiment whose rows are trained."""

    id: str
    kind: ExperimentKind
    made: tuple[Made, ...]
    rows: tuple[Row, ...]
    theorem: Theorem | None = None
    schema: int = SCHEMA

    def made_at(self, preset: str) -> Made:
        """With what the rows of a preset were made."""
        return next(made for made in self.made if made.preset == preset)

    def data_of(self, row: Row) -> DataUsed:
        """The images that a row was trained on."""
        return next(data for data in self.made_at(row.preset).data if data.name == row.data)

    @property
    def shown(self) -> tuple[Row, ...]:
        """Each row once, at the best preset at which it was measured, in the order of the declaration."""
        there = {(row.data, row.key) for row in self.rows}
        declared = dict.fromkeys((cell.data, cell.key) for cell in BY_ID[self.id].cells)
        return tuple(at_best(self.rows, *place) for place in declared if place in there)

    @property
    def attacked(self) -> tuple[Row, ...]:
        """The rows that were attacked harder than in the paper, in the order of the declaration.

        Each at the best preset at which it was audited, and at the best at which the adaptive attack was made.
        """
        found: dict[tuple[str, str, str], Row] = {}
        for row in self.shown:
            for attacked in (self.audited(row), self.adaptively_attacked(row)):
                if attacked is not None:
                    found[attacked.data, attacked.key, attacked.preset] = attacked
        return tuple(found.values())

    def audited(self, row: Row) -> Row | None:
        """The row of that name that was audited, at the best preset at which it was."""
        return self._best([other for other in self._alike(row) if other.audit is not None])

    def adaptively_attacked(self, row: Row) -> Row | None:
        """The row of that name that the adaptive attack was made on, at the best preset at which it was."""
        return self._best([other for other in self._alike(row) if other.measured.adaptive_auc is not None])

    def _alike(self, row: Row) -> list[Row]:
        return [other for other in self.rows if (other.data, other.key) == (row.data, row.key)]

    def _best(self, rows: Sequence[Row]) -> Row | None:
        return max(rows, key=lambda row: PRESETS[row.preset].rank, default=None)


@dataclass(frozen=True)
class Budgets:
    """The result of the remark on the privacy budget."""

    id: str
    kind: Literal["budgets"]
    made: tuple[Made, ...]
    rows: tuple[BudgetRow, ...]
    delta: float
    radius_and_bound: float
    schema: int = SCHEMA


@dataclass(frozen=True)
class Computed:
    """The result of an experiment that needs no training; ``numbers`` are whatever it found."""

    id: str
    kind: Literal["computed"]
    made: tuple[Made, ...]
    verdict: str
    numbers: dict[str, JsonValue]
    schema: int = SCHEMA


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if kind in ("budgets", "computed") else "trained"


Result = Annotated[
    Annotated[Trained, Tag("trained")] | Annotated[Budgets, Tag("budgets")] | Annotated[Computed, Tag("computed")],
    Discriminator(_tag),
]
AnyResult = Trained | Budgets | Computed


@dataclass(frozen=True, eq=False)
class Measured:
    """A result as it is kept, and whatever else it takes to draw it."""

    result: AnyResult
    drawable: object = None


def made_now(preset: Preset, data: Sequence[DataUsed] = (), trainings: int = 0, seconds: float = 0.0) -> Made:
    """Say with what a result is being made."""
    return Made(preset.name, environment(), tuple(data), trainings, seconds)


def at_best(rows: Iterable[Row], data: str, key: str) -> Row:
    """The row at the best preset at which it was trained and attacked; one that was not, if there is no other."""
    found = [row for row in rows if (row.data, row.key) == (data, key)]
    return max(found, key=lambda row: (bool(row.seeds), row.measured.auc is not None, PRESETS[row.preset].rank))


def merged(present: Trained | None, new: Trained, experiment: Experiment) -> Trained:
    """Add new rows to those that are there.

    A row replaces the one of the same preset, unless that one has more seeds or audits at the same settings. Rows of
    other presets stay. Rows that nothing is known of, and those that the experiment no longer declares, are dropped.
    """
    new = replace(new, rows=tuple(row for row in new.rows if row.seeds or row.why))
    if present is None:
        return new
    declared = [(cell.data, cell.key) for cell in experiment.cells]
    rows = {(row.data, row.key, row.preset): row for row in present.rows if (row.data, row.key) in declared}
    added: dict[str, float] = {}
    for row in new.rows:
        place = (row.data, row.key, row.preset)
        known = rows.get(place)
        if known is not None and _has_more(present, known, new, row):
            continue
        added |= {run: seconds for run, seconds in row.trained.items() if known is None or run not in known.trained}
        rows[place] = row
    order = {place: number for number, place in enumerate(declared)}
    kept = sorted(rows.values(), key=lambda row: (order[row.data, row.key], PRESETS[row.preset].rank))
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
    return any(ours < theirs for ours, theirs in zip(row.evidence, known.evidence, strict=True))


def save(folder: Path, result: AnyResult) -> AnyResult:
    """Keep a result together with what is there already, and return the whole."""
    experiment = BY_ID[result.id]
    refuse_smoke_test(folder, experiment.id, result.made[-1].preset)
    present = load(folder, experiment.id)
    if isinstance(result, Trained):
        result = merged(present if isinstance(present, Trained) else None, result, experiment)
    elif present is not None and best_preset(present) > best_preset(result):
        return present
    elif isinstance(result, Budgets) and isinstance(present, Budgets):
        result = replace(result, rows=tuple(map(_with_bounds, result.rows, present.rows)))
    write_json(folder / f"{result.id}.json", result)
    return result


def _with_bounds(row: BudgetRow, present: BudgetRow) -> BudgetRow:
    """Keep the lower bounds that were measured before where there are none now."""
    if row.preset is not None or present.preset is None:
        return row
    return replace(
        row, preset=present.preset, paper_attack=present.paper_attack, audit=present.audit, why=present.why
    )


def best_preset(result: AnyResult) -> int:
    """The rank of the best preset of a result."""
    return max(PRESETS[made.preset].rank for made in result.made)


def refuse_smoke_test(folder: Path, experiment: str, preset: str) -> None:
    """Refuse to put numbers that mean nothing among those that do."""
    present = load(folder, experiment)
    if preset == "quick" and present is not None and best_preset(present) > PRESETS[preset].rank:
        raise UsageError(
            f"{folder / experiment}.json has better rows than those of preset quick, which mean nothing; choose "
            "another --results folder, or delete it."
        )


def load(folder: Path, experiment: str) -> AnyResult | None:
    """Read a result; None if there is none, or it is damaged or of another version of this program."""
    try:
        found: AnyResult = read_json(Result, folder / f"{experiment}.json")  # type: ignore[arg-type]
    except ResperturbError:
        return None
    whole = found.schema == SCHEMA and found.id == experiment and all(made.preset in PRESETS for made in found.made)
    return found if whole and found.made else None


def load_all(folder: Path) -> dict[str, AnyResult]:
    """Read every result in a folder, by the ID of its experiment."""
    found = {name: load(folder, name) for name in BY_ID}
    return {name: result for name, result in found.items() if result is not None}
