"""The numbers of docs/theory.md and docs/concepts/epsilon.md, computed again."""

import math
import re
from pathlib import Path

import pytest

from resperturb.privacy import calibrate_additive, dpsgd_guarantee, training_length
from resperturb.privacy.accounting import tpr_from_budget
from resperturb.privacy.gaussian import attack_tpr, mu_for_budget
from resperturb.privacy.guarantee import level, number

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join((DOCS / name).read_text() for name in ("theory.md", "concepts/epsilon.md"))


def rows(heading):
    """The cells of the table whose first line contains ``heading``."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and heading in line)
    cells = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells.append([cell.strip() for cell in line.strip("|").split("|")])
    return cells


@pytest.mark.parametrize("row", rows("by PLD"), ids=lambda row: row[0])
def test_the_table_of_dpsgd(row):
    noise, batch, records, epochs = map(float, re.findall(r"\d+(?:\.\d+)?", row[1]))
    run = training_length(epochs=epochs, batch_size=int(batch), records=int(records))
    budget = dpsgd_guarantee(noise_multiplier=noise, length=run, delta=1e-5)
    assert row[2:4] == [number(budget.details["epsilon_pld"]), number(budget.details["epsilon_rdp"])]


@pytest.mark.parametrize("row", rows("best guess"), ids=lambda row: row[0])
def test_the_table_of_what_an_epsilon_permits(row):
    epsilon = float(row[0])
    computed = (
        math.exp(epsilon) / (1 + math.exp(epsilon)),
        tpr_from_budget(epsilon, 1e-5, 1e-3),
        attack_tpr(mu_for_budget(epsilon, 1e-5), 1e-3),
    )
    for cell, value in zip(row[1:4], computed, strict=True):
        digits = len(cell.rstrip("%").partition(".")[2])
        assert cell == f"{100 * value:.{digits}f}%"
    assert row[4] == level(epsilon, 1e-5)


def test_the_numbers_in_the_text():
    for epochs, std in ((100, "360"), (1, "36")):
        found = calibrate_additive(epsilon=8, delta=1e-5, length=training_length(epochs=epochs), radius=30)
        assert f"{found.details['input_std']:.0f}" == std
    assert "must be 360, twelve times" in " ".join(PAGE.split())
    assert 360 / 30 == 12
    run = training_length(steps=64000, batch_size=128, records=12500)
    assert (run.epochs, run.passes) == (655.36, 660)
    assert f"{math.sqrt(3 * 32 * 32):.1f}" == "55.4"
    assert f"{math.sqrt(3 * 50 * 50):.1f}" == "86.6"
