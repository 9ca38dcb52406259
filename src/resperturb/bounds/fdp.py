"""A deprecated name of the one-run bound."""

import warnings

from numpy.typing import ArrayLike

from resperturb.bounds.one_run import one_run
from resperturb.bounds.result import LowerBound


def one_run_fdp(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: tuple[int, int] | None = None,
    curve: str = "approximate",
) -> LowerBound:
    """Return the bound of :func:`one_run`, which assumes no privacy curve; ``curve`` has no effect."""
    warnings.warn(
        "one_run_fdp is deprecated: use one_run, which shows more and assumes no privacy curve",
        DeprecationWarning,
        stacklevel=2,
    )
    return one_run(members, nonmembers, delta=delta, confidence=confidence, guesses=guesses)
