"""Where the Gaussian numbers come from: fresh, independent, and not to be guessed.

A draw is a pure function of a 128-bit key, and a key is used once:

- **Training** keys come from torch's global generator, so training noise follows ``torch.manual_seed``, is saved
  and restored with torch's random state, and is the same when gradient checkpointing runs a block twice. The rank
  is mixed in, so that data-parallel workers which share a seed draw different noise.
- **Prediction** keys come from the operating system, whatever ``torch.manual_seed`` was told, unless a seed is
  asked for.

How numbers follow from a key is :mod:`resperturb.noise.normals`.
"""

import hashlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from resperturb.errors import UsageError
from resperturb.noise.normals import add_normal, spelled_out, standard_normal

KEY_BYTES = 16


class _Fork:
    """What a forked child inherits from its parent; it must not repeat the parent's training noise.

    The hook that notices a fork is registered with the first source of noise, not by the import. A child that was
    forked between the two is known by its process number.
    """

    imported_by, seed = os.getpid(), torch.initial_seed()
    watched = False
    token = b""
    group: object = None

    @classmethod
    def watch(cls) -> None:
        """Notice forks from now on, and one that happened since the import."""
        if not cls.watched:
            cls.watched = True
            os.register_at_fork(after_in_child=cls.inherit)
            if os.getpid() != cls.imported_by and torch.initial_seed() == cls.seed:
                cls.inherit()

    @classmethod
    def inherit(cls) -> None:
        """Take note in a child of what its parent had, and pick a token of its own."""
        cls.token, cls.seed, cls.group = os.urandom(KEY_BYTES), torch.initial_seed(), _process_group()


def _process_group() -> object:
    distributed = torch.distributed
    return distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None


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


# What training keys were made of: a backward pass that runs a block again must meet the same.
_drawn: OrderedDict[bytes, None] = OrderedDict()
_MOST_DRAWN = 2**16


def training_key() -> bytes:
    """Take a key from torch's global generator, different on every data-parallel rank.

    A forked child gets keys of its own, until it joins a process group or seeds torch itself.

    Raises:
        UsageError: A backward pass runs a block again without the random state of its forward pass.
    """
    _Fork.watch()
    drawn = torch.randint(-(2**63), 2**63 - 1, (2,)).numpy().tobytes()
    if torch._C._current_graph_task_id() == -1:
        while drawn in _drawn:  # the generator was seeded again, and goes through its numbers anew
            _drawn.popitem()
        _drawn[drawn] = None
        if len(_drawn) > _MOST_DRAWN:
            _drawn.popitem(last=False)
    elif drawn not in _drawn:
        raise UsageError(
            "gradient checkpointing recomputes a block with other noise than its forward pass had, so the gradient "
            "would be wrong; leave preserve_rng_state of torch.utils.checkpoint at True."
        )
    group = _process_group()
    if group is not None and group is not _Fork.group:
        return derive_key(drawn, torch.distributed.get_rank())
    return derive_key(drawn, _Fork.token if torch.initial_seed() == _Fork.seed else b"")


_sources: WeakValueDictionary[int, "NoiseSource"] = WeakValueDictionary()
_handles = itertools.count(1)


