"""The hash depends on what decides the weights; the schedules are the paper's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resperturb.errors import UsageError
from resperturb.perturbation import Additive
from resperturb.training.config import make_config


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 101},
        {"seed": 1},
        {"model": "en2-resnet8"},
        {"perturbation": {"name": "additive", "gamma": 0.5}},
        {"data": {"spec": "cifar10", "split_seed": 1}},
        {"data": {"spec": "cifar10", "fingerprint": "0" * 16}},
    ],
)
def test_another_configuration_has_another_hash(change: dict[str, object]) -> None:
    base = {"data": {"spec": "cifar10"}}
    assert make_config(**base).digest != make_config(**{**base, **change}).digest


def test_saying_a_default_does_not_change_the_hash() -> None:
    short = make_config(data={"spec": "x"}, perturbation={"name": "additive", "gamma": 0.5})
    long = make_config(
        data={"spec": "x"}, epochs=100, perturbation={"name": "additive", "gamma": 0.5, "input_std": 0.25}
    )
    assert short.digest == long.digest
    assert short.perturbation == Additive(0.5)


@given(epochs=st.integers(1, 300))
def test_the_paper_s_schedules(epochs: int) -> None:
    he = make_config(data={"spec": "x"}, epochs=epochs)
    for epoch in range(epochs):
        expected = 0.1 if epoch < epochs / 2 else 0.01 if epoch < 0.75 * epochs else 0.001
        assert he.learning_rate(epoch) == pytest.approx(expected)


def test_the_idc_schedule_divides_by_four_at_every_twentieth_epoch_of_a_hundred() -> None:
    config = make_config(data={"spec": "x"}, epochs=100, schedule="quarter")
    rates = [config.learning_rate(epoch) for epoch in range(100)]
    assert [epoch for epoch in range(1, 100) if rates[epoch] != rates[epoch - 1]] == [20, 40, 60, 80]
    assert rates[-1] == pytest.approx(0.1 / 256)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"lr": float("nan")}, "lr"),
        ({"model": "resnet9"}, "resnet9"),
        ({"perturbation": {"name": "additive", "gamma": -1}}, "gamma"),
        ({"perturbation": {"name": "additive"}}, "gamma"),
        ({"perturbation": {"name": "loud"}}, "loud"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        make_config(data={"spec": "x"}, **values)
