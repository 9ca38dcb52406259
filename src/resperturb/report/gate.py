"""Is a policy met? Yes, no, or it cannot be known: too little evidence is not a pass.

The page, the card, the gate and the evidence pack show the same :class:`Decision`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import COARSE, GROUP, RECORD, AuditResult
from resperturb.bounds.intervals import Interval
from resperturb.bounds.metrics import can_be_seen
from resperturb.files import plain
from resperturb.privacy.guarantee import Guarantee, number, per_record
from resperturb.progress import duration
from resperturb.report.policy import EVIDENCE, Policy, RequiredEvidence
from resperturb.report.wording import attacked, counted, group_name, several, unit_of

if TYPE_CHECKING:
    from resperturb.report.collect import ReportedModel

# Attacks with another aim than membership: no audit makes them.
NOT_TESTED = ("attribute inference", "model inversion", "reconstruction of training records")
RESIDUAL = (
    "stronger attacks, or more shadow models",
    *NOT_TESTED,
    "several releases of one model",
    "the most exposed person",
)

Outcome = Literal["failed", "unknown", "met"]


@dataclass(frozen=True)
class State:
    """An outcome in a word, a shape and a colour of the terminal: none depends on the others to be understood."""

    word: str
    shape: str
    colour: str
    release: str
    exit_code: int


# The worst first.
STATES: dict[Outcome, State] = {
    "failed": State("ABOVE POLICY", "✗", "bold red", ": do not release", 1),
    "unknown": State("UNDECIDED", "◆", "bold yellow", ": do not release yet", 2),
    "met": State("WITHIN POLICY, AS TESTED", "✓", "bold blue", "", 0),
}


@dataclass(frozen=True)
class Check:
    """One demand of a policy and what came of it.

    Attributes:
        demand: The demand in technical terms: ``AUC per patient``.
        verdict: Why, in a few words: ``0.62 to 0.71 is above the limit``.
        title: The demand in plain words; empty for a demand for evidence.
        limit: The largest value that is permitted, or the least number that is required.
        interval: The interval that decides: ``failed`` if it lies above the limit, ``met`` if it lies within.
        rate: Whether the values are rates, shown in percent.
    """

    demand: str
    outcome: Outcome
    verdict: str
    title: str = ""
    found: str = "not measured"
    limit: float = 0.0
    value: float | None = None
    interval: Interval | None = None
    attack: str = ""
    rate: bool = False

    @property
    def state(self) -> State:
        """The outcome in a word, a shape and a colour."""
        return STATES[self.outcome]

    @property
    def limit_words(self) -> str:
        """The limit as it is shown."""
        return f"{100 * self.limit:g}%" if self.rate else f"{self.limit:g}"

    @property
    def sentence(self) -> str:
        """What came of the demand, for a list of reasons."""
        by = f", by {self.attack}" if self.attack else ""
        return f"{self.demand} (limit {self.limit_words}): {self.found}{by}; {self.verdict}."

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale on which value, interval and limit are drawn."""
        if not self.rate or self.interval is None:
            return 0.5, 1.0
        return 0.0, next(end for end in (0.05, 0.2, 0.5, 1.0) if max(self.interval.high, self.limit) <= end)

    def place(self, value: float) -> float:
        """Place a value on the scale: 0 is its left end, 1 its right."""
        left, right = self.ends
        return min(1.0, max(0.0, (value - left) / (right - left)))

    def drawn(self, width: int = 22) -> str:
        """Draw interval, value and limit as a line of text; empty where nothing was measured.

        >>> Check("AUC", "unknown", "", limit=0.65, value=0.7, interval=Interval(0.6, 0.8)).drawn(20)
        '0.5 ├───[==|●====]───────┤ 1'
        """
        if self.interval is None or self.value is None:
            return ""
        cells = ["─"] * width
        low, value, high, limit = (
            min(width - 1, int(self.place(at) * width))
            for at in (self.interval.low, self.value, self.interval.high, self.limit)
        )
        cells[low : high + 1] = "=" * (high - low + 1)
        for place, mark in ((low, "["), (high, "]"), (limit, "|"), (value, "●")):
            cells[place] = mark
        left, right = self.ends
        return f"{left:g} ├{''.join(cells)}┤ {right:g}"


