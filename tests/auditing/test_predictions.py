"""Predictions that exist are audited like models that are trained, by few modules and without torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from resperturb.attacks import Evidence, View, register_attack
from resperturb.attacks.registry import ATTACKS
from resperturb.auditing import audit, audit_predictions, read_audit
from resperturb.bounds import AuditResult
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.errors import ResperturbError, UsageError
from tests.auditing.examples import answers, training

ROWS = 120
LABELS = np.random.default_rng(0).integers(0, 2, ROWS)


def test_predictions_that_exist_give_the_same_audit(tmp_path: Path) -> None:
    kept = []

    def train(indices: Ints, seed: int) -> object:
        kept.append((indices, training(LABELS, 1.0)(indices, seed)))
        return kept[-1][1]

    found = audit(train, labels=LABELS, shadows=4, jobs=1, quiet=True, out=tmp_path)
    members = np.array([np.isin(np.arange(ROWS), indices) for indices, _ in kept])
    p = np.array([predict(np.arange(ROWS)) for _, predict in kept])
    again = audit_predictions(p[0], members[0], LABELS, p[1:], members[1:])
    assert again.population == found.population
    assert [(one.full_name, one.auc) for one in again.attacks] == [(one.full_name, one.auc) for one in found.attacks]
    assert again.epsilon_lower == found.epsilon_lower
    with pytest.raises(UsageError, match="give it out="):
        again.report(tmp_path / "report.html")


def test_predictions_are_kept_for_a_report_until_others_replace_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    members = rng.random((5, ROWS)) < 0.5
    p = answers(members, LABELS, 1.0, rng)
    for _ in range(2):
        found = audit_predictions(p[0], members[0], LABELS, p[1:], members[1:], out=tmp_path / "kept")
        assert read_audit(tmp_path / "kept") == found
    assert found.model.name == "kept"
    assert found.strongest.full_name in found.report(tmp_path / "report.html").read_text()
    assert "is replaced" not in caplog.text
    other = audit_predictions(p[1], members[1], LABELS, p[1:], members[1:], out=tmp_path / "kept")
    assert read_audit(tmp_path / "kept") == other
    assert "is replaced" in caplog.text
    with pytest.raises(ResperturbError, match="run the audit again"):
        found.report(tmp_path / "report.html")


def test_predictions_that_do_not_fit_together_are_refused() -> None:
    p, members = np.full((ROWS, 2), 1 / 2), np.random.default_rng(0).random(ROWS) < 0.5
    with pytest.raises(UsageError, match=r"members must have the shape \(120,\)"):
        audit_predictions(p, members[:5], LABELS)
    with pytest.raises(UsageError, match="row numbers are not understood"):
        audit_predictions(p, np.arange(ROWS), LABELS)
    with pytest.raises(UsageError, match="probabilities: predict returned"):
        audit_predictions(p * 9, members, LABELS)
    with pytest.raises(UsageError, match="have members and non-members"):
        audit_predictions(p, members, LABELS, groups=np.arange(ROWS) // 3)
    with pytest.raises(UsageError, match="no row is in two of the shadow models and outside of two"):
        audit_predictions(p, members, LABELS, [p], [members])


@pytest.mark.parametrize("units", ["records", "groups", "canaries in groups"])
def test_null_audits_claim_a_leak_no_more_often_than_stated(units: str) -> None:
    alarms = claims = 0
    trials, rows = 60, 200
    groups = np.arange(rows) // 5
    kinds = np.where(np.arange(rows) % 5 < 2, "odd", "record") if units == "canaries in groups" else None
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        members = np.array([(rng.random(40) < 0.5)[groups] for _ in range(9)])
        if units == "records":
            members = rng.random((9, rows)) < 0.5
        # Rows of one group are answered alike, so a coin for each of them would be taken for many.
        known = 1.5 + 2 * rng.normal(size=(9, 40))[:, groups] + rng.normal(size=(9, rows))
        right = 1 / (1 + np.exp(-known))
        labels = rng.integers(0, 2, rows)
        p = np.where(np.arange(2) == labels[:, None], right[..., None], 1 - right[..., None])
        found = audit_predictions(
            p[0], members[0], labels, p[1:], members[1:], None if units == "records" else groups, kinds=kinds
        )
        alarms += found.leaks
        claims += found.epsilon_lower.epsilon > 0
    assert binomtest(alarms, trials, 0.025, alternative="greater").pvalue > 1e-3
    assert binomtest(claims, trials, 0.05, alternative="greater").pvalue > 1e-3


def of_confidence(right: np.ndarray, members: np.ndarray) -> AuditResult:
    """An audit of a model of two classes by the probability that it gives the label, class 0 for every row."""
    answered = np.stack([right, 1 - right], axis=1)
    return audit_predictions(answered, members, np.zeros(len(right), dtype=int))


def test_random_answers_about_an_uneven_split_bound_nothing() -> None:
    """Whoever guesses the more frequent side is right more often, and coins did not decide it."""
    for size, inside, seed in [(30, 24, 0), (30, 24, 1), (90, 60, 2), (90, 30, 3)]:
        rng = np.random.default_rng(seed)
        labels, right = rng.integers(0, 2, size), rng.uniform(0.2, 0.9, size)
        p = np.where(np.arange(2) == labels[:, None], right[:, None], 1 - right[:, None])
        found = audit_predictions(p, rng.permutation(size) < inside, labels)
        assert found.epsilon_lower.epsilon == 0
        assert f"{inside} of {size} are members, which fair coins hardly give" in " ".join(found.caveats)


def test_a_leak_that_only_the_bound_shows_is_not_called_unseen() -> None:
    """A few rows that are given away leave the AUC where it was, and refute epsilon 0."""
    rng = np.random.default_rng(0)
    members = np.arange(400) % 2 == 0
    right = rng.uniform(0.3, 0.9, 400)
    right[members & (np.arange(400) < 26)] = 0.99
    found = of_confidence(right, members)
    assert not found.leaks
    assert found.epsilon_lower.epsilon > 0
    assert "leaks by the bound on epsilon alone: AUC" in found.sentence


@pytest.mark.parametrize("sides", [(1, 1), (1, 40), (3, 3)])
def test_of_too_few_candidates_nothing_is_said(sides: tuple[int, int]) -> None:
    members = np.arange(sum(sides)) < sides[0]
    found = of_confidence(np.where(members, 0.9, 0.8) - np.arange(sum(sides)) / 1e4, members)
    assert "could not be judged, for there are too few candidates" in found.sentence
    enough = of_confidence(np.random.default_rng(0).uniform(0.1, 0.9, 40), np.arange(40) % 2 == 0)
    assert "was not seen to leak" in enough.sentence


def test_an_attack_may_read_predictions_of_single_shadow_models(tmp_path: Path) -> None:
    seen: list[Bools] = []

    @register_attack("mean difference", "a test", needs=["each"])
    def mean_difference(evidence: Evidence, view: View) -> Floats:
        assert evidence.each is not None
        values, inside = evidence.each(view)
        seen.append(inside)
        assert values.shape == (*inside.shape, 1)
        sides = (np.where(side, values[..., 0], np.nan)[:, : evidence.count] for side in (inside, ~inside))
        return evidence.target(view)[:, 0] - sum(np.nanmean(side, axis=0) for side in sides) / 2

    rng = np.random.default_rng(0)
    coins = rng.random((4, ROWS)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(8, ROWS)
    members[:, :10] = False
    p = answers(members, LABELS, 2.0, rng)
    try:
        found = audit_predictions(p[0], members[0], LABELS, p[1:], members[1:])
        # The model on the opposite coins is no evidence; the population comes last.
        assert (seen[0] == np.roll(members[2:], -10, axis=1)).all()
        several = audit(
            training(LABELS, 2.0),
            labels=LABELS,
            models=6,
            attacks=["mean difference"],
            jobs=1,
            out=tmp_path,
            quiet=True,
        )
    finally:
        ATTACKS._found.pop("mean difference")
    assert len(seen[-1]) == 4
    for one in (found, several):
        [own] = [attack for attack in one.attacks if attack.name == "mean difference"]
        assert own.auc > 0.7
    assert "each at confidence 0.9958" in several.epsilon_lower.correction  # it shares the error with four others


def test_an_audit_of_predictions_loads_few_modules_and_no_torch() -> None:
    code = (
        "import importlib.metadata, sys\n"
        "none = importlib.metadata.EntryPoints()  # attacks of other packages may load what they like\n"
        "importlib.metadata.entry_points = lambda **group: none\n"
        "import numpy as np, resperturb as rp\n"
        "rng = np.random.default_rng(0)\n"
        "members, p = rng.random((5, 90)) < 0.5, rng.dirichlet([1, 1], (5, 90))\n"
        "rp.audit_predictions(p[0], members[0], rng.integers(0, 2, 90), p[1:], members[1:])\n"
        "own = [name for name in sys.modules if name.split('.')[0] == 'resperturb']\n"
        "assert len(own) <= 60, (len(own), own)\n"
        "assert not {'torch', 'resperturb.training', 'resperturb.data', 'resperturb.models'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
