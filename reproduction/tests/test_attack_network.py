"""The attack network learns what there is to learn, or says that it has not."""

from typing import get_args

import numpy as np
import pytest
import torch
from resperturb_reproduction import attack_network as network

from resperturb.bounds.metrics import auc
from resperturb.errors import ResperturbError


def test_the_features_are_the_three_highest_probabilities_sorted() -> None:
    logs = np.log([[0.1, 0.6, 0.05, 0.25]])
    assert network.highest(logs)[0].tolist() == pytest.approx([0.6, 0.25, 0.1])
    assert network.highest(logs[:, :2]).shape == (1, 2)


def test_an_attack_network_that_cannot_learn_is_an_error_not_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LEARNING_RATES", (0.0,))
    monkeypatch.setattr(network, "TRIES", 1)
    nonmembers = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    members = nonmembers + torch.tensor([0.9, 0.0, 0.0])
    with pytest.raises(ResperturbError, match="did not learn"):
        network.fit_attack(members, nonmembers, seed=1)


def test_a_start_that_ends_with_one_answer_for_everybody_is_not_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit_once, dead = network._fit_once, torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(dead.weight)
    monkeypatch.setattr(network, "_fit_once", lambda *given: dead if given[-1] == 0 else fit_once(*given))
    features = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    # A difference smaller than the margin: a dead network would pass for one that has learned all there is.
    fitted, _ = network.fit_attack(features[:200] + 0.005, features[200:], seed=0)
    assert len(np.unique(network.membership(fitted, features))) > 1
    monkeypatch.setattr(network, "_fit_once", lambda *given: dead)
    with pytest.raises(ResperturbError, match="did not learn"):
        network.fit_attack(features, features, seed=0)


@pytest.mark.parametrize("units", get_args(network.Units))
def test_tanh_units_and_softmax_regression_learn_at_the_published_rate(units: network.Units) -> None:
    generator = torch.Generator().manual_seed(0)
    members, nonmembers = (
        torch.from_numpy(network.highest((torch.randn(6000, 10, generator=generator) * scale).log_softmax(1).numpy()))
        for scale in (2.1, 2.0)
    )
    fitted, learning_rate = network.fit_attack(members, nonmembers, seed=0, units=units)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in fitted.modules()) == (2 if units == "tanh" else 1)
    assert learning_rate == network.LEARNING_RATES[0]
    assert auc(network.membership(fitted, members), network.membership(fitted, nonmembers)) > 0.5


def test_no_difference_gives_an_auc_of_one_half() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(4000, 3, generator=generator).sort(dim=1, descending=True).values
    fitted, _ = network.fit_attack(features[:1000], features[1000:2000], seed=0)
    members, nonmembers = (network.membership(fitted, part) for part in (features[2000:3000], features[3000:]))
    # The standard error of the AUC of 1000 against 1000 is 0.013.
    assert auc(members, nonmembers) == pytest.approx(0.5, abs=0.05)


def test_it_is_fitted_on_one_thread_and_the_others_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    fit_once = network._fit_once

    def noted(*given: object) -> torch.nn.Module:
        seen.append(torch.get_num_threads())
        return fit_once(*given)

    monkeypatch.setattr(network, "_fit_once", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        features = torch.rand(100, 3, generator=torch.Generator().manual_seed(0))
        network.fit_attack(features[:50] + 0.5, features[50:], seed=0)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
