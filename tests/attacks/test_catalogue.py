"""The list of attacks: every method is there, headlines and bounds are fixed beforehand, shadows stream."""

from copy import deepcopy

import numpy as np
import pytest

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, views
from resperturb.attacks.evidence import Answers, Evidence, ShadowStatistics
from resperturb.attacks.registry import ATTACKS
from resperturb.attacks.signals import Query, Signals, View
from resperturb.bounds.metrics import auc

ROWS, POPULATION, DRAWS = 600, 200, 4
QUERIES = [Query("served", (1, DRAWS)), Query("weights"), Query("networks", (2,)), Query("augmented", (3,))]


def answers(rng: np.random.Generator, members: np.ndarray, difficulty: np.ndarray) -> Answers:
    """A model that is more confident of its members, and whose predictions are noisy."""
    centre = difficulty + 2.0 * members + rng.normal(0, 1, len(members))

    def signals(draws: int, noise: float, averages: tuple[int, ...]) -> Signals:
        confidence = (centre[:, None] + rng.normal(0, noise, (len(members), draws))).astype(np.float32)
        mean = np.stack([confidence[:, :k].mean(axis=1) for k in averages], axis=1)
        labels = np.arange(len(members)) % 3
        top = np.repeat(-np.exp(-mean)[:, :, None], 3, axis=2)
        return Signals(averages, labels, confidence, confidence > 0, mean, top, np.exp(-mean), np.exp(-mean))

    return {
        "served": signals(DRAWS, 2.0, (1, DRAWS)),
        "weights": signals(1, 1e-3, (1,)),
        "networks": signals(2, 0.5, (2,)),
        "augmented": signals(3, 0.5, (3,)),
    }


@pytest.fixture(scope="module")
def game() -> tuple[Evidence, np.ndarray]:
    rng = np.random.default_rng(0)
    total = ROWS + POPULATION
    difficulty = rng.normal(0, 3, total)

    def members() -> np.ndarray:
        return (rng.random(total) < 0.5) & (np.arange(total) < ROWS)

    statistics = ShadowStatistics.empty(views(QUERIES), total)
    for _ in range(16):
        chosen = members()
        statistics.change(answers(rng, chosen, difficulty), chosen)
    target = members()
    return Evidence(answers(rng, target, difficulty), statistics, ROWS), target[:ROWS]


def streamed() -> list[PlannedAttack]:
    """All attacks that need no predictions of single shadow models; the game keeps none."""
    every = attacks_on(views(QUERIES), shadows=16)
    return [attack for attack in every if "each" not in attack.published.needs]


def test_every_method_is_used_and_every_view_is_attacked() -> None:
    seen = views(QUERIES)
    attacks = attacks_on(seen, shadows=16)
    assert {attack.name for attack in attacks} == set(ATTACKS)
    assert {attack.view for attack in attacks} == set(seen)
    assert len({(attack.name, attack.view) for attack in attacks}) == len(attacks)
    without = attacks_on(seen, shadows=0)
    assert {attack.name for attack in without} == {name for name in ATTACKS if not ATTACKS[name].shadows}


def test_every_attack_finds_members_and_the_ones_with_shadows_find_more(game: tuple[Evidence, np.ndarray]) -> None:
    evidence, members = game
    found = {}
    for attack in streamed():
        scores = attack.published.score(evidence, attack.view)
        assert scores.shape == (ROWS,)
        assert np.isfinite(scores).all()
        found[attack.name, str(attack.view)] = auc(scores[members], scores[~members])
    # A random guess has a standard error of 0.024 here. Only the density form ignores the direction of confidence.
    weak = {key: value for key, value in found.items() if value < 0.55 and key[0] != "lira-offline-density"}
    assert not weak
    assert found["lira-online-global", "weights"] > found["loss", "weights"] + 0.1
    assert found["rmia-online", "weights"] > found["loss", "weights"] + 0.05
    # Asking more often takes the noise away, and no noise is better still.
    many = f"served, {DRAWS} draws, mean logit"
    lira = [found["lira-online-global", view] for view in ("served", many, "weights")]
    assert lira == sorted(lira)


def test_the_attacks_that_bound_epsilon_are_fixed_and_the_same_for_every_model() -> None:
    noisy = [attack for attack in attacks_on(views(QUERIES), 16) if attack.bounding]
    assert [(attack.name, str(attack.view)) for attack in noisy] == [
        ("bavaria", "served, 4 draws, mean logit"),
        ("rmia-online", "served, 4 draws, mean logit"),
        ("bavaria", "weights"),
        ("rmia-online", "weights"),
    ]
    assert all(attack.fixed for attack in noisy)
    plain = [attack for attack in attacks_on(views([Query("served")]), 16) if attack.bounding]
    assert [(attack.name, str(attack.view)) for attack in plain] == [("bavaria", "served"), ("rmia-online", "served")]
    assert not any("rmia" in attack.name for attack in attacks_on(views(QUERIES), 16, population=False))
    more = [attack for attack in attacks_on(views(QUERIES), 16, ["lira-offline"]) if attack.bounding]
    assert [attack.name for attack in more].count("lira-offline") == 2
    assert {attack.name for attack in attacks_on(views(QUERIES), 0) if attack.bounding} == {
        "loss",
        "modified-entropy",
    }


def test_a_removed_shadow_model_leaves_the_moments_of_the_others(game: tuple[Evidence, np.ndarray]) -> None:
    evidence, _ = game
    rng = np.random.default_rng(1)
    total = ROWS + POPULATION
    before = evidence.known_shadows()
    after = deepcopy(before)
    members, about = rng.random(total) < 0.5, rng.random(total) < 0.9
    one = answers(rng, members, np.zeros(total))
    after.change(one, members, about)
    after.change(one, members, about, add=False)
    for attack in streamed():
        with_it, without_it = (
            attack.published.score(Evidence(evidence.answers, shadows, ROWS), attack.view)
            for shadows in (before, after)
        )
        assert np.allclose(with_it, without_it, rtol=1e-6, atol=1e-6), attack


def test_statistics_do_not_grow_with_the_number_of_shadows() -> None:
    rng = np.random.default_rng(0)
    statistics = ShadowStatistics.empty(views(QUERIES), 50)

    def size() -> int:
        everything = [*statistics.inside.values(), *statistics.outside.values()]
        everything += [moments for pair in statistics.probabilities.values() for moments in pair]
        everything += [extremes for pair in statistics.extremes.values() for extremes in pair]
        everything += statistics.entropies.values()
        return sum(array.nbytes for moments in everything for array in vars(moments).values())

    def add_one() -> None:
        members = rng.random(50) < 0.5
        statistics.change(answers(rng, members, np.zeros(50)), members)

    add_one()
    before = size()
    for _ in range(10):
        add_one()
    assert size() == before


def test_one_draw_is_not_combined() -> None:
    assert [str(view) for view in views([Query("served", (1,))])] == ["served"]
    assert View("weights", 1).combination == "mean logit"
