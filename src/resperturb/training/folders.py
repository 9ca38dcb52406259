"""How the folder of a run is opened for a report."""

from pathlib import Path

from resperturb.report.collect import ReportedModel
from resperturb.report.folders import register_folder
from resperturb.training.run import CONFIG


@register_folder("run")
def open_run_folder(path: Path) -> ReportedModel | None:
    """Open the folder of a finished run; None if it is something else."""
    if not (path / CONFIG).is_file():
        return None
    from resperturb.training.run import open_run
    from resperturb.training.subject import OpenedRun

    return OpenedRun.of(open_run(path))
