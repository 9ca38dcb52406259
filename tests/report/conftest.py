"""Runs for reports: real ones, with the smallest audit that has everything to show."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from resperturb.audits import audit_run
from resperturb.data import load_pair
from resperturb.report.collect import ReportedModel
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def audited_run(attacked_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy of the attacked run, audited without shadows."""
    folder = tmp_path_factory.mktemp("audited") / "plain"
    shutil.copytree(attacked_run.path, folder)
    run = open_run(folder)
    audit_run(run, shadows=0)
    return run


@pytest.fixture(scope="session")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A perturbed run, with canaries, of images whose first class has a name made to be run; audited."""
    folder = tmp_path_factory.mktemp("noisy")
    images, _ = load_pair("fashion-sample", limit=240)
    names = [NASTY, *images.classes[1:]]
    pixels = images.images[:, 0].numpy()
    np.savez(folder / "data.npz", images=pixels, labels=np.array([names[label] for label in images.labels]))
    config = tiny_config(
        data={"spec": str(folder / "data.npz"), "limit": None, "canaries": {"mislabelled": 10, "blank": 10}},
        perturbation={"name": "additive", "gamma": 0.5},
        seeded_noise=False,
    )
    run = train(config, out=folder / "noisy")
    audit_run(run, shadows=0, draws=(1, 4))
    return run


@pytest.fixture(scope="session")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a formal guarantee, not attacked."""
    folder = tmp_path_factory.mktemp("private")
    return train(
        tiny_config(epochs=1, seeded_noise=False, method={"name": "dpsgd", "noise_multiplier": 2.0}),
        out=folder / "private",
    )


@pytest.fixture(scope="session")
def runs(audited_run: Run, noisy_run: Run, private_run: Run) -> list[ReportedModel]:
    """The three of them, one under a name made to be run."""
    return [
        ReportedModel("plain", audited_run.path, audited_run),
        ReportedModel(f"noisy {NASTY}", noisy_run.path, noisy_run),
        ReportedModel("private", private_run.path, private_run),
    ]


@pytest.fixture
def bare_run(attacked_run: Run, tmp_path: Path) -> Run:
    """A copy of a run without what attacks left in it."""
    for name in ("config.json", "result.json", "model.safetensors", "metrics.jsonl"):
        shutil.copy(attacked_run.path / name, tmp_path / name)
    return dataclasses.replace(attacked_run, path=tmp_path)
