"""The result of an audit: one set of types for attacks, command line, report and reproduction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from resperturb.bounds.attack_metrics import AttackMetrics
from resperturb.bounds.exposed import Exposed
from resperturb.bounds.intervals import Interval
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import Scores
from resperturb.bounds.targets import TargetMetrics
from resperturb.files import plain
from resperturb.privacy import Guarantee
from resperturb.privacy.guarantee import number

SCHEMA = 5

# Names of kinds of candidates that are not kinds of canaries.
RECORD, CANARIES, GROUP = "record", "canaries", "group"

Subject = Literal["this model", "models of this recipe"]
Verdict = Literal["refuted", "consistent", "gap", "nothing proven"]
# What is true of every audit.
CAVEATS = (
    "An attack that finds nothing proves nothing: a stronger one may exist. What is found is a leak.",
    "Balanced accuracy is that of the best threshold in hindsight, which flatters the attack when records are few.",
    "The strongest of many attacks is chosen in hindsight, so its AUC is slightly too high. Bounds on epsilon come "
    "from attacks that were fixed beforehand, and their number is corrected for.",
)
# Of models that answer alike; the gate then knows of no model what its attacks would find.
COARSE = (
    "Models trained on different rows gave exactly the same answers. These take few distinct values, too few to tell "
    "whether training used its rows."
)

# Two bounds on epsilon that are no further apart than this agree for every practical purpose.
AGREEMENT = 1.0


@dataclass(frozen=True)
class AttackResult:
    """One attack: how it queried the model, and what it found among each kind of candidate.

    ``access`` and ``draws`` say which answers it saw, ``combination`` how it combined several. A ``fixed`` attack was
    chosen before anything was measured. ``metrics`` is by kind of candidate: ``record``, a kind of canary,
    ``canaries`` (all of them), ``group`` (scores combined per group); with several targets they are means over these,
    and ``per_target`` has each one's, by kind.
    """

    name: str
    reference: str
    access: str
    draws: int
    combination: str | None
    fixed: bool
    metrics: dict[str, AttackMetrics]
    lower_bound: LowerBound | None = None
    per_target: dict[str, tuple[TargetMetrics, ...]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of candidate that the attack is judged by: groups where there are any, else records."""
        order = (GROUP, RECORD, CANARIES, *self.metrics)
        return next(kind for kind in order if kind in self.metrics)

    @property
    def auc(self) -> float:
        """The area under the ROC curve, of :attr:`kind`."""
        return self.metrics[self.kind].auc

    @property
    def auc_interval(self) -> Interval:
        """The confidence interval of the area."""
        return self.metrics[self.kind].auc_interval

    @property
    def view(self) -> str:
        """Which answers it uses, in words: ``served, 16 draws, spread``."""
        draws = f", {self.draws} draws" if self.access == "served" and self.draws > 1 else ""
        return f"{self.access}{draws}" + (f", {self.combination}" if self.combination else "")

    @property
    def full_name(self) -> str:
        """The attack with its view."""
        return f"{self.name}, {self.view}"

    @property
    def key(self) -> str:
        """A name for files."""
        return "-".join([self.name, *self.view.replace(",", "").split()])


@dataclass(frozen=True)
class Model:
    """The model under attack: how accurate it is on members and non-members, and how many it was trained on."""

    name: str
    description: str
    records: int
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Shadows:
    """The shadow models: how many, and how accurate on records that they were not trained on."""

    count: int
    lowest_accuracy: float | None = None
    mean_accuracy: float | None = None
    highest_accuracy: float | None = None


@dataclass(frozen=True)
class MostExposed:
    """The candidates whose inclusion changes shadow models most, chosen without a look at the target.

    ``separation`` is how far membership moves the worst one's confidence, in standard deviations over all records.
    """

    count: int
    attack: str
    metrics: AttackMetrics | None
    worst: int
    worst_kind: str
    separation: float
    member: bool


