"""``verify`` checks a run and lists what it could not check."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from resperturb.errors import ResperturbError, UsageError
from resperturb.sealed import write_bound_json
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from resperturb.training.verify import IntegrityCheck, verify_run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = tiny_config(epochs=2, data={"limit": 40}, batch_size=5, method="dpsgd", seeded_noise=False)
    run = train(config, out=tmp_path_factory.mktemp("verify") / "run")
    write_bound_json(run.path / "kept.json", {"found": 1}, run.digests)
    return run


@pytest.fixture
def run(original: Run, tmp_path: Path) -> Run:
    shutil.copytree(original.path, tmp_path / "run")
    return open_run(tmp_path / "run")


def outcomes(checks: list[IntegrityCheck]) -> dict[str, str]:
    return {check.what: check.outcome for check in checks}


def the_failure(checks: list[IntegrityCheck]) -> IntegrityCheck:
    [failed] = [check for check in checks if check.outcome == "failed"]
    return failed


def test_a_good_run_passes_and_unchecked_parts_are_listed(run: Run) -> None:
    assert outcomes(verify_run(open_run(run.path))) == {
        "result.json and its digests": "ok",
        "model.safetensors": "ok",
        "metrics.jsonl": "ok",
        "epsilon": "ok",
        "secrets": "ok",
        "kept.json": "ok",
        "data": "not checked",
        "audit": "not checked",
    }
    assert outcomes(verify_run(open_run(run.path), with_data=True))["data"] == "ok"


def test_a_run_that_stopped_early_passes_and_one_whose_last_epoch_was_cut_off_does_not(tmp_path: Path) -> None:
    data = {"limit": 60, "part": "all"}
    run = train(tiny_config(data=data, epochs=30, patience=1, batch_size=16), out=tmp_path / "run")
    assert len(run.metrics()) < 30
    assert "failed" not in outcomes(verify_run(open_run(run.path))).values()
    result, lines = run.result, run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(lines[:-1]))
    write_bound_json(run.result_path, result, run.computed_digests())
    assert the_failure(verify_run(open_run(run.path))).what == "metrics.jsonl"


def test_a_checkpoint_that_is_left_is_found(run: Run) -> None:
    (run.path / ".checkpoint.safetensors.01234567.tmp").touch()
    assert the_failure(verify_run(open_run(run.path))).what == "secrets"


def test_more_records_than_the_training_had_prove_no_smaller_epsilon(run: Run) -> None:
    write_bound_json(run.result_path, replace(run.result, records=60000), run.digests)  # all computed anew
    assert the_failure(verify_run(open_run(run.path))).what == "epsilon"
    with pytest.raises(ResperturbError, match="gives 0.* for 60000 records"):
        open_run(run.path).guarantee()


def test_an_epsilon_that_the_configuration_does_not_give_is_found(run: Run) -> None:
    result = run.result
    (run.path / "kept.json").unlink()
    lines = run.metrics_path.read_text().splitlines()
    last = {**json.loads(lines[-1]), "epsilon": 0.1}
    run.metrics_path.write_text("\n".join([*lines[:-1], json.dumps(last), ""]))
    write_bound_json(run.result_path, result, run.computed_digests())  # all computed anew
    failed = the_failure(verify_run(open_run(run.path)))
    assert failed.what == "epsilon"
    assert "says epsilon 0.1, and config.json gives" in failed.detail


@pytest.mark.parametrize("name", ["result.json", "kept.json"])
def test_a_file_that_does_not_say_to_which_run_it_belongs_fails(run: Run, name: str) -> None:
    values = json.loads((run.path / name).read_text())
    for key in ("digests", "checksum"):
        del values[key]
    (run.path / name).write_text(json.dumps(values))
    failed = the_failure(verify_run(open_run(run.path)))
    assert failed.what.startswith(name)
    assert "does not say to which run it belongs" in failed.detail


def test_a_run_signed_as_documented_shows_a_later_change(run: Run, tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no OpenSSH")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    page = (Path(__file__).parents[2] / "docs/how-to/release.md").read_text()
    sign, check = re.findall(r"^\$ (cd runs/noisy && .*)$", page, re.MULTILINE)
    for told, here in [("runs/noisy", run.path), ("~/.ssh/id_ed25519", key), ("colleague.pub", f"{key}.pub")]:
        sign, check = sign.replace(told, str(here)), check.replace(told, str(here))
    subprocess.run(["bash", "-c", sign], check=True, capture_output=True)
    subprocess.run(["bash", "-c", check], check=True, capture_output=True)
    assert "failed" not in outcomes(verify_run(open_run(run.path))).values()
    write_bound_json(run.path / "kept.json", {"found": 0}, run.digests)  # by someone who computes all digests anew
    done = subprocess.run(["bash", "-c", check], check=False, capture_output=True, text=True)
    assert (done.returncode, "kept.json: FAILED" in done.stdout) == (1, True)


def test_an_unfinished_run_cannot_be_verified(run: Run) -> None:
    run.result_path.unlink()
    with pytest.raises(UsageError, match="not finished"):
        verify_run(open_run(run.path))
