"""Signals are what the definitions say, are kept by content, and draws are combined as the views say."""

from pathlib import Path

import numpy as np
import pytest
import torch

from resperturb.attacks.signals import Query, Signals, View, ask, logit_of_log, signals_of
from resperturb.audits.ask import collect
from resperturb.audits.candidates import candidates
from resperturb.errors import ResperturbError, UsageError
from resperturb.perturbation.perturb import noise_off
from resperturb.training.loop import train
from resperturb.training.predict import predict
from resperturb.training.run import Run
from tests.conftest import passed_off_as, tiny_config

LOGITS = torch.randn(4, 20, 5, generator=torch.Generator().manual_seed(0)) * 3
LABELS = torch.arange(20) % 5


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    noise = {"name": "additive", "gamma": 0.5}
    config = tiny_config(model="en2-resnet8", epochs=1, perturbation=noise, data={"limit": 80})
    return train(config, runs=tmp_path_factory.mktemp("noisy"))


def all_signals() -> Signals:
    return signals_of(LOGITS, LABELS, averages=(1, 4))


def probabilities(logits: torch.Tensor) -> np.ndarray:
    return logits.double().softmax(dim=-1).numpy()


def test_the_confidence_is_the_logit_of_the_label_s_probability() -> None:
    p = probabilities(LOGITS)[:, np.arange(20), LABELS.numpy()]
    assert np.allclose(all_signals().confidence, np.log(p / (1 - p)).T, atol=1e-4)


def test_thresholds_are_those_of_their_papers() -> None:
    found = all_signals()
    p = probabilities(LOGITS.mean(dim=0))
    own = p[np.arange(20), LABELS.numpy()]
    others = np.delete(p.reshape(-1), np.arange(20) * 5 + LABELS.numpy()).reshape(20, 4)
    modified = -(1 - own) * np.log(own) - (others * np.log(1 - others)).sum(axis=1)
    assert np.allclose(found.average("entropy", 4), -(p * np.log(p)).sum(axis=1), atol=1e-4)
    assert np.allclose(found.average("highest", 4), np.log(p.max(axis=1)), atol=1e-4)
    assert np.allclose(found.average("modified_entropy", 4), modified, atol=1e-4)


def test_draws_are_combined_as_the_views_say() -> None:
    found = all_signals()
    draws = found.confidence.astype(float)
    mean_log = np.log(1 / (1 + np.exp(-draws))).mean(axis=1)
    votes = (LOGITS.argmax(dim=2) == LABELS).sum(dim=0).numpy()
    averaged = probabilities(LOGITS.mean(dim=0))[np.arange(20), LABELS.numpy()]

    def statistic(combination: str) -> np.ndarray:
        return found.statistic(View("noise on", 4, combination))  # type: ignore[arg-type]

    assert np.allclose(statistic("mean logit")[:, 0], np.log(averaged / (1 - averaged)), atol=1e-4)
    assert np.allclose(statistic("mean log-probability")[:, 0], logit_of_log(mean_log), atol=1e-4)
    assert np.allclose(statistic("spread"), np.stack([draws.mean(1), np.log(draws.var(1, ddof=1))], 1), atol=1e-4)
    assert np.allclose(statistic("votes")[:, 0], np.log((votes + 0.5) / (4.5 - votes)))
    with pytest.raises(UsageError, match="at least two"):
        found.statistic(View("noise on", 1, "spread"))
    with pytest.raises(UsageError, match="not over 2"):
        found.statistic(View("noise on", 2))


def test_enormous_confidence_is_finite_and_still_told_apart() -> None:
    logits = torch.tensor([[0.0, 200.0], [0.0, 300.0]])
    found = signals_of([logits], torch.tensor([1, 1]))
    assert found.confidence[:, 0].tolist() == [200.0, 300.0]
    assert np.isfinite(found.modified_entropy).all()


def test_answers_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(ResperturbError, match="not finite"):
        signals_of([torch.tensor([[0.0, float("nan")]])], torch.tensor([0]))


def test_any_function_that_returns_probabilities_can_be_asked() -> None:
    rng = np.random.default_rng(0)

    def noisy_predict(batch: torch.Tensor) -> np.ndarray:
        return rng.dirichlet(np.ones(5), len(batch))

    images = torch.zeros(20, 1, 4, 4, dtype=torch.uint8)
    found = signals_of(ask(noisy_predict, images, draws=3, batch_size=7), LABELS, averages=(1, 3))
    assert found.confidence.shape == (20, 3)
    assert np.isfinite(found.confidence).all()
    certain = signals_of(ask(lambda batch: np.eye(5)[: len(batch)], images[:5], draws=1), LABELS[:5])
    assert np.isfinite(certain.confidence).all()
    with pytest.raises(UsageError, match="row of probabilities"):
        list(ask(lambda batch: np.full((1, 5), 0.2), images, draws=1))


def test_a_run_is_asked_with_its_noise_without_it_and_network_by_network(noisy: Run) -> None:
    asked = candidates(noisy.config.data, outsiders=5)
    on = collect(noisy, asked, Query("noise on", (1, 3)))
    assert on.confidence.shape == (len(asked.images), 3)
    assert (on.confidence.std(axis=1) > 0).all()
    off = collect(noisy, asked, Query("noise off"))
    model = noisy.load_model()
    with noise_off(model):
        logits = predict(model, asked.images.images, mean=noisy.config.mean, std=noisy.config.std)
    assert np.allclose(off.confidence, signals_of([logits], asked.images.labels).confidence, atol=1e-4)
    apart = collect(noisy, asked, Query("networks apart", (2,)))
    assert np.allclose(apart.average("mean_confidence", 2), off.average("mean_confidence", 1), atol=1e-4)
    assert not np.allclose(apart.confidence[:, 0], apart.confidence[:, 1])


def test_signals_are_kept_and_belong_to_model_rows_and_query(noisy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = candidates(noisy.config.data, outsiders=5)
    first = collect(noisy, asked, Query("noise on", (2,)))
    with monkeypatch.context() as without_model:
        without_model.setattr(Run, "load_model", lambda run: pytest.fail("it was asked before"))
        again = collect(noisy, asked, Query("noise on", (2,)))
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in Signals.__annotations__)
    files = set((noisy.path / "signals").iterdir())
    collect(noisy, candidates(noisy.config.data, outsiders=6), Query("noise on", (2,)))
    collect(noisy, asked, Query("noise on", (1, 2)))
    assert len(set((noisy.path / "signals").iterdir()) - files) == 2


def test_damaged_signals_are_asked_for_again(noisy: Run) -> None:
    asked = candidates(noisy.config.data, outsiders=3)
    first = collect(noisy, asked, Query("noise off"))
    for file in (noisy.path / "signals").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    assert np.array_equal(first.confidence, collect(noisy, asked, Query("noise off")).confidence)


def test_two_runs_do_not_share_their_noise(noisy: Run, tmp_path: Path) -> None:
    # The same weights under another name: what is equal in their answers could only be the noise.
    other = passed_off_as(noisy, noisy.config.model_copy(update={"seed": 1}), tmp_path)
    asked = candidates(noisy.config.data, outsiders=0)
    one, two = (np.diff(collect(run, asked, Query("noise on", (2,))).confidence)[:, 0] for run in (noisy, other))
    # Forty independent pairs: a correlation of 0.6 is four standard errors away.
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.6


def test_what_is_no_ensemble_has_no_networks(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=1, data={"limit": 40}), runs=tmp_path)
    with pytest.raises(UsageError, match="not an ensemble"):
        collect(run, candidates(run.config.data, outsiders=0), Query("networks apart", (2,)))
