import json

import numpy as np
import pytest

from resperturb.bounds import attack_metrics, audit_scores, clopper_pearson
from resperturb.errors import UsageError

RNG = np.random.default_rng(0)
MEMBERS, NONMEMBERS = RNG.normal(1, 1, 300), RNG.normal(0, 1, 300)


def test_the_audit_holds_what_the_single_functions_give():
    audit = audit_scores(MEMBERS, NONMEMBERS, delta=1e-3, confidence=0.9)
    assert audit.metrics == attack_metrics(MEMBERS, NONMEMBERS, confidence=0.9)
    assert audit.bounds["clopper_pearson"] == clopper_pearson(MEMBERS, NONMEMBERS, delta=1e-3, confidence=0.9)
    assert set(audit.bounds) == {"clopper_pearson", "one_run", "gdp"}
    assert all(bound.delta == 1e-3 and bound.confidence == 0.9 for bound in audit.bounds.values())


def test_which_bound_is_recommended_depends_on_the_design_and_not_on_the_scores():
    for scores in ((np.ones(50), np.zeros(50)), (np.ones(50), np.ones(50))):
        assert audit_scores(*scores, design="independent").recommended == "clopper_pearson"
        assert audit_scores(*scores, design="coins").recommended == "one_run"
    separated = audit_scores(np.ones(50), np.zeros(50), design="independent").to_dict()
    assert 0 < separated["recommended"]["epsilon"] < max(separated["epsilon_lower"].values())


@pytest.mark.parametrize(("design", "said"), [(None, "how the scores were made"), ("one-model", "no coins decided")])
def test_nothing_is_recommended_for_one_model_without_coins_or_an_unknown_design(design, said):
    audit = audit_scores(MEMBERS, NONMEMBERS, design=design)
    assert audit.to_dict()["recommended"] == {"method": None, "epsilon": None, "why": audit.why}
    assert said in audit.why


def test_a_one_run_design_that_the_sizes_contradict_claims_nothing_and_says_why():
    audit = audit_scores(MEMBERS, NONMEMBERS[:100], design="coins")
    assert audit.to_dict()["recommended"]["epsilon"] == 0
    assert "300 canaries in and 100 out" in audit.why


def test_without_delta_the_gaussian_bound_is_left_out():
    payload = audit_scores(MEMBERS, NONMEMBERS, delta=0.0).to_dict()
    assert payload["epsilon_lower"]["gdp"] is None
    assert payload["epsilon_lower"]["one_run"] > 0
    assert payload["epsilon_lower"]["clopper_pearson"] > 0
    json.dumps(payload)


def test_scores_the_wrong_way_round_are_pointed_out():
    wrong = audit_scores(-MEMBERS, -NONMEMBERS)
    right = audit_scores(MEMBERS, NONMEMBERS)
    assert "negating" in wrong.caveats[0]
    assert not any("negating" in line for line in right.caveats)


@pytest.mark.parametrize("wrong", [{"delta": 1.0}, {"confidence": 2.0}, {"design": "two-models"}])
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(UsageError):
        audit_scores(MEMBERS, NONMEMBERS, **wrong)
