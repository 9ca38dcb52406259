"""What an audit found: one object, written and read by attacks, command line, report and reproduction alike."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from resperturb.auditing.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.auditing.result import LowerBound
from resperturb.auditing.scores import Scores
from resperturb.errors import ResperturbError
from resperturb.files import plain, read_json
from resperturb.privacy import Guarantee
from resperturb.privacy.guarantee import number
from resperturb.training.bound import read_bound_arrays, read_bound_json, write_bound_arrays, write_bound_json

_logger = logging.getLogger(__name__)

SCHEMA = 3
AUDIT_FILE = "audit.json"
SCORES_FOLDER = "attacks"
_ATTACK, _AGAIN = "attack", "run the attack again"

# Names of kinds of candidates that are not kinds of canaries.
RECORD, CANARIES, GROUP = "record", "canaries", "group"

Verdict = Literal["refuted", "consistent", "gap", "nothing proven"]
# Two bounds on epsilon that are no further apart than this agree for every practical purpose.
AGREEMENT = 1.0


@dataclass(frozen=True)
class AttackResult:
    """One attack: how it asked the model, and what it found among each kind of candidate.

    ``access`` and ``draws`` say which answers it saw, ``combination`` how it combined several. A ``fixed`` attack was
    chosen before anything was measured. ``metrics`` is by kind of candidate: ``record``, a kind of canary,
    ``canaries`` (all of them), ``group`` (scores combined per group).
    """

    name: str
    reference: str
    access: str
    draws: int
    combination: str | None
    fixed: bool
    metrics: dict[str, AttackMetrics]
    lower_bound: LowerBound | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of candidate that the attack is judged by: records where there are any."""
        order = (RECORD, CANARIES, *self.metrics)
        return next(kind for kind in order if kind in self.metrics)

    @property
    def auc(self) -> float:
        """The area under the ROC curve, of :attr:`kind`."""
        return self.metrics[self.kind].auc

    @property
    def auc_interval(self) -> tuple[float, float]:
        """The confidence interval of the area."""
        return self.metrics[self.kind].auc_interval

    @property
    def view(self) -> str:
        """Which answers it saw, in words: ``noise on, 16 draws, spread``."""
        draws = f", {self.draws} draw{'s' if self.draws > 1 else ''}" if self.access == "noise on" else ""
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

    @property
    def gap(self) -> float:
        """How much better it is on what it was trained on."""
        return self.train_accuracy - self.test_accuracy


@dataclass(frozen=True)
class Shadows:
    """The shadow models: how many, and how accurate on records that they were not trained on."""

    count: int
    lowest_accuracy: float | None = None
    mean_accuracy: float | None = None
    highest_accuracy: float | None = None


@dataclass(frozen=True)
class MostExposed:
    """The candidates that shadow models tell apart best, chosen without a look at the target.

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

    ``guarantee`` is what is proven and ``tested_guarantee`` the same for the neighbours that this audit can test.
    Printed, it is a sentence and a line per fixed attack.
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
    schema: int = SCHEMA
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        lines = [
            f"  {attack.full_name}: AUC {attack.auc:.3f} ({low:.3f} to {high:.3f})"
            for attack in self.fixed
            for low, high in [attack.auc_interval]
        ]
        return "\n".join([self.sentence, *lines])

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        strongest = self.strongest
        low, high = strongest.auc_interval
        unit = " per group" if self.epsilon_lower.unit == "group" else ""
        return (
            f"{self.model.name} {'leaks' if self.leaks else 'was not seen to leak'}: AUC {strongest.auc:.3f} "
            f"({low:.3f} to {high:.3f}) by {strongest.full_name}, the strongest of {len(self.fixed)} fixed attacks; "
            f"shown: {self.epsilon_lower.words}{unit}."
        )

    @property
    def verdict(self) -> Verdict:
        """How the measured lower bound stands to what is proven.

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
        """Whether a leak was seen: a bound above 0, or a fixed attack beyond chance, corrected for all of them."""
        tested = [metrics for attack in self.fixed for metrics in attack.metrics.values()]
        return self.epsilon_lower.epsilon > 0 or any(metrics.shows_leak(len(tested)) for metrics in tested)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; the folder is left out, and the verdict is put in."""
        names = [name for name in self.__dataclass_fields__ if name != "folder"]
        derived = {"verdict": self.verdict, "verdict_sentence": self.verdict_sentence, "leaks": self.leaks}
        return {**{name: plain(getattr(self, name)) for name in names}, **derived}

    def save(self, folder: Path) -> None:
        """Keep the result in ``folder`` as ``audit.json``, bound to what was audited.

        It takes the place of an earlier audit there, whose attacks go with it: a page must not mix the two.
        """
        for attack in _replaced(folder, self):
            for path in _attack_files(folder, attack):
                path.unlink(missing_ok=True)
        write_bound_json(folder / AUDIT_FILE, self, self.digests)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page about this audit.

        Args:
            path: The HTML file to write.

        Returns:
            The path.
        """
        from resperturb.report import write_audit_report

        return write_audit_report(self, Path(path))


def verdict_of(upper: float, lower: float) -> Verdict:
    """Say how a measured lower bound stands to a proven upper bound.

    >>> verdict_of(8.0, 1.5), verdict_of(1.0, 1.5), verdict_of(2.0, 1.5), verdict_of(math.inf, 1.5)
    ('gap', 'refuted', 'consistent', 'nothing proven')
    """
    if upper == math.inf:
        return "nothing proven"
    if lower > upper:
        return "refuted"
    return "consistent" if upper - lower <= AGREEMENT else "gap"


