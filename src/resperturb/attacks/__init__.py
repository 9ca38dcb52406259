"""Attacks: published methods that score every candidate from the answers of models. Pure functions."""

from resperturb.attacks.catalogue import attacks_on, views
from resperturb.attacks.evidence import Evidence, ShadowStatistics
from resperturb.attacks.signals import Query, Signals

__all__ = ["Evidence", "Query", "ShadowStatistics", "Signals", "attacks_on", "views"]
