"""``resperturb reproduce`` as a user meets it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from resperturb_reproduction.commands.reproduce import app
from resperturb_reproduction.reproduce import declarations, presets, results
from resperturb_reproduction.reproduce.declarations import EXPERIMENTS
from resperturb_reproduction.reproduce.presets import PRESETS, Scale
from typer.testing import CliRunner


def invoke(*arguments: str | Path) -> "tuple[int, str, Exception | None]":
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.stdout, done.exception  # type: ignore[return-value]


@pytest.fixture
def smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the quick preset as quick as it can be."""
    scale = Scale("fashion-sample", 1, 1, limit=80, batch_size=20)
    sets = ("mnist", "cifar10", "cifar100", "idc")
    quick = replace(PRESETS["quick"], seeds=1, table=dict.fromkeys(sets, scale), sweep=dict.fromkeys(sets, scale))
    quick = replace(quick, choice=dict.fromkeys(sets, scale))
    monkeypatch.setitem(presets.PRESETS, "quick", quick)


def test_list_names_everything() -> None:
    code, shown, _ = invoke("list", "--json")
    assert code == 0
    assert [line["id"] for line in json.loads(shown)["experiments"]] == [e.id for e in EXPERIMENTS]
    code, shown, _ = invoke("list")
    assert all(e.id in shown for e in EXPERIMENTS)


def test_run_writes_its_result_and_prints_one_object(tmp_path: Path, smallest: None) -> None:
    code, shown, _ = invoke("run", "cifar10-no-skip", "--runs", tmp_path, "--json")
    assert code == 0
    payload = json.loads(shown)
    assert payload["preset"] == "quick"
    assert "mean nothing" in payload["means"]
    files = [Path(file) for file in payload["results"]["cifar10-no-skip"]["files"]]
    assert [file.suffix for file in files] == [".json"]
    assert all(file.is_file() and file.parent == tmp_path / "results-quick" for file in files)
    rows = payload["results"]["cifar10-no-skip"]["rows"]
    assert [row["verdict"]["word"] for row in rows] == ["not compared"] * 2

    code, shown, _ = invoke("status", "cifar10-no-skip", "--runs", tmp_path, "--json")
    found = json.loads(shown)
    assert code == 0
    assert (found["done"], found["trainings"]) == (3, 3)
    assert found["experiments"][0]["complete"]

    page = tmp_path / "page.md"
    code, shown, _ = invoke("report", "--results", tmp_path / "results-quick", "--page", page, "--json")
    assert code == 0
    payload = json.loads(shown)
    assert payload["results"] == {"cifar10-no-skip": ["quick"]}
    assert payload["pages"] == [str(page), str(tmp_path / "page" / "sweeps.md")]
    assert "smoke test, not compared" in page.read_text()


def test_only_the_rows_that_are_named_are_trained(tmp_path: Path, smallest: None) -> None:
    arguments = ("run", "cifar10-table", "--rows", "non-private", "--attacks", "paper", "--runs", tmp_path, "--json")
    code, shown, _ = invoke(*arguments)
    assert code == 0
    (row,) = json.loads(shown)["results"]["cifar10-table"]["rows"]
    assert (row["key"], row["preset"]) == ("non-private", "quick")
    assert len(list(tmp_path.glob("*/config.json"))) == 1
    assert len(list(tmp_path.glob(".shadows/*/config.json"))) == 1


def test_measuring_alone_trains_nothing(tmp_path: Path, smallest: None) -> None:
    code, shown, _ = invoke("run", "cifar10-no-skip", "--measure-only", "--runs", tmp_path, "--json")
    assert code == 0
    assert json.loads(shown)["results"]["cifar10-no-skip"]["rows"] == []
    assert not list(tmp_path.glob("*/config.json"))


def test_status_of_everything_is_a_table_with_an_estimate(tmp_path: Path) -> None:
    code, shown, _ = invoke("status", "--preset", "cpu", "--runs", tmp_path, "--jobs", "2")
    assert code == 0
    assert "core-hours" in shown
    assert "0 of" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "cifar-table"), "did you mean cifar10-table?"),
        (("run", "mnist-table", "--preset", "huge"), "choose quick, cpu, long or paper"),
        (("run", "mnist-table", "--rows", "gamma-9"), "its rows are non-private, dp-sgd, gamma-2.5"),
        (("run", "mnist-table", "--attacks", "guess"), "there is no attack 'guess'"),
        (("status", "nothing"), "there is no experiment 'nothing'"),
        (("report", "--results", "no/such/folder"), "there are no results in no/such/folder"),
    ],
)
def test_a_mistake_is_explained(arguments: tuple[str, ...], said: str) -> None:
    code, _, error = invoke(*arguments)
    assert code != 0
    assert said in str(error)
    assert getattr(error, "exit_code", None) == 2


@pytest.mark.parametrize("name", ["idc-table", "idc-examples", "cifar10-table"])
def test_without_its_data_an_experiment_says_what_it_needs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESPERTURB_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    _, _, error = invoke("run", name, "--preset", "cpu", "--runs", tmp_path / "runs")
    assert getattr(error, "exit_code", None) == 2
    data = declarations.BY_ID[name].data[0]
    assert f"the data set '{data}' is needed for {name}." in str(error)
    assert "RESPERTURB_DATA" in str(error)
    assert not (tmp_path / "runs").exists()


def test_a_smoke_test_does_not_overwrite_real_results(tmp_path: Path) -> None:
    results.save(tmp_path, results.Trained("mnist-table", "table", (results.made_now(PRESETS["cpu"]),), ()))
    _, _, error = invoke("run", "mnist-table", "--results", tmp_path, "--runs", tmp_path / "runs")
    assert "has better rows than those of preset quick" in str(error)
    assert not (tmp_path / "runs").exists()
