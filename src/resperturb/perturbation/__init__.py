"""The mechanism: strategies of noise, :func:`perturb`, the junctions it finds, and weights that keep their noise."""

from resperturb.perturbation.junctions import junctions
from resperturb.perturbation.perturb import (
    Additive,
    Multiplicative,
    Strategy,
    noise_off,
    perturb,
    seeded_predictions,
    strategy_from_dict,
    strategy_of,
    strategy_to_dict,
)
from resperturb.perturbation.weights import load, save

__all__ = [
    "Additive",
    "Multiplicative",
    "Strategy",
    "junctions",
    "load",
    "noise_off",
    "perturb",
    "save",
    "seeded_predictions",
    "strategy_from_dict",
    "strategy_of",
    "strategy_to_dict",
]
