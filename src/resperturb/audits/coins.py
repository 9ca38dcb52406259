"""Who is in: fair coins, one per record or one per group, for the target and for every shadow model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.data.canaries import Bools, fair_coins


def memberships(count: int, shadows: int, seed: int, groups: NDArray[Any] | None = None) -> tuple[Bools, Bools]:
    """Toss the coins of an audit.

    Args:
        count: The number of candidates.
        shadows: The number of shadow models; an even number puts every candidate into exactly half of them.
        seed: The coins follow from it.
        groups: The group of every candidate; records of one group are in or out together.

    Returns:
        Who is a member of the target, ``[count]``, and of each shadow model, ``[shadows, count]``.

    >>> target, shadows = memberships(6, shadows=4, seed=0)
    >>> target.shape, shadows.sum(axis=0).tolist()
    ((6,), [2, 2, 2, 2, 2, 2])
    """
    where = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    units = int(where.max(initial=-1)) + 1
    first = seed * (shadows + 2)
    first += first % 2  # an even seed begins a pair of opposite coins
    target = fair_coins(units, first, purpose=2)[where]
    others = [fair_coins(units, first + 2 + number, purpose=2)[where] for number in range(shadows)]
    return target, np.array(others, dtype=bool).reshape(shadows, count)
