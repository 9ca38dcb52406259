"""The examples run as they are, on a small folder of images, and are short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from resperturb.audits import read_audit

EXAMPLES = Path(__file__).parent.parent / "examples"

# torchvision's compiled operators do not load with every build of torch; its models do not need them.
RUN = """
import runpy, sys
from resperturb.models import library
library("torchvision", "the example")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for name, shade in (("dark", 40), ("light", 200)):
        (folder / name).mkdir()
        for i in range(6):
            Image.new("RGB", (32, 32), (shade + i, shade, shade)).save(folder / name / f"{i}.png")
    return folder


def run(cache: Path, example: str, *arguments: str) -> str:
    command = [sys.executable, "-c", RUN, str(EXAMPLES / example), *arguments]
    environment = {
        **os.environ,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_examples_are_short(example: str) -> None:
    lines = len((EXAMPLES / example).read_text().splitlines())
    assert lines < (40 if example.startswith("audit_") else 60)


@pytest.mark.parametrize(
    ("example", "small"),
    [
        ("audit_sklearn.py", []),
        ("audit_torchvision.py", ["--limit", "100", "--epochs", "2"]),
        ("audit_transformers.py", ["--epochs", "3"]),
    ],
)
def test_anybodys_training_is_audited(example: str, small: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    out = run(tmp_path, example, *small, "--shadows", "4", "--jobs", "1", "--out", str(folder))
    assert "AUC 0." in out or "AUC 1." in out
    assert "your own training" in (folder / "report.html").read_text()
    asked = {attack.access for attack in read_audit(folder).attacks}
    assert asked == ({"served", "weights"} if "torchvision" in example else {"served"})


def test_a_stock_resnet_on_an_image_folder(folder: Path, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    out = run(tmp_path, "perturb_torchvision.py", str(folder), "--epochs", "1", "--size", "32", "--out", str(weights))
    assert "noise at layer1.0, layer1.1" in out
    assert "Additive(gamma=0.5, input_std=0.25" in out
    assert "test accuracy" in out
    assert weights.exists()


def test_a_vit_of_hugging_face(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    out = run(tmp_path, "perturb_transformers.py", str(folder), "--epochs", "1", "--out", str(tmp_path / "vit"))
    assert "eval_loss" in out
    assert "Additive(gamma=0.1" in out
