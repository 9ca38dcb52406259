"""A result claims no more than its intervals allow, is kept whole, and is drawn."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from resperturb.errors import ResperturbError, UsageError
from resperturb.frontiers.compare import comparisons_of, group_differences
from resperturb.frontiers.curve import CANARY_TPR, Curve
from resperturb.frontiers.figure import figure
from resperturb.frontiers.page import render
from resperturb.frontiers.result import FrontierResult, SettingResult, read_frontier

STAGES = ("epoch-002", "epoch-010", "epoch-040")


def curve(name: str, ordinary: bool, accuracy: float, leak: float, epsilon: float | None = None) -> Curve:
    rng = np.random.default_rng(sum(map(ord, name)))
    targets = 16
    accuracies = 0.3 + (accuracy - 0.3) * np.array([0.5, 0.8, 1.0])[:, None] + rng.normal(0, 0.004, (3, targets))
    leaks = 0.5 + (leak - 0.5) * np.array([0.25, 0.6, 1.0])[:, None] + rng.normal(0, 0.004, (3, targets))
    found = {"AUC": leaks, CANARY_TPR: np.clip(3 * (leaks - 0.5), 0, 1)}
    known = {"targets": np.arange(targets), "stages": STAGES, "accuracy": accuracies, "leaks": found}
    proven = {"epsilon": epsilon, "claimed": epsilon is not None}
    return Curve(name, name.split()[0], ordinary, epsilon is not None, **known, **proven)  # type: ignore[arg-type]


def frontier(noise_leak: float = 0.66, **values: object) -> FrontierResult:
    curves = [
        curve("no defence", True, 0.73, 0.78),
        curve("dropout 0.3", True, 0.70, 0.68),
        curve("additive noise 0.5", False, 0.69, noise_leak),
        curve("dpsgd 1", False, 0.5, 0.6, epsilon=18.1),
    ]
    fixed = {"subject": "a simulation", "attack": "rmia-online", "models": 16, "records": 500, "margin": 0.02}
    settings = tuple(SettingResult.of(one, 0.95) for one in curves)
    comparisons = comparisons_of(curves, 0.95, 0.02)
    known = {"settings": settings, "comparisons": comparisons, "canaries": {"mislabelled": 10}, "confidence": 0.95}
    return FrontierResult(**known, **fixed, **values)  # type: ignore[arg-type]


def test_the_title_names_a_defence_only_if_its_interval_excludes_0() -> None:
    assert "additive noise 0.5 leaked less than ordinary regularisation" in frontier(0.55).title
    assert "additive noise 0.5" not in frontier(0.66).title
    assert "leaked less" not in frontier(0.75).title.replace("No defence tested leaked less", "")


def test_defences_that_were_not_compared_are_named() -> None:
    assert frontier().uncompared == ""
    found = replace(frontier(), comparisons=(), left_out=("relaxloss 1: no time.",))
    assert found.title == "No defence could be compared with ordinary regularisation"
    assert "Not compared with ordinary regularisation: additive noise 0.5, dpsgd 1. Fewer than 8" in repr(found)
    assert "Left out: relaxloss 1: no time." in repr(found)
    assert found.uncompared in render(found)
    ordinary = replace(found, settings=found.settings[:2])
    assert ordinary.title == "Ordinary regularisation alone was measured"


def test_a_defence_at_prediction_time_is_reported_with_the_leak_of_its_weights() -> None:
    found = frontier(0.55)
    masked = next(one for one in found.settings if one.name == "additive noise 0.5")
    masked.final.leaks["AUC with weights"] = masked.final.leaks["AUC"]
    assert masked.words == "additive noise 0.5"
    masked.final.leaks["AUC with weights"] = found.settings[0].final.leaks["AUC"]
    assert "additive noise 0.5 (as served; AUC 0.7" in found.title
    assert "with its weights" in found.recommend(max_auc=0.6).sentence


def test_comparisons_say_whether_they_are_decided() -> None:
    sentences = frontier(0.55).sentences
    assert re.match(r"additive noise 0.5 leaks 0\.\d+ less \(AUC\) than .* at accuracy 0\.6\d\d \[-0", sentences[0])
    assert not any(one.startswith("dropout") for one in sentences if "epsilon" not in one)
    assert all(one.endswith((": decided.", ": not told apart.", "equivalent within 0.02.")) for one in sentences)


def test_a_recommendation_meets_its_limits_with_the_end_of_the_interval() -> None:
    found = frontier()
    chosen = found.recommend(max_auc=0.7)
    assert chosen.setting is not None
    stage = next(one for one in found[chosen.setting].stages if one.name == chosen.stage)
    assert stage.leaks["AUC"].high <= 0.7
    better = [
        other
        for setting in found.settings
        for other in setting.stages
        if other.leaks["AUC"].high <= 0.7 and other.accuracy.value > stage.accuracy.value
    ]
    assert not better
    cheap = found.recommend(max_accuracy_loss=0.05)
    assert cheap.setting is not None
    assert found[cheap.setting].final.accuracy.value >= found.settings[0].final.accuracy.value - 0.05
    assert found.recommend(max_auc=0.5).setting is None
    assert "No setting meets AUC at most 0.5" in found.recommend(max_auc=0.5).sentence


def test_a_formal_guarantee_is_recommended_with_what_epsilon_does_not_cover() -> None:
    sentence = frontier().recommend(max_auc=0.62, max_canary_tpr=0.4).sentence
    assert "dpsgd" not in sentence or "does not cover" in sentence


@pytest.mark.parametrize("limits", [{}, {"max_auc": 1.5}, {"max_canary_tpr": -0.1}])
def test_wrong_limits_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="limit"):
        frontier().recommend(**limits)


def test_a_result_is_kept_and_read_back(tmp_path: Path) -> None:
    found = frontier(left_out=("hamp 0.95: no time",))
    path = found.save(tmp_path / "frontier.json")
    assert read_frontier(path) == found
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 9'))
    with pytest.raises(ResperturbError, match="schema 9"):
        read_frontier(path)


def test_the_figure_is_valid_and_names_each_defence() -> None:
    drawn = figure(frontier(), {"AUC": 0.6})
    root = ET.fromstring(drawn)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    for name in ("no defence", "dropout 0.3", "additive noise 0.5", "dpsgd 1, ε 18.1"):
        assert texts.count(name) == 2, name
    assert any(element.tag.endswith("polygon") for element in root.iter())
    better = {one.setting for one in frontier().primary if one.verdict == "leaks less"}
    strong = [
        element
        for element in root.iter()
        if element.get("opacity") == "1" and element.find(".//{*}title") is not None
    ]
    names = {element.find(".//{*}title").text.partition(":")[0] for element in strong}  # type: ignore[union-attr]
    assert better <= names < {one.name for one in frontier().settings}
    assert "accuracy 0.7" in root.attrib["aria-label"]


def test_the_page_escapes_names_and_has_the_finding_as_its_title() -> None:
    page = render(frontier(left_out=("<b>x</b>",)), max_auc=0.6)
    assert "<b>x" not in page
    assert f"<h1>{frontier().title}</h1>" in page
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page).replace("http-equiv", "")


def test_subgroups_are_compared_over_targets() -> None:
    rng = np.random.default_rng(0)
    coins = rng.random((8, 200)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(16, 200)
    groups = np.array(["f", "m"]).repeat(100)
    scores = rng.normal(size=(16, 200)) + members * np.where(groups == "f", 2.0, 0.2)
    found = {one.group: one for one in group_differences("none", scores, members, groups, np.arange(200))}
    assert found["f"].difference.interval.low > 0.1
    assert found["m"].difference.interval.high < -0.1
    groups[:] = "f"
    assert group_differences("none", scores, members, groups, np.arange(200)) == ()
