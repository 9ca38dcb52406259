"""Models for reports: audits of made-up predictions, and real runs where a run is tested."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.auditing import audit_predictions
from resperturb.auditing.store import save_audit
from resperturb.bounds import AuditResult
from resperturb.data import load_pair
from resperturb.report.collect import ReportedModel, model_of_audit, open_models
from resperturb.training.audited import audit_run
from resperturb.training.folders import OpenedRun
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config

NASTY = "<script>alert(1)</script>"


def audited(seed: int, leak: float = 0.0, rows: int = 400, groups: int | None = None, **options: Any) -> AuditResult:
    """An audit of one training whose confidence is ``leak`` standard deviations higher on members."""
    rng = np.random.default_rng(seed)
    by = np.arange(rows) if groups is None else rng.integers(0, groups, rows)
    members = (rng.random(rows) < 0.5)[by]
    labels = rng.integers(0, 2, rows)
    shared = rng.normal(size=rows)[by] if groups else 0.0
    right = 1 / (1 + np.exp(-(1 + rng.normal(size=rows) + shared + leak * members)))
    answers = np.where(np.arange(2) == labels[:, None], right[:, None], 1 - right[:, None])
    return audit_predictions(answers, members, labels, groups=by if groups else None, **options)


def named(name: str, audit: AuditResult) -> ReportedModel:
    """Report an audit under a name."""
    return model_of_audit(audit, name)


def renamed(model: ReportedModel, name: str) -> ReportedModel:
    """Report a model under another name."""
    return replace(model, subject=replace(model.subject, name=name))


def reported(run: Run, name: str) -> ReportedModel:
    """Report a run under a name."""
    return OpenedRun.of(run, name)


@pytest.fixture(scope="session")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> ReportedModel:
    """A model that leaks, by an audit that is kept."""
    return named("leaking", audited(0, leak=2.0, out=tmp_path_factory.mktemp("leaking") / "audit"))


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> ReportedModel:
    """A model that shows nothing, by an audit that is kept."""
    return named("quiet", audited(0, rows=2000, out=tmp_path_factory.mktemp("quiet") / "audit"))


@pytest.fixture(scope="session")
def audited_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has memorised its images, audited without shadow models."""
    run = train(tiny_config(epochs=40, data={"limit": 400}), out=tmp_path_factory.mktemp("audited") / "plain")
    audit_run(run, shadows=0)
    return run


@pytest.fixture(scope="session")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An audited, perturbed run with canaries, whose first class has a name with markup."""
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
    """A run with a formal guarantee, not audited."""
    folder = tmp_path_factory.mktemp("private")
    return train(
        tiny_config(epochs=1, seeded_noise=False, method={"name": "dpsgd", "noise_multiplier": 2.0}),
        out=folder / "private",
    )


@pytest.fixture(scope="session")
def runs(audited_run: Run, noisy_run: Run, private_run: Run) -> list[ReportedModel]:
    """The three of them, one under a name with markup."""
    return [reported(audited_run, "plain"), reported(noisy_run, f"noisy {NASTY}"), reported(private_run, "private")]


@pytest.fixture
def bare_run(audited_run: Run, tmp_path: Path) -> Run:
    """A copy of a run without its audit."""
    for name in ("config.json", "result.json", "model.safetensors", "metrics.jsonl"):
        shutil.copy(audited_run.path / name, tmp_path / name)
    return open_run(tmp_path)


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[AuditResult], ReportedModel]:
    """Keep a changed audit next to its scores, and open it."""

    def keep(audit: AuditResult) -> ReportedModel:
        assert audit.folder is not None
        shutil.copytree(audit.folder, tmp_path / "kept", dirs_exist_ok=True)
        save_audit(audit, tmp_path / "kept")
        [model] = open_models([tmp_path / "kept"])
        return model

    return keep
