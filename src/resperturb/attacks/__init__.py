"""Attacks: published methods that score every candidate from the answers of models. Pure functions."""

from resperturb.attacks.catalogue import attacks_on, views
from resperturb.attacks.evidence import Evidence, ShadowStatistics
from resperturb.attacks.moments import Moments
from resperturb.attacks.registry import Attack, AttackFailedError, register_attack
from resperturb.attacks.signals import Query, Signals, View

__all__ = [
    "Attack",
    "AttackFailedError",
    "Evidence",
    "Moments",
    "Query",
    "ShadowStatistics",
    "Signals",
    "View",
    "attacks_on",
    "register_attack",
    "views",
]
