"""An audit: random membership, trained models, their answers, attacks, and what these show beside what is proven."""

from resperturb.audits.outcome import MembershipScores, load_scores, measures
from resperturb.audits.shadow import run_shadow_attack, shadow_attack

__all__ = ["MembershipScores", "load_scores", "measures", "run_shadow_attack", "shadow_attack"]
