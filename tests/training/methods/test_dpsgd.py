"""DP-SGD clips every record by itself, draws Poisson batches, resumes exactly, and states its guarantee."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
from scipy import stats
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.models import build
from resperturb.noise.source import derive_key
from resperturb.privacy import dpsgd_guarantee, training_length
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.distributed import Execution
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.methods.dpsgd import Dpsgd, DpsgdSteps, poisson_sample
from resperturb.training.network import build_model
from resperturb.training.predict import normalize
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config as config_of_sample

WITHOUT_PRIVACY = {"name": "dpsgd", "noise_multiplier": 0.0, "clip": None}
ADDITIVE = {"name": "additive", "gamma": 0.5, "clip_radius": 20.0}
MULTIPLICATIVE = {"name": "multiplicative", "gamma": 0.5, "floor": 0.1, "output_std": 0.2}


def tiny_config(**changes: object) -> TrainConfig:
    return config_of_sample(**{"data": {"image_size": 8}, **changes})


def distance(run: Run, model: dict[str, torch.Tensor], start: dict[str, torch.Tensor]) -> float:
    """Distance of a run's weights from a model's, relative to the distance that training moved them."""
    trained = load_file(run.model_path)
    gap = sum(float((trained[name] - model[name]).norm()) ** 2 for name in model)
    way = sum(float((trained[name] - start[name]).norm()) ** 2 for name in model)
    return math.sqrt(gap / way)


def members_of(config: TrainConfig) -> ImageSet:
    return load_inputs(config.data).members()


def steps_on(records: int, **changes: object) -> DpsgdSteps:
    """A training on a few records, without momentum and weight decay: a step moves by its gradient alone."""
    config = tiny_config(**{"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "lr": 1.0, **changes})
    members = members_of(config)
    steps = DpsgdSteps(config, members.select(range(records)), Execution("cpu"))
    steps.model.train()
    return steps


def flat(steps: DpsgdSteps) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in steps.model.parameters()])


def moved(steps: DpsgdSteps, progress: Progress) -> torch.Tensor:
    before = flat(steps)
    steps.take(progress)
    return flat(steps) - before


def same(one: Run, other: Run) -> bool:
    a, b = load_file(one.model_path), load_file(other.model_path)
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


@pytest.mark.parametrize("model", ["resnet8", "en2-resnet8"])
@pytest.mark.parametrize("perturbation", [{"name": "none"}, ADDITIVE, MULTIPLICATIVE], ids=lambda p: p["name"])
def test_the_gradient_of_a_record_is_its_own(model: str, perturbation: dict[str, object]) -> None:
    steps = steps_on(4, model=model, perturbation=perturbation, method="dpsgd")
    images = normalize(steps.members.images, 0.5, 0.25).requires_grad_()
    parameters = list(steps.model.parameters())

    def losses() -> torch.Tensor:
        torch.manual_seed(5)  # the same noise both times
        return F.cross_entropy(steps.model(images), steps.members.labels, reduction="none")

    steps._hooks.disable_hooks()
    alone = [torch.autograd.grad(loss, [images, *parameters], retain_graph=True) for loss in losses()]
    steps._hooks.enable_hooks()
    losses().sum().backward()
    for record, (by_image, *by_parameter) in enumerate(alone):
        touched = by_image.flatten(1).abs().sum(dim=1) > 0
        assert touched.tolist() == [other == record for other in range(4)]
        for parameter, gradient in zip(parameters, by_parameter, strict=True):
            assert torch.allclose(parameter.grad_sample[record], gradient, rtol=1e-3, atol=1e-5)


COPIES = {"name": "dpsgd", "noise_multiplier": 0.0, "clip": 0.01, "augment_multiplicity": 3}


def test_the_gradient_of_a_record_is_the_mean_over_its_augmented_copies() -> None:
    steps = steps_on(4, augment="crop", method=COPIES)
    images, labels = steps._copies(torch.arange(4), torch.Generator().manual_seed(0))
    assert labels.tolist() == steps.members.labels.repeat_interleave(3).tolist()
    assert len(images.flatten(1).unique(dim=0)) > 4
    outcome = steps._add_gradients(images, labels)
    assert outcome.seen == 12
    parameters = list(steps.model.parameters())
    found = [parameter.grad_sample for parameter in parameters]
    steps._hooks.disable_hooks()
    for record in range(4):
        own = slice(3 * record, 3 * record + 3)
        loss = F.cross_entropy(steps.model(images[own]), labels[own])
        for gradients, alone in zip(found, torch.autograd.grad(loss, parameters), strict=True):
            assert gradients.shape[0] == 4
            assert torch.allclose(gradients[record], alone, rtol=1e-3, atol=1e-5)


def test_copies_are_clipped_together_and_accumulated_in_parts() -> None:
    assert moved(steps_on(1, batch_size=1, augment="crop", method=COPIES), Progress()).norm() == pytest.approx(
        0.01, rel=1e-3
    )
    # One record at a time, with all of its copies.
    parts = steps_on(20, batch_size=20, augment="crop", method={**COPIES, "max_physical_batch": 2})
    assert 0 < moved(parts, Progress()).norm() <= 0.01 * 1.001


def test_copies_and_averages_leave_the_guarantee_and_the_names_of_earlier_runs_as_they_are() -> None:
    plain = tiny_config(augment="crop", method="dpsgd")
    other = tiny_config(augment="crop", method={"name": "dpsgd", "augment_multiplicity": 4, "ema": 0.99})
    of_plain, of_other = (one.method.guarantee(one, records=60, steps=9) for one in (plain, other))
    assert of_plain == of_other
    assert plain.digest == tiny_config(augment="crop", method={"name": "dpsgd", "ema": None}).digest != other.digest
    assert other.method.describe().endswith("4 augmented copies, weights averaged (0.99)")


def test_the_average_of_the_weights_is_published(tmp_path: Path) -> None:
    config = tiny_config(epochs=4, method={"name": "dpsgd", "ema": 0.5})
    steps = DpsgdSteps(config, members_of(config), Execution("cpu"))
    steps.model.train()
    progress, average = Progress(), torch.zeros(0)
    for epoch in range(4):
        for step in range(3):
            steps.take(progress)
            decay = min(0.5, (1 + 3 * epoch + step) / (10 + 3 * epoch + step))
            average = decay * average + (1 - decay) * flat(steps) if len(average) else flat(steps)
        progress.start_epoch(epoch + 1)
    last = flat(steps)
    with steps.released():
        assert torch.allclose(flat(steps), average, atol=1e-6)
    assert flat(steps).equal(last)
    run = train(config, runs=tmp_path)
    names = [name for name, _ in steps.model.named_parameters()]
    saved = torch.cat([load_file(run.model_path)[name].flatten() for name in names])
    assert torch.allclose(saved, average, atol=1e-6)
    assert not torch.allclose(saved, last, atol=1e-3)


def test_one_record_moves_the_weights_by_the_clipping_norm_at_most() -> None:
    one = steps_on(1, batch_size=1, method={"name": "dpsgd", "noise_multiplier": 0.0, "clip": 0.01})
    assert moved(one, Progress()).norm() == pytest.approx(0.01, rel=1e-3)
    many = steps_on(20, batch_size=20, method={"name": "dpsgd", "noise_multiplier": 0.0, "clip": 0.01})
    assert 0 < moved(many, Progress()).norm() <= 0.01 * 1.001


def test_the_clipping_norm_holds_where_layers_compute_in_16_bits() -> None:
    """A norm that is rounded to 16 bits would let a record move the weights by half a percent more."""
    method = {"name": "dpsgd", "noise_multiplier": 0.0, "clip": 0.01}
    for seed in range(8):
        one = steps_on(1, batch_size=1, precision="bf16-mixed", seed=seed, method=method)
        assert moved(one, Progress()).norm() <= 0.01 * (1 + 1e-4)


def test_an_empty_batch_is_a_step_of_noise_of_the_right_size() -> None:
    steps = steps_on(2, batch_size=1, method={"name": "dpsgd", "noise_multiplier": 3.0, "clip": 0.5})
    step = next(step for step in range(100) if not len(steps.sample(Progress(step=step))))
    progress = Progress(step=step)
    noise = moved(steps, progress) / (3.0 * 0.5)
    assert (progress.step, progress.seen, progress.loss_sum) == (step + 1, 0, 0.0)
    assert noise.std() == pytest.approx(1, abs=5 / math.sqrt(2 * len(noise)))
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3


def test_every_record_joins_a_batch_by_its_own_coin() -> None:
    draws = 4000
    joined = torch.zeros(draws, 30)
    for draw in range(draws):
        joined[draw, poisson_sample(30, batch_size=6, key=derive_key(draw))] = 1
    error = math.sqrt(0.2 * 0.8 / draws)
    assert (joined.mean(dim=0) - 0.2).abs().max() < 5 * error
    correlations = torch.corrcoef(joined.T) - torch.eye(30)
    assert correlations.abs().max() < 5 / math.sqrt(draws)
    # Shuffled batches would all have the same size.
    sizes = joined.sum(dim=1)
    assert sizes.var() == pytest.approx(30 * 0.2 * 0.8, rel=5 * math.sqrt(2 / draws))


def test_without_clipping_and_noise_it_is_sgd_on_the_same_batches(tmp_path: Path) -> None:
    config = tiny_config(method={**WITHOUT_PRIVACY, "max_physical_batch": 7}, label_smoothing=0.1, augment=False)
    run = train(config, runs=tmp_path)
    members = members_of(config)
    sampler = DpsgdSteps(run.config, members, Execution("cpu"))
    torch.manual_seed(config.seed)
    model = build_model(config, members).train()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), momentum=config.momentum, weight_decay=config.weight_decay)
    for epoch in range(config.epochs):
        for step in range(3):
            chosen = sampler.sample(Progress(epoch=epoch, step=step))
            logits = model(normalize(members.images[chosen], config.mean, config.std))
            loss = F.cross_entropy(logits, members.labels[chosen], label_smoothing=0.1, reduction="sum")
            optimizer.zero_grad()
            (loss / config.batch_size).backward()
            optimizer.param_groups[0]["lr"] = config.learning_rate(epoch)
            optimizer.step()
    assert distance(run, model.state_dict(), start) < 1e-3


def test_without_clipping_and_noise_it_matches_sgd_where_all_records_are_in_every_batch(tmp_path: Path) -> None:
    common = {"batch_size": 60, "norm": "group", "schedule": "quarter", "epochs": 5}
    plain = train(tiny_config(**common), runs=tmp_path)
    private = train(tiny_config(**common, method=WITHOUT_PRIVACY, seeded_noise=False), runs=tmp_path)
    torch.manual_seed(0)
    start = build_model(plain.config, members_of(plain.config)).state_dict()
    assert distance(private, load_file(plain.model_path), start) < 1e-3
    assert private.guarantee().epsilon == float("inf")
    assert "nothing at all is promised" in private.guarantee().meaning
    assert plain.guarantee().setting == "It was trained without noise."


class Stop(Exception):
    """Simulates a crash."""


def crash_at(step: int):  # type: ignore[no-untyped-def]
    def update(update: Update) -> None:
        if update.step == step:
            raise Stop

    return update


def interrupt_at(step: int):  # type: ignore[no-untyped-def]
    def press(update: Update) -> None:
        if update.step == step:
            os.kill(os.getpid(), 2)

    return press


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("crashes", [[1], [4, 8]])
def test_a_crashed_training_ends_with_the_same_weights_and_guarantee(
    tmp_path: Path, crashes: list[int], optimizer: str
) -> None:
    method = {"name": "dpsgd", "max_physical_batch": 8, "augment_multiplicity": 2, "ema": 0.9}
    config = tiny_config(perturbation=ADDITIVE, augment=True, optimizer=optimizer, lr=0.01, method=method)
    whole = train(config, runs=tmp_path / "whole")
    for step in crashes:
        with pytest.raises(Stop):
            train(config, runs=tmp_path / "crashed", on_update=crash_at(step))
    resumed = train(config, runs=tmp_path / "crashed")
    assert same(whole, resumed)
    assert whole.guarantee() == resumed.guarantee()


def checkpoint_of(path: Path) -> Progress:
    with safe_open(path / "checkpoint.safetensors", framework="pt") as file:
        return Progress(**json.loads(file.metadata()["progress"]))


def test_epsilon_is_that_of_the_steps_really_taken(tmp_path: Path) -> None:
    config = tiny_config(method={"name": "dpsgd", "noise_multiplier": 1.5, "delta": 1e-4}, seeded_noise=False)

    def epsilon(steps: int) -> float:
        run = training_length(steps=steps, batch_size=20, records=60)
        return dpsgd_guarantee(noise_multiplier=1.5, length=run, delta=1e-4).epsilon

    with pytest.raises(InterruptedTrainingError):
        train(config, out=tmp_path / "run", on_update=interrupt_at(5))
    kept = checkpoint_of(tmp_path / "run")
    assert (kept.epoch * 3 + kept.step, kept.epsilon) == (5, epsilon(5))
    run = train(config, out=tmp_path / "run")
    proven = run.guarantee()
    assert (proven.details["steps"], proven.epsilon, proven.delta) == (9, epsilon(9), 1e-4)
    assert [entry.epsilon for entry in run.metrics()] == [epsilon(3), epsilon(6), epsilon(9)]
    statuses = {assumption.status for assumption in proven.assumptions}
    assert statuses == {"assumed", "enforced"}


def test_the_seed_repeats_a_run_only_on_request(tmp_path: Path) -> None:
    one, again = (train(tiny_config(epochs=1, method="dpsgd"), out=tmp_path / name) for name in "ab")
    assert same(one, again)
    assert any("seed" in a.statement for a in one.guarantee().assumptions if a.status == "not met")


def test_a_wanted_epsilon_is_met_and_not_undercut(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=1, method={"name": "dpsgd", "target_epsilon": 4.0}), runs=tmp_path)
    assert 3.98 < run.guarantee().epsilon <= 4.0
    assert isinstance(run.config.method, Dpsgd)
    assert run.config.method.noise_multiplier == run.guarantee().details["noise_multiplier"]


def test_the_saved_model_has_the_names_it_would_have_without_opacus(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=1, model="en2-resnet8", method="dpsgd"), runs=tmp_path)
    bare = build("en2-resnet8", num_classes=10, in_channels=1, norm="group")
    assert load_file(run.model_path).keys() == bare.state_dict().keys()
    assert open_run(run.path).load_model().state_dict().keys() == bare.state_dict().keys()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"norm": "batch", "method": "dpsgd"}, "BatchNorm lets every record.*--norm group"),
        (
            {"method": "dpsgd", "perturbation": {"name": "additive", "gamma": 1.0, "scale": "batch_std"}},
            "depends on the whole batch",
        ),
        ({"method": {"name": "dpsgd", "noise_multiplier": 1.0, "target_epsilon": 1.0}}, "either given .* or found"),
        ({"method": {"name": "dpsgd", "clip": None}}, "give a finite clip"),
        ({"method": {"name": "dpsgd", "augment_multiplicity": 8}}, "add --augment crop"),
        ({"method": {"name": "dpsgd", "clip": -1.0}}, r"clip"),
        ({"method": {"name": "dpsgd", "shuffled": True}}, r"shuffled"),
    ],
)
def test_options_that_void_the_guarantee_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_config(data={"spec": "x"}, **values)


def test_weights_of_a_run_on_the_same_images_are_no_start(tmp_path: Path) -> None:
    plain = train(tiny_config(epochs=1, norm="group"), out=tmp_path / "plain")
    start = {"weights": str(plain.model_path), "epochs": 1}
    with pytest.raises(UsageError, match="was trained on the images of fashion-sample"):
        train(tiny_config(method="dpsgd", **start), runs=tmp_path)
    without_privacy = train(tiny_config(method=WITHOUT_PRIVACY, **start), runs=tmp_path)
    assert without_privacy.guarantee().epsilon == math.inf


def test_weights_that_training_starts_from_are_assumed_to_be_public() -> None:
    def assumed(**changes: object) -> bool:
        proven = Dpsgd().guarantee(make_config(data={"spec": "x"}, method="dpsgd", **changes), records=500, steps=4)
        return any("made without these records" in each.statement for each in proven.assumptions)

    assert assumed(weights="elsewhere.safetensors")
    assert assumed(features="scattering")
    assert not assumed()


def test_batches_of_more_records_than_there_are_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch of 61 cannot be drawn from 60 records"):
        train(tiny_config(batch_size=61, method="dpsgd"), runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_defaults_are_the_paper_s() -> None:
    config = make_config(data={"spec": "x"}, method="dpsgd")
    assert isinstance(config.method, Dpsgd)
    assert (config.method.noise_multiplier, config.method.clip) == (1.1, 1.0)
    assert (config.lr, config.schedule, config.epochs, config.norm) == (0.1, "quarter", 100, "group")


SMALL = ["--limit", "240", "--image-size", "8", "--epochs", "1", "--batch-size", "20"]
TRAIN = ["train", "--data", "fashion-sample", *SMALL]


def test_the_command_trains_and_prints_what_is_proven(tmp_path: Path) -> None:
    arguments = [*TRAIN, "--method", "dpsgd", "--target-epsilon", "5", "--gamma", "0.3", "--runs", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["guarantee"]["epsilon"] == pytest.approx(5, rel=0.01)
    shown = CliRunner().invoke(app, arguments)
    assert "at delta 1e-05" in shown.stdout
    assert "It holds only if" in shown.stdout


def test_the_command_takes_seeded_noise(tmp_path: Path) -> None:
    arguments = [*TRAIN, "--method", "dpsgd", "--seeded-noise", "--out", str(tmp_path / "run"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert open_run(tmp_path / "run").config.seeded_noise
    assert "an assumption is not met" in json.loads(result.stdout)["guarantee"]["meaning"]


def test_the_command_takes_an_infinite_clip(tmp_path: Path) -> None:
    arguments = [*TRAIN, "--method", "dpsgd", "--noise-multiplier", "0", "--clip", "inf", "--runs", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["guarantee"]["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--noise-multiplier", "1"], "--noise-multiplier does not go with the training method 'sgd'"),
        (["--method", "dpsgd", "--norm", "batch"], "pass --norm group"),
        (["--method", "dpsgd", "--clip", "inf"], "give a finite clip"),
    ],
)
def test_the_command_refuses_with_a_reason(tmp_path: Path, flags: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*TRAIN, *flags, "--runs", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
