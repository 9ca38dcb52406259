"""The files of an audit cannot be swapped with those of another."""

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import resperturb as rp
from resperturb.bounds.arrays import Floats, Ints
from resperturb.errors import ResperturbError, UsageError
from resperturb.report.collect import open_models
from resperturb.report.verify import verify_audit


def audited(folder: Path, leak: float) -> Path:
    """Audit made-up models whose confidence is ``leak`` higher on members."""
    labels = np.arange(60) % 2

    def train(rows: Ints, seed: int) -> Callable[[Ints], Floats]:
        known = 1 + np.random.default_rng([seed, zlib.crc32(rows.tobytes())]).normal(size=60)
        known[rows] += leak
        right = 1 / (1 + np.exp(-known))
        return lambda some: np.where(np.arange(2) == labels[some, None], right[some, None], 1 - right[some, None])

    rp.audit(train, labels=labels, shadows=4, out=folder, jobs=1, population=0, quiet=True)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of a model that shows nothing."""
    return audited(tmp_path_factory.mktemp("audits") / "quiet", 0.0)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of a model that leaks."""
    return audited(tmp_path_factory.mktemp("audits") / "leaky", 5.0)


@pytest.fixture
def folder(leaky: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(leaky, tmp_path / "leaky"))


def test_a_good_audit_passes(folder: Path) -> None:
    assert {check.outcome for check in verify_audit(folder)} == {"ok"}


@pytest.mark.parametrize("names", [["audit.json"], ["audit.json", "plan.json"], ["audit.json", "scores"]])
def test_another_audit_s_result_is_refused_by_every_command(folder: Path, other: Path, names: list[str]) -> None:
    for name in names:
        if (other / name).is_dir():
            shutil.copytree(other / name, folder / name, dirs_exist_ok=True)
        else:
            shutil.copy(other / name, folder / name)
    with pytest.raises(ResperturbError, match="another"):
        open_models([folder])
    assert [check.outcome for check in verify_audit(folder)] == ["failed"]


def test_the_whole_result_of_another_audit_does_not_fit_the_models(folder: Path, other: Path) -> None:
    for name in ("audit.json", "plan.json"):
        shutil.copy(other / name, folder / name)
    shutil.rmtree(folder / "scores")
    shutil.copytree(other / "scores", folder / "scores")
    assert {check.what: check.outcome for check in verify_audit(folder)}["models/000.npz"] == "failed"


def test_a_model_that_was_copied_over_another_is_noticed(folder: Path) -> None:
    shutil.copy(folder / "models/000.npz", folder / "models/001.npz")
    [failed] = [check for check in verify_audit(folder) if check.outcome == "failed"]
    assert failed.what == "models/001.npz"
    assert "other model" in failed.detail


def test_weights_without_a_configuration_and_audits_without_a_result_are_refused(folder: Path) -> None:
    (folder / "audit.json").rename(folder / "kept.json")
    with pytest.raises(UsageError, match="not finished"):
        open_models([folder])
    (folder / "kept.json").rename(folder / "audit.json")
    (folder / "model.safetensors").touch()
    with pytest.raises(UsageError, match=r"no config\.json"):
        open_models([folder])
