"""What Theorem 1 assumes is measured, and what does not hold is said not to."""

import json
from pathlib import Path

import pytest
import torch
import typer
from resperturb_reproduction.assumptions import _Recorder, measure_assumptions
from resperturb_reproduction.commands.check import register
from typer.testing import CliRunner

from resperturb.errors import UsageError
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import train
from resperturb.training.predict import normalize
from resperturb.training.run import Run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = tiny_config(perturbation={"name": "additive", "gamma": 1.0})
    return train(config, runs=tmp_path_factory.mktemp("noisy"))


def test_the_radius_is_that_of_the_farthest_training_image(noisy_run: Run) -> None:
    measured = measure_assumptions(noisy_run, records=4, draws=20)
    members = load_inputs(noisy_run.config.data).members().images
    norms = [float(normalize(image, 0.5, 0.25).norm()) for image in members]
    assert measured.radius_largest == pytest.approx(max(norms))
    assert measured.images == len(members)
    assert [output.junction for output in measured.outputs] == ["blocks.0", "blocks.1", "blocks.2"]


def test_normal_outputs_pass_and_others_do_not() -> None:
    def rejected(draw) -> float:  # type: ignore[no-untyped-def]
        recorder = _Recorder(lambda total, other, shortcut, training: total, seed=0)
        generator = torch.Generator().manual_seed(0)
        for _ in range(200):
            recorder(draw(generator), None, None, False)
        return recorder.outputs("x").rejected

    assert rejected(lambda g: torch.randn(4, 100, generator=g)) < 0.12  # 5% of 200 coordinates, give or take
    assert rejected(lambda g: torch.rand(4, 100, generator=g)) > 0.9


def test_the_mean_over_draws_is_what_is_bounded() -> None:
    recorder = _Recorder(lambda total, other, shortcut, training: total, seed=0)
    for sign in (1, -1, 1, -1):
        recorder(torch.tensor([[3.0, 4.0 * sign]]), None, None, False)
    assert recorder.outputs("x").mean_norm_largest == pytest.approx(3.0)


def test_check_says_what_does_not_hold(noisy_run: Run) -> None:
    arguments = [str(noisy_run.path), "--radius", "1", "--bound", "1e9", "--records", "4", "--draws", "20"]
    app = typer.Typer()
    register(app)
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert (found["radius"]["holds"], found["bound"]["holds"]) == (False, True)
    assert "no" in CliRunner().invoke(app, arguments).stdout


def test_a_run_without_noise_is_refused(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=1), runs=tmp_path)
    with pytest.raises(UsageError, match="not perturbed"):
        measure_assumptions(run)
