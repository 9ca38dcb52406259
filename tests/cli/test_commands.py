"""The command line as a user meets it: real processes, their output and their exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from resperturb.cli import app, main
from resperturb.environment import WAITING
from resperturb.training.run import Run

COMMAND = [sys.executable, "-m", "resperturb"]
TINY = ["--data", "fashion-sample", "--limit", "240", "--epochs", "3", "--batch-size", "20", "--gamma", "0.5"]
TINY += ["--part", "target_train", "--seeded-noise"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def test_help_is_light_and_shows_every_command(tmp_path: Path) -> None:
    code = (
        "import sys; from resperturb.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'lightning_fabric', 'ray', 'datasets', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for command in ("train", "audit", "demo"):
        assert command in done.stdout


def test_training_and_deciding_load_no_library_that_they_do_not_use(tmp_path: Path) -> None:
    code = (
        "import sys; from resperturb.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'datasets', 'opacus', 'pandas', 'pyarrow', 'sklearn', 'timm', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    for command in (
        ["train", "--data", "fashion-sample", "--limit", "40", "--epochs", "1", "--gamma", "0.5", "--out", "run"],
        ["gate", "run"],
        ["compare", "run"],
    ):
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()


def test_train_names_its_positive_class_or_how_many_classes_there_are(tmp_path: Path) -> None:
    # A folder per patient, given as one per class, shows by its number of classes.
    arguments = ["train", "--data", "fashion-sample", "--limit", "40", "--epochs", "1", "--out", f"{tmp_path}/run"]
    assert "(means over 10 classes)" in CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).stdout


def test_help_has_five_panels_and_a_short_line_for_every_command() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    panels = [line.split()[1] for line in lines if line.startswith("╭─")]
    assert panels == ["Options", "Start", "Decide", "Measure", "Expert", "Paper"]
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        assert 0 < len(command.short_help or "") <= 60, name
        assert any(line.strip("│ ").split(maxsplit=1) == [name, command.short_help] for line in lines), name


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, ["passive", "5000"]),
        ({"OMP_WAIT_POLICY": "active"}, ["active", "None"]),
        ({"GOMP_SPINCOUNT": "9"}, ["None", "9"]),
    ],
)
def test_a_command_sets_how_threads_wait_before_torch_loads_unless_the_user_did(
    tmp_path: Path, chosen: dict[str, str], expected: list[str]
) -> None:
    code = (
        "import os, sys, resperturb.cli as cli\n"
        "waits = lambda: [os.environ.get(name) for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')]\n"
        "cli.app = lambda: print('torch' in sys.modules, *waits())\n"
        "cli.main()"
    )
    variables = {name: value for name, value in os.environ.items() if name not in WAITING} | chosen
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["False", *expected], done.stderr


def test_importing_the_package_leaves_the_environment_alone(tmp_path: Path) -> None:
    code = "import os; before = dict(os.environ); import resperturb, resperturb.training; print(before == os.environ)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "True", done.stderr


def test_ctrl_c_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted = typer.Typer()

    @interrupted.command()
    def wait() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("resperturb.cli.app", interrupted)
    monkeypatch.setattr("sys.argv", ["resperturb"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert "rerun the same command to resume" in capsys.readouterr().err


def every_command(app: typer.Typer, *prefix: str) -> list[list[str]]:
    commands = [[*prefix, c.name or c.callback.__name__] for c in app.registered_commands if c.callback]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += every_command(group.typer_instance, *prefix, group.name or "")
    return commands


@pytest.mark.parametrize("command", every_command(app), ids=" ".join)
def test_every_command_s_help_has_an_example(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert f"resperturb {' '.join(command)} " in " ".join(shown.stdout.replace("│", " ").split())
    assert "runs/private" not in shown.stdout  # nothing is called private: that would promise what no audit shows


def test_importing_the_package_is_light() -> None:
    heavy = "{'torch', 'lightning_fabric', 'ray', 'datasets', 'transformers', 'matplotlib'}"
    code = f"import sys, resperturb; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_train_then_audit_each_print_one_json_object(tmp_path: Path) -> None:
    part = ["--data", "fashion-sample", "--limit", "400", "--part", "target_train"]
    enough_to_learn = [*part, "--epochs", "20", "--batch-size", "20"]
    trained = run("train", *enough_to_learn, "--out", "runs/mine", "--json", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert result["run"] == "runs/mine"
    assert 0 <= result["test_accuracy"] <= 1
    audited = run("audit", "runs/mine", "--one-run", "--json", cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["model"]["name"] == "mine"


def test_a_killed_training_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = run("train", *TINY, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert "test accuracy" in whole.stdout
    victim = subprocess.Popen([*COMMAND, "train", *TINY, "--out", "killed"], cwd=tmp_path)
    checkpoint = tmp_path / "killed" / "checkpoint.safetensors"
    while not checkpoint.exists() and victim.poll() is None:
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not (tmp_path / "killed" / "result.json").exists(), "it was over before it could be killed"
    again = run("train", *TINY, "--out", "killed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "killed/model.safetensors").read_bytes()


def test_an_interrupted_training_says_how_to_resume(tmp_path: Path) -> None:
    arguments = [*TINY[:5], "400", *TINY[6:]]
    victim = subprocess.Popen(
        [*COMMAND, "train", *arguments, "--out", "mine"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "mine/metrics.jsonl").exists() and victim.poll() is None:
        time.sleep(0.01)
    victim.send_signal(signal.SIGINT)
    _, stderr = victim.communicate(timeout=120)
    assert victim.returncode == 1
    assert "rerun the same command to resume" in " ".join(stderr.split())
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train", "--data", "no/such/folder"], 2, "no/such/folder"),
        (["train", "--data", "fashion-sample", "--gamma", "-1"], 2, "gamma must be"),
        (["train", "--data", "fashion-sample", "--gamma", "nan"], 2, "gamma must be"),
        (["train", "--data", "fashion-sample", "--strategy", "additive"], 2, "--gamma"),
        (["train", "--data", "fashion-sample", "--gamma", "1", "--floor", "1"], 2, "--floor"),
        (["train", "--data", "fashion-sample", "--epochs", "0"], 2, "epochs"),
        (["train", "--data", "fashion-sample", "--model", "resnet9"], 2, "resnet9"),
        (["train", "--data", "fashion-sample", "--limit", "240", "--out", "/sys/x"], 1, "cannot write in /sys/x"),
        (["audit", "nowhere"], 2, "there is no folder nowhere"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_a_mistake_is_named_without_a_traceback(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not any(path.name != "runs" for path in tmp_path.iterdir())


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    def small_files() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    full = subprocess.run(
        [*COMMAND, "train", *TINY, "--out", "mine"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=small_files,
    )
    assert full.returncode == 1
    assert "could not write mine/checkpoint.safetensors" in " ".join(full.stderr.split())
    assert "Traceback" not in full.stderr
    assert not [path for path in (tmp_path / "mine").iterdir() if path.suffix == ".tmp"]


def test_pipes_and_no_color_get_plain_text(attacked_run: Run, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "audit", str(attacked_run.path), "--one-run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "AUC" in done.stdout


def test_evaluating_again_gives_the_reported_accuracies(attacked_run: Run) -> None:
    again = CliRunner().invoke(app, ["evaluate", str(attacked_run.path), "--json"])
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["test_accuracy"] == pytest.approx(attacked_run.result.test_accuracy, abs=0.002)
    silent = CliRunner().invoke(app, ["evaluate", str(attacked_run.path), "--noise-off", "--draws", "2", "--json"])
    assert json.loads(silent.stdout)["test_accuracy"] == pytest.approx(found["test_accuracy"], abs=0.002)


def test_a_log_line_is_printed_once_whatever_else_logs() -> None:
    """Opacus gives the root logger a handler when it is imported."""
    said = "import logging; logging.basicConfig(); from resperturb.cli import _shown_log\nwith _shown_log():"
    said += " logging.getLogger('resperturb.training').warning('spoken')"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stderr == "spoken\n"