def _replaced(folder: Path, new: AuditResult) -> list[AttackResult]:
    """The attacks of the audit that ``new`` replaces and that it did not make itself; warn if it tried less."""
    if not (folder / AUDIT_FILE).exists():
        return []
    try:
        old = read_audit(folder)
    except ResperturbError:  # it cannot be read, so nothing is known of its attacks
        return []
    if old.shadows.count > new.shadows.count:
        _logger.warning(
            "This audit replaces one with %d shadow models (AUC %.3f) in %s, and tried less. Rerun that one to have "
            "it back: its shadow models are kept.",
            old.shadows.count,
            old.strongest.auc,
            folder,
        )
    made = {attack.key for attack in new.attacks}
    return [attack for attack in old.fixed if attack.key not in made]


def read_audit(folder: Path, digests: Mapping[str, str] | None = None) -> AuditResult:
    """Read the audit that is kept in ``folder``.

    Args:
        folder: The folder of a run, or of an audit of somebody's own training.
        digests: Of the run that the audit must be about; any will do if None.

    Returns:
        The audit.

    Raises:
        ResperturbError: It is damaged, was changed, another version wrote it, or it is the audit of another run.
    """
    from dataclasses import replace

    path = folder / AUDIT_FILE
    found = read_json(_Version, path, "run the audit again")
    if found.schema != SCHEMA:
        raise ResperturbError(f"{path} was written by another version of resperturb; run the audit again.")
    return replace(read_bound_json(AuditResult, path, digests, "run the audit again"), folder=folder)


@dataclass(frozen=True)
class _Version:
    schema: int


@dataclass(frozen=True, eq=False)
class AttackScores:
    """The scores of one attack: of members and of non-members, higher for those taken to be members."""

    members: Scores
    nonmembers: Scores


@dataclass(frozen=True, eq=False)
class KeptAttack:
    """An attack whose scores were kept beside its result, on the kind of candidate that it is judged by."""

    result: AttackResult
    scores: AttackScores

    @property
    def name(self) -> str:
        """What the attack is called, with the answers it saw."""
        return self.result.full_name

    @property
    def metrics(self) -> AttackMetrics:
        """What it found."""
        return self.result.metrics[self.candidates]

    @property
    def auc(self) -> float:
        """The area under its ROC curve."""
        return self.result.auc

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the area."""
        return self.result.auc_interval

    @property
    def candidates(self) -> str:
        """The kind of its candidates: ``record`` or a kind of canary."""
        return self.result.kind

    def tpr(self, fpr: float) -> TruePositiveRate | None:
        """What it finds at a false positive rate, if so small a rate can be seen among so many non-members."""
        return self.metrics.at_fpr(fpr)


@dataclass(frozen=True)
class _KeptResult:
    result: AttackResult
    digests: dict[str, str]


def keep_attack(folder: Path, result: AttackResult, scores: AttackScores, digests: Mapping[str, str]) -> None:
    """Keep an attack and its scores among those in ``folder``, bound to what ``digests`` say it was an attack on."""
    described, scored = _attack_files(folder, result)
    arrays = {"members": scores.members, "nonmembers": scores.nonmembers}
    write_bound_arrays(scored, arrays, {**digests, _ATTACK: result.key})
    write_bound_json(described, {"result": result}, digests)


def _attack_files(folder: Path, attack: AttackResult) -> tuple[Path, Path]:
    """Where an attack is kept: its result, and its scores."""
    described = folder / SCORES_FOLDER / f"{attack.key}.json"
    return described, described.with_suffix(".npz")


def kept_attacks(folder: Path, digests: Mapping[str, str] | None = None) -> list[KeptAttack]:
    """Read the attacks that are kept in ``folder``, the strongest first.

    Args:
        folder: The folder of a run or of an audit.
        digests: Of the run that they must be attacks on; any will do if None.

    Returns:
        The attacks with their scores.

    Raises:
        ResperturbError: An attack is damaged, was changed, or is one on another run.
    """
    paths = sorted((folder / SCORES_FOLDER).glob("*.json"))
    return sorted((read_attack(path, digests) for path in paths), key=lambda kept: -kept.result.auc)


def read_attack(path: Path, digests: Mapping[str, str] | None = None) -> KeptAttack:
    """Read the attack whose result is in ``path``, and whose scores are beside it; see :func:`kept_attacks`."""
    kept = read_bound_json(_KeptResult, path, digests, _AGAIN)
    if kept.result.key != path.stem:
        raise ResperturbError(f"{path} is another attack ({kept.result.full_name}); {_AGAIN}.")
    if not kept.result.metrics:
        raise ResperturbError(f"{path} measured nothing; {_AGAIN}.")
    scores = path.with_suffix(".npz")
    arrays = read_bound_arrays(scores, ("members", "nonmembers"), {**kept.digests, _ATTACK: kept.result.key}, _AGAIN)
    sides = arrays["members"], arrays["nonmembers"]
    for side in sides:
        if side.ndim != 1 or not side.size or side.dtype.kind != "f" or np.isnan(side).any():
            raise ResperturbError(f"{scores} does not hold one score per record; {_AGAIN}.")
    return KeptAttack(kept.result, AttackScores(*sides))
