"""The scoring of an audit: every attack on random predictions, to measure its cost."""

import numpy as np

from resperturb.attacks import Evidence, Query, ShadowStatistics, Signals, attacks_on, views


class Scoring:
    """All attacks of an audit, ready to score.

    Args:
        records: Number of candidates.
        shadows: Number of shadow models.
        draws: Number of queries per model and record.

    >>> scored = Scoring(records=50, shadows=4, draws=2)
    >>> scored.run()
    """

    def __init__(self, records: int, shadows: int, draws: int) -> None:
        query = Query("served", tuple(sorted({1, draws})))
        seen, rng = views([query]), np.random.default_rng(0)
        statistics = ShadowStatistics.empty(seen, records)
        members = rng.random(records) < 0.5
        for _ in range(shadows):
            statistics.change({"served": random_answers(rng, records, query)}, members)
            members = ~members  # as in an audit, half of the shadow models are trained on a record
        self._evidence = Evidence({"served": random_answers(rng, records, query)}, statistics, records * 9 // 10)
        every = attacks_on(seen, shadows)
        self._attacks = [attack for attack in every if "each" not in attack.published.needs]

    def run(self) -> None:
        """Let every attack score every candidate."""
        for attack in self._attacks:
            attack.published.score(self._evidence, attack.view)


def random_answers(rng: np.random.Generator, records: int, query: Query, labels: np.ndarray | None = None) -> Signals:
    """Make up a model's predictions of ``records`` records."""
    shape = records, query.draws

    def averaged(*more: int) -> np.ndarray:
        return rng.standard_normal((records, len(query.averages), *more), dtype=np.float32)

    return Signals(
        query.averages,
        labels=rng.integers(0, 10, records) if labels is None else labels,
        confidence=rng.standard_normal(shape, dtype=np.float32),
        correct=rng.random(shape) < 0.8,
        mean_confidence=averaged(),
        top=averaged(3),
        entropy=averaged(),
        modified_entropy=averaged(),
    )
