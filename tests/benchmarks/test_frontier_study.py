"""The frontier study is set up as its page describes, and the page is written from its numbers."""

import re
from pathlib import Path

import numpy as np

from benchmarks.frontier_study import EVERY, STUDIES, study
from resperturb.frontiers import FrontierResult, SettingResult
from resperturb.frontiers.compare import comparisons_of
from resperturb.frontiers.curve import CANARY_TPR, LABELS_AUC, PRIMARY, WEIGHTS_AUC, Curve
from resperturb.frontiers.defence import DEFENCES, settings_of
from tools.frontier_page import PAGES, SAID_IN, claim, filled, main, members, page, protocol, studies

ROOT = Path(__file__).parents[2]


def simulated() -> FrontierResult:
    """A study of every defence whose leak follows from accuracy alone, but for DP heads."""
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 0.01, 64)
    curves = []
    for number, one in enumerate(settings_of(EVERY)):
        epsilon = one.strength if one.defence == "dp-head" else 2e4 if one.defence == "dpsgd" else None
        accuracy = (0.74 - 0.01 * number) * np.array([0.8, 0.9, 1])[:, None] + rng.normal(0, 0.01, (3, 64))
        leak = 0.5 + accuracy - 0.44 + luck + rng.normal(0, 0.01, (3, 64)) - 0.1 * (one.defence == "dp-head")
        leaks = {PRIMARY: leak, CANARY_TPR: np.clip(2 * leak - 0.9, 0, 1), LABELS_AUC: (leak + 0.5) / 2}
        leaks[WEIGHTS_AUC] = leak + 0.1 * (one.defence == "hamp")
        stages = ("epoch-0008", "epoch-0011", "epoch-0020")
        leaks |= {f"{kind} AUC": leak for kind in ("mislabelled", "blank", "near_duplicate")}
        defence = DEFENCES[one.defence]
        leaks[CANARY_TPR.replace("canary", defence.canary)] = leaks[CANARY_TPR]
        kept = one.name, one.defence, defence.ordinary, defence.formal, one.strength, defence.canary
        known = {"targets": np.arange(64), "stages": stages, "accuracy": accuracy, "leaks": leaks, "epsilon": epsilon}
        curves.append(Curve(*kept, **known))  # type: ignore[arg-type]
    return FrontierResult(
        subject="a simulation",
        attack="rmia-online",
        models=64,
        records=594,
        canaries={"mislabelled": 4, "blank": 4, "near_duplicate": 4},
        confidence=0.95,
        margin=0.02,
        settings=tuple(SettingResult.of(curve, 0.95) for curve in curves),
        comparisons=comparisons_of(curves, 0.95, 0.02),
        left_out=("of dropout 0.5 2 models were left out",),
    )


def test_the_study_is_set_up_with_few_canaries_of_the_kinds_that_expose_its_defences() -> None:
    found = study("fashion", models=8)
    kinds = found.candidates.kinds
    assert {DEFENCES[one.defence].canary for one in found.settings} == set(kinds) - {"record"}
    assert (kinds != "record").mean() <= 0.02
    assert found.settings[0].name == "no defence"
    assert len(found.settings) == len(EVERY) + 1
    assert STUDIES["fashion"][1]["models"] >= 64


def test_the_page_has_the_results(tmp_path: Path) -> None:
    found = simulated()
    text = page({"fashion": found}, "fashion")
    assert text.startswith("# Defences at equal accuracy\n\n" + found.title)
    assert "{" not in text
    for setting in found.settings:
        assert f"| {setting.name} | {setting.final.accuracy.words()}" in text
    for compared in found.comparisons:
        low, high = compared.difference.interval
        assert f"{compared.difference.mean:+.3f} [{low:+.3f}, {high:+.3f}] | {compared.verdict}" in text
    assert "### AUC, against DP-SGD" in text
    assert "No DP-SGD tested is as accurate as no defence" in text
    assert "2 models were left out" in text
    rows = protocol(found)
    assert len(rows) == 13
    assert {met for _, met, _ in rows} <= {"yes", "in part", "no"}
    assert {name: met for name, met, _ in rows}["DP-SGD at equal accuracy"] == "in part"


def test_the_sentence_elsewhere_carries_the_interval_and_is_written_between_its_marks(tmp_path: Path) -> None:
    found = simulated()
    said = claim(found)
    assert re.search(r"differed from that of regularised networks by [+-]0\.\d+ to [+-]0\.\d+\. The joint 95%", said)
    for name in ("docs/images", "docs/how-to"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in SAID_IN:
        (tmp_path / name).write_text(
            "- <!-- frontier:claim -->old<!-- end --> kept <!-- frontier:members -->\n<!-- end -->"
        )
    (tmp_path / "docs" / "results").mkdir()
    found.save(tmp_path / "docs" / "results" / "frontier-fashion.json")
    main(tmp_path)
    written = (
        f"- <!-- frontier:claim -->{said} [The study](docs/frontier.md).<!-- end --> kept <!-- frontier:members -->\n"
    )
    assert (tmp_path / "README.md").read_text() == f"{written}{members(found)}<!-- end -->"
    assert (tmp_path / "docs" / "frontier.md").read_text() == page({"fashion": found}, "fashion")
    assert (tmp_path / "docs" / "images" / "frontier.svg").read_text().startswith("<svg")


def test_the_main_page_links_the_other_study() -> None:
    found = {"fashion": simulated(), "cifar10": simulated()}
    assert "[The study on CIFAR10](frontier-cifar10.md)" in page(found, "fashion")
    text = page(found, "cifar10")
    assert text.startswith("# Defences at equal accuracy on CIFAR10\n")
    assert "frontier-cifar10.md" not in text
    assert "32 by 32 pixels" in text


def test_the_pages_and_the_sentences_are_those_of_the_kept_studies() -> None:
    found = studies(ROOT)
    for name in found:
        assert (ROOT / "docs" / f"{PAGES[name][0]}.md").read_text() == page(found, name)
    for name, docs in SAID_IN.items():
        text = (ROOT / name).read_text()
        assert "<!-- frontier:claim -->" in text
        assert filled(text, found, docs) == text
