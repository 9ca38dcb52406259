"""Attacks: query a model, score every record, say how well members can be told."""

from resperturb.attacks.outcome import MembershipScores, load_scores, measures
from resperturb.attacks.shadow import run_shadow_attack, shadow_attack

__all__ = ["MembershipScores", "load_scores", "measures", "run_shadow_attack", "shadow_attack"]
