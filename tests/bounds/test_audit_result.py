"""One corrected test decides whether a leak was seen, and the printed interval agrees."""

import numpy as np
import pytest
from scipy.stats import binom

from resperturb.bounds import AttackResult, attack_metrics
from resperturb.bounds.audit_result import corrected


def attacks(rng: np.random.Generator, effect: float) -> list[AttackResult]:
    """Six fixed attacks and one in hindsight, whose scores are related, on records and on canaries."""
    shared = rng.normal(size=160)
    members = rng.random(160) < 0.5
    found = []
    for number in range(7):
        scores = shared + rng.normal(size=160) + effect * members
        metrics = {
            kind: attack_metrics(scores[who & members], scores[who & ~members])
            for kind, who in (("record", np.arange(160) < 120), ("blank", np.arange(160) >= 120))
        }
        found.append(AttackResult(f"a{number}", "", "served", 1, None, number < 6, metrics))
    return found


@pytest.mark.parametrize("kind", ["record", "blank"])
def test_of_all_attacks_and_kinds_the_strongest_interval_is_above_one_half_no_more_often_than_stated(
    kind: str,
) -> None:
    rng, trials, leaks, strongest, single = np.random.default_rng(0), 400, 0, 0, 0
    for _ in range(trials):
        made = attacks(rng, 0.0)
        fixed = [attack for attack in corrected(made, 0.95) if attack.fixed]
        leaks += any(found.shows_leak for attack in fixed for found in attack.metrics.values())
        strongest += (
            max((attack.metrics[kind] for attack in fixed), key=lambda found: found.auc).auc_interval.low > 0.5
        )
        single += any(found.shows_leak for attack in made for found in attack.metrics.values())
    most = binom.isf(1e-3, trials, 0.025)
    assert leaks <= most
    assert strongest <= most
    # Without the correction any attack on any kind would be called a leak this often.
    assert single > binom.isf(1e-3, trials, 0.05)


def test_the_correction_counts_the_tests_of_fixed_attacks_and_changes_nothing_when_repeated() -> None:
    made = attacks(np.random.default_rng(1), 1.5)
    once = corrected(made, 0.95)
    assert once == corrected(once, 0.95)
    assert once[0].metrics["record"].confidence == pytest.approx(1 - 0.05 / 12)
    assert [attack.auc for attack in once] == sorted((attack.auc for attack in made), reverse=True)
    assert all(attack.metrics["record"].shows_leak for attack in once)
