"""Leave-one-out audits: calibrated without signal, right with it, the same from files as from memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

import resperturb as rp
from resperturb.auditing import audit_predictions, audit_trainee, leave_one_out, open_scores, read_audit
from resperturb.auditing.assess import Settings
from resperturb.auditing.candidates import candidates_of
from resperturb.auditing.function import Function
from resperturb.bounds import AuditResult
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee, nothing_proven
from tests.auditing.examples import answers, training

ROWS = 240


def pairs_of_coins(rng: np.random.Generator, models: int, groups: np.ndarray | None = None) -> np.ndarray:
    coins = rng.random((models // 2, ROWS if groups is None else groups.max() + 1)) < 0.5
    coins = coins if groups is None else coins[:, groups]
    return np.stack([coins, ~coins], axis=1).reshape(models, ROWS)


def audited(seed: int, leak: float, models: int = 10, groups: np.ndarray | None = None) -> AuditResult:
    rng = np.random.default_rng(seed)
    members, labels = pairs_of_coins(rng, models, groups), rng.integers(0, 2, ROWS)
    held = np.isin(np.arange(ROWS), np.arange(24)) if groups is None else groups < 2
    members[:, held] = False
    p = answers(members, labels, leak, rng)
    return audit_predictions(p, members, labels, groups=groups, leave_one_out=True)


@pytest.mark.parametrize("grouped", [False, True])
def test_without_signal_it_shows_nothing_more_often_than_stated(grouped: bool) -> None:
    trials, groups = 40, np.arange(ROWS) // 8 if grouped else None
    found = [audited(seed, 0.0, groups=groups) for seed in range(trials)]
    leaks = sum(one.leaks for one in found)
    claims = sum(one.epsilon_lower.epsilon > 0 for one in found)
    assert binomtest(leaks, trials, 0.05, alternative="greater").pvalue > 1e-3
    assert binomtest(claims, trials, 0.05, alternative="greater").pvalue > 1e-3
    areas = np.array([next(attack.auc for attack in one.attacks if attack.name == "bavaria") for one in found])
    assert abs(areas.mean() - 0.5) < 4 * areas.std() / np.sqrt(trials)


@pytest.mark.parametrize(
    ("models", "paired", "understated"), [(8, False, True), (12, False, False), (8, True, False)]
)
def test_few_models_on_independent_coins_are_said_to_understate_the_attack(
    models: int, paired: bool, understated: bool
) -> None:
    rng = np.random.default_rng(0)
    members = pairs_of_coins(rng, models) if paired else rng.random((models, ROWS)) < 0.5
    labels = rng.integers(0, 2, ROWS)
    found = audit_predictions(answers(members, labels, 0.5, rng), members, labels, leave_one_out=True)
    assert any("are understated; use 16 models" in caveat for caveat in found.caveats) == understated


def test_it_finds_a_leak_and_counts_targets_as_the_unit() -> None:
    found = audited(0, leak=1.5)
    assert found.leaks
    assert found.targets == 10
    strongest = found.strongest
    assert strongest.metrics["record"].targets == 10
    each = strongest.per_target["record"]
    assert len(each) == 10
    assert strongest.auc == pytest.approx(np.mean([one.auc for one in each]))
    assert "10 targets" in found.epsilon_lower.correction
    assert "mean over 10 targets" in found.sentence


def test_the_same_models_give_the_same_audit_as_a_training_and_as_predictions(tmp_path: Path) -> None:
    labels = np.random.default_rng(1).integers(0, 2, ROWS)
    kept = []

    def train(indices: np.ndarray, seed: int) -> object:
        kept.append((indices, training(labels, 1.0)(indices, seed)))
        return kept[-1][1]

    found = rp.audit(train, labels=labels, models=6, out=tmp_path / "audit", jobs=1, quiet=True)
    assert len(kept) == 6  # no training is spent on a target alone
    members = np.array([np.isin(np.arange(ROWS), indices) for indices, _ in kept])
    p = np.array([predict(np.arange(ROWS)) for _, predict in kept])
    again = audit_predictions(p, members, labels, leave_one_out=True)
    assert [(one.full_name, round(one.auc, 6)) for one in again.attacks] == [
        (one.full_name, round(one.auc, 6)) for one in found.attacks
    ]
    assert read_audit(tmp_path / "audit") == found
    scores = open_scores(tmp_path / "audit")
    assert scores.members.shape == (6, ROWS - found.population)
    for attack in found.fixed:
        assert scores.attacks[attack.key].shape == scores.members.shape
    more = rp.audit(train, labels=labels, models=8, out=tmp_path / "audit", jobs=1, quiet=True)
    assert (len(kept), more.targets) == (8, 8)
    assert more.report(tmp_path / "report.html").stat().st_size > 1000


def test_enough_models_name_the_exposed_records_to_their_owner() -> None:
    rng = np.random.default_rng(0)
    members, labels = pairs_of_coins(rng, 64), rng.integers(0, 2, ROWS)
    exposed = np.isin(np.arange(ROWS), [5, 50])
    p = answers(members * np.where(exposed, 4.0, 0.0) > 0, labels, 4.0, rng)
    found = audit_predictions(p, members, labels, leave_one_out=True)
    assert found.named is not None
    assert sorted(found.named.records) == [5, 50]
    few = audited(0, 0.0)
    assert few.named is not None
    assert "10 models are too few" in few.named.words


def test_a_balanced_assignment_is_corrected_and_bounds_nothing() -> None:
    areas = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        members = np.argsort(rng.random((10, ROWS)), axis=0) < 5
        labels = rng.integers(0, 2, ROWS)
        p = answers(members, labels, 0.0, rng)
        found = audit_predictions(p[0], members[0], labels, p[1:], members[1:])
        assert found.epsilon_lower.epsilon == 0
        assert "exactly half of all models" in found.epsilon_lower.words
        assert any("rmia-online" in caveat for caveat in found.caveats)
        areas.append(next(one.auc for one in found.attacks if one.name == "lira-online-global"))
    # Uncorrected these audits have a mean AUC of 0.46.
    assert abs(np.mean(areas) - 0.5) < 0.025


def test_shadows_and_models_are_two_designs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        rp.audit(training(np.zeros(20, int), 0), labels=np.arange(20) % 2, shadows=4, models=6, out=tmp_path / "a")


class Counted(Function):
    """A training whose epsilon is larger for an even number of rows."""

    def guarantee(self, delta: float, records: int) -> Guarantee:
        return replace(nothing_proven("as counted", delta), epsilon=3.0 if records % 2 else 4.0, records=records)


def test_a_guarantee_of_several_models_is_that_of_the_weakest() -> None:
    """One row more may be one step of DP-SGD more, so the model with the fewest rows need not have it."""
    labels = np.random.default_rng(1).integers(0, 2, ROWS)
    for seed in range(4):
        candidates = candidates_of(labels, seed=seed)
        design = leave_one_out(candidates.units, 6, seed)
        trainee = Counted(training(labels, 1.0), 2)
        found = audit_trainee(trainee, candidates, design, Settings(), out=None, quiet=True)
        counts = design.members.sum(axis=1)
        assert found.guarantee.epsilon == (3.0 if (counts % 2).all() else 4.0)
