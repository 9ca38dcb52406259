"""The secret that the noise of a training comes from.

A proof about noise holds for whoever cannot draw it again. A seed that is written down, or short enough to be tried,
does not do: every run takes 128 bits from the operating system. They stay in the folder of the run while it trains,
in a file that only its owner may read, so that a step which is taken again after a crash is the same step; they are
deleted when the training ends.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from resperturb.errors import ResperturbError
from resperturb.files import read_bytes, write_bytes
from resperturb.noise import derive_key
from resperturb.privacy.guarantee import Assumption

if TYPE_CHECKING:
    from resperturb.training.config import TrainConfig

BYTES = 16
NAME = ".secret"


def noise_secret(folder: Path, digest: str) -> bytes:
    """Return the key of a run's training noise; its secret is made when it is first asked for.

    Args:
        folder: The folder of the run.
        digest: The run's own hash, mixed in so that no two runs share noise even if a folder is copied.

    Returns:
        Sixteen bytes.

    Raises:
        ResperturbError: If the secret cannot be kept, or is damaged.
    """
    path = folder / NAME
    if not path.exists():
        write_bytes(path, os.urandom(BYTES), private=True)
    secret = read_bytes(path)
    if len(secret) != BYTES:
        raise ResperturbError(f"{path} is damaged; delete the folder of the run and train again.")
    return derive_key(b"training", secret, digest.encode())


def secrecy(config: "TrainConfig") -> Assumption:
    """Say whether somebody could draw the noise of a training again."""
    if config.seeded_noise:
        return Assumption(
            "not met",
            "The noise must be secret, and it follows from the seed of the run (--seeded-noise): whoever knows the "
            "seed can draw it again and take it away.",
        )
    return Assumption(
        "enforced", "The noise comes from 128 bits of the operating system, deleted when the training ended."
    )
