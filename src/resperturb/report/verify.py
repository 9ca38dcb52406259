"""Check that the files of an audit belong together and are as they were written.

Digests and checksums find mix-ups, damage and careless edits. They do not stop someone who computes them anew; a
signature does (docs/how-to/release.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from resperturb.auditing.store import AUDIT_FILE, MODELS, PLAN_FILE, read_audit
from resperturb.errors import ResperturbError
from resperturb.report.wording import counted
from resperturb.sealed import read_binding, read_bound_arrays


@dataclass(frozen=True)
class IntegrityCheck:
    """What was checked, the outcome, and the detail."""

    what: str
    outcome: Literal["ok", "failed", "not checked"]
    detail: str


class UncheckedError(Exception):
    """There is nothing to check this against."""


def check(what: str, look: Callable[[], str]) -> IntegrityCheck:
    """Make a check of a function that returns what it found, or raises."""
    try:
        return IntegrityCheck(what, "ok", look())
    except UncheckedError as reason:
        return IntegrityCheck(what, "not checked", str(reason))
    except ResperturbError as error:
        return IntegrityCheck(what, "failed", str(error))


def verify_audit(folder: Path, digests: Mapping[str, str] | None = None, prefix: str = "") -> list[IntegrityCheck]:
    """Check the folder of an audit: plan, result, scores, and the answers of every model; no failure is raised.

    It must be about the run of ``digests``; any will do if None. ``prefix`` stands before the names of files.
    """
    first = check(f"{prefix}{AUDIT_FILE}, {PLAN_FILE} and scores", partial(_result, folder, digests))
    if first.outcome == "failed":
        return [first]
    question = read_audit(folder).digests["question"]
    models = sorted((folder / MODELS).glob("*.npz"))
    return [first, *(check(f"{prefix}{MODELS}/{path.name}", partial(_answers, path, question)) for path in models)]


def _result(folder: Path, digests: Mapping[str, str] | None) -> str:
    audit = read_audit(folder, digests)
    return f"belong together: {counted(len(audit.fixed), 'attack')} on {counted(audit.targets, 'model')}."


def _answers(path: Path, question: str) -> str:
    said = read_binding(path).digests or {}
    number, _, stage = path.stem.partition(".")
    own = {"question": question, "model": str(int(number)) if number.isdigit() else number, "stage": stage}
    read_bound_arrays(path, (), {**said, **own})
    return "answers the questions of this audit."
