"""The secret that the noise of a training comes from: 128 bits of the operating system.

A proof about noise holds against anyone who cannot draw it again, so a seed that is written down does not do. During
the training the folder of the run keeps the secret in a file for its owner alone, so that a step that is taken again
after a crash is the same step. It is deleted when the training ends.
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
    """Return the 16 bytes that a run's training noise follows from; the secret is made when it is first asked for.

    The digest of the run is mixed in, so that no two runs share noise even if a folder is copied.

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
    """Say whether the noise of a training could be drawn again."""
    if config.seeded_noise:
        return Assumption(
            "not met",
            "The noise must be secret, and it follows from the seed of the run (--seeded-noise): anyone who knows "
            "the seed can draw it again and subtract it.",
        )
    return Assumption(
        "enforced", "The noise comes from 128 bits of the operating system, deleted when the training ended."
    )
