"""Is a policy met? Yes, no, or it cannot be known: too little evidence is not a pass."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import GROUP, RECORD, AuditResult
from resperturb.bounds.intervals import Interval
from resperturb.bounds.metrics import can_be_seen
from resperturb.privacy import Guarantee
from resperturb.privacy.guarantee import number
from resperturb.report.policy import EVIDENCE, Policy
from resperturb.report.wording import counted

Outcome = Literal["met", "failed", "unknown"]

EXIT_CODES: dict[Outcome, int] = {"met": 0, "failed": 1, "unknown": 2}


@dataclass(frozen=True)
class Check:
    """One demand of a policy: what came of it, and a sentence that says why."""

    demand: str
    outcome: Outcome
    sentence: str
    value: float | None = None
    interval: Interval | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Decision:
    """Whether a policy is met, demand by demand.

    ``tried`` says what the audit did, ``false_failure_rate`` how many of the models that show nothing would fail.
    """

    checks: tuple[Check, ...]
    tried: str
    false_failure_rate: float

    @property
    def outcome(self) -> Outcome:
        """``failed`` if anything failed; ``met`` only if everything was met."""
        found = {check.outcome for check in self.checks}
        return "failed" if "failed" in found else "unknown" if "unknown" in found else "met"

    @property
    def exit_code(self) -> int:
        """0 if the policy is met, 1 if it is not, 2 if it cannot be known."""
        return EXIT_CODES[self.outcome]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences that decided: of what failed, or else of what cannot be known, or else of all."""
        return tuple(check.sentence for check in self.checks if check.outcome == self.outcome)

    @property
    def words(self) -> str:
        """The decision in a sentence."""
        return {
            "met": f"The policy is met by what was tried: {self.tried}. A stronger attack may still find more.",
            "failed": f"The policy is not met. Tried: {self.tried}.",
            "unknown": f"Whether the policy is met cannot be known. Tried: {self.tried}.",
        }[self.outcome]


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

    @property
    def interval(self) -> Interval:
        """The interval that the audit prints."""
        found = self._found
        return found.interval if isinstance(found, TruePositiveRate) else found.auc_interval

    @property
    def p_value(self) -> float:
        """How often a model that shows nothing is attacked as well."""
        return self._found.p_value

    def at(self, level: float) -> Interval:
        """The interval beyond either end of which the true value lies with a probability of at most ``level``."""
        return self._found.estimate.interval(1 - 2 * level)


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
    counted = sum(len(found) for _, _, found in measured)
    level = policy.error_rate / max(counted, 1)
    checks = [
        *_evidence(audit, policy),
        *(_measured(demand, limit, found, level, policy) for demand, limit, found in measured),
        *_shown(audit, policy),
        *_proven(audit, guarantee, policy),
    ]
    by_bound = limits.epsilon_shown is not None or limits.epsilon_proven is not None
    rate = (policy.error_rate if counted else 0.0) + (1 - audit.confidence if by_bound else 0.0)
    return Decision(tuple(checks), tried(audit), rate)


def tried(audit: AuditResult) -> str:
    """Say what an audit did, in a few words."""
    records = audit.candidates.get(RECORD, 0)
    canaries = sum(audit.candidates.values()) - records
    about = [counted(records, "record")] if records else []
    about += [counted(canaries, "canary")] if canaries else []
    shadows = counted(audit.shadows.count, "shadow model") if audit.shadows.count else "no shadow models"
    of = f" of {counted(audit.groups, 'group')} (patients)" if audit.groups else ""
    return f"{counted(len(audit.fixed), 'attack')} with {shadows} on {' and '.join(about)}{of}"


def _evidence(audit: AuditResult, policy: Policy) -> Iterator[Check]:
    least = policy.evidence
    records = audit.candidates.get(RECORD, 0)
    found = {
        "shadows": audit.shadows.count,
        "records": records,
        "canaries": sum(audit.candidates.values()) - records,
        "fixed_attacks": len(audit.fixed),
    }
    for name, has in found.items():
        wanted = getattr(least, name)
        if has < wanted:
            what = EVIDENCE[name]
            asked = f"the policy asks for {counted(wanted, what)}"
            said = f"Not enough evidence: {asked}, and the audit has {has or 'none'}."
            yield Check(what, "unknown", said, float(has), None, float(wanted))


