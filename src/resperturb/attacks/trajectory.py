"""Which records are at risk, from the losses that training sees anyway: no shadow model, no further query.

Pollock, Shilov, Dodd and de Montjoye, "Free Record-Level Privacy Risk Evaluation Through Artifact-Based Methods"
(2024, arXiv:2411.05743). A record that is fitted late but well is one that the model could not have known without
seeing it: its loss stays high for long and ends low, so the spread of its losses over the epochs is large.
"""

import numpy as np
from numpy.typing import ArrayLike

from resperturb.bounds.scores import Scores
from resperturb.errors import UsageError

POLLOCK = "Pollock et al. 2024 (arXiv:2411.05743)"


def loss_trace_iqr(losses: ArrayLike, low: float = 0.25, high: float = 0.75) -> Scores:
    """Return the LT-IQR of each record: the distance between two quantiles of its losses over the epochs.

    It says how well an attack with many shadow models would do on a *member*; it does not say who is one.

    Args:
        losses: ``[epochs, records]``, each after its epoch.
        low: The lower quantile.
        high: The higher one.

    Returns:
        One number per record, higher at more risk.

    Raises:
        UsageError: If there are fewer than two epochs, losses that are not finite, or quantiles out of order.

    >>> loss_trace_iqr([[2.0, 2.0], [2.0, 0.1], [2.0, 0.1], [0.0, 0.1], [0.0, 0.1]]).round(2).tolist()
    [2.0, 0.0]
    """
    traces = np.asarray(losses, dtype=np.float64)
    if traces.ndim != 2 or traces.shape[0] < 2:
        raise UsageError(f"losses must be [epochs, records] of at least two epochs, not of shape {traces.shape}.")
    if not np.isfinite(traces).all():
        raise UsageError("some losses are not finite; leave out the epochs at which training had diverged.")
    if not 0 <= low < high <= 1:
        raise UsageError(f"the quantiles must be ordered between 0 and 1, not {low:g} and {high:g}.")
    first, last = np.quantile(traces, [low, high], axis=0)
    spread: Scores = last - first
    return spread
