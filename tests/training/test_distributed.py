"""Two processes train the same model as one, draw noise of their own, write once, and end together."""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file

from resperturb.cli import app
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, evaluate, train
from resperturb.training.network import build_model
from resperturb.training.run import Run, open_run
from tests.training import ranks

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ROOT = Path(__file__).parents[2]
COMMAND = ["resperturb", "train", "--data", "fashion-sample", "--limit", "240", "--image-size", "8", "--json"]
COMMAND += ["--batch-size", "20", "--gamma", "0.5", "--dropout", "0.1", "--part", "target_train", "--seeded-noise"]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def difference(one: Run, other: Run) -> float:
    """Distance of two runs' weights, relative to the distance that training moved them."""
    a, b = load_file(one.model_path), load_file(other.model_path)
    torch.manual_seed(one.config.seed)
    start = build_model(one.config, load_inputs(one.config.data).train).state_dict()
    names = [name for name, value in a.items() if value.is_floating_point()]
    gap = sum(float((a[name] - b[name]).double().norm()) ** 2 for name in names)
    way = sum(float((a[name] - start[name]).double().norm()) ** 2 for name in names)
    return math.sqrt(gap / way)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two processes have run ranks.py."""
    folder: Path = tmp_path_factory.mktemp("group")
    with pytest.raises(InterruptedTrainingError):
        train(ranks.config(**ranks.PLAIN), out=folder / "begun_by_one", on_update=ranks.interrupt)
    arguments = [*TORCHRUN, "--log-dir", str(folder / "logs"), str(Path(ranks.__file__)), str(folder)]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def said(group: Path, what: str) -> list[object]:
    return [json.loads((group / f"said{rank}.json").read_text())[what] for rank in range(2)]


def test_two_processes_train_the_model_that_one_would(group: Path, tmp_path: Path) -> None:
    one, two = train(ranks.config(**ranks.PLAIN), runs=tmp_path), open_run(group / "plain")
    assert two.config.digest == one.config.digest
    assert difference(one, two) < 1e-4
    assert [m.loss for m in one.metrics()] == pytest.approx([m.loss for m in two.metrics()], rel=1e-5)
    assert (one.result.processes, two.result.processes) == ((1,), (2,))


def test_batch_norm_sees_the_whole_batch(group: Path, tmp_path: Path) -> None:
    one, two = train(ranks.config(**ranks.BATCH_NORM), runs=tmp_path), open_run(group / "batch_norm")
    assert difference(one, two) < 1e-3


def test_batch_norm_in_bf16_adds_up_in_32_bits(group: Path, tmp_path: Path) -> None:
    one, two = train(ranks.config(**ranks.BFLOAT16), runs=tmp_path), open_run(group / "bfloat16")
    assert difference(one, two) < 0.2  # rounding; wrong counts end elsewhere
    a, b = (load_file(run.model_path)["blocks.0.norm1.running_var"] for run in (one, two))
    torch.testing.assert_close(a, b, rtol=0.02, atol=1e-4)


def test_dpsgd_without_noise_and_clipping_is_that_of_one_process(group: Path, tmp_path: Path) -> None:
    one, two = train(ranks.config(**ranks.DPSGD), runs=tmp_path), open_run(group / "dpsgd")
    assert difference(one, two) < 1e-4


def test_dpsgd_has_the_same_guarantee_in_two_processes_as_in_one(group: Path, tmp_path: Path) -> None:
    one, two = train(ranks.config(**ranks.PRIVATE), runs=tmp_path), open_run(group / "private")
    assert one.guarantee() == two.guarantee()
    assert 0 < two.guarantee().epsilon < 100


def test_the_accuracies_are_those_of_the_saved_weights(group: Path) -> None:
    run = open_run(group / "noisy")
    members = load_inputs(run.config.data).members()
    model = run.load_model()
    assert run.result.train_accuracy == evaluate(model, members, run.config, draws=1).accuracy


def test_ranks_draw_noise_of_their_own_and_keep_the_same_weights(group: Path) -> None:
    one, other = (torch.load(group / f"noise{rank}.pt") for rank in range(2))
    error = 1 / math.sqrt(ranks.DRAWS)
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 5 * error
    # The gradient's noise is the mean of theirs: half the variance, as for twice the images in one process.
    assert ((one + other) / 2).var() == pytest.approx(0.5, rel=5 * math.sqrt(2) * error)
    assert len(set(said(group, "random"))) == 2
    first, second = said(group, "weights")
    assert first == second


def test_a_training_goes_on_in_another_number_of_processes(group: Path, tmp_path: Path) -> None:
    whole = train(ranks.config(**ranks.PLAIN), runs=tmp_path)
    begun_by_one = open_run(group / "begun_by_one")
    begun_by_two = train(ranks.config(**ranks.PLAIN), out=group / "begun_by_two")
    assert begun_by_one.result.processes == (1, 2)
    assert begun_by_two.result.processes == (2, 1)
    assert difference(whole, begun_by_one) < 1e-4
    assert difference(whole, begun_by_two) < 1e-4


def test_a_request_to_one_process_stops_all_at_the_same_step(group: Path) -> None:
    assert all("stopped in epoch 1 of 2, after batch 5 of 9" in text for text in said(group, "interrupted"))


def test_an_error_in_one_process_is_known_to_all(group: Path) -> None:
    assert all("no such images" in text and "not everywhere" in text for text in said(group, "together"))
    assert all("epochs" in text for text in said(group, "first"))
    assert all("differ in their rank" in text for text in said(group, "differ"))
    assert all("scale 'batch_std'" in text for text in said(group, "batch_std"))


def test_every_torchrun_command_in_the_documentation_exists() -> None:
    from torch.distributed.run import get_args_parser

    page = (ROOT / "docs" / "how-to" / "several-devices.md").read_text().replace("\\\n", "")
    told = [shlex.split(line) for line in re.findall(r"^(?:srun )?torchrun (.*)$", page, re.MULTILINE)]
    assert len(told) >= 3
    for words in told:
        parsed = get_args_parser().parse_args(words)
        assert (parsed.module, parsed.training_script) == (True, "resperturb")
        name, *arguments = parsed.training_script_args
        typer.main.get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


def workers(launcher: subprocess.Popen[str]) -> dict[int, int]:
    """Return the processes of a launcher, by rank."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        for variable in variables if parent == launcher.pid else ():
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(entry.name)
    return found


