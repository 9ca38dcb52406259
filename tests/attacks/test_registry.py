"""A user's attack is one function, and no two attacks share a name."""

import numpy as np
import pytest

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, views
from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import ATTACKS, register_attack
from resperturb.attacks.signals import Query, Signals, View
from resperturb.errors import UsageError


def answers(rows: int) -> Signals:
    column = np.arange(rows, dtype=np.float32)[:, None]
    return Signals((1,), np.zeros(rows, dtype=np.int64), column, column > 0, column, column, column, column)


def test_a_users_attack_is_listed_and_scores() -> None:
    @register_attack("twice the confidence", "a test")
    def twice(evidence: Evidence, view: View) -> np.ndarray:
        return 2 * evidence.target(view)[:, 0]

    try:
        names = [attack.name for attack in attacks_on(views([Query("weights")]), shadows=0)]
        assert "twice the confidence" in names
        evidence = Evidence({"weights": answers(4)}, None, count=3)
        attack = PlannedAttack("twice the confidence", View("weights", 1))
        assert attack.published.score(evidence, attack.view).tolist() == [0, 2, 4]
        assert not attack.bounding
    finally:
        ATTACKS._found.pop("twice the confidence")


def test_a_name_is_given_once() -> None:
    assert "loss" in ATTACKS  # which loads the built-in ones
    with pytest.raises(UsageError, match="'loss' already"):
        register_attack("loss", "a test")(lambda evidence, view: evidence.target(view)[:, 0])


def test_every_attack_names_its_publication_and_its_needs() -> None:
    for name in ATTACKS:
        method = ATTACKS[name]
        assert "arXiv:" in method.reference
        assert method.needs <= {"shadows", "population", "each"}
        assert method.combinations
