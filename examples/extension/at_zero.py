from dataclasses import replace

from resperturb.bounds import CanaryScores, Given, LowerBound, clopper_pearson, register_bound


@register_bound("at_zero", "Kairouz, Oh and Viswanath 2015", design="independent")
def at_zero(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    """Bound epsilon by the error rates at threshold 0."""
    found = clopper_pearson(
        scores.members, scores.nonmembers, delta=delta, confidence=confidence, thresholds=Given(0.0)
    )
    return replace(found, method="at_zero")
