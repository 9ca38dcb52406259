"""A study trains the same halves under every setting, resumes, leaves out what does not fit, refuses bad input."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import resperturb as rp
from resperturb.auditing.candidates import candidates_of
from resperturb.auditing.function import Function
from resperturb.errors import UsageError
from resperturb.frontiers import Study, read_frontier
from resperturb.frontiers.study import StudiedSetting
from resperturb.privacy import Guarantee, nothing_proven

ROWS, CLASSES = 150, 3
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, CLASSES, ROWS)
POINTS = RNG.normal(size=(ROWS, 8)) + 1.2 * np.eye(CLASSES, 8)[LABELS]
SETTINGS = {"none": {}, "dropout": [{"blur": 0.5}], "noise": [{"blur": 2.0}, {"blur": 8.0}]}
Train = Callable[..., Any]


def kernel(rows: np.ndarray, blur: float) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel classifier: the narrower, the more it memorises."""

    def predict(asked: np.ndarray) -> np.ndarray:
        distances = ((POINTS[asked][:, None] - POINTS[rows][None]) ** 2).mean(axis=2)
        votes = np.exp(-distances / (0.1 + blur)) @ np.eye(CLASSES)[LABELS[rows]] + 1e-3
        return votes / votes.sum(axis=1, keepdims=True)

    return predict


def writing(folder: Path) -> Train:
    """Train by checkpoints, and record the requested settings."""
    folder.mkdir(exist_ok=True)

    def train(indices: np.ndarray, seed: int, blur: float = 0.0) -> Iterator[Any]:
        with open(folder / f"{blur:g}.jsonl", "a") as file:
            file.write(json.dumps([sorted(indices.tolist()), seed]) + "\n")
        for share in (0.5, 1.0):
            yield kernel(indices[: int(share * len(indices))], blur)

    return train


def trained(folder: Path) -> dict[str, list[Any]]:
    return {path.stem: sorted(map(json.loads, path.read_text().splitlines())) for path in folder.glob("*.jsonl")}