@dataclass(frozen=True, eq=False)
class Decision:
    """What a policy says of a model, demand by demand, ready to be shown.

    ``counts`` says how much evidence there is of each kind that a policy can ask for. A share ``false_failure_rate``
    of the models that show nothing would fail.
    """

    model: "ReportedModel"
    policy: Policy
    checks: tuple[Check, ...]
    counts: dict[str, int]
    false_failure_rate: float

    @property
    def outcome(self) -> Outcome:
        """``failed`` if anything failed; ``met`` only if everything was met."""
        found = {check.outcome for check in self.checks}
        return "failed" if "failed" in found else "unknown" if "unknown" in found else "met"

    @property
    def state(self) -> State:
        """The outcome in a word, a shape and a colour."""
        return STATES[self.outcome]

    @property
    def status(self) -> str:
        """The outcome and what it means for a release."""
        return self.state.word + self.state.release

    @property
    def meaning(self) -> str:
        """The outcome in a sentence."""
        if self.outcome == "failed":
            return "A limit of the policy is exceeded: do not release the weights, nor an interface to them."
        if self.model.audit is None and self.outcome == "unknown":
            return "It was not audited."
        bound = self.model.bound
        found = self.model.leaks or (bound is not None and bound.epsilon > 0)
        leak = "A leak was found" if found else "No leak was seen"
        if self.outcome == "unknown":
            return f"{leak}. Whether the policy is exceeded needs a larger audit."
        return f"{leak}, and nothing above the policy. A stronger attack may still find more."

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences that decided: of what failed, or else of what cannot be known, or else of all."""
        return tuple(check.sentence for check in self.checks if check.outcome == self.outcome)

    @property
    def rows(self) -> list[Check]:
        """What was measured, one row per limit of the policy."""
        return [check for check in self.checks if check.title]

    @property
    def deciding(self) -> Check | None:
        """The first row that has the outcome of the decision, or else the first row."""
        return next((row for row in self.rows if row.outcome == self.outcome), next(iter(self.rows), None))

    @property
    def attacked(self) -> str:
        """What was attacked: this model, or models of its recipe."""
        return attacked(self.model.audit)

    @property
    def evidence(self) -> str:
        """What the audit tried, against what the policy asks for."""
        if self.model.audit is None:
            return "none"
        enough = "✗ below" if any(check.demand in EVIDENCE.values() for check in self.checks) else "✓ reaches"
        return f"{tried(self.model.audit, self.policy.evidence)}: {enough} the policy's minimum"

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do next: the command that brings the evidence that is lacking, and its time where that is known."""
        if self.outcome == "met":
            return ("A person who knows the data decides.",)
        if self.outcome == "failed":
            how = "fewer epochs, weight decay, more noise, DP-SGD; “resperturb frontier” compares them"
            return (f"Reduce the leak ({how}), then audit again.",)
        audit, command = self.model.audit, self.model.subject.audit_command
        missing = {check.demand: int(check.limit) for check in self.checks if check.demand in EVIDENCE.values()}
        shadows = missing.pop(EVIDENCE["shadows"], self.policy.evidence.shadows if audit is None else 0)
        steps = []
        if shadows and command is None:
            steps.append(f"rp.audit_model(..., recipe=train, shadows={shadows}) (it takes a recipe)")
        elif command is not None and (shadows or audit is None):
            seconds, more = self.model.subject.seconds, shadows - self.counts.get("shadows", 0)
            time = "" if seconds is None else f" (about {duration(seconds * more)} of training)"
            one_target = audit is None or audit.targets == 1
            steps.append((command("shadows", shadows) if one_target else command("models", shadows + 2)) + time)
        steps += [f"audit at least {counted(count, what)}" for what, count in missing.items()]
        if not steps and audit is not None:
            more = 16 if audit.targets == 1 else 2 * audit.targets
            steps = [] if command is None else [f"{command('models', more)} (intervals then count models)"]
            steps.append(f"audit more {several(unit_of(audit, self.model.kinds[0]))}: intervals become narrower")
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """Give the decision as plain data."""
        return {
            "model": self.model.name,
            "policy": {**self.policy.model_dump(), "sha256": self.policy.digest},
            "outcome": self.outcome,
            "status": self.state.word,
            "words": self.meaning,
            "attacked": self.attacked,
            "reasons": self.reasons,
            "tried": self.evidence,
            "evidence": self.counts,
            "not_tested": NOT_TESTED,
            "next_steps": self.next_steps,
            "false_failure_rate": self.false_failure_rate,
            "checks": [{**plain(check), "sentence": check.sentence} for check in self.checks],
        }