@dataclass(frozen=True, repr=False)
class AuditResult:
    """Everything that an audit found. Attacks are ordered by AUC, the strongest first.

    Their intervals are corrected for the number of tests of fixed attacks: the one of the strongest attack decides.

    ``guarantee`` is what is proven and ``tested_guarantee`` the same for the neighbours that this audit can test.
    ``targets`` is the number of attacked models, ``unit`` what shares a coin (``record``, ``patient``), ``design``
    what decided membership, and ``left_out`` what was not used, and why. ``subject`` says what the numbers are about.
    ``named`` are the units that a leave-one-out audit names as exposed, for the owner's eyes only.
    Printed, it is a sentence, a line per fixed attack, and its own caveats.
    """

    model: Model
    shadows: Shadows
    candidates: dict[str, int]
    groups: int | None
    population: int
    attacks: tuple[AttackResult, ...]
    exposed: MostExposed | None
    epsilon_lower: LowerBound
    guarantee: Guarantee
    tested_guarantee: Guarantee
    delta: float
    confidence: float
    draws: tuple[int, ...]
    caveats: tuple[str, ...]
    digests: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict, compare=False)
    targets: int = 1
    unit: str = RECORD
    design: str = "coins"
    left_out: tuple[str, ...] = ()
    subject: Subject = "this model"
    named: Exposed | None = None
    schema: int = SCHEMA
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attacks", corrected(self.attacks, self.confidence))

    def __repr__(self) -> str:
        lines = [f"  {one.full_name}: AUC {one.auc:.3f} ({one.auc_interval.words})" for one in self.fixed]
        return "\n".join([self.sentence, *lines, *self.notes])

    @property
    def notes(self) -> tuple[str, ...]:
        """The caveats of this audit, without those that every audit has."""
        return tuple(caveat for caveat in self.caveats if caveat not in CAVEATS)

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        attack, kind = self.strongest, self.strongest.kind
        found = attack.metrics[kind]
        about = {RECORD: "", GROUP: f" per {self.unit}"}.get(kind, f" on {kind}")
        also = [f"{attack.metrics[RECORD].auc:.3f} per record"] if kind == GROUP else []
        also += [f"mean over {found.targets} targets"] if found.targets > 1 else []
        more = f", {', '.join(also)}," if also else ""
        shows = ""
        if self.headline != (attack, kind):
            other, where = self.headline
            shown = other.metrics[where]
            per = "per record" if where == RECORD else f"on {where}"
            shows = f"; the leak shows {per}, by {other.full_name}: AUC {shown.auc:.3f} ({shown.auc_interval.words})"
        unit = f" per {self.unit}" if self.epsilon_lower.unit == "group" and not self.epsilon_lower.unmet else ""
        return (
            f"{self.model.name} {self.seen}: AUC {found.auc:.3f} "
            f"({found.auc_interval.words}){about}{more} by {attack.full_name}, the strongest of {len(self.fixed)} "
            f"fixed attacks{shows}; {'' if self.epsilon_lower.unmet else 'shown: '}{self.epsilon_lower.words}{unit}."
        )

    @property
    def headline(self) -> tuple[AttackResult, str]:
        """The attack and the kind of candidate that decide: the first that shows a leak, or else the strongest.

        The kind that an attack is judged by comes before all others.
        """
        judged = [(attack, attack.kind) for attack in self.fixed]
        others = [(attack, kind) for attack in self.fixed for kind in attack.metrics]
        shown = ((attack, kind) for attack, kind in judged + others if attack.metrics[kind].shows_leak)
        return next(shown, (self.strongest, self.strongest.kind))

    @property
    def verdict(self) -> Verdict:
        """The comparison of the measured lower bound with what is proven.

        ``refuted`` is itself a statement at the audit's confidence: a true guarantee is refuted at most that rarely.
        """
        return verdict_of(self.tested_guarantee.claimed_epsilon, self.epsilon_lower.epsilon)

    @property
    def verdict_sentence(self) -> str:
        """The verdict as a sentence."""
        lower, upper = self.epsilon_lower.epsilon, self.tested_guarantee.claimed_epsilon
        error = 100 * (1 - self.confidence)
        return {
            "refuted": f"Refuted: an attack showed more than was proven possible (a true guarantee would be refuted "
            f"in at most {error:.3g}% of audits).",
            "consistent": "The two bounds agree.",
            "gap": f"The truth lies in between, a gap of {number(upper - lower)}.",
            "nothing proven": "Nothing is proven to compare with.",
        }[self.verdict]

    @property
    def fixed(self) -> tuple[AttackResult, ...]:
        """The attacks that were chosen before anything was measured."""
        return tuple(attack for attack in self.attacks if attack.fixed)

    @property
    def strongest(self) -> AttackResult:
        """The fixed attack with the largest AUC."""
        return (self.fixed or self.attacks)[0]

    @property
    def canaries(self) -> AttackMetrics | None:
        """What the fixed attack that does best on the canaries, all kinds together, finds; None without any."""
        kinds = [kind for kind in self.candidates if kind != RECORD]
        kind = CANARIES if len(kinds) > 1 else kinds[0] if kinds else None
        found = [attack.metrics[kind] for attack in self.fixed if kind in attack.metrics]
        return max(found, key=lambda metrics: metrics.auc, default=None)

    @property
    def leaks(self) -> bool:
        """Whether a leak was seen: the interval of a fixed attack, corrected for all of them, lies above 0.5.

        A model without signal is said to leak in at most (1 - ``confidence``)/2 of audits. The bound on epsilon is a
        statement of its own.
        """
        return any(found.shows_leak for attack in self.fixed for found in attack.metrics.values())

    @property
    def seen(self) -> str:
        """What was seen of a leak, in words that go on from the name of the model."""
        if self.leaks:
            return "leaks"
        if self.epsilon_lower.epsilon > 0:
            return "leaks by the bound on epsilon alone"
        if not any(found.could_show for attack in self.fixed for found in attack.metrics.values()):
            return "could not be judged, for there are too few candidates"
        return "was not seen to leak"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; the folder is left out, and the verdict is put in."""
        names = [name for name in self.__dataclass_fields__ if name != "folder"]
        derived = {"verdict": self.verdict, "verdict_sentence": self.verdict_sentence, "leaks": self.leaks}
        return {**{name: plain(getattr(self, name)) for name in names}, **derived}

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page about this audit to an HTML file, and return its path."""
        from resperturb.report import write_audit_report

        return write_audit_report(self, Path(path))


def corrected(attacks: Sequence[AttackResult], confidence: float) -> tuple[AttackResult, ...]:
    """Give all attacks intervals that hold together, corrected for the tests of the fixed ones (Bonferroni)."""
    tests = sum(len(attack.metrics) for attack in attacks if attack.fixed)
    each = 1 - (1 - confidence) / max(1, tests)
    return tuple(
        replace(attack, metrics={kind: found.at(each) for kind, found in attack.metrics.items()})
        for attack in sorted(attacks, key=lambda attack: -attack.auc)
    )


def verdict_of(upper: float, lower: float) -> Verdict:
    """Compare a measured lower bound with a proven upper bound.

    >>> verdict_of(8.0, 1.5), verdict_of(1.0, 1.5), verdict_of(2.0, 1.5), verdict_of(math.inf, 1.5)
    ('gap', 'refuted', 'consistent', 'nothing proven')
    """
    if upper == math.inf:
        return "nothing proven"
    if lower > upper:
        return "refuted"
    return "consistent" if upper - lower <= AGREEMENT else "gap"


@dataclass(frozen=True, eq=False)
class AttackScores:
    """The scores of one attack: of members and of non-members, higher for those taken to be members."""

    members: Scores
    nonmembers: Scores
