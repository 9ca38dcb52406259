import numpy as np
import pytest

from resperturb.bounds import CanaryScores, LowerBound, audit_scores, register_bound
from resperturb.bounds.registry import BOUNDS
from resperturb.errors import UsageError

SCORES = CanaryScores(np.arange(200) + 150.0, np.arange(200))


def test_every_registered_bound_holds_for_a_stated_design_and_names_itself():
    assert {name: BOUNDS[name].design for name in BOUNDS} == {
        "clopper_pearson": "independent",
        "gdp": "independent",
        "one_run": "coins",
    }
    for name in BOUNDS:
        found = BOUNDS[name].compute(SCORES, 1e-4, 0.9)
        assert (found.method, found.delta, found.confidence) == (name, 1e-4, 0.9)
        assert found.epsilon > 1
        assert BOUNDS[name].reference


def test_a_bound_that_is_registered_is_computed_with_the_others(monkeypatch):
    monkeypatch.setattr(BOUNDS, "_found", dict(BOUNDS._found))

    @register_bound("halved", "nobody", design="coins")
    def halved(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
        return BOUNDS["one_run"].compute(scores, delta, confidence)

    found = audit_scores(SCORES.members, SCORES.nonmembers)
    assert found.bounds["halved"] == found.bounds["one_run"]
    with pytest.raises(UsageError, match="already"):
        register_bound("halved", "somebody", design="coins")(lambda scores, delta, confidence: None)
