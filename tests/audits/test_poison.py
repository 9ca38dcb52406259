"""An audit by poisoning: one record for all, half of the models have it, and the bound is what it says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from resperturb.audits.poison import PoisonSettings, poison_audit
from resperturb.data import load
from resperturb.data.poison import KINDS, Kind, make_poison
from resperturb.errors import UsageError
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import train
from tests.conftest import tiny_config


@pytest.mark.parametrize("kind", KINDS)
def test_poison_is_put_in_as_often_as_asked_and_only_where_it_is_present(kind: Kind) -> None:
    for present, copies in ((True, 3), (False, 0)):
        data = tiny_config(data={"poison": {"kind": kind, "copies": 3, "present": present}}).data
        inputs = load_inputs(data)
        poison = inputs.poison(data.part)
        members = inputs.members(data.part)
        same = (members.images == poison.images).flatten(1).all(dim=1)
        assert int(same.sum()) == copies
        assert len(members) == 60 + copies
        assert set(members.labels[same].tolist()) <= {int(poison.labels[0])}


def test_clipbkd_lies_where_the_data_does_not() -> None:
    images = load("fashion-sample", split="train", limit=1500)
    rows = images.images.flatten(1).double() - 127.5
    poison = make_poison(images, "clipbkd").images.flatten().double() - 127.5
    along = (rows @ (poison / poison.norm())).square().mean().sqrt()
    others = [(rows @ (row / row.norm())).square().mean().sqrt() for row in rows[:20]]
    assert along < 0.1 * torch.stack(others).median()
    # And it is no weaker than other images, as far as bytes allow.
    assert poison.norm() > 0.5 * rows.norm(dim=1).mean()


def test_a_large_image_has_its_poison_in_the_middle() -> None:
    torch.manual_seed(0)
    images = load("fashion-sample", split="train", limit=50, image_size=48)
    poison = make_poison(images, "clipbkd").images[0, 0]
    assert (poison[:8] == 128).all()
    assert poison[8:40, 8:40].float().std() > 10


def test_runs_without_poison_keep_their_names() -> None:
    assert tiny_config().digest == "4b169e31f0d03ce2"
    poisoned = [tiny_config(data={"poison": {"kind": "clipbkd", "present": p}}).digest for p in (True, False)]
    assert len({tiny_config().digest, *poisoned}) == 3


def test_a_model_that_memorises_shows_its_poison(tmp_path: Path) -> None:
    run = train(tiny_config(epochs=12, data={"limit": 160}), runs=tmp_path)
    found = poison_audit(run, PoisonSettings("clipbkd", copies=4, trials=3, jobs=1))
    assert found.noticed_with == 3
    assert found.noticed_without == 0
    # Three models on each side bound nothing yet, however well they are told apart.
    assert found.epsilon_lower.epsilon == found.most_that_could_be_shown == 0
    assert found.verdict == "nothing proven"
    assert json.loads((run.path / "poison.json").read_text())["scores_with"] == list(found.scores_with)
    assert len(list(tmp_path.glob(".shadows/*/result.json"))) == 6
    with pytest.raises(UsageError, match="is itself"):
        poison_audit(type(run)(run.path, run.config.model_copy(update={"data": poisoned_data(run)})))


def poisoned_data(run):  # type: ignore[no-untyped-def]
    from resperturb.training.config import PoisonConfig

    return run.config.data.model_copy(update={"poison": PoisonConfig(kind="clipbkd", present=True)})


@pytest.mark.parametrize("copies", [1, 4])
def test_the_bound_is_below_the_truth_for_a_mechanism_that_is_known(copies: int) -> None:
    """Scores of a Gaussian mechanism that k copies shift by k: refuted must be less than the true epsilon."""
    from resperturb.audits.poison import THRESHOLD
    from resperturb.bounds.rates import jagielski
    from resperturb.bounds.thresholds import Given
    from resperturb.privacy.gaussian import epsilon_for_delta

    rng = np.random.default_rng(0)
    truth = epsilon_for_delta(1e-5, 1.0)
    too_high = 0
    for _ in range(200):
        poisoned, clean = rng.normal(copies / 2, 1, 200), rng.normal(-copies / 2, 1, 200)
        bound = jagielski(poisoned, clean, copies=copies, delta=1e-5, thresholds=Given(THRESHOLD))
        too_high += bound.epsilon > truth
    assert too_high <= 10
