"""Folders that can be reported: each room that writes a kind of folder registers how it is opened."""

from collections.abc import Callable
from pathlib import Path

from resperturb.auditing.store import AUDIT_FILE, PLAN_FILE, read_audit
from resperturb.errors import UsageError
from resperturb.registry import Registry
from resperturb.report.collect import ReportedModel, model_of_audit

CONFIG = "config.json"


Open = Callable[[Path], ReportedModel | None]

FOLDERS: Registry[Open] = Registry("kind of folder", group="resperturb.folders")
register_folder = FOLDERS.register


def is_audit(path: Path) -> bool:
    """Say whether a folder is an audit's, and not a run's.

    Raises:
        UsageError: There are weights without their configuration, or the audit is not finished.
    """
    if (path / CONFIG).exists():
        return False
    if any(path.glob("*.safetensors")):
        raise UsageError(f"{path} has weights and no {CONFIG}: what they were trained by is not known; restore it.")
    if not ((path / AUDIT_FILE).is_file() or (path / PLAN_FILE).is_file()):
        return False
    if not (path / AUDIT_FILE).is_file():
        raise UsageError(f"the audit in {path} has no {AUDIT_FILE}: it is not finished; make the same audit again.")
    return True


@register_folder("audit")
def open_audit(path: Path) -> ReportedModel | None:
    """Open the folder of an audit; None if it is something else."""
    if not is_audit(path):
        return None
    return model_of_audit(read_audit(path), path.resolve().name)


def open_folder(path: Path) -> ReportedModel:
    """Open the folder of a finished run or of an audit.

    Raises:
        UsageError: It holds neither, or a library is missing that reads it.
        ResperturbError: A file in it is damaged, was changed, or belongs to another folder.
    """
    opened = open_audit(path)  # first: what opens others may load torch
    for name in () if opened is not None else FOLDERS:
        if (opened := FOLDERS[name](path)) is not None:
            break
    if opened is not None:
        return opened
    if (path / CONFIG).is_file():
        missing = FOLDERS.problems()
        raise UsageError(f"{path} is a training run; reading it takes `pip install 'resperturb[train]'`. {missing}")
    raise unopened(
        path, f"holds neither a finished run nor an audit: there is no {CONFIG} and no {AUDIT_FILE} in it."
    )


def unopened(path: Path, what: str) -> UsageError:
    """Say what is wrong with a folder that is no run and no audit, or that there is none.

    >>> unopened(Path("no/such/run"), "is not a run.")
    UsageError('there is no folder no/such/run.')
    """
    if not path.exists():
        return UsageError(f"there is no folder {path}.")
    inside = sorted(one.parent.name for name in (CONFIG, AUDIT_FILE) for one in path.glob(f"*/{name}"))
    hint = f" Name one of the folders in it: {', '.join(dict.fromkeys(inside))}." if inside else ""
    return UsageError(f"{path} {what}{hint}")
