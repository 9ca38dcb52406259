import dataclasses
import json
import math

import pytest

from resperturb.privacy import (
    additive_guarantee,
    compose,
    dpsgd_guarantee,
    training_length,
)
from resperturb.privacy.guarantee import level

RUN = training_length(steps=20, batch_size=50, records=1000)
DPSGD = dpsgd_guarantee(noise_multiplier=1.5, length=RUN, delta=1e-5)
VACUOUS = additive_guarantee(input_std=0.25, radius=30, length=training_length(epochs=100), delta=1e-5)
WEAK = additive_guarantee(input_std=400, radius=30, length=training_length(epochs=100), delta=1e-5)
BUDGETS = {
    "additive": WEAK,
    "vacuous": VACUOUS,
    "dpsgd": DPSGD,
    "composition": compose([DPSGD, DPSGD], delta=1e-5),
    "nothing": additive_guarantee(input_std=0, radius=30, length=training_length(epochs=1), delta=1e-5),
}


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_every_budget_carries_its_assumptions(budget):
    found = budget.to_dict()
    for name in ("epsilon", "delta", "protects", "assumptions", "meaning", "neighbours", "compares"):
        assert found[name], name
    assert found["meaning"].startswith(found["level"] + ": ")
    assert found["meaning"].endswith(".")
    assert all(a["status"] in ("assumed", "not met") for a in found["assumptions"])
    json.dumps(found)


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_budget_reads_on_one_screen_with_its_verdict_first(budget):
    lines = str(budget).splitlines()
    assert len(lines) <= 32
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(budget.level.upper() + ":") for line in lines[:4])
    text = " ".join(str(budget).split())
    for assumption in budget.assumptions:
        assert assumption.statement in text


def test_a_budget_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VACUOUS.epsilon = 1.0


@pytest.mark.parametrize(
    ("epsilon", "word"),
    [(0, "meaningful"), (3, "meaningful"), (3.01, "weak"), (10, "weak"), (10.01, "vacuous"), (math.inf, "vacuous")],
)
def test_the_words_begin_at_the_documented_values(epsilon, word):
    assert level(epsilon, 1e-5) == word


def test_a_delta_of_one_record_is_vacuous_whatever_epsilon_is():
    run = training_length(epochs=1, records=1000)
    good = additive_guarantee(input_std=500, radius=1, length=run, delta=1e-5)
    careless = additive_guarantee(input_std=500, radius=1, length=run, delta=1e-3)
    assert (good.level, careless.level) == ("meaningful", "vacuous")
    assert "delta" in careless.meaning


def test_the_verdict_says_how_well_an_attack_may_still_do():
    assert f"{100 * WEAK.max_tpr:.2g}%" in WEAK.meaning
    assert "nothing is promised" in VACUOUS.meaning
    assert f"{100 * DPSGD.max_tpr:.2g}%" in DPSGD.meaning
    assert "no noise" in BUDGETS["nothing"].meaning
