"""Verdicts by their rule, results that are not lost, and the page that is written from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.errors import UsageError
from resperturb.paper.reproduce import results
from resperturb.paper.reproduce.declarations import BY_ID
from resperturb.paper.reproduce.measures import spread
from resperturb.paper.reproduce.page import read_notes, write_page
from resperturb.paper.reproduce.presets import PRESETS


def measured(mean: float, error: float = 0.0, count: int = 1) -> dict[str, Any]:
    return {"mean": mean, "error": error, "values": [mean] * count}


def table_result(preset: str = "cpu", auc: float = 0.61) -> dict[str, Any]:
    row = {
        "name": "ResNet8, non-private", "data": "cifar10", "networks": 1, "strategy": "none", "gamma": 0.0,
        "paper": {"auc": 0.757, "train_accuracy": 1.0, "test_accuracy": 0.669},
        "measured": {k: measured(v) for k, v in (("auc", auc), ("train_accuracy", 0.9), ("test_accuracy", 0.6))},
        "thresholds": None, "roc": None, "seeds": [0], "seeds_wanted": 3, "runs": ["0" * 16], "why": [],
        "audit": None,
    }  # fmt: skip
    row["verdict"] = results.verdict(row["paper"], row["measured"], preset, reduced=True)  # type: ignore[arg-type]
    data = {
        "name": "cifar10", "shown": "CIFAR10", "fingerprint": "f" * 16, "training_images": 50_000,
        "a_quarter": 12_500, "test_images": 10_000, "groups": None, "reduced": "20 epochs instead of 200",
    }  # fmt: skip
    heading = results.heading(BY_ID["cifar10-table"], PRESETS[preset])
    return {**heading, "data": [data], "rows": [row], "claims": [], "trainings": 1, "seconds": 60.0}


@pytest.mark.parametrize(
    ("mean", "error", "count", "agrees"),
    [
        (0.509, 0.0, 1, True),  # within the fixed tolerance
        (0.511, 0.0, 1, False),
        (0.534, 0.009, 1, True),  # 0.01 + 1.96 * 0.009 * sqrt 2 = 0.0349
        (0.536, 0.009, 1, False),
        (0.541, 0.009, 4, True),  # four seeds: 0.01 + 3.18 * 0.009 * sqrt 1.25 = 0.0420
        (0.543, 0.009, 4, False),
    ],
)
def test_a_number_agrees_within_the_stated_tolerance(mean: float, error: float, count: int, agrees: bool) -> None:
    found = results.verdict({"auc": 0.5}, {"auc": measured(mean, error, count)}, "paper", reduced=False)
    assert found.startswith("agrees") is agrees
    assert ("(one seed)" in found) is (count == 1)
    assert agrees or f"AUC {mean:.3f} against 0.500" in found


def test_what_only_a_gross_difference_could_contradict_is_undecided() -> None:
    found = results.verdict({"auc": 0.5}, {"auc": measured(0.52, 0.05, 3)}, "paper", reduced=False)
    assert found == "undecided: only a difference of more than 0.26 in AUC would have been seen"
    assert results.verdict({"auc": 0.9}, {"auc": measured(0.52, 0.05, 3)}, "paper", reduced=False).startswith(
        "differs"
    )


def test_one_number_that_differs_is_enough() -> None:
    found = results.verdict(
        {"auc": 0.5, "test_accuracy": 0.7},
        {"auc": measured(0.5), "test_accuracy": measured(0.6)},
        "paper",
        reduced=False,
    )
    assert found == "differs (one seed): test accuracy 0.600 against 0.700"


def test_a_smoke_test_is_never_compared() -> None:
    assert results.verdict({"auc": 0.5}, {"auc": measured(0.5)}, "quick", reduced=True).startswith("smoke test")


def test_reduced_settings_are_named() -> None:
    assert "reduced settings" in results.verdict({"auc": 0.5}, {"auc": measured(0.5)}, "cpu", reduced=True)
    assert "reduced settings" in results.verdict({"auc": 0.5}, {"auc": measured(0.9)}, "cpu", reduced=True)
    # The paper's settings on a subset of its images are not the paper's.
    assert "reduced settings" in results.verdict({"auc": 0.5}, {"auc": measured(0.9)}, "paper", reduced=True)


def test_what_was_not_measured_agrees_with_nothing() -> None:
    assert results.verdict({"auc": 0.5}, {}, "paper", reduced=False) == "not measured: AUC"


@pytest.mark.parametrize(("seeds", "quantile"), [(2, 4.303), (3, 2.776), (20, 2.024)])  # Student, 2 (n - 1)
def test_a_claim_needs_the_more_errors_the_fewer_the_seeds(seeds: int, quantile: float) -> None:
    enough = quantile * 0.01 * (2 / seeds) ** 0.5
    low, near, far = (measured(0.5 + more, 0.01, seeds) for more in (0.0, enough - 1e-4, enough + 1e-4))
    assert results.claim_verdict(low, near, reduced=False) == "open"
    assert results.claim_verdict(low, far, reduced=False) == "holds"
    assert results.claim_verdict(far, low, reduced=False) == "fails"


def test_a_claim_on_one_training_says_so() -> None:
    once = measured(0.5, 0.01)
    assert results.claim_verdict(once, measured(0.7, 0.01, 3), reduced=False) == "holds (one seed)"
    assert results.claim_verdict(once, measured(0.5, 0.01), reduced=True) == "open at reduced settings (one seed)"


def test_chance_alone_settles_about_one_claim_in_twenty() -> None:
    draws = np.random.default_rng(0).normal(0.5, 0.02, size=(2000, 2, 3))
    pairs = ([spread(list(three), 0.0).to_dict() for three in pair] for pair in draws)
    found = [results.claim_verdict(lower, higher, reduced=False) for lower, higher in pairs]
    # The standard error of the share is 0.005.
    assert sum(verdict != "open" for verdict in found) / len(found) == pytest.approx(0.05, abs=0.02)


def test_a_result_with_more_seeds_or_audits_is_not_replaced_by_one_with_fewer(tmp_path: Path) -> None:
    one, two = table_result(), table_result()
    two["rows"][0]["seeds"] = [0, 1]
    results.save(tmp_path, two)
    assert results.has_more(tmp_path, one)
    assert not results.has_more(tmp_path, two)
    one["data"][0]["reduced"] = "made at other settings"
    assert not results.has_more(tmp_path, one)


def test_the_spread_is_over_seeds_once_there_are_several() -> None:
    assert spread([0.4], 0.03).error == 0.03
    assert spread([0.4, 0.6], 0.03).error == pytest.approx(0.02**0.5)
    assert "seeds" in spread([0.4, 0.6], 0.03).to_dict()["error_is"]


def test_a_lesser_preset_does_not_overwrite_a_better_one(tmp_path: Path) -> None:
    results.save(tmp_path, table_result("cpu", auc=0.6))
    with pytest.raises(UsageError, match="preset cpu, which is better than quick"):
        results.save(tmp_path, table_result("quick"))
    results.save(tmp_path, table_result("paper", auc=0.7))
    kept = results.load(tmp_path, "cifar10-table")
    assert kept is not None
    assert kept["preset"] == "paper"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema": 99}', '{"schema": 1, "preset": "cpu"}', '{"schema": 1, "preset": "huge"}']
)
def test_a_damaged_result_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "cifar10-table.json").write_text(content)
    assert results.load(tmp_path, "cifar10-table") is None
    assert results.load_all(tmp_path) == {}


def test_the_page_puts_both_numbers_the_preset_and_the_notes_side_by_side(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    results.save(folder, table_result())
    (folder / "notes.md").write_text(
        "Not shown.\n\n## cifar10-table\n\nWe tried *twice*.\n\n## mnist-table\n\nLater.\n"
    )
    page = tmp_path / "docs" / "reproduction.md"
    write_page(page, folder, results.load_all(folder))
    text = page.read_text()
    assert "| 0.757 / 1.000 / 0.669 | 0.610 / 0.900 / 0.600 | cpu | differs at reduced settings" in text
    assert "](results/cifar10-table.png)" in text
    section = text.split("## cifar10-table")[1].split("\n## ")[0]
    assert "We tried *twice*." in section
    assert "20 epochs instead of 200" in section
    assert "f" * 16 in section
    assert "1 of 3" in section
    assert "Not shown." not in text
    assert "Not measured yet: `resperturb reproduce run idc-table" in text
    assert "core-hours" in text


def test_the_strongest_attack_stands_with_its_interval_and_what_it_was_chosen_from(tmp_path: Path) -> None:
    result = table_result()
    result["rows"][0]["audit"] = {
        "auc": 0.61, "auc_interval": [0.58, 0.64], "strongest": "rmia", "attacks": 13, "shadows": 0,
    }  # fmt: skip
    write_page(tmp_path / "page.md", tmp_path, {"cifar10-table": result})
    row = "| 0.610 [0.580, 0.640] (rmia; best of 13 attacks, no shadows) |"
    assert row in (tmp_path / "page.md").read_text()


def test_the_page_counts_the_claims_that_hold(tmp_path: Path) -> None:
    verdicts = ("not measured", "holds", "fails (one seed)", "holds (one seed)", "open")
    claims = [{"text": "Noise helps.", "verdict": verdict} for verdict in verdicts]
    results.save(tmp_path, {**table_result(), "claims": claims})
    write_page(tmp_path / "page.md", tmp_path, results.load_all(tmp_path))
    assert "of 5 claims 2 hold, 1 fails, 1 is open, 1 is not measured |" in (tmp_path / "page.md").read_text()


def test_the_page_is_the_same_from_the_same_results(tmp_path: Path) -> None:
    results.save(tmp_path, table_result())
    pages = []
    for name in ("one.md", "two.md"):
        write_page(tmp_path / name, tmp_path, results.load_all(tmp_path))
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]


def test_notes_belong_to_the_heading_above_them(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("## a-b\nfirst\n### inner\nmore\n## empty\n\n## c\nlast")
    assert read_notes(path) == {"a-b": "first\n### inner\nmore", "c": "last"}
