"""Other people's trainers and checkpoints take a perturbed model as it is."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise.source import NoiseSource

transformers = pytest.importorskip("transformers")

STRATEGY = rp.Additive(gamma=0.1, clip_radius=1e6)


def vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
        num_labels=2,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def count_draws(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    draws: list[bool] = []
    normal = NoiseSource.normal
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    monkeypatch.setattr(
        NoiseSource, "normal", lambda self, like, training: draws.append(training) or normal(self, like, training)
    )
    return draws


def test_the_trainer_of_transformers_trains_it_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    draws = count_draws(monkeypatch)
    model = rp.perturb(vit(), STRATEGY)
    before = weights(model)
    torch.manual_seed(0)
    data = [{"pixel_values": torch.randn(3, 16, 16), "labels": i % 2} for i in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=8,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=0.01,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    assert torch.isfinite(weights(model)).all()
    assert not weights(model).equal(before)
    assert draws == [True] * 3 * 4  # the input and two junctions, in each of four steps
    trainer.evaluate()
    assert draws[12:] == [False] * 3
    assert type(trainer.model) is type(vit())


def test_lightning_trains_it_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    draws = count_draws(monkeypatch)

    class Classifier(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = rp.perturb(rp.models.build("resnet8", num_classes=2), STRATEGY)

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            images, labels = batch
            return F.cross_entropy(self.net(images), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(8, 3, 16, 16), torch.arange(8) % 2)
    model = Classifier()
    before = weights(model)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
    assert not weights(model).equal(before)
    assert draws == [True] * 4 * 4  # the input and three junctions, in each of four steps
    assert rp.strategy_of(model) == STRATEGY


def test_the_perturbation_comes_back_after_save_pretrained(tmp_path: Path) -> None:
    bare = vit()
    other = type(bare)(bare.config)
    model = rp.perturb(bare, STRATEGY)
    assert not hasattr(other.config, "resperturb")  # a model from the same config is not said to be perturbed
    model.save_pretrained(tmp_path / "hub")
    rp.save(model, tmp_path / "weights.safetensors")
    kind = transformers.ViTForImageClassification
    x = torch.randn(1, 3, 16, 16)
    for path in (tmp_path / "hub", tmp_path / "weights.safetensors"):
        bare = kind.from_pretrained(tmp_path / "hub").eval()
        assert rp.strategy_of(bare) is None  # transformers knows nothing of noise
        loaded = rp.load(bare, path)
        assert loaded is bare
        assert rp.strategy_of(loaded) == STRATEGY
        assert weights(loaded).equal(weights(model))
        assert not loaded(x).logits.equal(loaded(x).logits)
        with rp.noise_off(loaded), rp.noise_off(model.eval()):
            assert loaded(x).logits.equal(model(x).logits)
    with pytest.raises(UsageError, match="from_pretrained"):
        rp.load(vit(), tmp_path / "hub")


def test_a_model_whose_forward_a_library_kept_is_noisy() -> None:
    """accelerate replaces the forward of an instance by one that calls the bound method it found."""
    accelerate = pytest.importorskip("accelerate")
    model = vit().eval()
    accelerate.hooks.add_hook_to_module(model.vit.layers[0], accelerate.hooks.ModelHook())
    rp.perturb(model, rp.Multiplicative(gamma=0.5))
    x = torch.randn(1, 3, 16, 16)
    assert not model(x).logits.equal(model(x).logits)


def test_a_whole_lightning_module_that_skips_its_own_input_noise_is_refused() -> None:
    """Perturbing the module around the network would put the input noise where nobody calls."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = rp.models.build("resnet8", num_classes=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, x: Tensor) -> Tensor:
            return self.net(x)

    model = rp.perturb(Around(), STRATEGY)
    model(torch.zeros(2, 3, 16, 16))
    with pytest.raises(UsageError, match="called by itself"):
        model.training_step(torch.zeros(2, 3, 16, 16))
