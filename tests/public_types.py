"""Types of the public names; mypy checks this file, and nothing runs it.

An unneeded ignore is an error, so each of these fails if a name of the package loses its type.
"""

from typing import TYPE_CHECKING

import resperturb as rp

if TYPE_CHECKING:
    rp.Additive(gama=1)  # type: ignore[call-arg]
    rp.Multiplicative(gamma="2")  # type: ignore[arg-type]
    rp.strategy_of(model=0)  # type: ignore[arg-type]
    strategy: rp.Strategy = rp.Additive(gamma=0.5)
    version: str = rp.__version__
