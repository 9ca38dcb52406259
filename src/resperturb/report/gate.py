"""Is a policy met? Yes, no, or it cannot be known: too little evidence is not a pass."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import GROUP, RECORD, AuditResult
from resperturb.bounds.intervals import Interval
from resperturb.bounds.metrics import can_be_seen
from resperturb.privacy import Guarantee
from resperturb.privacy.guarantee import number
from resperturb.report.policy import EVIDENCE, Policy
from resperturb.report.wording import counted, group_name, several, unit_of

Outcome = Literal["met", "failed", "unknown"]

EXIT_CODES: dict[Outcome, int] = {"met": 0, "failed": 1, "unknown": 2}


@dataclass(frozen=True)
class Check:
    """One demand of a policy: the outcome, and a sentence that says why.

    Attributes:
        demand: The demand: ``AUC``.
        outcome: What came of it.
        sentence: Why.
        value: The measured value; None where nothing was measured.
        interval: The interval that decides: ``failed`` if it lies above the limit, ``met`` if it lies within.
        limit: The largest value that is permitted, or the least number that is required.
        title: The demand without a technical term: ``Finding a typical record``.
    """

    demand: str
    outcome: Outcome
    sentence: str
    value: float | None = None
    interval: Interval | None = None
    limit: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Decision:
    """Whether a policy is met, demand by demand.

    ``tried`` says what the audit did, ``false_failure_rate`` how many of the models that show nothing would fail, and
    ``evidence`` how many of each kind of evidence there were.
    """

    checks: tuple[Check, ...]
    tried: str
    false_failure_rate: float
    evidence: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """``failed`` if anything failed; ``met`` only if everything was met."""
        found = {check.outcome for check in self.checks}
        return "failed" if "failed" in found else "unknown" if "unknown" in found else "met"

    @property
    def exit_code(self) -> int:
        """0 if the policy is met, 1 if it is not, 2 if that cannot be known."""
        return EXIT_CODES[self.outcome]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences that decided: of what failed, or else of what cannot be known, or else of all."""
        return tuple(check.sentence for check in self.checks if check.outcome == self.outcome)


@dataclass(frozen=True)
class _Metric:
    """What one attack found among one kind of candidate: its AUC, or its true positive rate at ``fpr``."""

    attack: str
    kind: str
    metrics: AttackMetrics
    fpr: float | None = None

    @property
    def _found(self) -> AttackMetrics | TruePositiveRate:
        rate = None if self.fpr is None else self.metrics.at_fpr(self.fpr)
        return self.metrics if rate is None else rate

    @property
    def value(self) -> float:
        return self._found.estimate.value

    def low(self, level: float) -> float:
        """The limit below which the true value lies with a probability of at most ``level``.

        It is chance at most where a test at that level does not rule out chance.
        """
        low = self._found.estimate.interval(1 - 2 * level).low
        return low if self._found.p_value < level else min(low, 0.5 if self.fpr is None else self.fpr)

    def high(self, confidence: float) -> float:
        """The upper end of the interval of this attack alone."""
        return self._found.estimate.interval(confidence).high


