"""Everything two arrays of scores say about an attack, in one object."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.bounds.bayes import bayesian
from resperturb.bounds.one_run import one_run, one_run_fdp
from resperturb.bounds.rates import clopper_pearson, gdp
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import check_probability, check_scores
from resperturb.bounds.thresholds import Split
from resperturb.files import plain

CAVEATS = (
    "An epsilon of 0 means that this attack showed nothing; it does not mean that nothing leaks.",
    "Take the recommended bound, or settle on another before looking: the largest of several bounds does not hold "
    "with the stated confidence.",
    "one_run and one_run_fdp hold only if every canary was put in by its own fair coin.",
    "gdp assumes a Gaussian privacy curve; bayesian is a degree of belief, not a rate of error.",
    "balanced_accuracy is that of the best threshold in hindsight, which flatters the attack when scores are few.",
)


@dataclass(frozen=True)
class ScoreAudit:
    """Metrics with intervals, every lower bound on epsilon, and which of them was to be used before looking.

    A bound is None where it is not defined: the Gaussian one at delta 0.
    """

    metrics: AttackMetrics
    delta: float
    confidence: float
    bounds: dict[str, LowerBound | None]
    recommended: str

    @property
    def why(self) -> str:
        """Say for which audits the recommended bound is the right one."""
        bound = self.bounds[self.recommended]
        if bound and bound.unmet:
            return f"It was asked for, but its assumption is not met: {' '.join(bound.unmet)}"
        if self.recommended == "one_run":
            return "The scores come from one training with randomised canaries, so the one-run bound applies."
        return (
            "The default for independent scores: it assumes no privacy curve and no prior. For many canaries in one "
            "model, each put in by a fair coin, ask for the one-run bound instead."
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Say what a reader must know before quoting a number."""
        if self.metrics.auc_interval.high < 0.5:
            reversed_scores = "Members score lower than non-members: were losses given without negating them?"
            return (reversed_scores, *CAVEATS)
        return CAVEATS

    def to_dict(self) -> dict[str, Any]:
        """Return the whole audit, ready for JSON."""
        recommended = self.bounds[self.recommended]
        return {
            **plain(self.metrics),
            "epsilon_lower": {name: bound and bound.epsilon for name, bound in self.bounds.items()},
            "recommended": {
                "method": self.recommended,
                "epsilon": recommended and recommended.epsilon,
                "why": self.why,
            },
            "delta": self.delta,
            "confidence": self.confidence,
            "bounds": {name: bound and bound.to_dict() for name, bound in self.bounds.items()},
            "caveats": list(self.caveats),
        }


def audit_scores(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    one_run_design: bool = False,
    seed: int = 0,
) -> ScoreAudit:
    """Compute all metrics and bounds of an attack's scores.

    Args:
        members: Scores of the members, higher where the attack says *member*.
        nonmembers: Scores of the non-members.
        delta: The delta at which epsilon is bounded.
        confidence: Of every bound and interval.
        one_run_design: Whether they are canaries of one training, each put in by a coin: recommends that bound.
        seed: Of the Bayesian bound's split.

    Returns:
        All metrics and bounds, and which bound was to be used before looking.

    Raises:
        UsageError: The scores, delta or confidence cannot be used.

    >>> audit = audit_scores([3.0] * 40, [1.0] * 40)
    >>> audit.metrics.auc, audit.recommended, round(audit.bounds["clopper_pearson"].epsilon, 2)
    (1.0, 'clopper_pearson', 2.75)
    """
    ins, outs = check_scores(members, nonmembers)
    check_probability("delta", delta, zero=True)
    return ScoreAudit(
        metrics=attack_metrics(ins, outs, confidence=confidence),
        delta=delta,
        confidence=confidence,
        bounds={
            "clopper_pearson": clopper_pearson(ins, outs, delta=delta, confidence=confidence),
            "one_run": one_run(ins, outs, delta=delta, confidence=confidence),
            "one_run_fdp": one_run_fdp(ins, outs, delta=delta, confidence=confidence),
            "gdp": gdp(ins, outs, delta=delta, confidence=confidence) if delta else None,
            "bayesian": bayesian(ins, outs, delta=delta, confidence=confidence, thresholds=Split(seed=seed)),
        },
        recommended="one_run" if one_run_design else "clopper_pearson",
    )
