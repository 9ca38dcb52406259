import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resperturb.data.splits import four_quarters, held_out
from resperturb.errors import UsageError

seeds = st.integers(0, 2**32)
group_lists = st.lists(st.integers(0, 12), min_size=4, max_size=120).filter(lambda groups: len(set(groups)) >= 4)


@given(st.integers(4, 300), seeds)
def test_quarters_are_equal_disjoint_and_leave_at_most_three_out(n, seed):
    quarters = list(four_quarters(n, seed))
    assert [len(quarter) for quarter in quarters] == [n // 4] * 4
    together = np.concatenate(quarters)
    assert len(set(together.tolist())) == n - n % 4
    assert set(together.tolist()) <= set(range(n))


@given(st.integers(4, 300), seeds)
def test_quarters_follow_from_the_seed(n, seed):
    for once, again in zip(four_quarters(n, seed), four_quarters(n, seed), strict=True):
        assert once.tolist() == again.tolist()


def test_other_seeds_give_other_quarters():
    seen = {tuple(four_quarters(100, seed).target_train.tolist()) for seed in range(20)}
    assert len(seen) == 20


def test_every_record_is_as_likely_in_every_quarter():
    draws = 2000
    counts = np.zeros((4, 9))
    for seed in range(draws):
        for quarter, indices in enumerate(four_quarters(9, seed)):
            counts[quarter, indices] += 1
    # Each count is binomial(draws, 2/9): 5 standard errors hold for all 36 at once.
    p = 2 / 9
    assert np.abs(counts / draws - p).max() < 5 * np.sqrt(p * (1 - p) / draws)


@given(group_lists, seeds)
def test_no_group_is_in_two_quarters_and_no_record_is_lost(groups, seed):
    quarters = list(four_quarters(len(groups), seed, groups))
    owners = [{groups[i] for i in quarter} for quarter in quarters]
    assert all(owners)
    assert sum(len(owner) for owner in owners) == len(set(groups))
    assert sorted(np.concatenate(quarters).tolist()) == list(range(len(groups)))


@given(group_lists, seeds)
def test_group_quarters_are_balanced_to_within_the_largest_group(groups, seed):
    sizes = [len(quarter) for quarter in four_quarters(len(groups), seed, groups)]
    assert max(sizes) - min(sizes) <= max(np.unique(groups, return_counts=True)[1])


@given(group_lists, seeds)
def test_group_quarters_follow_from_the_seed_and_not_from_the_names_of_groups(groups, seed):
    as_text = [f"patient {group:03}" for group in groups]
    for once, again in zip(
        four_quarters(len(groups), seed, groups), four_quarters(len(groups), seed, as_text), strict=True
    ):
        assert once.tolist() == again.tolist()


def test_every_group_is_as_likely_in_every_quarter_whatever_its_size():
    groups = [0] * 9 + [1] * 4 + [2] * 3 + [3] * 2 + [4] * 2 + [5]
    draws = 2000
    counts = np.zeros((4, 6))
    for seed in range(draws):
        for quarter, indices in enumerate(four_quarters(len(groups), seed, groups)):
            counts[quarter, list({groups[i] for i in indices})] += 1
    assert np.abs(counts / draws - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / draws)


@pytest.mark.parametrize("n", [0, 3])
def test_too_few_records_are_refused(n):
    with pytest.raises(UsageError, match=f"at least 4 records, and there are {n}"):
        four_quarters(n, 0)


def test_too_few_groups_are_refused():
    with pytest.raises(UsageError, match="at least 4 groups, and there are 3"):
        four_quarters(90, 0, [0, 1, 2] * 30)


def test_groups_must_match_the_records():
    with pytest.raises(UsageError, match="one group for each of the 5 records"):
        four_quarters(5, 0, list("abcd"))


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(UsageError, match="seed"):
        four_quarters(8, seed)


@given(st.lists(st.integers(0, 3), min_size=8, max_size=200), seeds)
def test_held_out_takes_a_fifth_of_each_class(labels, seed):
    counts = np.bincount(labels)
    if (counts < 2).all():
        return
    train, test = held_out(labels, 0.2, seed)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
    for label in set(labels):
        n = counts[label]
        held = sum(labels[i] == label for i in test)
        assert held == (0 if n == 1 else max(1, round(0.2 * n)))


@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 2)), min_size=10, max_size=150).filter(
        lambda records: len({group for group, _ in records}) >= 2
    ),
    seeds,
)
def test_held_out_groups_are_whole_and_no_class_leaves_training(records, seed):
    groups, labels = [group for group, _ in records], [label for _, label in records]
    try:
        train, test = held_out(labels, 0.2, seed, groups)
    except UsageError:
        for group in set(groups):  # refused only if every group owns all of some class
            others = {label for owner, label in records if owner != group}
            assert others != set(labels)
        return
    assert len(test)
    assert not {groups[i] for i in train} & {groups[i] for i in test}
    assert {labels[i] for i in train} == set(labels)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(records)))


def test_held_out_groups_come_near_the_fraction_of_each_class():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 60, 3000)
    labels = rng.integers(0, 2, 3000)
    for seed in range(10):
        _, test = held_out(labels, 0.2, seed, groups)
        shares = np.bincount(labels[test]) / np.bincount(labels)
        # A group holds about 25 of the 1,500 images of a class: the test requires a difference below two groups.
        assert np.abs(shares - 0.2).max() < 2 * 25 / 1500


def test_one_group_cannot_be_held_out():
    with pytest.raises(UsageError, match="at least 2 groups"):
        held_out([0, 1, 0, 1], groups=["p"] * 4)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_a_bad_fraction_is_refused(fraction):
    with pytest.raises(UsageError, match="fraction"):
        held_out([0, 1] * 5, fraction)