def decide(audit: AuditResult | None, guarantee: Guarantee, policy: Policy) -> Decision:
    """Hold an audit and a guarantee against a policy.

    Only fixed attacks count. A limit on a measured value *failed* if chance is ruled out at the policy's error rate,
    divided by the number of everything that was looked at, and the lower confidence limit at that level lies above
    it. It is *met* if the upper confidence limit (or the estimate, as the policy says) of every attack lies within
    it. Everything else cannot be known.

    Args:
        audit: What was found; None for a model that was not audited.
        guarantee: What is proven.
        policy: What is permitted.

    Returns:
        The decision.

    >>> from resperturb.privacy import nothing_proven
    >>> from resperturb.report.policy import default_policy
    >>> decide(None, nothing_proven("It was trained without noise."), default_policy()).outcome
    'unknown'
    """
    limits = policy.limits
    if audit is None:
        missing = Check("audit", "unknown", "It was not audited: run “resperturb audit” first.")
        return Decision((missing, *_proven(None, guarantee, policy)), "nothing", 0.0)
    measured = list(_wanted(audit, policy))
    looked_at = sum(len(one.found) for one in measured)
    level = policy.error_rate / max(looked_at, 1)
    evidence = _evidence(audit)
    checks = [
        *_lacking(evidence, policy),
        *(_measured(one, level, audit.confidence, policy) for one in measured),
        *_shown(audit, policy),
        *_proven(audit, guarantee, policy),
    ]
    by_bound = limits.epsilon_shown is not None or limits.epsilon_proven is not None
    rate = (policy.error_rate if looked_at else 0.0) + (1 - audit.confidence if by_bound else 0.0)
    return Decision(tuple(checks), tried(audit), rate, evidence)


def tried(audit: AuditResult) -> str:
    """Say what an audit did, in a few words."""
    records = audit.candidates.get(RECORD, 0)
    canaries = sum(audit.candidates.values()) - records
    about = [counted(records, "record")] if records else []
    about += [counted(canaries, "canary")] if canaries else []
    shadows = counted(audit.shadows.count, "shadow model") if audit.shadows.count else "no shadow models"
    of = f" of {counted(audit.groups, group_name(audit))}" if audit.groups else ""
    return f"{counted(len(audit.fixed), 'attack')} with {shadows} on {' and '.join(about)}{of}"


def _evidence(audit: AuditResult) -> dict[str, int]:
    records = audit.candidates.get(RECORD, 0)
    return {
        "shadows": audit.shadows.count,
        "records": records,
        "canaries": sum(audit.candidates.values()) - records,
        "fixed_attacks": len(audit.fixed),
    }


def _lacking(evidence: dict[str, int], policy: Policy) -> Iterator[Check]:
    for name, has in evidence.items():
        wanted = getattr(policy.evidence, name)
        if has < wanted:
            what = EVIDENCE[name]
            asked = f"the policy asks for {counted(wanted, what)}"
            said = f"Not enough evidence: {asked}, and the audit has {has or 'none'}."
            yield Check(what, "unknown", said, float(has), None, float(wanted))


@dataclass(frozen=True)
class _Limited:
    """What a limit is about: everything that was found of it, or why nothing was."""

    demand: str
    title: str
    limit: float
    found: list[_Metric]
    missing: str


def _wanted(audit: AuditResult, policy: Policy) -> Iterator[_Limited]:
    limits = policy.limits
    every = [
        _Metric(attack.full_name, kind, metrics) for attack in audit.fixed for kind, metrics in attack.metrics.items()
    ]
    groups = [found for found in every if found.kind.startswith(GROUP)]
    records = [found for found in every if found.kind == RECORD]
    canaries = [found for found in every if found not in groups and found not in records]
    unit = unit_of(audit, GROUP)
    of = ((groups, f" per {unit}", unit), (records, "", RECORD)) if groups else ((records, "", RECORD),)
    for found, per, one in of:
        if limits.auc is not None:
            missing = "no attack was on records"
            yield _Limited(f"AUC{per}", f"Finding a typical {one}", limits.auc, found, missing)
        for fpr, limit in ((0.01, limits.tpr_at_1_percent_fpr), (0.001, limits.tpr_at_0_1_percent_fpr)):
            if limit is not None:
                title = f"{several(one).capitalize()} found at {100 * fpr:g}% false alarms"
                missing = "there were too few non-members for so low a rate, or scores tie"
                yield _Limited(f"TPR at {100 * fpr:g}% FPR{per}", title, limit, _rates(found, fpr), missing)
    if limits.most_exposed_auc is not None:
        most, exposed = audit.exposed, []
        if most is not None and most.metrics is not None:
            exposed.append(_Metric(most.attack, f"the {most.count} most exposed", most.metrics))
        title = f"Finding the {most.count if exposed and most else ''} most exposed records".replace("  ", " ")
        missing = "only shadow models can identify them, and there were none"
        yield _Limited("AUC on the most exposed", title, limits.most_exposed_auc, exposed, missing)
    if limits.canary_auc is not None:
        yield _Limited("AUC on canaries", "Finding canaries", limits.canary_auc, canaries, "there were no canaries")


