"""The mechanism: strategies of noise, :func:`perturb`, the junctions it finds, and weights that keep their noise."""

from resperturb.noise.rounding import NoiseLostError
from resperturb.perturbation.junctions import HasJunction, JunctionNoise, join, junctions
from resperturb.perturbation.perturb import noise_off, perturb, seeded_predictions, strategy_of
from resperturb.perturbation.presence import NoiseAt, NoiseCheck, verify_noise
from resperturb.perturbation.strategies.additive import Additive
from resperturb.perturbation.strategies.multiplicative import Multiplicative
from resperturb.perturbation.strategy import (
    STRATEGIES,
    Strategy,
    register_strategy,
    strategy_from_dict,
    strategy_to_dict,
)
from resperturb.perturbation.weights import load, save

__all__ = [
    "STRATEGIES",
    "Additive",
    "HasJunction",
    "JunctionNoise",
    "Multiplicative",
    "NoiseAt",
    "NoiseCheck",
    "NoiseLostError",
    "Strategy",
    "join",
    "junctions",
    "load",
    "noise_off",
    "perturb",
    "register_strategy",
    "save",
    "seeded_predictions",
    "strategy_from_dict",
    "strategy_of",
    "strategy_to_dict",
    "verify_noise",
]
