"""Defences are registered, and each setting is a configuration that trains."""

import numpy as np
import pytest
from scipy.special import log_softmax

from resperturb.errors import UsageError
from resperturb.frontiers.defence import DEFENCES, Defence, register_defence, settings_of
from resperturb.frontiers.defences.losses import reordered
from resperturb.training.config import make_config

RECIPE = {"data": {"spec": "fashion-sample"}, "epochs": 4, "weight_decay": 1e-4}


def test_every_setting_is_a_configuration_of_its_own() -> None:
    settings = settings_of(strengths=9)
    configs = [make_config(**setting.applied(RECIPE)) for setting in settings]
    assert len({config.digest for config in configs}) == len(settings) > 20
    assert len({setting.name for setting in settings}) == len(settings)
    assert all(config.epochs == 4 for config in configs if config.method.name != "dp-head")
    assert settings[0].name == "no defence"
    ordinary = [DEFENCES[setting.defence].ordinary for setting in settings]
    assert ordinary == sorted(ordinary, reverse=True)


def test_settings_are_chosen_by_name_and_number() -> None:
    assert [one.name for one in settings_of(("additive",), 1)] == ["no defence", "additive noise 0.5"]
    with pytest.raises(UsageError, match="unknown defence 'additve'; did you mean 'additive'"):
        settings_of(("additve",))
    with pytest.raises(UsageError, match="strength"):
        settings_of(("additive",), 0)
    asked = ("dropout:0.2", "additive:0.7", "additive", "dropout:.2")
    assert [one.name for one in settings_of(asked, 1)][1:] == [
        "dropout 0.2",
        "additive noise 0.7",
        "additive noise 0.5",
    ]
    with pytest.raises(UsageError, match="the strength of dropout is a number, such as dropout:0.1, not 'high'"):
        settings_of(("dropout:high",))
    with pytest.raises(UsageError, match="augmentation has no strength"):
        settings_of(("augmentation:2",))


def test_a_defence_is_one_registration() -> None:
    register_defence("short-for-test", Defence("short", (0.5,), lambda level, recipe: {"epochs": 2}))
    try:
        assert make_config(**settings_of(("short-for-test",))[1].applied(RECIPE)).epochs == 2
    finally:
        DEFENCES._found.pop("short-for-test")


def test_hamp_keeps_the_ranking_and_takes_the_values_of_random_images() -> None:
    rng = np.random.default_rng(0)
    answers, random = (log_softmax(rng.normal(0, 3, (50, 10)), axis=1) for _ in range(2))
    found = reordered(answers, random)
    assert np.array_equal(np.argsort(found, axis=1), np.argsort(answers, axis=1))
    assert np.array_equal(np.sort(found, axis=1), np.sort(random, axis=1))
