"""The benchmark measures every way it names and says what its numbers are worth; nothing depends on the times."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.paper.bench import TARGETS, WAYS, Setting, can_measure_memory, memory_in_own_process, ratios

TINY = ["bench", "--quick", "--batch-size", "4", "--image-size", "8", "--threads", "1", "--no-memory"]
RATIOS = {
    "trainer_over_plain",
    "additive_over_plain",
    "multiplicative_over_plain",
    "en5_over_5_singles",
    "dpsgd_over_additive",
    "prediction_additive_over_plain",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("bench")
    files = ["--figure", str(folder / "speed.png"), "--save", str(folder / "speed.json")]
    result = CliRunner().invoke(app, [*TINY, *files])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_all_ways_are_measured_and_put_in_relation(measured: tuple[Path, str]) -> None:
    result = json.loads((measured[0] / "speed.json").read_text())
    assert result["ratios"].keys() == RATIOS == TARGETS.keys()
    [network] = result["networks"]
    assert network["milliseconds"].keys() == {name for name in WAYS if not name.endswith("compiled")}
    assert all(value > 0 for value in network["milliseconds"].values())
    assert network["plain"] in ("plain_eager", "plain_channels_last")
    for name, ratio in result["ratios"].items():
        low, high = network["quartiles"][name]
        assert low <= ratio <= high
    assert result["quick"]


def test_a_person_sees_tables_and_what_not_to_quote(measured: tuple[Path, str]) -> None:
    folder, shown = measured
    assert "= plain" in shown
    assert "Do not quote" in shown
    assert "reached" not in shown
    assert {path.suffix for path in folder.iterdir()} == {".png", ".svg", ".json"}


def test_plain_is_the_fastest_loop_by_hand() -> None:
    costs = dict.fromkeys(WAYS, 2.0)
    assert ratios(costs | {"plain_compiled": 1.0})["trainer_over_plain"] == 2.0
    assert ratios(costs | {"plain_eager": 0.5})["trainer_over_plain"] == 4.0
    assert ratios(costs | {"dpsgd_ghost": 1.0})["dpsgd_over_additive"] == 0.5


@pytest.mark.skipif(not can_measure_memory(), reason="this system does not say what a process used at most")
def test_memory_grows_with_the_batch() -> None:
    setting = Setting(batch_size=8, compiled=False)
    small, large = (memory_in_own_process("additive", replace(setting, batch_size=batch)) for batch in (8, 64))
    # Activations of 32x32 images: the maps of the first stage alone are 64 KB an image each.
    assert large - small > 56 * 5 * 0.065


def test_an_unknown_network_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "--model", "resnet9"])
    assert isinstance(result.exception, UsageError)
    assert "resnet9" in str(result.exception)
