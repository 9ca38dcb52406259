"""Runs are asked in every way; answers are kept by content, and damaged ones are asked for again."""

from pathlib import Path

import numpy as np
import pytest

from resperturb.attacks.signals import Query, Signals, signals_of
from resperturb.audits.answers import read_answers, save_answers
from resperturb.audits.ask import answers_of
from resperturb.audits.candidates import CandidateImages, candidate_images
from resperturb.errors import ResperturbError
from resperturb.perturbation import noise_off
from resperturb.sealed import write_bound_arrays
from resperturb.training.loop import train
from resperturb.training.predict import predict
from resperturb.training.run import Run
from tests.conftest import passed_off_as, tiny_config


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    noise = {"name": "additive", "gamma": 0.5}
    config = tiny_config(model="en2-resnet8", epochs=1, perturbation=noise, data={"limit": 80})
    return train(config, runs=tmp_path_factory.mktemp("noisy"))


def one(run: Run, queried: CandidateImages, query: Query) -> Signals:
    return answers_of(run, queried, [query])[query.access]


def test_a_run_is_asked_with_its_noise_without_it_and_network_by_network(noisy: Run) -> None:
    queried = candidate_images(noisy.config.data, population=5)
    on = one(noisy, queried, Query("served", (1, 3)))
    assert on.confidence.shape == (len(queried.images), 3)
    assert (on.confidence.std(axis=1) > 0).all()
    off = one(noisy, queried, Query("weights"))
    model = noisy.load_model()
    with noise_off(model):
        logits = predict(model, queried.images.images, mean=noisy.config.mean, std=noisy.config.std)
    assert np.allclose(off.confidence, signals_of([logits], queried.images.labels.numpy()).confidence, atol=1e-4)
    apart = one(noisy, queried, Query("networks", (2,)))
    assert np.allclose(apart.average("mean_confidence", 2), off.average("mean_confidence", 1), atol=1e-4)
    assert not np.allclose(apart.confidence[:, 0], apart.confidence[:, 1])


def test_signals_are_kept_and_belong_to_model_rows_and_query(noisy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    queried = candidate_images(noisy.config.data, population=5)
    first = one(noisy, queried, Query("served", (2,)))
    with monkeypatch.context() as without_model:
        without_model.setattr(Run, "load_model", lambda run: pytest.fail("it was asked before"))
        again = one(noisy, queried, Query("served", (2,)))
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in Signals.__annotations__)
    files = set((noisy.path / "signals").iterdir())
    one(noisy, candidate_images(noisy.config.data, population=6), Query("served", (2,)))
    one(noisy, queried, Query("served", (1, 2)))
    assert len(set((noisy.path / "signals").iterdir()) - files) == 2


def test_signals_that_are_not_to_be_believed_are_asked_for_again(
    noisy: Run, caplog: pytest.LogCaptureFixture
) -> None:
    queried = candidate_images(noisy.config.data, population=3)
    first = one(noisy, queried, Query("weights"))
    before = set((noisy.path / "signals").iterdir())
    one(noisy, candidate_images(noisy.config.data, population=4), Query("weights"))
    [another] = set((noisy.path / "signals").iterdir()) - before
    for content in (lambda file: file.read_bytes()[:50], lambda file: another.read_bytes(), zeroed):
        for file in before:
            file.write_bytes(content(file))
        caplog.clear()
        assert np.array_equal(first.confidence, one(noisy, queried, Query("weights")).confidence)
        assert any(f"{file.name} " in caplog.text for file in before)
        assert "the model is asked again" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"averages": np.array([], dtype=np.int64)},
        {"averages": np.array([99])},
        {"labels": np.zeros(3)},
        {"confidence": np.full((3, 1), np.nan)},
        {"confidence": np.zeros((2, 1))},
        {"entropy": np.zeros((3, 2))},
        {"entropy": np.array([["a"]] * 3)},
        {"correct": np.zeros((3, 1))},
        {"more": np.zeros(3)},
    ],
)
def test_arrays_that_no_model_can_have_answered_are_refused(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    signals = signals_of([np.zeros((3, 2))], np.array([0, 1, 1]))
    save_answers(tmp_path / "answers.npz", {"weights": signals}, {})
    assert read_answers(tmp_path / "answers.npz", 3, {})["weights"].averages == (1,)
    arrays = {f"weights/{name}": np.asarray(value) for name, value in {**vars(signals), **change}.items()}
    write_bound_arrays(tmp_path / "answers.npz", arrays, {})
    with pytest.raises(ResperturbError, match=r"answers\.npz does not hold the answers of a model"):
        read_answers(tmp_path / "answers.npz", 3, {})


def test_answers_to_no_known_question_are_refused(tmp_path: Path) -> None:
    for arrays in ({}, {"noise/labels": np.zeros(3)}):
        write_bound_arrays(tmp_path / "answers.npz", arrays, {})
        with pytest.raises(ResperturbError, match="does not hold the answers of a model"):
            read_answers(tmp_path / "answers.npz", 3, {})


def zeroed(file: Path) -> bytes:
    with np.load(file) as arrays:
        content = {name: arrays[name] if name == "binding" else np.zeros_like(arrays[name]) for name in arrays}
    np.savez(file, **content)
    return file.read_bytes()


def test_two_runs_do_not_share_their_noise(noisy: Run, tmp_path: Path) -> None:
    # The same weights under another name: what is equal in their answers could only be the noise.
    other = passed_off_as(noisy, noisy.config.model_copy(update={"seed": 1}), tmp_path)
    queried = candidate_images(noisy.config.data, population=0)
    first, second = (np.diff(one(run, queried, Query("served", (2,))).confidence)[:, 0] for run in (noisy, other))
    # Forty independent pairs: a correlation of 0.6 is four standard errors away.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.6
