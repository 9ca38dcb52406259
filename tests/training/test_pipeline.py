"""Any network in the pipeline: trained, kept, loaded again, noisy; its settings are checked first."""

import itertools
import json
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.models import build
from resperturb.perturbation import strategy_of
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.distributed import Execution
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import train
from resperturb.training.methods.dpsgd import Dpsgd
from resperturb.training.predict import class_scores, normalize
from resperturb.training.run import open_run
from resperturb.training.steps import Steps, class_weights
from tests.conftest import tiny_config as config_of_sample

NOISE = {"name": "additive", "gamma": 0.1}
NETS = """
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return x + self.relu(self.norm(self.conv(x)))

def make(num_classes, in_channels, width=4):
    return nn.Sequential(nn.Conv2d(in_channels, width, 3), Block(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(width, num_classes))

def flat(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(99, num_classes))
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "nets_of_pipeline.py").write_text(NETS)
    monkeypatch.delitem(sys.modules, "nets_of_pipeline", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "nets_of_pipeline:make"


def tiny_config(**changes: object) -> TrainConfig:
    return config_of_sample(**{"data": {"image_size": 12}, "epochs": 1, **changes})


@pytest.mark.parametrize(
    ("model", "size"),
    [("timm:resnet10t", 32), ("torchvision:resnet18", 32), ("en2-timm:resnet10t", 32)],
)
def test_stock_networks_train_with_noise_and_load_again(tmp_path: Path, model: str, size: int) -> None:
    config = config_of_sample(
        data={"image_size": size, "limit": 80}, epochs=1, model=model, perturbation=NOISE, batch_size=20
    )
    assert (config.optimizer, config.schedule, config.lr) == ("adamw", "cosine", 1e-3)
    run = train(config, runs=tmp_path)
    loaded = open_run(run.path).load_model()
    assert strategy_of(loaded) == config.perturbation
    assert run.config.mean == pytest.approx(sum((0.485, 0.456, 0.406)) / 3, abs=1e-6)  # the sample is grey
    images = load_inputs(run.config.data).test.images[:2]
    assert loaded(normalize(images, run.config.mean, run.config.std)).shape == (2, 10)


def test_a_users_network_trains_by_dp_sgd_with_its_norms_replaced(nets: str, tmp_path: Path) -> None:
    config = tiny_config(model=nets, model_args={"width": 8}, perturbation=NOISE, method="dpsgd")
    run = train(config, runs=tmp_path)
    assert run.result.notes == (
        "1 BatchNorm layer became GroupNorm, which does not mix the records of a batch.",
        "1 activations no longer overwrite their input.",
    )
    loaded = run.load_model()
    assert any(isinstance(module, nn.GroupNorm) for module in loaded.modules())
    assert loaded[0].out_channels == 8  # type: ignore[index]


def test_changed_code_of_a_users_network_is_another_run(nets: str, tmp_path: Path) -> None:
    one = train(tiny_config(model=nets), runs=tmp_path / "runs")
    file = tmp_path / "nets_of_pipeline.py"
    file.write_text(file.read_text() + "\n# changed\n")
    other = train(tiny_config(model=nets), runs=tmp_path / "runs")
    assert one.path != other.path


def test_a_network_that_does_not_fit_the_images_is_refused_before_training(nets: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot take images of 12 x 12 pixels and 1 channels"):
        train(tiny_config(model="nets_of_pipeline:flat"), runs=tmp_path / "runs")


def test_a_typing_error_is_found_before_the_images_are_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="timm has no network"):
        train(make_config(data={"spec": "no/such/folder"}, model="timm:resnet10x"), runs=tmp_path)
    with pytest.raises(UsageError, match="no file .*weights"):
        train(make_config(data={"spec": "no/such/folder"}, weights="none.safetensors"), runs=tmp_path)


def test_training_starts_from_the_weights_of_a_file(tmp_path: Path) -> None:
    torch.manual_seed(5)
    first = build("resnet8", num_classes=3, in_channels=1)
    file = tmp_path / "weights.safetensors"
    save_file(first.state_dict(), file)
    config = tiny_config(weights=str(file), lr=1e-12, weight_decay=0.0)
    run = train(config, runs=tmp_path / "runs")
    trained = load_file(run.model_path)
    assert torch.allclose(trained["stem.weight"], first.state_dict()["stem.weight"])
    assert trained["head.weight"].shape[0] == 10
    assert "is new" in run.result.notes[0]
    save_file({**first.state_dict(), "stem.weight": first.state_dict()["stem.weight"] + 1}, file)
    assert train(config, runs=tmp_path / "runs").path != run.path


@pytest.mark.parametrize("method", ["sgd", "dpsgd"])
def test_bf16_trains_and_keeps_weights_of_32_bits(tmp_path: Path, method: str) -> None:
    one, other = (
        train(tiny_config(precision=precision, method=method, perturbation=NOISE), runs=tmp_path)
        for precision in ("32-true", "bf16-mixed")
    )
    a, b = load_file(one.model_path), load_file(other.model_path)
    assert all(value.dtype != torch.bfloat16 for value in b.values())
    assert not a["stem.weight"].equal(b["stem.weight"])
    assert torch.allclose(a["stem.weight"], b["stem.weight"], atol=0.1)


def test_adamw_resumes_exactly(tmp_path: Path) -> None:
    config = tiny_config(epochs=3, optimizer="adamw", lr=1e-3, augment="resized-crop")
    whole = train(config, runs=tmp_path / "whole")

    class Stop(Exception):
        pass

    def crash(update: object) -> None:
        if update.step == 5:  # type: ignore[attr-defined]
            raise Stop

    with pytest.raises(Stop):
        train(config, runs=tmp_path / "crashed", on_update=crash)
    resumed = train(config, runs=tmp_path / "crashed")
    a, b = load_file(whole.model_path), load_file(resumed.model_path)
    assert all(a[name].equal(b[name]) for name in a)


def test_cosine_falls_to_zero_after_a_warm_up() -> None:
    config = make_config(data={"spec": "x"}, epochs=20, lr=1.0, schedule="cosine", warmup_epochs=4)
    rates = [config.learning_rate(epoch) for epoch in range(20)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[12] == pytest.approx(0.5)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[4:]))
    short = make_config(data={"spec": "x"}, epochs=2, lr=1.0, schedule="cosine", warmup_epochs=5)
    assert [short.learning_rate(epoch) for epoch in range(2)] == pytest.approx([0.5, 1.0])


def test_rare_classes_weigh_more() -> None:
    config = tiny_config(class_weights="balanced")
    members = load_inputs(config.data).members()
    weights = class_weights(config, members)
    assert weights is not None
    counts = torch.bincount(members.labels, minlength=10)
    assert torch.allclose(weights * counts, torch.full((10,), len(members) / 10))
    steps = Steps(config, members, Execution("cpu"))
    logits, labels = torch.randn(6, 10), members.labels[:6]
    each = nn.functional.cross_entropy(logits, labels, reduction="none") * weights[labels]
    assert float(steps._loss(logits, labels, 6)) == pytest.approx(float(each.sum()) / 6, rel=1e-5)
    with pytest.raises(UsageError, match="2 class weights and 10 classes"):
        class_weights(tiny_config(class_weights=(1.0, 2.0)), members)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"class_weights": "balanced", "method": "dpsgd"}, "must not look at"),
        ({"precision": "16-mixed", "method": "dpsgd"}, "use bf16-mixed"),
        ({"precision": "8"}, "precision"),
        ({"normalization": "cats"}, "unknown normalization 'cats'; known are half, imagenet"),
        ({"mean": (0.1, 0.2)}, "mean and std"),
        ({"augment": "twirl"}, "augment"),
        ({"schedule": "exponential"}, "schedule"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_reason(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_config(data={"spec": "x"}, **values)


def test_the_paper_s_settings_are_those_of_the_paper_s_networks_alone() -> None:
    paper, other = (make_config(data={"spec": "x"}, model=name) for name in ("resnet20", "timm:resnet26d"))
    assert (paper.optimizer, paper.lr, paper.schedule, paper.mean, paper.weight_decay) == (
        "sgd",
        0.1,
        "he",
        0.5,
        1e-4,
    )
    assert (other.optimizer, other.lr, other.schedule, other.warmup_epochs) == ("adamw", 1e-3, "cosine", 5)
    tuned = make_config(data={"spec": "x"}, model="timm:resnet26d", weights="pretrained")
    assert (tuned.lr, tuned.epochs) == (1e-4, 20)
    private = make_config(data={"spec": "x"}, model="timm:resnet26d", method="dpsgd")
    assert private.norm == "group"
    assert isinstance(private.method, Dpsgd)


def test_constants_are_per_channel() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    config = make_config(data={"spec": "x"}, normalization="imagenet")
    means, stds = (torch.tensor(value).view(3, 1, 1) for value in (config.mean, config.std))
    torch.testing.assert_close(normalize(images, config.mean, config.std), (images / 255 - means) / stds)
    white = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    largest = max(
        float(normalize(torch.where(torch.rand(1, 3, 1, 1) < 0.5, white, 255), config.mean, config.std).norm())
        for _ in range(50)
    )
    assert largest == pytest.approx(config.input_radius(3, 4, 4), rel=1e-5)


def test_scores_of_two_and_of_more_classes() -> None:
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(200, 2, generator=rng), torch.randint(0, 2, (200,), generator=rng)
    found = class_scores(logits, labels)
    answers = logits.argmax(dim=1)
    assert found.sensitivity == pytest.approx(float((answers[labels == 1] == 1).double().mean()))
    assert found.specificity == pytest.approx(float((answers[labels == 0] == 0).double().mean()))
    perfect = class_scores(torch.eye(5).repeat(3, 1) * 9, torch.arange(5).repeat(3))
    assert (perfect.accuracy, perfect.auroc, perfect.sensitivity, perfect.specificity) == (1.0, 1.0, 1.0, 1.0)
    alone = class_scores(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
    assert (alone.auroc, alone.sensitivity) == (None, None)


TRAIN = ["train", "--data", "fashion-sample", "--limit", "80", "--image-size", "8", "--epochs", "1"]


def test_a_file_of_settings_and_options_that_win_over_it(nets: str, tmp_path: Path) -> None:
    settings = {
        "data": {"spec": "fashion-sample", "limit": 80, "image_size": 12},
        "model": nets,
        "model_args": {"width": 6},
        "epochs": 9,
        "batch_size": 20,
        "perturbation": {"name": "additive", "gamma": 0.2},
        "normalization": "mnist",
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    arguments = ["train", "--config", str(tmp_path / "run.yaml"), "--epochs", "1", "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    found = json.loads(result.stdout)
    kept = open_run(found["run"]).config
    assert (kept.epochs, kept.batch_size, kept.model_args, kept.mean) == (1, 20, {"width": 6}, 0.1307)
    assert kept.data.part == "all"
    assert found["records"] == 80
    assert 0 <= found["auroc"] <= 1
    # The config.json of a run is such a file too.
    again = ["train", "--config", f"{found['run']}/config.json", "--out", found["run"], "--json"]
    assert json.loads(CliRunner().invoke(app, again).stdout) == found


def test_the_command_prints_what_it_trained_on_and_how_to_audit_it(tmp_path: Path) -> None:
    everything = CliRunner().invoke(app, [*TRAIN, "--out", str(tmp_path / "all")])
    assert everything.exit_code == 0, everything.output
    text = " ".join(everything.stdout.split())
    assert "Trained on all 80 training images; 80 others were held out for the test." in text
    assert "resperturb audit" in text
    assert "models like it on halves" in text
    quarter = CliRunner().invoke(app, [*TRAIN, "--part", "target_train", "--out", str(tmp_path / "part")])
    assert "Trained on 20 of the training images (target train)" in " ".join(quarter.stdout.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model-args", "width"], "pairs are separated by commas"),
        (["--model-args", "width=3"], "takes no arguments"),
        (["--model", "wide-resnet28"], "unknown network 'wide-resnet28'"),
        (["--class-weights", "heavy"], "class_weights is balanced, or one weight per class"),
        (["--config", "none.yaml"], "cannot read none.yaml"),
        (["--weights", "pretrained"], "no pretrained weights of resnet8"),
        (["--strategy", "additive"], "needs --gamma"),
        (["--strategy", "loud"], "loud"),
        (["--floor", "1"], "does not go with the strategy 'none'"),
    ],
)
def test_the_command_refuses_with_a_reason(tmp_path: Path, flags: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*TRAIN, *flags, "--runs", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_help_is_in_groups() -> None:
    shown = CliRunner().invoke(app, ["train", "--help"]).stdout
    for panel in ("Data", "Network", "Residual perturbation", "Method: DP head, DP-SGD", "Training", "Run"):
        assert f"─ {panel} ─" in shown


def test_without_images_there_is_nothing_to_train_on() -> None:
    result = CliRunner().invoke(app, ["train"])
    assert isinstance(result.exception, UsageError)
    assert "--data FOLDER" in str(result.exception)
