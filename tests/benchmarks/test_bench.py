"""The benchmark measures every variant it names, with intervals; nothing depends on the times."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.bench import GROWTH, RATIOS, WAYS, Workload, growth_tables, peak_memory, ratios, run_bench
from benchmarks.speed import app
from resperturb.errors import UsageError
from resperturb.models import build

TINY = ["--quick", "--batch-size", "4", "--image-size", "8", "--threads", "1", "--no-memory"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("bench")
    files = ["--figure", str(folder / "speed.png"), "--save", str(folder / "speed.json")]
    result = CliRunner().invoke(app, [*TINY, *files])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_all_ways_are_measured_and_put_in_relation(measured: tuple[Path, str]) -> None:
    result = json.loads((measured[0] / "speed.json").read_text())
    assert result["ratios"].keys() == RATIOS.keys()
    [network] = result["networks"]
    assert network["milliseconds"].keys() == {name for name in WAYS if not name.endswith("compiled")}
    assert all(value > 0 for value in network["milliseconds"].values())
    assert network["plain"] in ("plain_eager", "plain_channels_last")
    assert network["cpu_milliseconds"].keys() == network["milliseconds"].keys()
    assert network["cpu_ratios"].keys() == network["ratios_of_medians"].keys() == RATIOS.keys()
    assert set(network["intervals"].values()) == {None}  # three rounds are too few for one
    assert result["quick"]


def test_a_reader_sees_tables_and_which_numbers_not_to_quote(measured: tuple[Path, str]) -> None:
    folder, shown = measured
    assert "= plain" in shown
    assert "Do not quote" in shown
    assert "reached" not in shown
    assert {path.suffix for path in folder.iterdir()} == {".png", ".svg", ".json"}


def test_plain_is_the_fastest_loop_by_hand() -> None:
    costs = dict.fromkeys(WAYS, 2.0)
    assert ratios(costs | {"plain_compiled": 1.0})["trainer_over_plain"] == 2.0
    assert ratios(costs | {"plain_eager": 0.5})["trainer_over_plain"] == 4.0
    assert ratios(costs | {"dpsgd": 1.0})["dpsgd_over_plain"] == 0.5


def test_ways_that_are_left_out_are_not_put_in_relation() -> None:
    ways = ("plain_eager", "additive_by_hand_channels_last")
    setting = Workload(batch_size=2, image_size=8, compiled=False, ways=ways)
    result = run_bench([setting], rounds=1, minutes=0, memory=False, growth=False)
    [network] = result["networks"]
    assert tuple(network["milliseconds"]) == ways
    assert tuple(network["ratios"]) == ("additive_by_hand_over_plain",)


def test_memory_is_that_of_the_tensors_alive_at_once() -> None:
    small, large = (peak_memory(WAYS["additive"][1](Workload(batch_size=n, compiled=False))) for n in (8, 64))
    # Activations of 32x32 images: the maps of the first stage alone are 64 KB an image each.
    assert large - small > 56 * 5 * 65536


def test_intervals_contain_the_ratio_and_rounds_keep_to_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bench.MOST_STEPS", 1)
    monkeypatch.setattr("benchmarks.bench.FEWEST_STEPS", 1)
    setting = Workload(batch_size=2, image_size=8, compiled=False, predicted=2)
    result = run_bench([setting], rounds=50, minutes=0, memory=False, growth=False)
    [network] = result["networks"]
    assert network["rounds"] == 6
    for clock in ("", "cpu_"):
        for name, ratio in network[f"{clock}ratios"].items():
            low, high = network[f"{clock}intervals"][name]
            assert low <= ratio <= high


def test_several_processes_measure_one_after_the_other() -> None:
    ways = ("plain_eager", "additive_by_hand_channels_last")
    setting = Workload(batch_size=2, image_size=8, compiled=False, ways=ways)
    seen: list[str] = []
    result = run_bench([setting], processes=2, rounds=3, minutes=0, growth=False, on_update=seen.append)
    [network] = result["networks"]
    assert seen == ["resnet8: process 1 of 2", "resnet8: process 2 of 2"]
    assert network["processes"] == 2
    assert network["rounds"] == 4  # two in each, for there is no time for a third
    [of_processes] = network["ratios_by_process"].values()
    assert network["ratios"]["additive_by_hand_over_plain"] == pytest.approx(sum(of_processes) / 2)
    assert network["intervals"]["additive_by_hand_over_plain"] is None  # for which two are too few
    assert network["memory_ratios"]["additive_by_hand_over_plain"] > 0.9


def test_scoring_does_not_grow_with_the_number_of_shadow_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bench.GROWTH", {"shadows": GROWTH["shadows"]})
    tables = growth_tables(Workload(), lambda message: None)
    assert tables["shadows"]["values"] == [4, 16, 64]
    assert abs(tables["shadows"]["memory_slope"]) < 0.1


def test_growth_has_a_slope_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.bench.GROWTH",
        {"batch": ("additive", "batch_size", (4, 32)), "draws": ("prediction_additive", "draws", (1, 4))},
    )
    tables = growth_tables(Workload(image_size=16, predicted=8), lambda message: None)
    assert tables["batch"]["values"] == [4, 32]
    assert 0.5 < tables["batch"]["memory_slope"] < 1.1  # activations grow with the batch, weights do not
    assert tables["draws"]["memory_slope"] < 0.2


def test_there_are_networks_of_every_depth() -> None:
    for depth in GROWTH["depth"][2]:
        build(f"resnet{depth}", num_classes=2)


def test_an_unknown_network_is_refused() -> None:
    result = CliRunner().invoke(app, ["--model", "resnet9"])
    assert isinstance(result.exception, UsageError)
    assert "resnet9" in str(result.exception)
