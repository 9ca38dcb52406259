"""What can be checked about a run is checked, and what cannot is said."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from resperturb.errors import ResperturbError, UsageError
from resperturb.sealed import write_bound_json
from resperturb.training import verify
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from resperturb.training.verify import IntegrityCheck, sign_run, verify_run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = tiny_config(epochs=2, data={"limit": 40}, batch_size=5, method="dpsgd", seeded_noise=False)
    run = train(config, out=tmp_path_factory.mktemp("verify") / "run")
    write_bound_json(run.path / "audit.json", {"found": 1}, run.digests)
    return run


@pytest.fixture
def run(original: Run, tmp_path: Path) -> Run:
    shutil.copytree(original.path, tmp_path / "run")
    return open_run(tmp_path / "run")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no OpenSSH")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(command, check=True)
    return tmp_path / "key"


def outcomes(checks: list[IntegrityCheck]) -> dict[str, str]:
    return {check.what: check.outcome for check in checks}


def the_failure(checks: list[IntegrityCheck]) -> IntegrityCheck:
    [failed] = [check for check in checks if check.outcome == "failed"]
    return failed


def test_a_good_run_passes_and_what_was_not_looked_at_is_said(run: Run) -> None:
    assert outcomes(verify_run(open_run(run.path))) == {
        "result.json and its digests": "ok",
        "model.safetensors": "ok",
        "metrics.jsonl": "ok",
        "epsilon": "ok",
        "secrets": "ok",
        "audit.json": "ok",
        "data": "not checked",
        "signature": "not checked",
    }
    assert outcomes(verify_run(open_run(run.path), with_data=True))["data"] == "ok"


def test_a_checkpoint_that_is_left_is_found(run: Run) -> None:
    (run.path / ".checkpoint.safetensors.01234567.tmp").touch()
    assert the_failure(verify_run(open_run(run.path))).what == "secrets"


def test_an_epsilon_that_the_configuration_does_not_give_is_found(run: Run) -> None:
    values = json.loads(run.result_path.read_text())
    for name in ("schema", "digests", "checksum"):
        del values[name]
    run.result_path.write_text(json.dumps({**values, "guarantee": {"epsilon": 0.1}}))
    failed = the_failure(verify_run(open_run(run.path)))
    assert failed.what == "epsilon"
    assert "says epsilon 0.1, and config.json gives" in failed.detail


def test_runs_from_before_digests_say_what_nothing_is_known_of(run: Run) -> None:
    values = json.loads(run.result_path.read_text())
    for name in ("schema", "digests", "checksum"):
        del values[name]
    run.result_path.write_text(json.dumps(values))
    (run.path / "audit.json").write_text('{"found": 1}')
    found = outcomes(verify_run(open_run(run.path)))
    assert found["result.json and its digests"] == found["audit.json"] == "not checked"
    assert "failed" not in found.values()


def test_a_signed_run_is_as_it_was_signed(run: Run, key: Path) -> None:
    assert outcomes(sign_run(open_run(run.path), key, signer=key.with_suffix(".pub")))["signature"] == "ok"
    assert outcomes(verify_run(open_run(run.path), signer=key.with_suffix(".pub")))["signature"] == "ok"
    unknown = next(check for check in verify_run(open_run(run.path)) if check.what == "signature")
    assert (unknown.outcome, "SHA256:" in unknown.detail) == ("not checked", True)
    sign_run(open_run(run.path), key)  # again


def test_whoever_computes_all_digests_anew_is_found_by_the_signature(run: Run, key: Path) -> None:
    sign_run(open_run(run.path), key)
    write_bound_json(run.path / "audit.json", {"found": 0}, run.digests)
    failed = the_failure(verify_run(open_run(run.path), signer=key.with_suffix(".pub")))
    assert failed.what == "signature"
    assert failed.detail.endswith("audit.json is not as it was signed.")


def test_a_file_that_was_added_is_not_signed(run: Run, key: Path) -> None:
    sign_run(open_run(run.path), key)
    write_bound_json(run.path / "poison.json", {}, run.digests)
    assert "poison.json is not as it was signed" in the_failure(verify_run(open_run(run.path))).detail


def test_the_signature_of_somebody_else_is_refused(run: Run, key: Path, tmp_path: Path) -> None:
    sign_run(open_run(run.path), key)
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    assert (
        "is not signed by a key of"
        in the_failure(verify_run(open_run(run.path), signer=other.with_suffix(".pub"))).detail
    )
    assert the_failure(verify_run(open_run(run.path), signer=run.metrics_path)).detail.endswith(
        "id_ed25519.pub does."
    )


def test_a_run_that_is_not_signed_fails_where_a_signer_is_expected(run: Run, key: Path) -> None:
    assert the_failure(verify_run(open_run(run.path), signer=key.with_suffix(".pub"))).what == "signature"


def test_a_damaged_run_is_not_signed(run: Run, key: Path) -> None:
    run.metrics_path.write_text("")
    with pytest.raises(ResperturbError, match=r"is not signed: .*metrics\.jsonl"):
        sign_run(open_run(run.path), key)
    assert not (run.path / "manifest.json").exists()


def test_what_is_no_key_cannot_sign(run: Run) -> None:
    os.mkfifo(run.path.parent / "pipe")
    for key in (run.metrics_path, run.path.parent / "pipe", run.path / "nothing"):
        with pytest.raises(UsageError, match="give a private key of OpenSSH"):
            sign_run(open_run(run.path), key)
    assert not (run.path / "manifest.json").exists()


def test_without_openssh_it_says_what_to_install(run: Run, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_run(open_run(run.path), key)
    monkeypatch.setenv("PATH", "")
    assert "install OpenSSH" in the_failure(verify_run(open_run(run.path))).detail


def test_an_unfinished_run_cannot_be_verified(run: Run) -> None:
    run.result_path.unlink()
    with pytest.raises(UsageError, match="not finished"):
        verify_run(open_run(run.path))


def test_the_manifest_names_every_file(run: Run, key: Path) -> None:
    sign_run(open_run(run.path), key)
    signed = json.loads((run.path / verify.MANIFEST).read_text())["files"]
    assert signed.keys() == {"audit.json", "config.json", "metrics.jsonl", "model.safetensors", "result.json"}