def decide(model: "ReportedModel", policy: Policy) -> Decision:
    """Hold a model's audit and guarantee against a policy.

    Only fixed attacks count. A limit on a measured value *failed* if chance is ruled out at the policy's error rate,
    divided by the number of everything that was looked at, and the lower confidence limit at that level lies above
    it. It is *met* if the upper confidence limit (or the estimate, as the policy says) of every attack lies within
    it, at the confidence of the audit or at 1 - the policy's error rate, whichever is higher. Everything else cannot
    be known.
    """
    audit = model.audit
    if audit is None:
        missing = Check("audit", "unknown", "run “resperturb audit” first", found="it was not audited")
        return Decision(model, policy, (missing, *_proven(None, model.guarantee, policy)), {}, 0.0)
    measured = list(_wanted(audit, policy))
    looked_at = sum(len(one.found) for one in measured)
    # Not the audit's confidence alone: intervals at a low one are next to nothing, and pass anything.
    confidence = max(audit.confidence, 1 - policy.error_rate)
    counts = _counts(audit)
    checks = [
        *_lacking(counts, policy),
        *_alike(audit),
        *(one.check(policy.error_rate / max(looked_at, 1), confidence, policy) for one in measured),
        *_shown(audit, model.guarantee, policy),
        *_proven(audit, model.guarantee, policy),
    ]
    by_bound = policy.limits.epsilon_shown is not None or policy.limits.epsilon_proven is not None
    rate = (policy.error_rate if looked_at else 0.0) + (1 - audit.confidence if by_bound else 0.0)
    return Decision(model, policy, tuple(checks), counts, rate)


def _alike(audit: AuditResult) -> Iterator[Check]:
    if COARSE in audit.caveats:
        yield Check("answers", "unknown", "did training use its rows?", found="models of different rows answer alike")


def _counts(audit: AuditResult) -> dict[str, int]:
    records = audit.candidates.get(RECORD, 0)
    canaries = sum(audit.candidates.values()) - records
    return {
        "shadows": audit.shadows.count,
        "records": records,
        "canaries": canaries,
        "fixed_attacks": len(audit.fixed),
    }


def tried(audit: AuditResult, least: RequiredEvidence | None = None) -> str:
    """Say what an audit did, in a few words, and what of it is less than a policy asks for."""
    parts = []
    for name, has in _counts(audit).items():
        wanted, what = 0 if least is None else getattr(least, name), EVIDENCE[name]
        if has or wanted:
            parts.append(f"{has} of {wanted} {several(what)}" if has < wanted else counted(has, what))
            if name == "records" and audit.groups:
                parts[-1] += f" of {counted(audit.groups, group_name(audit))}"
    return " · ".join(parts)


def _lacking(counts: dict[str, int], policy: Policy) -> Iterator[Check]:
    for name, has in counts.items():
        wanted = getattr(policy.evidence, name)
        if has < wanted:
            verdict = f"the policy asks for {counted(wanted, EVIDENCE[name])}, and the audit has {has or 'none'}"
            yield Check(EVIDENCE[name], "unknown", verdict, found=str(has), limit=wanted, value=has)