def begun(command: list[str], out: Path) -> "subprocess.Popen[str]":
    """Start a command, and return once its training has finished an epoch."""
    launcher = subprocess.Popen(
        [*command, "--out", str(out)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    epochs = len((out / "metrics.jsonl").read_text().splitlines()) if (out / "metrics.jsonl").exists() else 0
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() or len((out / "metrics.jsonl").read_text().splitlines()) <= epochs:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return launcher


in_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


@in_proc
def test_a_killed_rank_is_started_again_and_the_seed_alone_decides_the_weights(group: Path, tmp_path: Path) -> None:
    command = [
        *TORCHRUN,
        "--log-dir",
        str(tmp_path / "logs"),
        "--max-restarts",
        "1",
        "-m",
        *COMMAND,
        "--epochs",
        "20",
    ]
    launcher = begun(command, tmp_path / "run")
    os.kill(workers(launcher)[1], signal.SIGKILL)
    printed, errors = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, errors
    assert json.loads(printed)["processes"] == [2]
    noisy, killed = (load_file(path / "model.safetensors") for path in (group / "noisy", tmp_path / "run"))
    assert all(noisy[name].equal(killed[name]) for name in noisy)


@in_proc
def test_a_stopped_launcher_leaves_a_checkpoint_and_no_process(tmp_path: Path) -> None:
    command = [*TORCHRUN, "--log-dir", str(tmp_path / "logs"), "-m", *COMMAND, "--epochs", "1000"]
    launcher = begun(command, tmp_path / "run")
    ranks_started = [*workers(launcher).values()]
    launcher.send_signal(signal.SIGINT)
    printed, errors = launcher.communicate(timeout=120)
    assert (launcher.returncode, printed) == (1, "")
    assert errors.count("Everything is saved") == 1

    launcher = begun(command, tmp_path / "run")
    ranks_started += workers(launcher).values()
    launcher.kill()
    launcher.communicate(timeout=120)
    assert len(ranks_started) == 4
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in ranks_started):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (tmp_path / "run/checkpoint.safetensors").exists()
