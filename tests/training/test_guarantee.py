"""The guarantee of a run follows from its configuration, and from nothing else in its folder."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.guarantee import number
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.run import PUBLIC_SPLIT, Run, guarantee_of
from tests.conftest import tiny_config

DELTA = 1e-5


def secret_config(**changes: object) -> TrainConfig:
    """A training whose noise cannot be drawn again."""
    return tiny_config(**{"seeded_noise": False, **changes})


def finished(tmp_path: Path, config: TrainConfig, **result: object) -> Run:
    """A run that has only the attributes used here."""
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
        found = finished(tmp_path, secret_config(perturbation=noise)).guarantee(DELTA)
        assert found.epsilon == math.inf
        assert found.words.startswith("no guarantee: ")


def test_the_additive_proof_is_about_replacing_an_image_and_knows_its_radius(tmp_path: Path) -> None:
    noise = {"name": "additive", "gamma": 1.0}
    whole = finished(tmp_path, secret_config(perturbation=noise)).guarantee(DELTA)
    # Bytes between -2 and 2 on 28 x 28 pixels, three epochs, input noise of a half.
    assert whole.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 56 * math.sqrt(3) / 0.5), rel=1e-6)
    assert whole.neighbours == "swap"
    assert any(a.status == "enforced" and "128 bits" in a.statement for a in whole.assumptions)
    clipped = secret_config(perturbation={**noise, "clip_radius": 0.1})
    small = finished(tmp_path, clipped).guarantee(DELTA)
    assert small.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 0.1 * math.sqrt(3) / 0.5), rel=1e-6)
    ensemble = finished(tmp_path, clipped.model_copy(update={"model": "en5-resnet8"})).guarantee(DELTA)
    assert ensemble.epsilon == pytest.approx(epsilon_for_delta(DELTA, 2 * 0.1 * math.sqrt(15) / 0.5), rel=1e-6)


@pytest.mark.parametrize("method", ["dpsgd", {"name": "dp-head"}])
def test_a_private_method_assumes_that_the_split_is_public(method: object, tmp_path: Path) -> None:
    """The test part that is held out of one file follows from its labels, and neighbours are counted after it."""
    config = make_config(data={"spec": "x"}, method=method)
    proven = guarantee_of(config, 20_000, 1, (28, 28))
    assert math.isfinite(proven.claimed_epsilon)
    assert PUBLIC_SPLIT in proven.assumptions
    assert PUBLIC_SPLIT.status == "assumed"
    assert PUBLIC_SPLIT.statement.startswith("The split into training and test images is public.")


def test_other_uses_of_the_images_void_the_additive_proof_or_are_assumed_away(tmp_path: Path) -> None:
    noise = {"name": "additive", "gamma": 400.0}
    plain = finished(tmp_path, secret_config(perturbation=noise)).guarantee(DELTA)
    assert math.isfinite(plain.claimed_epsilon)
    started = finished(tmp_path, secret_config(perturbation=noise, weights="mine.safetensors")).guarantee(DELTA)
    assert any("weights that training started from are public" in each.statement for each in started.assumptions)
    data = {"part": "all", "validation": 0.1}
    stopped = finished(tmp_path, secret_config(perturbation=noise, data=data, patience=2)).guarantee(DELTA)
    assert stopped.claimed_epsilon == math.inf
    assert "--patience chose it" in stopped.words


def test_dp_sgd_is_counted_for_additions_and_can_be_converted(tmp_path: Path) -> None:
    private = {"name": "dpsgd", "noise_multiplier": 2.0}
    found = finished(tmp_path, secret_config(method=private)).guarantee(DELTA)
    swapped = found.as_swap()
    assert (found.neighbours, swapped.neighbours) == ("add_remove", "swap")
    assert 0 < found.epsilon < swapped.epsilon < math.inf
    assert swapped.details["converted_from"]["epsilon"] == found.epsilon
    nothing = finished(tmp_path, tiny_config(method={"name": "dpsgd", "noise_multiplier": 0.0, "clip": None}))
    assert nothing.guarantee(DELTA).claimed_epsilon == math.inf


@pytest.mark.parametrize(
    "recipe", [{"perturbation": {"name": "additive", "gamma": 1e4}}, {"method": {"name": "dpsgd"}}]
)
def test_noise_that_follows_from_a_seed_proves_nothing(tmp_path: Path, recipe: dict[str, object]) -> None:
    found = finished(tmp_path, tiny_config(seeded_noise=True, **recipe)).guarantee(DELTA)
    assert found.claimed_epsilon == math.inf
    assert "--seeded-noise" in found.words
    written = found.to_dict()
    assert (written["epsilon"], written["max_tpr"], written["details"], written["notes"]) == (math.inf, 1.0, {}, [])
    assert number(found.epsilon) not in str(found)
    assert finished(tmp_path, secret_config(**recipe)).guarantee(DELTA).claimed_epsilon < math.inf


def test_missing_tails_are_counted_in_delta_or_nothing_is_claimed(tmp_path: Path) -> None:
    quiet = finished(tmp_path, secret_config(perturbation={"name": "additive", "gamma": 1.0})).guarantee(DELTA)
    assert ["to the end of its tails" in a.statement for a in quiet.not_met] == [True]
    assert quiet.claimed_epsilon == math.inf
    loud = secret_config(perturbation={"name": "additive", "gamma": 300.0})
    found = finished(tmp_path, loud).guarantee(DELTA)
    assert found.delta == DELTA
    assert 1 < found.epsilon < 20
    assert not any("to the end of its tails" in a.statement for a in found.assumptions)
    exact = epsilon_for_delta(DELTA, 2 * 56 * math.sqrt(3) / 150)
    assert exact <= found.epsilon < exact * 1.01
