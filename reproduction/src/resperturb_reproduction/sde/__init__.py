"""The continuous picture: an image pushed through the ODE and the SDEs behind a residual network, and back."""

from resperturb_reproduction.sde.images import load_image, sample_image
from resperturb_reproduction.sde.reversal import (
    ATTACKERS,
    QUERIES,
    Attacker,
    GammaSweep,
    ReversalResult,
    run_reversal,
    sweep_gamma,
)

__all__ = [
    "ATTACKERS",
    "QUERIES",
    "Attacker",
    "GammaSweep",
    "ReversalResult",
    "load_image",
    "run_reversal",
    "sample_image",
    "sweep_gamma",
]