def _wanted(audit: AuditResult, policy: Policy) -> Iterator[tuple[str, float, list[_Metric]]]:
    limits = policy.limits
    every = [
        _Metric(attack.full_name, kind, metrics) for attack in audit.fixed for kind, metrics in attack.metrics.items()
    ]
    own = [found for found in every if found.kind == RECORD or found.kind.startswith(GROUP)]
    if limits.auc is not None:
        yield "AUC", limits.auc, own
    for fpr, limit in ((0.01, limits.tpr_at_1_percent_fpr), (0.001, limits.tpr_at_0_1_percent_fpr)):
        if limit is not None:
            yield f"TPR at {100 * fpr:g}% FPR", limit, _rates(own, fpr)
    if limits.canary_auc is not None:
        yield "AUC on canaries", limits.canary_auc, [found for found in every if found not in own]
    if limits.most_exposed_auc is not None:
        most = audit.exposed
        exposed = []
        if most is not None and most.metrics is not None:
            exposed.append(_Metric(most.attack, f"the {most.count} most exposed", most.metrics))
        yield "AUC on the most exposed", limits.most_exposed_auc, exposed


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


def _measured(demand: str, limit: float, found: Sequence[_Metric], level: float, policy: Policy) -> Check:
    if not found:
        why = {
            "AUC": "no attack asked about records",
            "AUC on canaries": "there were no canaries",
            "AUC on the most exposed": "only shadow models can tell who they are, and there were none",
        }.get(demand, "there were too few non-members for so low a rate, or scores tie")
        return Check(demand, "unknown", f"{demand}: not measured, for {why}.", limit=limit)
    strongest = max(found, key=lambda one: one.value)
    exceeding = [one for one in found if one.p_value < level and one.at(level).low > limit]
    if exceeding:
        worst = max(exceeding, key=lambda one: one.at(level).low)
        said = f"{_said(demand, worst, worst.at(level))}, shown to be above the limit of {limit:g}."
        return Check(demand, "failed", said, worst.value, worst.at(level), limit)
    if policy.pass_by == "upper limit":
        doubtful = max(found, key=lambda one: one.interval.high)
        if doubtful.interval.high > limit:
            said = f"{_said(demand, doubtful)}, which does not tell whether it is above the limit of {limit:g}."
            return Check(demand, "unknown", said, doubtful.value, doubtful.interval, limit)
    elif strongest.value > limit:
        said = f"{_said(demand, strongest)}, above the limit of {limit:g}, but no further than chance explains."
        return Check(demand, "unknown", said, strongest.value, strongest.interval, limit)
    said = f"{_said(demand, strongest)}, within the limit of {limit:g}."
    return Check(demand, "met", said, strongest.value, strongest.interval, limit)


def _said(demand: str, found: _Metric, interval: Interval | None = None) -> str:
    low, high = interval or found.interval
    on = "" if found.kind == RECORD or demand != "AUC" else f" on {found.kind}s" if found.kind == GROUP else ""
    return f"{demand}{on}: {found.value:.3f} ({low:.3f} to {high:.3f}) by {found.attack}"


def _shown(audit: AuditResult, policy: Policy) -> Iterator[Check]:
    limit, lower = policy.limits.epsilon_shown, audit.epsilon_lower
    if limit is None:
        return
    demand = "epsilon shown"
    if lower.unmet:
        yield Check(demand, "unknown", f"Epsilon shown: {lower.words}", limit=limit)
    elif lower.epsilon > limit:
        said = f"Epsilon shown: {lower.words}, above the limit of {limit:g}."
        yield Check(demand, "failed", said, lower.epsilon, None, limit)
    else:
        said = f"Epsilon shown: {lower.words}, within the limit of {limit:g}."
        yield Check(demand, "met", said, lower.epsilon, None, limit)


def _proven(audit: AuditResult | None, guarantee: Guarantee, policy: Policy) -> Iterator[Check]:
    limit, delta = policy.limits.epsilon_proven, policy.limits.delta_proven
    if limit is None:
        return
    demand, epsilon = "epsilon proven", guarantee.claimed_epsilon
    value = epsilon if epsilon < math.inf else None
    if audit is not None and audit.verdict == "refuted":
        said = "Epsilon proven: refuted, for an attack showed more than was proven possible."
        yield Check(demand, "failed", said, value, None, limit)
    elif epsilon > limit:
        said = f"Epsilon proven: {guarantee.words.rstrip('.')}; the policy asks for {number(limit)} or less."
        yield Check(demand, "failed", said, value, None, limit)
    elif guarantee.delta > delta:
        said = f"Epsilon proven: {guarantee.words}; the policy asks for a delta of {delta:g} or less."
        yield Check(demand, "unknown", said, value, None, limit)
    else:
        said = f"Epsilon proven: {guarantee.words}, within the limit of {number(limit)}, if its assumptions hold."
        yield Check(demand, "met", said, value, None, limit)
