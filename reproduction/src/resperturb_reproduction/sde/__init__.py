"""The continuous picture: an image pushed through the ODE and the SDEs behind a residual network, and back."""

from resperturb_reproduction.sde.convergence import Convergence, ConvergenceStudy, study_convergence
from resperturb_reproduction.sde.field import fraction_read, velocity
from resperturb_reproduction.sde.flow import (
    BrownianPath,
    Strategy,
    exact_ode,
    forward_ode,
    forward_sde,
    invert_sde,
    reverse_ode,
    reverse_sde,
)
from resperturb_reproduction.sde.images import load_image, sample_image
from resperturb_reproduction.sde.reversal import (
    ATTACKERS,
    SWEEP_GAMMAS,
    Attacker,
    GammaSweep,
    Recovery,
    ReversalResult,
    run_reversal,
    sweep_gamma,
)

__all__ = [
    "ATTACKERS",
    "SWEEP_GAMMAS",
    "Attacker",
    "BrownianPath",
    "Convergence",
    "ConvergenceStudy",
    "GammaSweep",
    "Recovery",
    "ReversalResult",
    "Strategy",
    "exact_ode",
    "forward_ode",
    "forward_sde",
    "fraction_read",
    "invert_sde",
    "load_image",
    "reverse_ode",
    "reverse_sde",
    "run_reversal",
    "sample_image",
    "study_convergence",
    "sweep_gamma",
    "velocity",
]
