"""The wheel without an extra: audits, reports and gates run with what `pip install resperturb` brings alone."""

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys
import numpy as np
import resperturb as rp

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 80)
x = rng.normal(size=(80, 3)) + y[:, None]

def train(indices, seed):
    means = np.stack([x[indices][y[indices] == c].mean(axis=0) for c in (0, 1)])
    def predict(rows):
        logits = -((x[rows, None] - means) ** 2).sum(axis=2)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)
    return predict

found = rp.audit(train, labels=y, shadows=4, out="audit", jobs=1, quiet=True)
found.report("report.html")
print(rp.__file__)
"""


def closure(name: str, found: dict[str, Path]) -> dict[str, Path]:
    """Find every distribution that a requirement brings, extras aside, with the folder that it is installed in."""
    try:
        own = distribution(name)
    except PackageNotFoundError:  # of another platform
        return found
    key = own.metadata["Name"].lower()
    if key not in found:
        found[key] = Path(str(own.locate_file("")))
        for requirement in own.requires or ():
            if "extra ==" not in requirement:
                closure(re.split(r"[ <>=!~\[;(]", requirement, maxsplit=1)[0], found)
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment that holds the wheel and links to its plain requirements."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = place.glob("resperturb-*.whl")
    venv.create(place / "env", with_pip=False, symlinks=True)
    site = next((place / "env" / "lib").glob("python*")) / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
    )
    required: dict[str, Path] = {}
    for requirement in distribution("resperturb").requires or ():
        if "extra ==" not in requirement:
            closure(re.split(r"[ <>=!~\[;(]", requirement, maxsplit=1)[0], required)
    for name, folder in required.items():
        tops = {Path(str(file)).parts[0] for file in distribution(name).files or ()}
        for top in tops - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(folder / top)
    return place / "env" / "bin" / "python"


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([str(python), *arguments], cwd=folder, env=kept, capture_output=True, text=True)


def test_audit_report_and_gate_run_without_the_trainers_libraries(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert str(python.parents[1]) in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 100_000
    command = "from resperturb.cli import main; main()"
    gate = run(python, tmp_path, "-c", command, "gate", "audit", "--json")
    assert gate.returncode in (0, 1, 2), gate.stderr
    assert '"decision"' in gate.stdout or '"status"' in gate.stdout, gate.stdout[:300]
    assert "Traceback" not in gate.stderr
    missing = run(python, tmp_path, "-c", command, "train", "--data", "fashion-sample")
    assert missing.returncode == 2
    assert "pip install 'resperturb[train]'" in " ".join(missing.stderr.split())
