"""Canaries: right pixels and labels, the same from the same seed, fair and balanced coins."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resperturb.data.canaries import KINDS, NEAR, concatenated, fair_coins, make_canaries
from resperturb.data.images import ImageSet
from resperturb.errors import UsageError

COUNTS = {"clean": 4, "mislabelled": 6, "out_of_distribution": 5, "blank": 3, "near_duplicate": 8}


def images(classes: int = 10, groups: bool = False) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    return ImageSet(
        torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8, generator=generator),
        torch.arange(60) % classes,
        tuple(f"class {i}" for i in range(classes)),
        np.array([f"patient {i // 3}" for i in range(60)]) if groups else None,
        "test",
    )


def of(kind: str, **options: int) -> tuple[ImageSet, ImageSet, np.ndarray]:
    """The canaries of one kind, and the images that they were made from."""
    whole = images(**options)
    made = make_canaries(whole, np.arange(30, 60), COUNTS, seed=1)
    chosen = made.kinds == kind
    first = {"clean": 0, "mislabelled": 4, "near_duplicate": 10}.get(kind, 0)
    return made.images.select(np.flatnonzero(chosen)), whole, made.sources[first:]


def test_there_are_as_many_of_each_kind_as_requested() -> None:
    made = make_canaries(images(), np.arange(60), COUNTS, seed=0)
    assert {kind: int((made.kinds == kind).sum()) for kind in KINDS} == COUNTS
    assert len(made) == sum(COUNTS.values())
    assert len(set(made.sources.tolist())) == 4 + 6 + 4


def test_only_spare_images_are_used() -> None:
    made = make_canaries(images(), np.arange(40, 60), COUNTS, seed=0)
    assert set(made.sources.tolist()) <= set(range(40, 60))


def test_a_clean_canary_is_an_image_with_its_label() -> None:
    canaries, whole, sources = of("clean")
    assert canaries.images.equal(whole.images[sources[:4]])
    assert canaries.labels.equal(whole.labels[sources[:4]])


@pytest.mark.parametrize("classes", [2, 10])
def test_a_mislabelled_canary_has_another_label(classes: int) -> None:
    canaries, whole, sources = of("mislabelled", classes=classes)
    assert canaries.images.equal(whole.images[sources[:6]])
    assert not (canaries.labels == whole.labels[sources[:6]]).any()


def test_wrong_labels_are_spread_over_all_other_classes() -> None:
    whole = images()
    made = make_canaries(whole, np.arange(60), {"mislabelled": 60}, seed=0)
    shift = (made.images.labels - whole.labels[made.sources]) % 10
    assert set(shift.tolist()) == set(range(1, 10))


def test_blank_canaries_are_flat_and_all_different() -> None:
    canaries, _, _ = of("blank")
    flat = canaries.images.flatten(1)
    assert (flat == flat[:, :1]).all()
    assert len(set(flat[:, 0].tolist())) == 3


def test_out_of_distribution_canaries_are_noise_and_all_different() -> None:
    canaries, whole, _ = of("out_of_distribution")
    everything = torch.cat([canaries.images, whole.images]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == len(everything)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_near_duplicates_are_similar_pairs_with_different_labels(classes: int) -> None:
    canaries, whole, sources = of("near_duplicate", classes=classes)
    one, other = canaries.images[:4].int(), canaries.images[4:].int()
    original = whole.images[sources[:4]].int()
    assert (one - original).abs().max() <= NEAR
    assert (other - original).abs().max() <= NEAR
    assert not one.equal(other)
    assert not (canaries.labels[:4] == canaries.labels[4:]).any()
    if classes > 2:
        assert not (canaries.labels.reshape(2, 4) == whole.labels[sources[:4]]).any()


def test_the_seed_decides_them() -> None:
    one, again, other = (make_canaries(images(), np.arange(60), COUNTS, seed) for seed in (3, 3, 4))
    assert one.images.fingerprint == again.images.fingerprint
    assert one.images.fingerprint != other.images.fingerprint


def test_canaries_belong_to_no_patient() -> None:
    whole = images(groups=True)
    made = make_canaries(whole, np.arange(60), COUNTS, seed=0)
    assert made.images.groups is not None
    assert whole.groups is not None
    assert not set(made.images.groups) & set(whole.groups)
    assert len(concatenated(whole, made.images)) == 60 + len(made)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"mislabelled": 61}, "61 images .* there are 60"),
        ({"near_duplicate": 3}, "even number, not 3"),
        ({"blank": 257}, "256 shades"),
    ],
)
def test_canaries_that_cannot_be_made_are_refused(counts: dict[str, int], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        make_canaries(images(), np.arange(60), counts, seed=0)


@given(pair=st.integers(0, 10**6), count=st.integers(0, 50))
def test_consecutive_seeds_give_opposite_coins(pair: int, count: int) -> None:
    assert (fair_coins(count, 2 * pair) != fair_coins(count, 2 * pair + 1)).all()


def test_coins_are_fair_and_independent_of_other_coins() -> None:
    tosses = np.stack([fair_coins(400, 2 * seed, purpose) for seed in range(50) for purpose in (0, 1)])
    # 40,000 coins: one standard error of the mean is 0.0025, of a correlation of 400 coins 0.05.
    assert tosses.mean() == pytest.approx(0.5, abs=4 * 0.0025)
    correlations = np.corrcoef(tosses)[np.triu_indices(100, 1)]
    assert np.abs(correlations).max() < 5 * 0.05


def test_with_groups_a_clean_canary_represents_a_person_who_may_be_absent() -> None:
    whole = images(groups=True)
    made = make_canaries(whole, np.arange(60), {"clean": 4, "mislabelled": 6}, seed=1)
    assert whole.groups is not None
    assert made.images.groups is not None
    assert len(set(made.images.groups)) == len(made)
    trained_on = np.setdiff1d(np.arange(60), made.left_out)
    assert not set(whole.groups[made.sources[:4]]) & set(whole.groups[trained_on])
    assert set(made.sources) <= set(made.left_out)
    assert len(made.left_out) <= 4 * 3 + 6


def test_groups_change_no_canary() -> None:
    with_groups, without = (make_canaries(images(groups=groups), np.arange(60), COUNTS, seed=2) for groups in (1, 0))
    assert with_groups.images.images.equal(without.images.images)
    assert with_groups.sources.tolist() == without.sources.tolist() == without.left_out.tolist()
