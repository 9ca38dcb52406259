"""Quantile regression: how high would the score of such a record be if it were no member?

Bertran, Tang, Roth, Kearns, Morgenstern and Wu, "Scalable Membership Inference Attacks via Quantile Regression"
(2023, arXiv:2307.03694). Two quantiles of the target's confidence, given what is known of a record, are learned on
the population, which has no members. The score is how far above the lower one a candidate lies, in units of
their distance. What is known of a record here is its label and what shadow models without it say on average.
"""

import numpy as np

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.arrays import Floats
from resperturb.bounds.scores import Scores
from resperturb.errors import UsageError

BERTRAN = "Bertran et al. 2023 (arXiv:2307.03694)"

MIDDLE, HIGH = 0.5, 0.9
_LEAST_WIDTH = 1e-3
_FEWEST_PER_LEAF = 20


@register_attack("quantile-regression", BERTRAN, needs=["shadows", "population"])
def _on_evidence(evidence: Evidence, view: View) -> Scores:
    signals, count = evidence.answers[view.access], evidence.count
    values = signals.statistic(view)[:, 0]
    classes = np.eye(int(signals.labels.max()) + 1)[signals.labels]
    features = np.concatenate([classes, evidence.known_shadows().outside[view].mean], axis=1)
    return quantile_scores(features[:count], values[:count], features[count:], values[count:])


def quantile_scores(features: Floats, values: Floats, population: Floats, population_values: Floats) -> Scores:
    """Return ``(value - q50)/(q90 - q50)``, with the quantiles of records like this one in the population.

    >>> rng = np.random.default_rng(0)
    >>> known, noise = rng.normal(size=(400, 1)), rng.normal(size=400)
    >>> scores = quantile_scores(known[:2], known[:2, 0] + [0.0, 9.0], known, known[:, 0] + noise)
    >>> bool(abs(scores[0]) < 1 < scores[1])
    True
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    if len(population) == 0:
        raise UsageError("quantile regression learns from a population, and there is none.")

    def quantile(level: float) -> Floats:
        model = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            max_iter=60,
            max_depth=3,
            min_samples_leaf=min(_FEWEST_PER_LEAF, max(1, len(population) // 4)),
            random_state=0,
            early_stopping=False,
        )
        found: Floats = model.fit(population, population_values).predict(features)
        return found

    # A few hundred rows: threads would mostly wait for each other, for seconds where the cores are busy.
    with threadpool_limits(limits=1, user_api="openmp"):
        middle, high = quantile(MIDDLE), quantile(HIGH)
    width = np.maximum(high - middle, _LEAST_WIDTH + 0.05 * float(np.std(population_values)))
    scores: Scores = (values - middle) / width
    return scores
