"""A worst-case audit does not refute a true claim of DP-SGD, comes close to it, and refutes every broken one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.auditing.worst_case import WorstCase, crafted_canary, crafted_weights, worst_case_audit
from resperturb.errors import UsageError
from resperturb.privacy.dpsgd import dpsgd_guarantee
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.length import training_length
from resperturb.training.predict import normalize
from resperturb.training.worst_case import DpsgdTrainer, perceptron

RECORDS, FEATURES, STEPS, NOISE, DELTA = 20, 8, 4, 2.0, 1e-5
# Full batches compose to one Gaussian mechanism.
PROVEN = epsilon_for_delta(DELTA, math.sqrt(STEPS) / NOISE)
SETTINGS: dict[str, Any] = {"trials": 50, "pilots": 3, "delta": DELTA, "jobs": 1}


def network(norm: bool = False) -> nn.Module:
    middle = [nn.BatchNorm1d(8, affine=False)] if norm else []
    return nn.Sequential(nn.Linear(FEATURES, 8), *middle, nn.ReLU(), nn.Linear(8, 2))


def gradients_of_records(model: nn.Module, images: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradient of each record's loss for every weight: [records, ...], by the chain rule at linear layers."""
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]  # type: ignore[attr-defined]
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out))) for layer in layers]
    loss = F.cross_entropy(model(images), labels, reduction="sum")
    for hook in hooks:
        hook.remove()
    found = []
    for (given, _), slope in zip(seen, torch.autograd.grad(loss, [out for _, out in seen]), strict=True):
        found += [torch.einsum("no,ni->noi", slope, given.detach()), slope]
    return found


@dataclass(frozen=True)
class Dpsgd:
    """DP-SGD in thirty lines, and ways to break it."""

    clips: bool = True
    fresh_noise: bool = True
    counted: int = RECORDS
    keeps_batchnorm: bool = False
    clip: float = 1.0
    lr: float = 0.05

    def __call__(
        self, initial: Mapping[str, Tensor], images: Tensor, labels: Tensor, number: int
    ) -> Callable[[Tensor], Tensor]:
        model = network(self.keeps_batchnorm)
        model.load_state_dict(dict(initial))
        model.train()
        generator = torch.Generator().manual_seed(1000 + number if self.fresh_noise else 0)
        for _ in range(STEPS):
            found = gradients_of_records(model, images, labels)
            norms = torch.stack([g.flatten(1).square().sum(dim=1) for g in found]).sum(dim=0).sqrt()
            shares = (self.clip / norms.clamp_min(1e-12)).clamp_max(1.0) if self.clips else torch.ones_like(norms)
            with torch.no_grad():
                for weight, each in zip(model.parameters(), found, strict=True):
                    noise = NOISE * self.clip * torch.randn(weight.shape, generator=generator)
                    total = torch.einsum("n,n...->...", shares, each)
                    weight -= self.lr * (total / RECORDS + noise / self.counted)
        model.eval()
        return model


def audit(train: Dpsgd, claimed: float = PROVEN, big: float = 1.0, **settings: Any) -> WorstCase:
    torch.manual_seed(0)
    labels = torch.arange(RECORDS) % 2
    images = torch.randn(RECORDS, FEATURES) * 0.3 + (2.0 * labels[:, None] - 1)
    model = network(train.keeps_batchnorm)
    initial = crafted_weights(model, images, labels)
    model.eval()
    image, label = crafted_canary(model, images)
    return worst_case_audit(train, initial, images, labels, (big * image, label), claimed, **SETTINGS | settings)


def test_a_true_claim_is_not_refuted_and_nearly_reached() -> None:
    found = audit(Dpsgd())
    assert found.verdict != "refuted"
    assert found.words.startswith("not refuted")
    assert 0.4 * PROVEN < found.bound.epsilon <= PROVEN
    assert len(found.scores_with) == len(found.scores_without) == SETTINGS["trials"]


@pytest.mark.parametrize(
    ("train", "big"),
    [
        (Dpsgd(clips=False), 20.0),
        (Dpsgd(fresh_noise=False), 1.0),
        (Dpsgd(counted=10 * RECORDS), 1.0),
        (Dpsgd(keeps_batchnorm=True), 100.0),
    ],
    ids=["no clipping", "the same noise in every training", "batch counted ten times too large", "BatchNorm kept"],
)
def test_a_broken_training_is_refuted(train: Dpsgd, big: float) -> None:
    found = audit(train, big=big)
    assert found.verdict == "refuted"
    assert "0.05 of audits at most" in found.words


def test_a_claim_for_sampled_batches_is_refuted_if_every_batch_is_full() -> None:
    # The accountant assumes that a batch holds one record in ten; the curve of such a claim is not Gaussian.
    claim = dpsgd_guarantee(
        noise_multiplier=NOISE,
        length=training_length(steps=STEPS, batch_size=RECORDS // 10, records=RECORDS),
        delta=DELTA,
    )
    found = audit(Dpsgd(), claimed=claim.epsilon, curve="any")
    assert found.verdict == "refuted"
    assert not any("Gaussian" in line for line in found.bound.assumptions)
    assert found.bound.epsilon <= PROVEN


def test_true_claims_are_refuted_no_more_often_than_stated() -> None:
    # The score of the audit is Gaussian to first order; what is random is the noise alone.
    from resperturb.bounds import gdp

    rng, mu = np.random.default_rng(0), math.sqrt(STEPS) / NOISE
    refuted = sum(gdp(rng.normal(mu, 1, 60), rng.normal(0, 1, 60), delta=DELTA).epsilon > PROVEN for _ in range(200))
    assert refuted <= 20  # 5% and three standard errors


def test_this_packages_own_dpsgd_is_not_refuted_and_shows_a_leak() -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 255, (20, 1, 28, 28), dtype=torch.uint8)
    labels = torch.arange(20) % 10
    train = DpsgdTrainer(records=20, steps=3, noise_multiplier=0.5, lr=0.02)
    claim = dpsgd_guarantee(
        noise_multiplier=0.5, length=training_length(steps=3, batch_size=20, records=20), delta=DELTA
    )
    model = perceptron(10)
    initial = crafted_weights(model, normalize(images, 0.5, 0.25), labels)
    canary = crafted_canary(lambda batch: model(normalize(batch, 0.5, 0.25)), images)
    found = worst_case_audit(train, initial, images, labels, canary, claim.epsilon, trials=12, pilots=2, jobs=1)
    assert 1 < found.bound.epsilon <= claim.epsilon


def test_the_crafted_network_has_no_gradient_from_other_records() -> None:
    torch.manual_seed(0)
    labels = torch.arange(RECORDS) % 2
    images = torch.randn(RECORDS, FEATURES) * 0.3 + (2.0 * labels[:, None] - 1)
    model = network()
    crafted_weights(model, images, labels)
    image, label = crafted_canary(model, images)
    others = torch.stack([g.flatten(1).norm(dim=1) for g in gradients_of_records(model, images, labels)]).norm(dim=0)
    own = [g.norm() for g in gradients_of_records(model, image[None], torch.tensor([label]))]
    assert others.max() < 0.02
    assert torch.stack(own).norm() > 1  # so that it is clipped


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="trials and pilots"):
        audit(Dpsgd(), trials=0)
