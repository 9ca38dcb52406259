"""A run has one owner, keeps no secret, and its files belong together."""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import BusyError, ResperturbError, UsageError
from resperturb.training.config import TrainConfig
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import evaluate, train
from resperturb.training.run import Run, held_run, open_run
from tests.conftest import tiny_config

KEPT = Path(__file__).parent / "kept"  # trained by version 0.2.0
SECRET = bytes(range(100, 116))
FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir")


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os._exit(3 if isinstance(error, BusyError) else 4 if isinstance(error, UsageError) else 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(number: int, folder: Path) -> None:
    """End this process, as a kill would, before its ``number``-th operation on a file in ``folder``."""
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in FILE_OPERATIONS and str(arguments[0]).startswith(str(folder)):
            seen += 1
            if seen == number:
                os._exit(9)

    sys.addaudithook(watch)


def holders_of_the_secret(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(s in path.read_bytes() for s in (SECRET, SECRET.hex().encode()))]


def test_no_kill_at_any_file_operation_leaves_the_secret_in_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: SECRET)
    config = tiny_config(epochs=1, data={"limit": 40}, method="dpsgd", seeded_noise=False, batch_size=5)
    whole = train(config, out=tmp_path / "whole")
    assert holders_of_the_secret(whole.path) == []
    kills = secrets_left = 0
    while True:
        out = tmp_path / str(kills)

        def killed(out: Path = out, number: int = kills + 1) -> None:
            die_at(number, out)
            train(config, out=out)

        code = in_child(killed)
        left = holders_of_the_secret(out) if out.exists() else []
        secrets_left += bool(left)
        assert all(path.stat().st_mode & 0o077 == 0 for path in left)
        assert not (left and (out / "result.json").exists())
        if code == 0:
            break
        assert code == 9
        run = train(config, out=out)
        assert run.finished
        assert holders_of_the_secret(out) == []
        assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole.path.iterdir())
        assert run.model_path.read_bytes() == whole.model_path.read_bytes()
        assert run.metrics_path.read_bytes() == whole.metrics_path.read_bytes()
        kills += 1
    assert kills > 15, "it was not killed at the operations that matter"
    assert secrets_left > 3, "it was never killed while the secret was on disk"


def test_a_run_is_for_its_owner_only(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=1, data={"limit": 40}), out=tmp_path / "new" / "run")
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert run.path.parent.stat().st_mode & 0o777 != 0o700, "only the run itself is ours to close"


def test_leftovers_in_a_finished_run_are_removed_when_it_is_opened_for_training(tmp_path: Path) -> None:
    config = tiny_config(epochs=1, data={"limit": 40})
    run = train(config, out=tmp_path / "run")
    left = ("checkpoint.safetensors", ".secret", ".checkpoint.safetensors.01234567.tmp", ".audit.json.01234567.tmp")
    for name in left:
        (run.path / name).write_bytes(b"secret")
    train(config, out=run.path)
    assert run.secrets() == []
    assert not any((run.path / name).exists() for name in left)


def test_a_run_whose_weights_were_taken_away_is_not_finished_before_its_secret_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(epochs=1, data={"limit": 40}, seeded_noise=False)
    run = train(config, out=tmp_path / "run")
    run.model_path.unlink()

    def killed(run: Run, result: object) -> None:
        raise ResperturbError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", killed)
        with pytest.raises(ResperturbError, match="killed"):
            train(config, out=run.path)
    assert run.secrets()
    assert not run.finished
    assert train(config, out=run.path).result.records == run.result.records
    assert run.secrets() == []


def test_a_run_that_another_process_has_just_begun_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, begun = tiny_config(), Path.iterdir

    def begin(path: Path) -> object:
        monkeypatch.setattr(Path, "iterdir", begun)
        with held_run(config, path, tmp_path):
            return begun(path)

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(Path, "iterdir", begin)
    with held_run(config, tmp_path / "run", tmp_path) as run:
        assert run.config == config


