"""Everything two arrays of scores say about an attack, in one object."""

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.bounds.registry import BOUNDS, Bound
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import CanaryScores, check_probability
from resperturb.errors import UsageError
from resperturb.files import plain

# How the scores were made: one model with a fair coin for each canary, a model trained anew for each score, or one
# model whose training set no coins chose.
ScoreDesign = Literal["coins", "independent", "one-model"]
_RECOMMENDED = {"coins": "one_run", "independent": "clopper_pearson"}
_WHY = {
    None: "Say how the scores were made: by one model whose canaries were each put in by a fair coin (coins), by a "
    "model trained anew for each score (independent), or by one model without coins (one-model).",
    "coins": "The scores come from one training with randomised canaries, so the one-run bound applies.",
    "independent": "The scores are independent of each other; this bound assumes no privacy curve.",
    "one-model": "Scores of one model are not independent, and no coins decided membership: no bound on epsilon "
    "applies. The AUC and the true positive rates do.",
}
CAVEATS = (
    "An epsilon of 0 means that this attack showed nothing; it does not mean that nothing leaks.",
    "Take the recommended bound, or settle on another before looking: the largest of several bounds does not hold "
    "with the stated confidence.",
    "one_run holds only if every canary was put in by its own fair coin.",
    "gdp assumes a Gaussian privacy curve.",
    "balanced_accuracy is that of the best threshold in hindsight, which flatters the attack when scores are few.",
)


@dataclass(frozen=True)
class ScoreAudit:
    """Metrics with intervals, every registered lower bound on epsilon, and the one that the design calls for.

    A bound is None where it is not defined: a Gaussian one at delta 0. ``design`` is None where it was not stated.
    """

    metrics: AttackMetrics
    delta: float
    confidence: float
    design: ScoreDesign | None
    bounds: dict[str, LowerBound | None]

    @property
    def recommended(self) -> str | None:
        """The bound to quote; None where the scores of this design allow none, or the design was not stated."""
        return _RECOMMENDED.get(self.design or "")

    @property
    def why(self) -> str:
        """The reason for the recommended bound, or for none."""
        bound = self.bounds[self.recommended] if self.recommended else None
        if bound and bound.unmet:
            return f"It was asked for, but its assumption is not met: {' '.join(bound.unmet)}"
        return _WHY[self.design]

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know before quoting a number."""
        if self.metrics.auc_interval.high < 0.5:
            reversed_scores = "Members score lower than non-members: were losses given without negating them?"
            return (reversed_scores, *CAVEATS)
        return CAVEATS

    def to_dict(self) -> dict[str, Any]:
        """Return the whole audit, ready for JSON."""
        recommended = self.bounds[self.recommended] if self.recommended else None
        return {
            **plain(self.metrics),
            "epsilon_lower": {name: bound and bound.epsilon for name, bound in self.bounds.items()},
            "design": self.design,
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
    design: ScoreDesign | None = None,
) -> ScoreAudit:
    """Compute all metrics and all registered bounds of an attack's scores.

    ``design`` says how the scores were made, and decides which bound is recommended: ``"coins"`` (one training, each
    canary put in by its own fair coin), ``"independent"`` (a model trained anew for each score) or ``"one-model"``
    (one model, no coins).

    Raises:
        UsageError: The scores, delta or confidence cannot be used.

    >>> audit = audit_scores([3.0] * 40, [1.0] * 40, design="independent")
    >>> audit.metrics.auc, audit.recommended, round(audit.bounds["clopper_pearson"].epsilon, 2)
    (1.0, 'clopper_pearson', 2.75)
    """
    scores = CanaryScores(members, nonmembers)
    check_probability("delta", delta, zero=True)
    if design is not None and design not in _WHY:
        raise UsageError(f"design must be 'coins', 'independent' or 'one-model', not {design!r}.")
    return ScoreAudit(
        metrics=attack_metrics(scores.members, scores.nonmembers, confidence=confidence),
        delta=delta,
        confidence=confidence,
        design=design,
        bounds={name: _if_defined(BOUNDS[name], scores, delta, confidence) for name in BOUNDS},
    )


def _if_defined(bound: Bound, scores: CanaryScores, delta: float, confidence: float) -> LowerBound | None:
    try:
        return bound.compute(scores, delta, confidence)
    except UsageError:  # the scores are checked: the bound is not defined at this delta
        return None