@dataclass(frozen=True)
class _Limited:
    """What a limit is about: what attacks found of it, by their names, or why nothing was found.

    ``chance`` is what guessing gives.
    """

    demand: str
    title: str
    limit: float
    found: Sequence[tuple[str, AttackMetrics | TruePositiveRate]]
    missing: str
    chance: float = 0.5

    def check(self, level: float, confidence: float, policy: Policy) -> Check:
        """Compare the limit with the interval of what the strongest attack would find among many candidates.

        Its lower end is the largest lower limit at ``level``, its upper end the largest upper limit of any attack,
        which needs no correction: a model passes only if every attack's does.
        """
        rate = self.chance < 0.5
        if not self.found:
            missing = f"not known: {self.missing}"
            return Check(self.demand, "unknown", missing, self.title, limit=self.limit, rate=rate)
        attack, strongest = max(self.found, key=lambda one: one[1].estimate.value)
        value, low = strongest.estimate.value, max(self._low(found, level) for _, found in self.found)
        high = max(value, *(_high(found, confidence) for _, found in self.found))
        if policy.pass_by == "estimate":
            most = max(value, *(_high(found, confidence) if _tied(found) else 0.0 for _, found in self.found))
        else:
            most = high
        outcome: Outcome = "failed" if low > self.limit else "met" if most <= self.limit else "unknown"
        shown, ends = f"{value:.3f}", f"{low:.3f} to {high:.3f}"
        if rate:
            shown, ends = f"{100 * value:.1f}%", f"{100 * low:.1f} to {100 * high:.1f}%"
        how = {"failed": "is above the limit", "unknown": "includes the limit", "met": "is within the limit"}
        verdict = f"{ends} {how[outcome]}"
        if outcome == "met" and high > self.limit:
            verdict = f"{shown} is within the limit; the interval, {ends}, is not"
        interval = Interval(low, high)
        return Check(self.demand, outcome, verdict, self.title, shown, self.limit, value, interval, attack, rate)

    def _low(self, found: AttackMetrics | TruePositiveRate, level: float) -> float:
        """The limit below which the true value lies with a probability of at most ``level``.

        It is chance at most where a test at that level does not rule out chance.
        """
        if _tied(found):
            return 0.0
        low = found.estimate.interval(1 - 2 * level).low
        return low if found.p_value < level else min(low, self.chance)


def _tied(found: AttackMetrics | TruePositiveRate) -> bool:
    return isinstance(found, TruePositiveRate) and found.tied


def _high(found: AttackMetrics | TruePositiveRate, confidence: float) -> float:
    """The largest value that is not ruled out; of tied scores, if those who share the highest are taken at random."""
    if not _tied(found):
        return found.estimate.interval(confidence).high
    threshold = found.estimate.threshold
    return 1.0 if threshold is None else threshold.tied(round(found.estimate.freedom), confidence).high


def _wanted(audit: AuditResult, policy: Policy) -> Iterator[_Limited]:
    limits, unit = policy.limits, unit_of(audit, GROUP)
    groups: list[tuple[str, AttackMetrics]] = []
    records: list[tuple[str, AttackMetrics]] = []
    canaries: list[tuple[str, AttackMetrics]] = []
    for attack in audit.fixed:
        for kind, metrics in attack.metrics.items():
            found = groups if kind.startswith(GROUP) else records if kind == RECORD else canaries
            found.append((attack.full_name, metrics))
    for found, per, one in ((groups, f" per {unit}", unit), (records, "", RECORD))[0 if groups else 1 :]:
        if limits.auc is not None:
            missing = "no attack was on records"
            yield _Limited(f"AUC{per}", f"Finding a typical {one} (AUC)", limits.auc, found, missing)
        for fpr, limit in ((0.01, limits.tpr_at_1_percent_fpr), (0.001, limits.tpr_at_0_1_percent_fpr)):
            if limit is not None:
                title = f"{several(one).capitalize()} found at {100 * fpr:g}% false alarms (TPR)"
                missing = "too few non-members for so low a rate, or scores tie"
                yield _Limited(f"TPR at {100 * fpr:g}% FPR{per}", title, limit, _rates(found, fpr), missing, fpr)
    if limits.most_exposed_auc is not None:
        most = audit.exposed
        exposed = [] if most is None or most.metrics is None else [(most.attack, most.metrics)]
        title = f"Finding the {f'{most.count} ' if most is not None else ''}most exposed records (AUC)"
        missing = "only shadow models can identify them, and there were none"
        if audit.shadows.count:
            missing = "an audit of several targets does not choose them"
        yield _Limited("AUC on the most exposed", title, limits.most_exposed_auc, exposed, missing)
    if limits.canary_auc is not None:
        missing = "there were no canaries"
        yield _Limited("AUC on canaries", "Finding canaries (AUC)", limits.canary_auc, canaries, missing)


