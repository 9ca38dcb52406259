"""Losses of published defences equal their formulas, evaluated record by record in numpy."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor

from resperturb.errors import UsageError
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.loop import train
from resperturb.training.loss import LOSSES, Loss, loss_of, register_loss
from resperturb.training.losses.hamp import Hamp
from resperturb.training.losses.relaxloss import RelaxLoss
from resperturb.training.run import open_run
from tests.conftest import tiny_config

LOGITS = torch.tensor(np.random.default_rng(0).normal(0, 2, (64, 5)), dtype=torch.float64)
LABELS = torch.tensor(np.random.default_rng(1).integers(0, 5, 64))


def relaxloss(logits: np.ndarray, labels: np.ndarray, alpha: float, epoch: int) -> float:
    log_p = log_softmax(logits, axis=1)
    cross = [-log_p[i, y] for i, y in enumerate(labels)]
    level = float(np.mean(cross))
    if epoch % 2 == 0:
        return abs(level - alpha)
    if level > alpha:
        return level
    total = 0.0
    for i, y in enumerate(labels):
        own = np.exp(log_p[i, y])
        flat = [own if c == y else (1 - own) / (len(log_p[i]) - 1) for c in range(len(log_p[i]))]
        correct = int(np.argmax(logits[i]) == y)
        total += (1 - correct) * -float(np.dot(flat, log_p[i])) - cross[i]
    return total / len(labels)


def hamp(logits: np.ndarray, labels: np.ndarray, gamma: float, alpha: float) -> float:
    count, classes = logits.shape
    log_p = log_softmax(logits, axis=1)
    total, entropy = 0.0, 0.0
    for i, y in enumerate(labels):
        soft = np.eye(classes)[y]
        while -(soft[soft > 0] * np.log(soft[soft > 0])).sum() < gamma * np.log(classes):
            own = soft[y] - 0.01
            soft = np.full(classes, (1 - own) / (classes - 1))
            soft[y] = own
        total += float((soft * (np.log(soft) - log_p[i])).sum())
        entropy -= float((np.exp(log_p[i]) * log_p[i]).sum())
    return total / (count * classes) - alpha * entropy / count


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("alpha", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("detach", [False, True])
def test_relaxloss_is_its_formula(alpha: float, epoch: int, detach: bool) -> None:
    found = RelaxLoss(alpha=alpha, detach=detach).of_batch(LOGITS, LABELS, epoch)
    assert float(found) == pytest.approx(relaxloss(LOGITS.numpy(), LABELS.numpy(), alpha, epoch), abs=1e-5)


def test_the_gradient_passes_through_the_flat_target_unless_it_is_detached() -> None:
    gradients = []
    for detach in (False, True):
        logits = LOGITS.float().requires_grad_()
        RelaxLoss(alpha=8.0, detach=detach).of_batch(logits, LABELS, 1).backward()
        assert logits.grad is not None
        gradients.append(logits.grad)
    assert not torch.allclose(*gradients)
    wrong = LOGITS.argmax(dim=1) != LABELS
    assert torch.allclose(gradients[0][~wrong], gradients[1][~wrong])


@pytest.mark.parametrize(("gamma", "alpha"), [(0.95, 0.001), (0.5, 0.1), (0.8, 0.0)])
def test_hamp_is_its_formula(gamma: float, alpha: float) -> None:
    found = Hamp(gamma=gamma, alpha=alpha).of_batch(LOGITS, LABELS, 0)
    assert float(found) == pytest.approx(hamp(LOGITS.numpy(), LABELS.numpy(), gamma, alpha), abs=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.95, 0.99])
def test_soft_labels_are_the_first_of_enough_entropy(classes: int, gamma: float) -> None:
    own = Hamp(gamma=gamma).label_probability(classes)
    for probability, enough in ((own, True), (own + 0.01, False)):
        soft = np.full(classes, (1 - probability) / (classes - 1))
        soft[0] = probability
        soft = soft[soft > 0]
        assert (-(soft * np.log(soft)).sum() >= gamma * np.log(classes)) == enough


@pytest.fixture
def brier() -> Iterator[type[Loss]]:
    @register_loss("brier-for-test")
    class Brier(Loss):
        """Squared error of the probabilities."""

        weight: float = 1.0

        def of_batch(self, logits: Tensor, labels: Tensor, epoch: int) -> Tensor:
            wanted = torch.nn.functional.one_hot(labels, logits.shape[1])
            return self.weight * ((logits.softmax(dim=1) - wanted) ** 2).sum(dim=1).mean()

    yield Brier
    LOSSES._found.pop("brier-for-test")


def test_a_new_loss_trains_and_is_kept(brier: type[Loss], tmp_path: Path) -> None:
    config = tiny_config(epochs=2, loss="brier-for-test:weight=2.0")
    run = train(config, runs=tmp_path)
    assert open_run(run.path).config.loss == brier(weight=2.0)  # type: ignore[call-arg]
    assert all(entry.loss is not None and 0 < entry.loss < 4 for entry in run.metrics())


def test_relaxloss_keeps_the_training_loss_up(tmp_path: Path) -> None:
    runs = [train(tiny_config(epochs=6, loss=loss), runs=tmp_path) for loss in (None, "relaxloss:alpha=2.0")]
    plain, relaxed = (run.metrics()[-1] for run in runs)
    assert plain.train_accuracy is not None
    assert relaxed.train_accuracy is not None
    assert plain.train_accuracy > relaxed.train_accuracy


def test_a_loss_is_part_of_the_digest_and_its_absence_is_not() -> None:
    def config(**values: object) -> TrainConfig:
        return make_config(data={"spec": "x"}, **values)

    losses = (None, "relaxloss", "relaxloss:alpha=0.5", "hamp")
    assert len({config(loss=loss).digest for loss in losses}) == 4
    assert config(loss="cross-entropy").digest == config().digest
    restored = TrainConfig(**config(loss="hamp:gamma=0.5").model_dump(mode="json"))
    assert restored.loss == Hamp(gamma=0.5)


@pytest.mark.parametrize(
    "values",
    [
        {"loss": "hinge"},
        {"loss": "hamp:gamma=2"},
        {"loss": "relaxloss:beta=2"},
        {"loss": 3},
        {"loss": "hamp", "label_smoothing": 0.1},
        {"loss": "hamp", "class_weights": "balanced"},
        {"loss": "hamp", "method": "dpsgd"},
    ],
)
def test_a_wrong_loss_is_refused_in_a_sentence(values: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        make_config(data={"spec": "x"}, **values)
    assert "\n" not in str(caught.value)


def test_losses_are_named_with_their_parameters() -> None:
    assert [loss_of(text).label for text in ("hamp", "relaxloss:alpha=0.5")] == ["hamp 0.95 0.001", "relaxloss 0.5"]  # type: ignore[union-attr]
