"""A recipe trains on given rows: training images and canaries, by numbers that mean the same for every model."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.errors import ResperturbError, UsageError
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.run import open_run
from tests.conftest import tiny_config

# Written by version 0.2.0: configurations of every part as in config.json, and their digests.
KEPT: dict[str, Any] = json.loads((Path(__file__).parent / "schema2.json").read_text())
ROWS = [*range(0, 60, 2), 62, 65]  # of 60 images and 10 canaries


def recipe(**data: Any) -> TrainConfig:
    canaries = {"mislabelled": 6, "blank": 4}
    return tiny_config(epochs=2, data={"part": "all", "limit": 60, "canaries": canaries, **data})


@pytest.mark.parametrize("name", KEPT)
def test_a_configuration_of_0_2_keeps_its_digest(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KEPT[name]["config"]))
    assert open_run(tmp_path).config.digest == KEPT[name]["digest"]


def test_the_digest_names_the_rows_and_the_seed() -> None:
    one = recipe().on_rows(ROWS, seed=1)
    assert one.digest == recipe().on_rows(np.array(ROWS[::-1]), seed=1).digest
    assert one.digest == one.on_rows(ROWS, seed=1).digest
    others = [recipe().on_rows(ROWS[1:], seed=1), recipe().on_rows(ROWS, seed=2), recipe()]
    assert len({config.digest for config in (one, *others)}) == 4


def test_a_model_is_trained_on_exactly_its_rows(tmp_path: Path) -> None:
    run = train(recipe().on_rows(ROWS, seed=3), out=tmp_path)
    inputs = load_inputs(run.config.data)
    table = inputs.table()
    assert (len(table), run.result.records) == (70, len(ROWS))
    members = inputs.members()
    assert members.images.equal(table.images[ROWS])
    assert members.labels.equal(table.labels[ROWS])
    assert inputs.member_indices.tolist() == ROWS[:-2]
    assert np.flatnonzero(inputs.canary_coins).tolist() == [2, 5]
    assert np.load(tmp_path / "rows.npy").tolist() == ROWS
    assert open_run(tmp_path).config == run.config


@pytest.mark.parametrize("part", ["all", "audit", "target_train"])
def test_a_row_number_means_the_same_for_every_model_of_an_audit(part: str) -> None:
    target = recipe(part=part, limit=80)
    of_target = load_inputs(target.data).table()
    for rows, seed in ((ROWS, 1), ([3, 70], 2)):
        of_model = load_inputs(target.on_rows(rows, seed).data).table()
        assert of_model.images.equal(of_target.images)
        assert of_model.labels.equal(of_target.labels)


def test_an_interrupted_training_resumes_on_its_rows(tmp_path: Path) -> None:
    def interrupt(update: Update) -> None:
        if update.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    config = recipe().on_rows(ROWS, seed=3)
    whole = train(config, out=tmp_path / "whole")
    with pytest.raises(InterruptedTrainingError):
        train(config, out=tmp_path / "resumed", on_update=interrupt)
    resumed = train(open_run(tmp_path / "resumed").config, out=tmp_path / "resumed")
    assert resumed.model_path.read_bytes() == whole.model_path.read_bytes()


def test_a_training_that_was_killed_before_its_configuration_was_written_starts_anew(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(3))
    assert train(recipe().on_rows(ROWS, seed=3), out=tmp_path).result.records == len(ROWS)
    assert open_run(tmp_path).config.data.rows is not None


def test_other_rows_are_another_run(tmp_path: Path) -> None:
    train(recipe().on_rows(ROWS, seed=3), out=tmp_path)
    with pytest.raises(UsageError, match=r"holds another run \(data\.rows: "):
        train(recipe().on_rows(ROWS[1:], seed=3), out=tmp_path)
    np.save(tmp_path / "rows.npy", np.arange(3))
    with pytest.raises(ResperturbError, match=r"rows\.npy does not hold the rows of config\.json"):
        open_run(tmp_path)
    (tmp_path / "rows.npy").write_bytes(b"no array")
    with pytest.raises(ResperturbError, match=r"rows\.npy is damaged"):
        open_run(tmp_path)


@pytest.mark.parametrize("rows", [[], [-1], [1, 1], [[1]], [0.5], [True]])
def test_anything_but_a_set_of_row_numbers_is_refused(rows: list[Any]) -> None:
    with pytest.raises(UsageError, match="row"):
        recipe().on_rows(rows, seed=0)


def test_rows_that_are_not_there_or_not_known_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no row 70: there are 60 images and 10 canaries"):
        train(recipe().on_rows([1, 70], seed=0), out=tmp_path)
    assert not any(tmp_path.iterdir())
    only_named = make_config(**recipe().on_rows([1, 2], seed=0).model_dump(mode="json"))
    with pytest.raises(UsageError, match="by their digest only"):
        train(only_named, out=tmp_path)
    with pytest.raises(UsageError, match="goes with the part 'rows'"):
        make_config(data={"spec": "x", "part": "rows"})
