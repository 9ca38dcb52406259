"""Names of 0.2 that moved still work, and warn where they are now."""

import importlib

import pytest

MOVED = {
    "resperturb.auditing": (
        "resperturb.bounds",
        "AttackMetrics Confusion Given Guesses Interval LowerBound Ranks RocCurve ScoreAudit TruePositiveRate "
        "attack_metrics auc audit_scores balanced_accuracy binomial_interval check_scores clopper_pearson gdp "
        "one_run one_run_fdp read_scores roc_curve roc_points",
    ),
    "resperturb.audits": ("resperturb.bounds", "CANARIES GROUP RECORD AttackResult AttackScores AuditResult"),
    "resperturb.engine": ("resperturb.training", "train_many"),
}
OTHERS = {
    ("resperturb.audits", "audit"): "resperturb.auditing",
    ("resperturb.audits", "audit_predictions"): "resperturb.auditing",
    ("resperturb.audits", "read_audit"): "resperturb.auditing",
    ("resperturb.audits", "audit_run"): "resperturb.training",
    ("resperturb.audits", "AttackFailedError"): "resperturb.attacks",
    ("resperturb.engine", "TrainTask"): "resperturb.training.many",
}
PLACES = {(old, name): new for old, (new, names) in MOVED.items() for name in names.split()} | OTHERS


@pytest.mark.parametrize(("old", "name"), PLACES)
def test_an_old_name_works_and_names_its_new_place(old: str, name: str) -> None:
    new = PLACES[old, name]
    with pytest.warns(DeprecationWarning, match=f"import {name} from {new} instead of {old}$"):
        found = getattr(importlib.import_module(old), name)
    assert found is getattr(importlib.import_module(new), name)


@pytest.mark.parametrize("package", ["resperturb.audits", "resperturb.auditing", "resperturb.engine"])
def test_a_name_that_never_was_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"module '{package}' has no attribute 'no_such'"):
        getattr(importlib.import_module(package), "no_such")  # noqa: B009


@pytest.mark.parametrize("package", ["auditing", "engine", "privacy"])
def test_every_name_of_a_package_is_found(package: str) -> None:
    module = importlib.import_module(f"resperturb.{package}")
    assert all(getattr(module, name).__name__ for name in module.__all__ if name.islower())
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_old_package_is_found_by_its_attribute_too() -> None:
    import resperturb

    with pytest.warns(DeprecationWarning, match="from resperturb.auditing"):
        assert resperturb.audits.audit is resperturb.audit
