"""The report of a run or an audit. The module names say what each answers."""

from pathlib import Path

from resperturb.bounds.audit_result import AuditResult
from resperturb.errors import UsageError

__all__ = ["write_audit_report"]


def write_audit_report(audit: AuditResult, path: Path) -> Path:
    """Write the page about one audit to an HTML file, and return its path.

    Raises:
        UsageError: The audit was not kept, so its scores are not there to be drawn.
    """
    from resperturb.files import write_bytes
    from resperturb.report.collect import model_of_audit
    from resperturb.report.page import render

    if audit.folder is None:
        raise UsageError(
            "this audit was not kept in a folder, so its scores are not there to be drawn: give it out=."
        )
    write_bytes(path, render([model_of_audit(audit)]).encode())
    return path
