"""Designs: coins, pairs, growth, and which models are evidence about which target."""

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from resperturb.auditing.design import given, leave_one_out, one_target
from resperturb.errors import UsageError


@forall(st.integers(0, 50), st.integers(2, 6), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_pairs_have_opposite_coins_and_a_seed_of_their_own(seed: int, pairs: int, size: int) -> None:
    units = np.arange(40) // size
    design = one_target(units, 2 * pairs, seed)
    for first in range(1, 2 * pairs, 2):
        assert (design.members[first] != design.members[first + 1]).all()
        assert design.seeds[first] == design.seeds[first + 1]
    assert len(set(design.seeds.tolist())) == pairs + 1
    assert design.seeds[0] not in design.seeds[1:]
    for row in design.members:
        assert all(len(set(row[units == unit])) == 1 for unit in np.unique(units))


def test_an_audit_grows_without_changing_existing_models() -> None:
    few, many = one_target(np.arange(30), 4, seed=3), one_target(np.arange(30), 8, seed=3)
    assert (few.members == many.members[:5]).all()
    assert (few.seeds == many.seeds[:5]).all()
    few, many = leave_one_out(np.arange(30), 6, seed=3), leave_one_out(np.arange(30), 10, seed=3)
    assert (few.members == many.members[:6]).all()


def test_a_target_is_no_evidence_about_itself_and_neither_is_its_partner() -> None:
    design = leave_one_out(np.arange(30), 8, seed=0)
    for target in range(8):
        evidence = [number for number, _ in design.evidence(target)]
        assert set(evidence) == set(range(8)) - {target, target ^ 1}
        assert (design.members[evidence].sum(axis=0) == 3).all()
    left = design.without([2, 3])
    assert [number for number, _ in left.evidence(0)] == [4, 5, 6, 7]
    assert left.targets.tolist() == [0, 1, 4, 5, 6, 7]


def test_a_balanced_assignment_is_found_out_and_evened_up() -> None:
    rng = np.random.default_rng(0)
    members = np.zeros((8, 50), dtype=bool)
    for row in range(50):
        members[rng.permutation(8)[:4], row] = True
    design = given(members, np.arange(8))
    assert design.chance == "balanced"
    for target in range(8):
        inside = outside = np.zeros(50, dtype=int)
        for number, about in design.evidence(target):
            inside, outside = inside + (members[number] & about), outside + (~members[number] & about)
        # As many models on either side whatever the target's own coin.
        assert (inside == 3).all()
        assert (outside == 3).all()
    coins = rng.random((8, 50)) < 0.5
    assert given(coins, np.arange(8)).chance == "coins"


def test_an_odd_number_of_given_shadow_models_is_used() -> None:
    rng = np.random.default_rng(0)
    design = given(rng.random((6, 80)) < 0.5, np.array([0]))
    assert len(list(design.evidence(0))) == 5
    assert 0 < design.answerable().sum() < 80


@pytest.mark.parametrize("models", [4, 7])
def test_too_few_or_an_odd_number_of_models_is_refused(models: int) -> None:
    with pytest.raises(UsageError, match="even number of at least 6"):
        leave_one_out(np.arange(10), models, 0)
