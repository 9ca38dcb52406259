"""Where the Gaussian numbers come from: fresh, independent, and not to be guessed.

A draw is a pure function of a 128-bit key, and a key is used once:

- **Training** keys come from torch's global generator, so training noise follows ``torch.manual_seed``, is saved
  and restored with torch's random state, and is the same when gradient checkpointing runs a block twice. The rank
  is mixed in, so that data-parallel workers which share a seed draw different noise.
- **Prediction** keys come from the operating system, whatever ``torch.manual_seed`` was told, unless a seed is
  asked for.

Seeding a ``torch.Generator`` on the CPU keeps 32 bits of the seed only: few enough to try them all, and to meet
the same noise twice in one training. Keys are therefore expanded to a whole generator state.
"""

import hashlib
import os
from dataclasses import dataclass, field

import torch
from torch import Tensor

KEY_BYTES = 16

# A forked child that is not a data-parallel rank would otherwise repeat its parent's training noise.
_fork_token = b""


def _after_fork() -> None:
    global _fork_token
    _fork_token = os.urandom(KEY_BYTES)


os.register_at_fork(after_in_child=_after_fork)


def derive_key(*parts: bytes | int) -> bytes:
    """Hash ``parts`` to a key.

    >>> derive_key(1, b"noise") == derive_key(1, b"noise"), derive_key(1) == derive_key(2)
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    for part in parts:
        raw = part.to_bytes(16, "little", signed=True) if isinstance(part, int) else part
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()


def training_key() -> bytes:
    """Take a key from torch's global generator, different on every data-parallel rank."""
    drawn = torch.randint(-(2**63), 2**63 - 1, (2,)).numpy().tobytes()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return derive_key(drawn, torch.distributed.get_rank())
    return derive_key(drawn, _fork_token)


@dataclass
class NoiseSource:
    """The one source that all junctions of a model draw from.

    With ``seed`` the noise of predictions repeats: the n-th draw after seeding is always the same. Whoever knows the
    seed can subtract the noise from every answer, so it is for tests and measurements, not for serving.

    >>> NoiseSource(seed=1).normal(torch.empty(2), training=False).equal(
    ...     NoiseSource(seed=1).normal(torch.empty(2), training=False))
    True
    """

    seed: int | None = None
    silenced: int = 0
    _drawn: int = field(default=0, repr=False)

    def normal(self, like: Tensor, training: bool) -> Tensor:
        """Draw standard normals with the shape, type, device and memory layout of ``like``."""
        if torch.compiler.is_exporting() or torch._C._get_tracing_state() is not None:
            return torch.randn_like(like)  # an exported graph has its runtime's random numbers only
        if torch.compiler.is_compiling():
            raise NotImplementedError
        return standard_normal(like, self.next_key(training))

    def next_key(self, training: bool) -> bytes:
        """Return a key that was not used before."""
        if training:
            return training_key()
        if self.seed is None:
            return os.urandom(KEY_BYTES)
        self._drawn += 1
        return derive_key(b"prediction", self.seed, self._drawn)

    def reseed(self, seed: int | None) -> None:
        """Start the prediction noise again from ``seed``, or from the operating system."""
        self.seed, self._drawn = seed, 0


def standard_normal(like: Tensor, key: bytes) -> Tensor:
    """Draw standard normals shaped like ``like``: a pure function of ``key``, the shape and the device's kind.

    >>> a, b = (standard_normal(torch.empty(3), bytes([i] * 16)) for i in (0, 1))
    >>> bool((a == b).any())
    False
    """
    out = torch.empty_like(like, dtype=torch.float32 if like.dtype.itemsize < 4 else like.dtype)
    out.normal_(generator=_generator(like.device, key))
    return out.to(like.dtype)


def _generator(device: torch.device, key: bytes) -> torch.Generator:
    generator = torch.Generator(device=device)
    if device.type != "cpu":
        return generator.manual_seed(int.from_bytes(key[:8], "little") >> 1)
    state = generator.get_state()
    words = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(624 * 4)), dtype=torch.int32)
    # The Mersenne Twister's 624 words, each in eight bytes, after the seed and two counters.
    state[24 : 24 + 624 * 8].view(torch.int64).copy_(words.to(torch.int64) & 0xFFFFFFFF)
    generator.set_state(state)
    return generator