class NoiseSource:
    """The one source that all junctions of a model draw from.

    With ``seed`` the noise of predictions repeats: the n-th draw after seeding is always the same. Anyone who knows
    the seed can subtract the noise from every answer, so it is for tests and measurements, not for serving.

    >>> NoiseSource(seed=1).normal(torch.empty(2), training=False).equal(
    ...     NoiseSource(seed=1).normal(torch.empty(2), training=False))
    True
    """

    silenced: int

    def __init__(self, seed: int | None = None) -> None:
        self._register(seed)

    def _register(self, seed: int | None) -> None:
        _Fork.watch()
        self.silenced = 0
        self.reseed(seed)
        handle = next(_handles)
        self._card = torch.tensor(handle)  # a tensor, so that what is compiled serves other models too
        _sources[handle] = self

    def __getstate__(self) -> dict[str, Any]:
        # A copy is loud, whatever silenced the original while it was copied, and starts its own seeded noise.
        return {"seed": self.seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._register(state["seed"])

    def normal(self, like: Tensor, training: bool) -> Tensor:
        """Draw standard normals with the shape, type, device and memory layout of ``like``."""
        if torch.compiler.is_exporting() or torch._C._get_tracing_state() is not None:
            return _exported_normal(like)
        if isinstance(like, Tensor) and not torch.compiler.is_compiling():  # nor traced symbolically, by torch.fx
            if not _in_a_transform():
                return standard_normal(like, self.next_key(training))
            if not torch._C._functorch.is_batchedtensor(like):  # under vmap every lane needs noise of its own
                like = torch.rand_like(like.detach())
        # The empty tensor keeps the compiler from merging two draws over the same tensor into one.
        drawn: Tensor = torch.ops.resperturb.normal.default(like.detach(), torch.empty(0), self._card, training)
        return drawn

    def add(
        self, x: Tensor, scale: float, training: bool, plus: Tensor | None = None, factor: Tensor | None = None
    ) -> Tensor:
        """Return ``x + plus + scale factor n`` with standard normals ``n`` of its own for every element.

        Without ``plus``, the other side of a sum, or ``factor`` if it is None. Half precision is added up in 32 bits
        and rounded once. The backward pass draws ``n`` again instead of keeping it.

        Raises:
            NoiseLostError: Half precision rounds most of the noise away.
        """
        readable = _is_readable(x, plus, factor)
        if not readable or (factor is not None and (x.shape != factor.shape or x.dtype != factor.dtype)):
            return spelled_out(x, plus, factor, scale, lambda like: self.normal(like, training))
        if torch.compiler.is_compiling():
            key, stride = torch.ops.resperturb.key(torch.empty(0), self._card, training), torch.empty_like(x).stride()
        else:
            key, stride = _as_tensor(self.next_key(training)), torch.empty_like(x, device="meta").stride()
        total: Tensor = torch.ops.resperturb.add_normal.default(x, plus, factor, key, scale, stride, True)
        return total

    def draw(self, training: bool) -> "Draw":
        """Return one draw, which is made where it is used."""
        return Draw(self, training)

    def next_key(self, training: bool) -> bytes:
        """Return a key that was not used before."""
        if training:
            return training_key()
        if self.seed is None:
            if torch._C._current_graph_task_id() != -1:
                raise UsageError(
                    "the noise of predictions cannot be drawn a second time, and gradient checkpointing recomputes "
                    "it in the backward pass; call train(), or switch checkpointing off in eval()."
                )
            return os.urandom(KEY_BYTES)
        self._drawn += 1
        return derive_key(b"prediction", self.seed, self._drawn)

    def reseed(self, seed: int | None) -> None:
        """Start the prediction noise again from ``seed``, or from the operating system."""
        self.seed, self._drawn = seed, 0


@dataclass(frozen=True)
class Draw:
    """Standard normals for one tensor, drawn where they are used: sums with them need no memory of their own.

    >>> noise = NoiseSource().draw(training=False)
    >>> noise.add(torch.zeros(3), scale=0.5).shape
    torch.Size([3])
    """

    source: NoiseSource
    training: bool

    def add(self, x: Tensor, scale: float, plus: Tensor | None = None) -> Tensor:
        """Return ``x + plus + scale n``, without ``plus`` if it is None."""
        return self.source.add(x, scale, self.training, plus)

    def addcmul(self, x: Tensor, factor: Tensor, scale: float, plus: Tensor | None = None) -> Tensor:
        """Return ``x + plus + scale factor n``, without ``plus`` if it is None."""
        return self.source.add(x, scale, self.training, plus, factor)

    def like(self, x: Tensor) -> Tensor:
        """Return ``n`` itself, for whatever else is to be done with it."""
        return self.source.normal(x, self.training)


def _is_readable(*tensors: Tensor | None) -> bool:
    """Whether the tensors are memory to read, now or when a compiled graph runs; nothing traces or transforms."""
    if torch.compiler.is_exporting() or _in_a_transform():
        return False
    return torch.compiler.is_compiling() or (
        torch._C._get_tracing_state() is None
        and all(type(x) in (Tensor, torch.nn.Parameter, type(None)) for x in tensors)
    )


def _in_a_transform() -> bool:
    """Whether this runs under vmap or another transform of ``torch.func``."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# What torch.compiler.assume_constant_result does; to call it imports the compiler, which takes more than a second.
_in_a_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _source_of(card: Tensor) -> NoiseSource:
    return _sources.get(int(card)) or NoiseSource()  # a compiled or traced graph may outlive the model it came from


def _as_tensor(key: bytes) -> Tensor:
    return torch.frombuffer(bytearray(key), dtype=torch.uint8)


def _operator(
    name: str, arguments: str, tag: torch.Tag, fake: Callable[..., Tensor]
) -> Callable[[Callable[..., Tensor]], None]:
    """Define an operator by hand, since a custom_op takes longer to be called than a small draw."""
    torch.library.define(f"resperturb::{name}", f"({arguments}) -> Tensor", tags=(tag,))
    torch.library.register_fake(f"resperturb::{name}", fake)
    return torch.library.impl(f"resperturb::{name}", "CompositeExplicitAutograd")


@_operator(
    "normal",
    "Tensor like, Tensor ticket, Tensor card, bool training",
    torch.Tag.nondeterministic_seeded,
    lambda like, *_: torch.empty_like(like),
)
@_disable_dynamo  # or it is compiled itself, where a compiler has given up on what is around it
def _normal(like: Tensor, ticket: Tensor, card: Tensor, training: bool) -> Tensor:
    """A draw that compilers can neither look into nor repeat, fold or drop."""
    return standard_normal(like, _source_of(card).next_key(training))


def _normal_of_lanes(
    info: Any, in_dims: Any, like: Tensor, ticket: Tensor, card: Tensor, training: bool
) -> tuple[Tensor, Any]:
    if info.randomness != "different":
        raise UsageError(
            f"vmap(randomness={info.randomness!r}) cannot give every example its own noise; say "
            "randomness='different'."
        )
    return torch.ops.resperturb.normal.default(like, torch.empty(0), card, training), in_dims[0]


torch.library.register_vmap("resperturb::normal", _normal_of_lanes)


@_operator(
    "key",
    "Tensor ticket, Tensor card, bool training",
    torch.Tag.nondeterministic_seeded,
    lambda *_: torch.empty(KEY_BYTES, dtype=torch.uint8),
)
def _key(ticket: Tensor, card: Tensor, training: bool) -> Tensor:
    """The key of a draw, as a tensor: what a network keeps for its backward pass."""
    return _as_tensor(_source_of(card).next_key(training))


# Laid out with this stride, so that the backward pass meets the same numbers however its gradient is laid out.
# Without the tag the compiler may hand over tensors in other layouts, each of which costs a copy.
@_operator(
    "add_normal",
    "Tensor x, Tensor? plus, Tensor? factor, Tensor key, float scale, SymInt[] stride, bool checked",
    torch.Tag.needs_fixed_stride_order,
    lambda x, plus, factor, key, scale, stride, checked: torch.empty_strided(
        x.shape, stride, dtype=x.dtype, device=x.device
    ),
)
def _add_normal(
    x: Tensor,
    plus: Tensor | None,
    factor: Tensor | None,
    key: Tensor,
    scale: float,
    stride: Sequence[int],
    checked: bool,
) -> Tensor:
    def laid_out(side: Tensor) -> Tensor:
        if side.stride() == tuple(stride):
            return side
        return torch.empty_strided(side.shape, stride, dtype=side.dtype, device=side.device).copy_(side)

    plus, factor = (None if side is None else laid_out(side) for side in (plus, factor))
    return add_normal(laid_out(x), plus, factor, bytes(key.tolist()), scale, checked)


def _keep_key(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, plus, factor, key, ctx.scale, ctx.stride, _ = inputs
    # Which side of the sum the factor is, if any: its gradient is then g + scale g n, in one pass.
    ctx.scaled = 0 if factor is x else 1 if factor is plus else 2
    if factor is not None:
        ctx.save_for_backward(key)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = [gradient if needed else None for needed in ctx.needs_input_grad[:2]] + [None]
    keys = ctx.saved_tensors  # to be asked for once, or gradient checkpointing refuses
    if keys and ctx.needs_input_grad[ctx.scaled]:
        plain = torch.zeros_like(gradient) if ctx.scaled == 2 else gradient
        found[ctx.scaled] = torch.ops.resperturb.add_normal.default(
            plain, None, gradient, keys[0], ctx.scale, ctx.stride, False
        )
    return *found, None, None, None, None


torch.library.register_autograd("resperturb::add_normal", _backward, setup_context=_keep_key)


def _exported_normal(like: Tensor) -> Tensor:
    """Standard normals of the random numbers that the runtime of an exported graph has.

    Sessions of onnxruntime in one process all draw the same normals; only their dropout does not repeat. Its mask
    picks the signs, and is used as a mask because onnxruntime takes out a dropout that only feeds on.
    """
    noise = torch.randn_like(like)
    _, positive = torch.native_dropout(noise, 0.5, True)
    return torch.where(positive, noise, -noise)