def test_of_many_processes_with_different_settings_one_gets_the_folder(tmp_path: Path) -> None:
    configs = [tiny_config(epochs=epochs) for epochs in range(1, 7)]

    def take(config: TrainConfig, out: Path, start: int) -> Callable[[], None]:
        def work() -> None:
            os.read(start, 1)  # returns for all at once when the other end is closed
            with held_run(config, out, tmp_path) as run, open(run.metrics_path, "a") as file:
                file.write(config.digest + "\n")

        return work

    for attempt in range(20):
        out = tmp_path / str(attempt)
        start, barrier = os.pipe()
        children = []
        for config in configs:
            child = os.fork()
            if child == 0:
                os.close(barrier)
                os._exit(in_child(take(config, out, start)))
            children.append(child)
        os.close(barrier)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        os.close(start)
        assert codes.count(0) == 1
        assert set(codes) <= {0, 3, 4}, "the others are told that it is busy, or taken"
        assert open_run(out).metrics_path.read_text().split() == [open_run(out).config.digest]
        assert open_run(out).config == configs[codes.index(0)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("pair")
    noise = {"name": "additive", "gamma": 0.5}
    one, other = (
        train(tiny_config(epochs=1, data={"limit": 40}, perturbation=noise, seed=seed), out=folder / str(seed))
        for seed in (0, 1)
    )
    return one, other


@pytest.fixture
def copied(pair: tuple[Run, Run], tmp_path: Path) -> Run:
    shutil.copytree(pair[0].path, tmp_path / "run")
    return open_run(tmp_path / "run")


@pytest.mark.parametrize("name", ["config.json", "result.json", "model.safetensors", "metrics.jsonl"])
def test_a_file_of_another_run_is_refused_with_its_name(copied: Run, pair: tuple[Run, Run], name: str) -> None:
    assert copied.result == pair[0].result
    shutil.copy(pair[1].path / name, copied.path / name)
    run = open_run(copied.path)
    with pytest.raises(ResperturbError, match=rf"/{name} .* belongs to another run|/{name} belongs to another run"):
        run.result  # noqa: B018
    with pytest.raises(ResperturbError, match="belongs to another run"):
        run.load_model()


@pytest.mark.parametrize("field", ["test_accuracy", "records", "seconds"])
def test_an_edited_result_is_refused(copied: Run, field: str) -> None:
    values = json.loads(copied.result_path.read_text())
    copied.result_path.write_text(json.dumps({**values, field: 1}, indent=2))
    with pytest.raises(ResperturbError, match=r"result\.json was changed after it was written"):
        open_run(copied.path).result  # noqa: B018


def test_a_flipped_bit_of_the_weights_is_noticed(copied: Run) -> None:
    content = bytearray(copied.model_path.read_bytes())
    content[-100] ^= 1
    copied.model_path.write_bytes(content)
    with pytest.raises(ResperturbError, match=r"model\.safetensors is not the file"):
        open_run(copied.path).load_model()


def test_a_result_without_digests_is_not_believed(tmp_path: Path) -> None:
    """60,000 records instead of 20 would turn an epsilon of 4.65 into 0.1."""
    shutil.copytree(KEPT / "dpsgd", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    values = json.loads(path.read_text())
    for schema in (1, 2):
        changed = {**values, "schema": schema, "records": 60_000}
        del changed["digests"], changed["checksum"]
        path.write_text(json.dumps(changed))
        for command in (["compare"], ["card", "-o", str(tmp_path / "card.md")], ["verify"]):
            done = CliRunner().invoke(app, [command[0], str(tmp_path / "run"), *command[1:]])
            assert done.exit_code == 1, done.output
    assert not (tmp_path / "card.md").exists()


@pytest.mark.parametrize(("name", "epsilon"), [("additive", math.inf), ("dpsgd", 4.65)])
def test_a_finished_run_of_0_2_opens(name: str, epsilon: float) -> None:
    run = open_run(KEPT / name)
    assert run.config.digest == run.digests["config"]
    assert [entry.epoch for entry in run.metrics()] == [1, 2]
    assert run.guarantee().claimed_epsilon == pytest.approx(epsilon, rel=1e-3)
    members = load_inputs(run.config.data).members()
    assert (len(members), run.result.records) == (20, 20)
    assert evaluate(run.load_model(), members, run.config, draws=1).accuracy == run.result.train_accuracy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 1}, "its schema is 1, and this version reads schema 2"),
        ({"schema": 99}, "its schema is 99"),
        ({"colour": "red"}, "colour"),
        ({"model": "resnet9"}, "unknown network 'resnet9'"),
    ],
)
def test_a_configuration_that_cannot_be_read_says_which_version_wrote_it(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    values = json.loads((KEPT / "dpsgd" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **change, "resperturb": "7.1"}))
    with pytest.raises(ResperturbError, match=f"written by resperturb 7.1 and cannot be read: .*{said}"):
        open_run(tmp_path)
