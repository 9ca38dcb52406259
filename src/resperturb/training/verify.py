"""Check that the files of a run belong together, are as they were written, and keep no secret.

Digests and checksums find mix-ups, damage and careless edits. They do not stop someone who computes them anew; a
signature does (docs/how-to/release.md).
"""

from functools import partial
from pathlib import Path
from typing import Any

from resperturb.auditing.store import AUDIT_FILE
from resperturb.errors import ResperturbError, UsageError
from resperturb.report.verify import IntegrityCheck, UncheckedError, check, verify_audit
from resperturb.sealed import read_bound_json
from resperturb.training.checkpoint import Progress
from resperturb.training.folders import audit_of
from resperturb.training.run import AUDIT, CONFIG, Run


def verify_run(run: Run, *, with_data: bool = False) -> list[IntegrityCheck]:
    """Check everything about a finished run.

    The run is newly opened, for what it has read already is not read again. ``with_data`` reads the images too.
    """
    if not run.finished:
        raise UsageError(f"the run {run.path} is not finished, so there is nothing to verify yet.")
    checks = [check("result.json and its digests", partial(_result, run))]
    if checks[0].outcome == "failed":
        return checks
    own = (run.path / CONFIG, run.result_path)
    others = sorted(path for path in run.path.glob("*.json") if path not in own)
    looks = {"model.safetensors": _weights, "metrics.jsonl": _metrics, "epsilon": _epsilon, "secrets": _secrets}
    return [
        *checks,
        *(check(what, partial(look, run)) for what, look in looks.items()),
        *(check(path.name, partial(_belongs, run, path)) for path in others),
        check("data", partial(_data, run, with_data)),
        *_audit(run),
    ]


def _audit(run: Run) -> list[IntegrityCheck]:
    """Check the audit, and that every attack that it made is still there: without one the model looks better."""
    if (run.path / AUDIT / AUDIT_FILE).exists():
        return verify_audit(run.path / AUDIT, run.digests, f"{AUDIT}/")

    def look() -> str:
        audit_of(run)
        raise UncheckedError("the run was not audited.")

    return [check("audit", look)]


def _result(run: Run) -> str:
    return f"fits config.json, the weights and the metrics; {run.result.records} records."


def _weights(run: Run) -> str:
    run.load_model()
    noise = "none" if run.config.perturbation is None else run.config.perturbation.describe()
    return f"can be loaded, and its noise is that of config.json ({noise})."


def _metrics(run: Run) -> str:
    found, last = run.metrics(), run.config.epochs
    if run.config.patience is not None:
        last = min(last, Progress(history=found).best_epoch + run.config.patience)
    if [entry.epoch for entry in found] != list(range(1, last + 1)):
        raise ResperturbError(f"{run.metrics_path} does not hold the {last} epochs of the training.")
    return f"holds all {last} epochs."


def _epsilon(run: Run) -> str:
    if not run.config.method.private:
        return "the training claims none."
    proven = run.guarantee()  # compared with what the training wrote down
    if proven.not_met:
        return f"none may be claimed: {proven.not_met[0].statement}"
    return (
        f"{proven.epsilon:.4g} at delta {proven.delta:g}, computed from config.json and {run.result.records} records."
    )


def _secrets(run: Run) -> str:
    if left := run.secrets():
        raise ResperturbError(
            f"{left[0]} may hold the secret that noise was drawn from; run the same `resperturb train` command "
            "again, which removes it."
        )
    return "no checkpoint is left, nor a part of one."


def _belongs(run: Run, path: Path) -> str:
    read_bound_json(dict[str, Any], path, run.digests)
    return "belongs to this run and is as it was written."


def _data(run: Run, wanted: bool) -> str:
    if not wanted:
        raise UncheckedError("reading the images was not asked for (--with-data).")
    from resperturb.training.inputs import load_inputs

    data = run.config.data
    inputs = load_inputs(data)
    if len(inputs.members()) != run.result.records:
        raise ResperturbError(f"{run.result_path} says {run.result.records} records, and {data.spec} gives others.")
    return f"the images are those of the training, {run.result.records} of them trained on."
