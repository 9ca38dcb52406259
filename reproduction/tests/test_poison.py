"""An audit by poisoning: one record for all, half of the models have it, and the bound is what it says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from resperturb_reproduction.poison import (
    KINDS,
    Kind,
    PoisonSettings,
    jagielski,
    make_poison,
    poison_audit,
    poison_configs,
)

from resperturb.data import load_pair
from resperturb.training import load_inputs, train
from tests.conftest import tiny_config


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_model_has_the_poison_as_often_as_asked(kind: Kind, tmp_path: Path) -> None:
    poison, configs = poison_configs(tiny_config(), PoisonSettings(kind, copies=3, trials=2), tmp_path)
    assert len({config.seed for config in configs}) == 4
    for number, config in enumerate(configs):
        members = load_inputs(config.data).members()
        same = (members.images[:] == poison.images[:]).flatten(1).all(dim=1)
        copies = 0 if number % 2 else 3
        assert int(same.sum()) == copies
        assert len(members) == 60 + copies
        assert set(members.labels[same].tolist()) <= {int(poison.labels[0])}


def test_clipbkd_lies_where_the_data_does_not() -> None:
    images = load_pair("fashion-sample", limit=1500)[0]
    rows = images.images.flatten(1).double() - 127.5
    poison = make_poison(images, "clipbkd").images.flatten().double() - 127.5
    along = (rows @ (poison / poison.norm())).square().mean().sqrt()
    others = [(rows @ (row / row.norm())).square().mean().sqrt() for row in rows[:20]]
    assert along < 0.1 * torch.stack(others).median()
    # And it is no weaker than other images, as far as bytes allow.
    assert poison.norm() > 0.5 * rows.norm(dim=1).mean()


def test_a_large_image_has_its_poison_in_the_middle() -> None:
    torch.manual_seed(0)
    images = load_pair("fashion-sample", limit=50, image_size=48)[0]
    poison = make_poison(images, "clipbkd").images[0, 0]
    assert (poison[:8] == 128).all()
    assert poison[8:40, 8:40].float().std() > 10


def test_a_model_that_memorises_shows_its_poison(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=12, data={"limit": 160}), runs=tmp_path)
    found = poison_audit(run, PoisonSettings("clipbkd", copies=4, trials=3), jobs=1)
    assert found.noticed_with == 3
    assert found.noticed_without == 0
    # Three models on each side bound nothing yet, however well they are told apart.
    assert found.epsilon_lower.epsilon == found.most_that_could_be_shown == 0
    assert found.guarantee is None
    assert json.loads((run.path / "poison.json").read_text())["scores_with"] == list(found.scores_with)
    assert len(list(tmp_path.glob(".poison-*/*/result.json"))) == 6


@pytest.mark.parametrize("copies", [1, 4])
def test_the_bound_is_below_the_truth_for_a_mechanism_that_is_known(copies: int) -> None:
    """Scores of a Gaussian mechanism that k copies shift by k: the bound must be below the true epsilon."""
    from resperturb.privacy.gaussian import epsilon_for_delta

    rng = np.random.default_rng(0)
    truth = epsilon_for_delta(1e-5, 1.0)
    too_high = 0
    for _ in range(100):  # binom.isf(0.01, 100, 0.05) errors are 11
        poisoned, clean = rng.normal(copies / 2, 1, 200), rng.normal(-copies / 2, 1, 200)
        bound = jagielski(poisoned, clean, copies=copies, delta=1e-5)
        too_high += bound.epsilon > truth
    assert too_high <= 11


def test_copies_of_a_record_are_counted_as_what_they_are() -> None:
    """A Laplace count with epsilon 0.4 a record, shifted by five copies: binom.isf(1e-3, 100, 0.2) errors are 33."""
    rng, trials, epsilon, copies = np.random.default_rng(8), 100, 0.4, 5
    errors = naive = 0
    for _ in range(trials):
        poisoned, clean = rng.laplace(copies, 1 / epsilon, 200), rng.laplace(0, 1 / epsilon, 200)
        errors += jagielski(poisoned, clean, copies=copies, delta=0.0, confidence=0.8).epsilon > epsilon
        naive += jagielski(poisoned, clean, copies=1, delta=0.0, confidence=0.8).epsilon > epsilon
    assert errors <= 33
    assert naive > trials / 2


def test_copies_come_close_with_many_trainings() -> None:
    rng, epsilon, copies = np.random.default_rng(12), 0.4, 5
    poisoned, clean = rng.laplace(copies, 1 / epsilon, 50_000), rng.laplace(0, 1 / epsilon, 50_000)
    assert 0.9 * epsilon < jagielski(poisoned, clean, copies=copies, delta=0.0).epsilon <= epsilon