def _rates(every: Sequence[_Metric], fpr: float) -> list[_Metric]:
    """Those whose true positive rate can be seen: enough non-members, also counted in groups, and no tie."""
    found = []
    for one in every:
        rate = one.metrics.at_fpr(fpr)
        if rate is None or rate.tied:
            continue
        whole = one.metrics.members + one.metrics.nonmembers
        if can_be_seen(fpr, round(one.metrics.nonmembers * (one.metrics.groups or whole) / whole)):
            found.append(replace(one, fpr=fpr))
    return found


def _measured(limited: _Limited, level: float, confidence: float, policy: Policy) -> Check:
    """Compare a limit with the interval of what the strongest attack would find among many candidates.

    Its lower end is the largest lower limit at ``level``, its upper end the largest upper limit of any attack, which
    needs no correction: a model passes only if every attack's does.
    """
    demand, limit, found = limited.demand, limited.limit, limited.found
    if not found:
        said = f"{demand}: not measured, for {limited.missing}."
        return Check(demand, "unknown", said, limit=limit, title=limited.title)
    strongest = max(found, key=lambda one: one.value)
    value, low = strongest.value, max(one.low(level) for one in found)
    interval = Interval(low, max(value, *(one.high(confidence) for one in found)))
    most = value if policy.pass_by == "estimate" else interval.high
    outcome: Outcome = "failed" if low > limit else "met" if most <= limit else "unknown"
    which = {
        "failed": f"above the limit of {limit:g}",
        "met": f"within the limit of {limit:g}",
        "unknown": f"which does not tell whether it is above the limit of {limit:g}",
    }[outcome]
    said = f"{demand}: {value:.3f} ({low:.3f} to {interval.high:.3f}) by {strongest.attack}, {which}."
    return Check(demand, outcome, said, value, interval, limit, limited.title)


def _shown(audit: AuditResult, policy: Policy) -> Iterator[Check]:
    limit, lower = policy.limits.epsilon_shown, audit.epsilon_lower
    if limit is None:
        return
    demand, title = "epsilon shown", "Epsilon shown by attacks"
    if lower.unmet:
        yield Check(demand, "unknown", f"Epsilon shown: {lower.words}", limit=limit, title=title)
        return
    outcome: Outcome = "failed" if lower.epsilon > limit else "met"
    said = f"Epsilon shown: {lower.words}, {'above' if outcome == 'failed' else 'within'} the limit of {limit:g}."
    yield Check(demand, outcome, said, lower.epsilon, None, limit, title)


def _proven(audit: AuditResult | None, guarantee: Guarantee, policy: Policy) -> Iterator[Check]:
    limit, delta = policy.limits.epsilon_proven, policy.limits.delta_proven
    if limit is None:
        return
    epsilon = guarantee.claimed_epsilon
    words, outcome = guarantee.words.rstrip("."), "failed"
    if audit is not None and audit.verdict == "refuted":
        said = "refuted, for an attack showed more than was proven possible"
    elif epsilon > limit:
        said = f"{words}; the policy asks for {number(limit)} or less"
    elif guarantee.delta > delta:
        said, outcome = f"{words}; the policy asks for a delta of {delta:g} or less", "unknown"
    else:
        said, outcome = f"{words}, within the limit of {number(limit)}, if its assumptions hold", "met"
    value = epsilon if epsilon < math.inf else None
    sentence, title = f"Epsilon proven: {said}.", "Epsilon proven"
    yield Check("epsilon proven", cast(Outcome, outcome), sentence, value, None, limit, title)
