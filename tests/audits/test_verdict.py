"""Lower bounds hold at the stated rate in both designs, and stand rightly beside what is proven."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from resperturb.audits.verdict import compare, lower_bound, paired, proven
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run
from tests.conftest import tiny_config

DELTA = 1e-5


def labels_and_cut(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and a cut at random into equal halves, as the quarters are made."""
    members = np.zeros(count, dtype=bool)
    members[rng.permutation(count)[: count // 2]] = True
    return rng.integers(0, 5, count), members


def test_a_pair_is_a_member_and_a_non_member_of_the_same_label() -> None:
    rng = np.random.default_rng(0)
    labels, members = labels_and_cut(rng, 200)
    # Scores that give label and membership away: label in the thousands, member in the ones.
    scores = 1000.0 * labels + members
    found = paired(scores, members, labels)
    assert set(found.members.tolist()) == {1.0}
    assert set(found.nonmembers.tolist()) == {-1.0}
    pairs = sum(min((members & (labels == c)).sum(), (~members & (labels == c)).sum()) for c in range(5))
    assert len(found.members) + len(found.nonmembers) == pairs


def test_the_order_within_pairs_is_a_fair_coin() -> None:
    sizes = []
    for seed in range(300):
        labels, members = labels_and_cut(np.random.default_rng(seed), 60)
        found = paired(np.zeros(60), members, labels, seed=seed)
        sizes.append((len(found.members), len(found.members) + len(found.nonmembers)))
    firsts, pairs = np.array(sizes).sum(axis=0)
    assert firsts / pairs == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(pairs))


@pytest.mark.parametrize("design", ["coins", "pairs"])
def test_scores_without_signal_show_nothing_at_the_stated_rate(design: str) -> None:
    shown = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        labels, members = labels_and_cut(rng, 100)
        if design == "coins":
            members = rng.random(100) < 0.5
        # Whatever a score owes to the label must not matter.
        scores = labels + rng.normal(size=100)
        bound = lower_bound(scores, members, labels, design, DELTA, 0.9)  # type: ignore[arg-type]
        assert bound is not None
        shown += bound.epsilon > 0
    # At most 20 are expected; four standard errors are 17.
    assert shown <= 20 + 17


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_the_bound_stays_below_the_truth_of_a_gaussian_mechanism(mu: float) -> None:
    above = {"coins": 0, "pairs": 0}
    found = {"coins": 0.0, "pairs": 0.0}
    trials = 40
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        labels, cut = labels_and_cut(rng, 600)
        coins = rng.random(600) < 0.5
        # Adding a record moves its own score by mu; replacing one by another moves two scores, so mu * sqrt(2).
        for design, members, truth in (("coins", coins, mu), ("pairs", cut, mu * math.sqrt(2))):
            scores = mu * members + rng.normal(size=600)
            bound = lower_bound(scores, members, labels, design, DELTA, 0.9)  # type: ignore[arg-type]
            assert bound is not None
            above[design] += bound.epsilon > epsilon_for_delta(DELTA, truth)
            found[design] += bound.epsilon / trials
    assert max(above.values()) <= 4 + 4 * math.sqrt(trials * 0.1 * 0.9)
    assert min(found.values()) > 0.15


@pytest.mark.parametrize("design", ["coins", "pairs"])
def test_without_members_or_without_others_there_is_no_bound(design: str) -> None:
    for members in (np.ones(4, dtype=bool), np.zeros(4, dtype=bool)):
        assert lower_bound(np.arange(4.0), members, np.zeros(4, int), design, DELTA, 0.9) is None  # type: ignore[arg-type]


def test_the_words() -> None:
    assert compare(upper=1.0, lower=1.01) == "refuted"
    assert compare(upper=1.0, lower=0.5) == "consistent"
    assert compare(upper=1000.0, lower=0.5) == "gap of 1e+03"
    assert compare(upper=math.inf, lower=9.0) == "nothing is proven"


def secret_config(**changes: object) -> TrainConfig:
    """A training whose noise nobody can draw again."""
    return tiny_config(**{"seeded_noise": False, **changes})


def finished(tmp_path: Path, config: TrainConfig, **result: object) -> Run:
    """A run of which only what is asked for here is there."""
    run = Run(tmp_path, config)
    run.__dict__["result"] = SimpleNamespace(**{"records": 1000, "channels": 1, "image_size": [28, 28], **result})
    return run


def test_without_noise_nothing_is_proven(tmp_path: Path) -> None:
    for noise in (
        {"name": "none"},
        {"name": "multiplicative", "gamma": 2.0, "floor": 0.1, "output_std": 1.0},
        {"name": "additive", "gamma": 1.0, "input_std": 0.0},
        {"name": "additive", "gamma": 1.0, "scale": "batch_std"},
    ):
        found = proven(finished(tmp_path, secret_config(perturbation=noise)), DELTA, can_use_coins=True)
        assert found.epsilon == math.inf
        assert found.why


def test_the_additive_proof_is_about_replacing_an_image_and_knows_its_radius(tmp_path: Path) -> None:
    noise = {"name": "additive", "gamma": 1.0}
    whole = proven(finished(tmp_path, secret_config(perturbation=noise)), DELTA, can_use_coins=True)
    # Bytes between -2 and 2 on 28 x 28 pixels, three epochs, input noise of a half.
    assert whole.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 56 * math.sqrt(3) / 0.5), rel=1e-6)
    assert whole.design == "pairs"
    assert any("seed of the training is secret" in statement for statement in whole.assumptions)
    clipped = secret_config(perturbation={**noise, "clip_radius": 0.1})
    small = proven(finished(tmp_path, clipped), DELTA, can_use_coins=False)
    assert small.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 0.1 * math.sqrt(3) / 0.5), rel=1e-6)
    ensemble = proven(
        finished(tmp_path, clipped.model_copy(update={"model": "en5-resnet8"})), DELTA, can_use_coins=False
    )
    assert ensemble.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 0.1 * math.sqrt(15) / 0.5), rel=1e-6)


def test_dp_sgd_is_counted_for_the_neighbours_that_the_audit_can_test(tmp_path: Path) -> None:
    private = {"name": "dpsgd", "noise_multiplier": 2.0}
    run = finished(tmp_path, tiny_config(method=private, seeded_noise=False))
    coins, pairs = (proven(run, DELTA, can_use_coins=can) for can in (True, False))
    assert (coins.design, pairs.design) == ("coins", "pairs")
    assert 0 < coins.epsilon < pairs.epsilon < math.inf
    seeded = proven(finished(tmp_path, tiny_config(method=private, seeded_noise=True)), DELTA, can_use_coins=True)
    assert seeded.epsilon == math.inf
    assert "--seeded-noise" in seeded.why
    nothing = finished(tmp_path, tiny_config(method={"name": "dpsgd", "noise_multiplier": 0.0, "clip": None}))
    assert proven(nothing, DELTA, can_use_coins=True).epsilon == math.inf