def _rates(every: Sequence[tuple[str, AttackMetrics]], fpr: float) -> list[tuple[str, TruePositiveRate]]:
    """The true positive rates that can be seen: there are enough non-members, also counted in groups."""
    found = []
    for attack, one in every:
        rate, whole = one.at_fpr(fpr), one.members + one.nonmembers
        seen = can_be_seen(fpr, round(one.nonmembers * (one.groups or whole) / whole))
        if seen and rate is not None:
            found.append((attack, rate))
    # Where all scores tie, nothing was measured.
    return [] if all(rate.tied for _, rate in found) else found


def _shown(audit: AuditResult, guarantee: Guarantee, policy: Policy) -> Iterator[Check]:
    limit, lower = policy.limits.epsilon_shown, audit.epsilon_lower
    if limit is None:
        return
    proven = guarantee.claimed_epsilon
    title = f"Epsilon shown by attacks (proven: {'none' if proven == math.inf else f'≤ {number(proven)}'})"
    if lower.unmet:
        yield Check("epsilon shown", "unknown", lower.words, title, limit=limit)
        return
    found = f"≥ {number(lower.epsilon)}"
    above = lower.epsilon > limit
    verdict = "above the limit" if above else "not exceeded (cannot clear a model)"
    yield Check("epsilon shown", "failed" if above else "met", verdict, title, found, limit, lower.epsilon)


def _proven(audit: AuditResult | None, guarantee: Guarantee, policy: Policy) -> Iterator[Check]:
    limit, delta = policy.limits.epsilon_proven, policy.limits.delta_proven
    if limit is None:
        return
    epsilon, words = guarantee.claimed_epsilon, guarantee.words.rstrip(".")
    if epsilon == math.inf and not guarantee.not_met:
        words = f"{guarantee.setting[0].lower()}{guarantee.setting[1:]}".rstrip(".")
    outcome: Outcome = "failed"
    if audit is not None and audit.verdict == "refuted":
        verdict = "refuted, for an attack showed more than was proven possible"
    elif epsilon > limit:
        verdict = f"{words}; the policy asks for {number(limit)} or less"
    elif audit is not None and audit.groups and per_record(guarantee):
        unit = unit_of(audit, GROUP)
        verdict = f"{words}, of one record, and a {unit} may have several: nothing is proven per {unit}"
        outcome = "unknown"
    elif guarantee.delta > delta:
        verdict, outcome = f"{words}; the policy asks for a delta of {delta:g} or less", "unknown"
    elif guarantee.records is not None and guarantee.delta * guarantee.records >= 1:
        verdict = f"{words}; so large a delta permits to publish one of {guarantee.records} records outright"
        outcome = "unknown"
    else:
        verdict, outcome = f"{words}, within the limit if its assumptions hold", "met"
    found, value = ("none", None) if epsilon == math.inf else (f"≤ {number(epsilon)}", epsilon)
    yield Check("epsilon proven", outcome, verdict, "Epsilon proven", found, limit, value)
