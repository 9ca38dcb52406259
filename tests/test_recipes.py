"""Every recipe of the documentation runs, and its statements about the result hold."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.models import library

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "recipes.md"
TITLES = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
NEEDED = {"JAX": "jax", "A LightningModule": "pytorch_lightning", "A Hugging Face": "accelerate"}


def code(title: str | None = None) -> str:
    """The code of a section, or of the page's beginning."""
    begin, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    part = begin if title is None else next(section for section in sections if section.startswith(title))
    return "\n".join(re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL))


def run(title: str | None, space: dict[str, Any]) -> None:
    exec(compile(code(title), "recipe", "exec"), space)  # no file: a function's source is looked up in it


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    library("torchvision", "the recipes")  # with any build of torch
    names: dict[str, Any] = {"__name__": "recipes"}
    run(None, names)
    return names


@pytest.mark.parametrize("title", [title for title in TITLES if "rp.audit(" in code(title)])
def test_training_code_of_any_framework_is_audited(title: str, space: dict[str, Any]) -> None:
    for begin, module in NEEDED.items():
        if title.startswith(begin):
            pytest.importorskip(module)
    if "pytest" in title:
        run("A Dataset", space)
        run(title, space)
        with pytest.raises(AssertionError, match="leaks: AUC"):
            space["test_the_recipe_shows_no_leak"](Path("tested"))
        return
    run(title, space)
    assert space["found"].shadows.count == 4
    assert space["found"].strongest.auc > 0.5


def test_models_of_lira_pytorch_are_audited(space: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    coins = np.argsort(rng.random((16, 200)), axis=0) < 8  # each record in exactly half, as lira-pytorch does
    for model, keep in enumerate(coins):
        folder = tmp_path / "exp" / str(model)
        folder.mkdir(parents=True)
        right = np.eye(2)[space["labels"]] * (1 + 2 * keep[:, None])
        np.save(folder / "keep.npy", keep)
        np.save(folder / "logits.npy", (right + rng.normal(size=(200, 2)))[:, None, :].astype("float32"))
    run("A folder of models", space)
    found = space["audit_lira"](tmp_path / "exp", space["labels"])
    assert (found.targets, found.shadows.count, found.design) == (16, 15, "balanced")
    assert found.leaks
    assert "exactly half of all models" in found.epsilon_lower.words


def test_a_result_goes_to_mlflow(space: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    rng = np.random.default_rng(0)
    answers = rng.dirichlet(np.ones(2), size=200)
    space["found"] = space["rp"].audit_predictions(answers, rng.random(200) < 0.5, space["labels"])
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    run("Keep the result", space)
    [kept] = (tmp_path / "mlruns").rglob("audit.json")
    assert json.loads(kept.read_text())["leaks"] is False


def test_the_container_runs_the_demo_of_this_repository() -> None:
    root = PAGE.parents[2]
    lines = (root / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    allowed = {line.removeprefix("!") for line in (root / ".dockerignore").read_text().splitlines()}
    assert all((root / path).exists() and path in allowed for path in copied)
    assert 'CMD ["demo"]' in lines
