"""Everything that can be checked about a run: that its files belong together, keep no secret, and who signed them.

Digests and checksums find mix-ups, damage and careless edits. Somebody who wants to deceive can compute them anew;
a signature by a key that the reader trusts is what stands against that. Keys and signatures are those of OpenSSH.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import digest_of, parse_json, read_bytes, read_json, write_bytes, write_json
from resperturb.sealed import read_binding, read_bound_arrays, read_bound_json
from resperturb.training.run import Run

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
NAMESPACE = "resperturb"
# Another version of the accountant may round otherwise.
SAME_EPSILON = 1e-3


@dataclass(frozen=True)
class IntegrityCheck:
    """Something that was looked at, and what was found."""

    what: str
    outcome: Literal["ok", "failed", "not checked"]
    detail: str


class _UncheckedError(Exception):
    """There is nothing to check this against."""


def verify_run(run: Run, *, with_data: bool = False, signer: Path | None = None) -> list[IntegrityCheck]:
    """Check everything about a finished run.

    Args:
        run: The run, newly opened: what it has read already is not read again.
        with_data: Also read the images and compare them with those that it was trained on.
        signer: A file of public keys, as OpenSSH writes them; the run must be signed by one of them.

    Returns:
        What was checked, in order. Nothing is raised where a check fails.

    Raises:
        UsageError: It is not finished.
    """
    if not run.finished:
        raise UsageError(f"the run {run.path} is not finished, so there is nothing to verify yet.")
    checks = [_check("result.json and its digests", partial(_result, run))]
    if checks[0].outcome == "failed":
        return checks
    checks += [
        _check("model.safetensors", partial(_weights, run)),
        _check("metrics.jsonl", partial(_metrics, run)),
        _check("epsilon", partial(_epsilon, run)),
        _check("secrets", partial(_secrets, run)),
    ]
    checks += [_check(name, partial(_belongs, run, name)) for name in _kept(run)]
    checks.append(_check("data", partial(_data, run, with_data)))
    checks.append(_check("signature", partial(_signature, run, signer)))
    return checks


def sign_run(run: Run, key: Path, *, with_data: bool = False, signer: Path | None = None) -> list[IntegrityCheck]:
    """Verify a run and sign all of its files with a private key of OpenSSH.

    Args:
        run: The run. ``manifest.json`` (the SHA-256 of every file) and its signature are written into its folder.
        key: The private key, or the public one of a key that ``ssh-agent`` holds.
        with_data: As for :func:`verify_run`.
        signer: As for :func:`verify_run`.

    Returns:
        What was checked, the new signature among it.

    Raises:
        UsageError: The key cannot be used.
        ResperturbError: The run is not as it should be, or there is no OpenSSH.
    """
    if not key.is_file():  # ssh-keygen would wait for a pipe without end
        raise UsageError(f"{key} is no file; give a private key of OpenSSH.")
    for name in (MANIFEST, SIGNATURE):
        (run.path / name).unlink(missing_ok=True)
    checks = verify_run(run, with_data=with_data)
    if failed := [check for check in checks if check.outcome == "failed"]:
        raise ResperturbError(f"{run.path} is not signed: {failed[0].detail}")
    write_json(run.path / MANIFEST, {"schema": 1, "files": _digests(run)})
    done = _ssh_keygen("sign", "-f", str(key), content=read_bytes(run.path / MANIFEST))
    if done.returncode:
        (run.path / MANIFEST).unlink()
        raise UsageError(f"{key} cannot be signed with ({_first_line(done.stderr)}); give a private key of OpenSSH.")
    write_bytes(run.path / SIGNATURE, done.stdout)
    return [*checks[:-1], _check("signature", partial(_signature, run, signer))]


def _check(what: str, look: Callable[[], str]) -> IntegrityCheck:
    try:
        return IntegrityCheck(what, "ok", look())
    except _UncheckedError as reason:
        return IntegrityCheck(what, "not checked", str(reason))
    except ResperturbError as error:
        return IntegrityCheck(what, "failed", str(error))


def _result(run: Run) -> str:
    if run.result.digests is None:
        raise _UncheckedError("written before there were digests: nothing says which files belong to this run.")
    return "fits config.json, the data's fingerprint, the weights and the metrics."


def _weights(run: Run) -> str:
    run.load_model()
    return f"can be loaded, and its noise is that of config.json ({_noise(run)})."


def _noise(run: Run) -> str:
    return "none" if run.config.perturbation is None else run.config.perturbation.describe()


def _metrics(run: Run) -> str:
    found = [entry.epoch for entry in run.metrics()]
    if found != list(range(1, run.config.epochs + 1)):
        raise ResperturbError(f"{run.metrics_path} does not hold the {run.config.epochs} epochs of config.json.")
    return f"holds all {run.config.epochs} epochs."


@dataclass(frozen=True)
class _Claimed:
    guarantee: dict[str, Any] = field(default_factory=dict)


def _epsilon(run: Run) -> str:
    if not run.config.method.private:
        return "the training claims none."
    proven = run.guarantee()
    if proven.not_met:
        return f"none may be claimed: {proven.not_met[0].statement}"
    epsilon = proven.epsilon
    places = {run.result_path: read_json(_Claimed, run.result_path).guarantee.get("epsilon")}
    if entries := run.metrics():
        places[run.metrics_path] = entries[-1].epsilon
    for path, said in places.items():
        if said is not None and not _same(said, epsilon):
            raise ResperturbError(f"{path} says epsilon {said}, and config.json gives {epsilon:.4g}.")
    return f"{epsilon:.4g} at delta {proven.delta:g}, computed from config.json and {run.result.records} records."


def _same(said: Any, epsilon: float) -> bool:
    try:
        return float(said) == epsilon or abs(float(said) - epsilon) <= SAME_EPSILON * epsilon
    except (TypeError, ValueError):
        return False


def _secrets(run: Run) -> str:
    if left := run.secrets():
        raise ResperturbError(
            f"{left[0]} may hold the secret that noise was drawn from; run the same `resperturb train` command "
            "again, which removes it."
        )
    return "no checkpoint is left, nor a part of one."


def _kept(run: Run) -> list[str]:
    """Find the files that audits and attacks keep in a run."""
    own = {"config.json", run.result_path.name, MANIFEST}
    found = [path for pattern in ("*.json", "*/*.json", "*.npz", "*/*.npz") for path in run.path.glob(pattern)]
    return sorted(name for path in found if (name := path.relative_to(run.path).as_posix()) not in own)


def _belongs(run: Run, name: str) -> str:
    path = run.path / name
    binding = read_binding(path)
    if binding.digests is None:
        raise _UncheckedError("it does not say to which run it belongs.")
    # What else it is bound to is its own name: the attack, or the question that was asked.
    wanted = {name: run.digests.get(name, path.stem) for name in {**run.digests, **binding.digests}}
    if path.suffix == ".json":
        read_bound_json(dict[str, Any], path, wanted)
    else:
        read_bound_arrays(path, (), wanted)
    return "belongs to this run and is as it was written."


def _data(run: Run, wanted: bool) -> str:
    if not wanted:
        raise _UncheckedError("reading the images was not asked for (--with-data).")
    from resperturb.training.inputs import load_inputs

    data = run.config.data
    inputs = load_inputs(data)
    if len(inputs.members(data.part)) != run.result.records:
        raise ResperturbError(f"{run.result_path} says {run.result.records} records, and {data.spec} gives others.")
    return f"the images are those of the training, {run.result.records} of them trained on."


@dataclass(frozen=True)
class _Manifest:
    files: dict[str, str]


def _digests(run: Run) -> dict[str, str]:
    apart = {MANIFEST, SIGNATURE, ".lock"}
    files = sorted(path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file())
    return {name: digest_of(run.path / name) for name in files if name not in apart}


def _signature(run: Run, signer: Path | None) -> str:
    if not (run.path / SIGNATURE).exists() or not (run.path / MANIFEST).exists():
        if signer is not None:
            raise ResperturbError(f"{run.path} is not signed.")
        raise _UncheckedError("the run is not signed.")
    content = read_bytes(run.path / MANIFEST)
    signed, present = parse_json(_Manifest, content, run.path / MANIFEST).files, _digests(run)
    if changed := sorted(name for name in {**signed, **present} if signed.get(name) != present.get(name)):
        raise ResperturbError(f"{run.path / changed[0]} is not as it was signed.")
    where = ("-s", str(run.path / SIGNATURE))
    if signer is None:
        done = _ssh_keygen("check-novalidate", *where, content=content)
        if done.returncode:
            raise ResperturbError(f"{run.path / SIGNATURE} is not a signature of {MANIFEST}.")
        raise _UncheckedError(f"the files are as {_key(done)} signed them; say by --signer whose key is expected.")
    with tempfile.NamedTemporaryFile("w", suffix=".allowed") as allowed:
        allowed.write("".join(f"{NAMESPACE} {key}\n" for key in _public_keys(signer)))
        allowed.flush()
        done = _ssh_keygen("verify", "-f", allowed.name, "-I", NAMESPACE, *where, content=content)
    if done.returncode:
        raise ResperturbError(f"{run.path} is not signed by a key of {signer}.")
    return f"all {len(signed)} files are as {_key(done)} of {signer} signed them."


def _public_keys(path: Path) -> list[str]:
    lines = read_bytes(path).decode(errors="replace").splitlines()
    keys = [line.strip() for line in lines if re.match(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+", line.strip())]
    if not keys:
        raise ResperturbError(f"{path} holds no public key of OpenSSH, such as id_ed25519.pub does.")
    return keys


def _ssh_keygen(action: str, *options: str, content: bytes) -> "subprocess.CompletedProcess[bytes]":
    command = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *options]
    try:
        return subprocess.run(command, input=content, capture_output=True, check=False)
    except OSError as error:
        raise ResperturbError(
            f"signatures are made and checked by ssh-keygen, which cannot be run ({error.strerror}); install OpenSSH."
        ) from error


def _key(done: "subprocess.CompletedProcess[bytes]") -> str:
    found = re.search(r"key (SHA256:\S+)", (done.stdout + done.stderr).decode(errors="replace"))
    return f"the key {found[1]}" if found else "the key"


def _first_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[0].rstrip(".") if lines else "no reason given"