def test_every_setting_has_the_same_halves_and_a_second_call_trains_nothing(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    options: dict[str, Any] = {"models": 8, "out": out, "jobs": 1, "quiet": True}
    found = rp.frontier(writing(log), SETTINGS, LABELS, **options)
    done = trained(log)
    assert sorted(done) == ["0", "0.5", "2", "8"]
    assert all(len(runs) == 8 for runs in done.values())
    assert all(runs == done["0"] for runs in done.values())
    assert [one.name for one in found.settings] == ["none", "dropout 0.5", "noise 2.0", "noise 8.0"]
    assert [one.ordinary for one in found.settings] == [True, True, False, False]
    assert all([stage.name for stage in one.stages] == ["checkpoint-001", "checkpoint-002"] for one in found.settings)
    leaks = [one.final.leaks["AUC"].value for one in found.settings]
    assert leaks[0] > 0.8 > leaks[-1]
    assert read_frontier(out / "frontier.json") == found
    again = rp.frontier(writing(log), SETTINGS, LABELS, **options)
    assert replace(again, environment=found.environment) == found
    assert trained(log) == done
    assert json.loads((out / "exposed.json").read_text())["none"] is None  # 8 models name no record
    assert (out / "exposed.json").stat().st_mode & 0o077 == 0


def test_exposed_records_are_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between writing and closing the file to others would leave it open."""
    written: dict[str, int] = {}
    replaced = os.replace

    def noted(source: Path, target: Path) -> None:
        written[Path(target).name] = Path(source).stat().st_mode
        replaced(source, target)

    monkeypatch.setattr(os, "replace", noted)
    rp.frontier(writing(tmp_path / "log"), SETTINGS, LABELS, models=8, out=tmp_path / "out", jobs=1, quiet=True)
    assert written["exposed.json"] & 0o077 == 0


def test_subgroups_are_compared_and_canaries_reported() -> None:
    kinds = np.where(np.arange(ROWS) < 4, "odd", "record")
    sex = np.where(np.arange(ROWS) % 2 == 0, "f", "m").astype(object)
    sex[5] = None
    train = lambda indices, seed, blur=0.0: kernel(indices, blur)  # noqa: E731
    found = rp.frontier(train, SETTINGS, LABELS, kinds=kinds, subgroups=sex, models=8, out=None, quiet=True)
    assert {(one.setting, one.group) for one in found.groups if one.setting == "none"} == {
        ("none", "f"),
        ("none", "m"),
    }
    assert found.canaries == {"odd": 4}
    assert "canary AUC" in found.settings[0].final.leaks
    assert found.settings[0].stages[0].name == "final"


def test_hours_leave_settings_out_and_say_which(tmp_path: Path) -> None:
    import time

    def train(indices: np.ndarray, seed: int, blur: float = 0.0) -> Any:
        time.sleep(blur == 8.0)
        return kernel(indices, blur)

    found = rp.frontier(train, SETTINGS, LABELS, models=8, out=None, quiet=True, hours=5 / 3600, jobs=1)
    assert [one.name for one in found.settings] == ["none", "dropout 0.5", "noise 2.0"]
    assert len(found.left_out) == 1
    assert found.left_out[0].startswith("noise 8.0: it takes about ")
    with pytest.raises(UsageError, match="8 models of 'none' alone take about"):
        rp.frontier(train, SETTINGS, LABELS, models=8, out=None, quiet=True, hours=1e-9, jobs=1)


def test_a_train_that_ignores_its_setting_is_refused_after_two_models() -> None:
    calls = []

    def train(indices: np.ndarray, seed: int, **setting: Any) -> Any:
        calls.append(setting)
        return kernel(indices, 0.0)

    with pytest.raises(UsageError, match="exactly the same answers with the settings 'none' and 'dropout 0.5'"):
        rp.frontier(train, SETTINGS, LABELS, models=8, out=None, quiet=True)
    assert len(calls) == 2


def never(indices: np.ndarray, seed: int, blur: float = 0.0) -> Any:
    raise AssertionError("nothing may be trained")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"noise": [{"blur": 1}]}}, "must have one without a defence"),
        ({"settings": {"none": {}}}, "a defence besides"),
        ({"settings": [{}]}, "must be a dictionary"),
        ({"settings": {"none": {}, "noise": 3}}, "must be keyword arguments"),
        ({"settings": {"none": {}, "noise": {"gamma": 3}}}, "the setting 'noise 3' does not fit"),
        ({"settings": {"none": {}, "noise": [{"blur": 1}, {"blur": 1}]}}, "the same name"),
        ({"ordinary": ["decay"]}, "no such defence"),
        ({"models": 7}, "at least 8 models"),
        ({"models": 9}, "even number"),
        ({"labels": LABELS[:30]}, "needs 40"),
        ({"population": 0}, "0 rows for the population"),
        ({"subgroups": ["f"]}, "one value for each of the 150 rows"),
        ({"hours": 0.0}, "hours must be above 0"),
        ({"confidence": 1.5}, "confidence"),
        ({"margin": 0.0}, "margin"),
        ({"draws": 0}, "draws"),
        ({"train": 3}, "train must be a function"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_trained(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    asked = {"train": never, "settings": SETTINGS, "labels": LABELS, "models": 8, "out": tmp_path / "out", **changes}
    with pytest.raises(UsageError, match=message) as error:
        rp.frontier(**asked, quiet=True)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    train = lambda indices, seed, blur=0.0: kernel(indices, blur)  # noqa: E731
    options: dict[str, Any] = {"models": 8, "out": tmp_path, "quiet": True, "jobs": 1}
    rp.frontier(train, {"none": {}, "noise": {"blur": 2.0}}, LABELS, **options)
    with pytest.raises(UsageError, match="other .*seed"):
        rp.frontier(train, {"none": {}, "noise": {"blur": 2.0}}, LABELS, seed=1, **options)


class Counted(Function):
    """A training whose epsilon is larger for an even number of rows."""

    def guarantee(self, delta: float, records: int) -> Guarantee:
        return replace(nothing_proven("as counted", delta), epsilon=3.0 if records % 2 else 4.0)


def test_the_epsilon_of_a_setting_is_that_of_its_weakest_model() -> None:
    candidates = candidates_of(LABELS)
    trainee = Counted(kernel_of_rows, CLASSES)
    study = Study("test", (StudiedSetting("none", "none", True, trainee=trainee),), candidates, models=8)
    counts = study.design.members.sum(axis=1)
    assert len(set(counts % 2)) == 2
    assert study.run(None, quiet=True).settings[0].epsilon == 4.0


def test_an_epsilon_of_one_record_says_so_where_units_have_several() -> None:
    candidates = candidates_of(LABELS, np.arange(len(LABELS)) // 2)
    trainee = Counted(kernel_of_rows, CLASSES)
    study = Study("test", (StudiedSetting("dpsgd 1", "none", formal=True, trainee=trainee),), candidates, models=8)
    assert study.run(None, quiet=True).settings[0].guarantee in ("3 per record", "4 per record")


def kernel_of_rows(indices: np.ndarray, seed: int) -> Any:
    return kernel(indices, 0.0)
