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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from resperturb.errors import UsageError
from resperturb.noise.normals import add_normal, addcmul_normal, mul_normal, standard_normal
from resperturb.noise.rounding import is_half, rounded

KEY_BYTES = 16


class _Fork:
    """What a forked child inherits from its parent; it must not repeat the parent's training noise.

    The hook that notices a fork is registered with the first source of noise, not by the import. A child that was
    forked between the two is known by its process number.
    """

    imported_by = os.getpid()
    seed_at_import = torch.initial_seed()
    watched = False
    token = b""
    seed: int | None = None
    group: object = None

    @classmethod
    def watch(cls) -> None:
        """Notice forks from now on, and one that happened since the import."""
        if not cls.watched:
            cls.watched = True
            os.register_at_fork(after_in_child=cls.inherit)
            if os.getpid() != cls.imported_by and torch.initial_seed() == cls.seed_at_import:
                cls.inherit()

    @classmethod
    def inherit(cls) -> None:
        """Take note in a child of what its parent had, and pick a token of its own."""
        cls.token, cls.seed, cls.group = os.urandom(KEY_BYTES), torch.initial_seed(), _process_group()


def _process_group() -> object:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.group.WORLD
    return None


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

    With ``seed`` the noise of predictions repeats: the n-th draw after seeding is always the same. Whoever knows the
    seed can subtract the noise from every answer, so it is for tests and measurements, not for serving.

    >>> NoiseSource(seed=1).normal(torch.empty(2), training=False).equal(
    ...     NoiseSource(seed=1).normal(torch.empty(2), training=False))
    True
    """

    silenced: int
    # Where noise first enters, sums of so many rows are given in so many copies, each with its own noise.
    copies: tuple[int, int] | None

    def __init__(self, seed: int | None = None) -> None:
        self._register(seed)

    def _register(self, seed: int | None) -> None:
        _Fork.watch()
        self.silenced, self.copies = 0, None
        self.reseed(seed)
        self._handle = next(_handles)
        self._card = torch.tensor(self._handle)  # a tensor, so that what is compiled serves other models too
        _sources[self._handle] = self

    def __getstate__(self) -> dict[str, Any]:
        # A copy is loud, whatever silenced the original while it was copied, and starts its own seeded noise.
        return {"seed": self.seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._register(state["seed"])

    def normal(self, like: Tensor, training: bool) -> Tensor:
        """Draw standard normals with the shape, type, device and memory layout of ``like``."""
        if torch.compiler.is_exporting() or torch._C._get_tracing_state() is not None:
            return _exported_normal(like)
        if _is_in_a_compiler():
            # Of the shape alone: a tensor that is handed over must be in memory first, and is fused with nothing.
            dense = torch.empty_like(like)
            drawn: Tensor = torch.ops.resperturb.normal_of(
                torch.empty(0), self._card, dense.shape, dense.stride(), like.dtype, like.device, training
            )
            return drawn
        if torch.compiler.is_compiling() or not isinstance(like, Tensor):  # or symbolically, by torch.fx
            return self._opaque_normal(like, training)
        if _in_a_transform():
            # Under vmap a tensor that all share still needs noise of its own in every lane.
            batched = torch._C._functorch.is_batchedtensor(like)
            return self._opaque_normal(like if batched else torch.rand_like(like.detach()), training)
        return standard_normal(like, self.next_key(training))

    def _opaque_normal(self, like: Tensor, training: bool) -> Tensor:
        # The empty tensor keeps the compiler from merging two draws over the same tensor into one.
        drawn: Tensor = _normal(like.detach(), torch.empty(0), self._handle, training)
        return drawn

    def add(self, x: Tensor, scale: float, training: bool, plus: Tensor | None = None) -> Tensor:
        """Return ``x + plus + scale n`` with standard normals ``n`` of its own for every element.

        Half precision is added up in 32 bits and rounded once.

        Args:
            x: The tensor to be noised.
            scale: The standard deviation.
            training: Whether the key is one of training.
            plus: The other side of a sum, with the shape and type of ``x``: added on the way.

        Raises:
            NoiseLostError: Half precision rounds most of the noise away.
        """
        if not _is_readable(x, plus):
            return self._spelled_out(x, None, scale, training, plus)
        total: Tensor = torch.ops.resperturb.add_normal.default(
            x, plus, self._key_tensor(training), scale, _strides(x), self._copies_of(x)
        )
        return total

    def addcmul(self, x: Tensor, factor: Tensor, scale: float, training: bool, plus: Tensor | None = None) -> Tensor:
        """Return ``x + plus + scale factor n``; the backward pass draws ``n`` again instead of keeping it.

        Args:
            x: The tensor to be noised.
            factor: What the standard deviation is proportional to.
            scale: The constant of proportion.
            training: Whether the key is one of training.
            plus: The other side of a sum, with the shape and type of ``x``: added on the way.

        Raises:
            NoiseLostError: Half precision rounds most of the noise away.
        """
        if not _is_readable(x, factor, plus) or x.shape != factor.shape or x.dtype != factor.dtype:
            return self._spelled_out(x, factor, scale, training, plus)
        total: Tensor = torch.ops.resperturb.addcmul_normal.default(
            x, plus, factor, self._key_tensor(training), scale, _strides(x), self._copies_of(x), True
        )
        return total

    def _spelled_out(
        self, x: Tensor, factor: Tensor | None, scale: float, training: bool, plus: Tensor | None
    ) -> Tensor:
        """Add up in several operations, which tracers and transforms can follow."""
        total = x if plus is None else x + plus
        wide = total.float() if is_half(total) else total
        drawn = self.normal(wide, training)
        if factor is None:
            noisy = torch.add(wide, drawn, alpha=scale)
        else:
            noisy = torch.addcmul(wide, factor.to(wide.dtype), drawn, value=scale)
        return rounded(total, wide, noisy) if is_half(total) else noisy

    def _key_tensor(self, training: bool) -> Tensor:
        if torch.compiler.is_compiling():
            drawn: Tensor = torch.ops.resperturb.key(torch.empty(0), self._card, training)
            return drawn
        return _as_tensor(self.next_key(training))

    def _copies_of(self, x: Tensor) -> int:
        """How many noisy copies of ``x`` a sum gives: mostly one."""
        return self.copies[1] if self.copies is not None and len(x) == self.copies[0] else 1

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


def _is_in_a_compiler() -> bool:
    """Whether ``torch.compile`` reads the call, for itself and not for an exporter or under a transform."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting() and not _in_a_transform()


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
        return self.source.addcmul(x, factor, scale, self.training, plus)

    def like(self, x: Tensor) -> Tensor:
        """Return ``n`` itself, for whatever else is to be done with it."""
        return self.source.normal(x, self.training)


def _is_readable(*tensors: Tensor | None) -> bool:
    """Whether the tensors are memory to read, now or when a compiled graph runs; nothing traces or transforms."""
    if _is_in_a_compiler():
        return True
    return (
        not torch.compiler.is_compiling()
        and all(type(x) in (Tensor, torch.nn.Parameter, type(None)) for x in tensors)
        and not torch.compiler.is_exporting()
        and torch._C._get_tracing_state() is None
        and not _in_a_transform()
    )


def _strides(x: Tensor) -> tuple[int, ...]:
    """The layout of a dense tensor like ``x``."""
    if torch.compiler.is_compiling():
        return torch.empty_like(x).stride()
    return torch.empty_like(x, device="meta").stride()


def _scaled_side(x: Tensor, plus: Tensor | None, factor: Tensor) -> int | None:
    """Which side of a sum the factor is, if any: its gradient is then ``g + scale g n``, in one pass."""
    return 0 if factor is x else 1 if factor is plus else None


def _in_a_transform() -> bool:
    """Whether this runs under vmap or another transform of ``torch.func``."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# What torch.compiler.assume_constant_result does; to call it imports the compiler, which takes more than a second.
_in_a_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _source_of(card: Tensor) -> NoiseSource:
    return _sources.get(int(card)) or NoiseSource()  # a compiled graph may outlive the model it came from


# Defined by hand, since a custom_op takes longer to be called than a small draw.
torch.library.define(
    "resperturb::normal_of",
    "(Tensor ticket, Tensor card, SymInt[] size, SymInt[] stride, ScalarType dtype, Device device, bool training) "
    "-> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)


@torch.library.impl("resperturb::normal_of", "CompositeExplicitAutograd")
def _normal_of(
    ticket: Tensor,
    card: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    training: bool,
) -> Tensor:
    """A draw like :func:`_normal`, in compiled networks, of a tensor that need not be there yet."""
    like = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return standard_normal(like, _source_of(card).next_key(training))


torch.library.register_fake(
    "resperturb::normal_of",
    lambda ticket, card, size, stride, dtype, device, training: torch.empty_strided(
        size, stride, dtype=dtype, device=device
    ),
)


torch.library.define(
    "resperturb::key",
    "(Tensor ticket, Tensor card, bool training) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
# Sums of tensors that are laid out with these strides, so that the backward pass meets the same numbers however its
# gradient is laid out.
for _name, _arguments in (
    ("add_normal", "Tensor x, Tensor? plus, Tensor key, float scale, SymInt[] stride, int copies"),
    (
        "addcmul_normal",
        "Tensor x, Tensor? plus, Tensor factor, Tensor key, float scale, SymInt[] stride, int copies, bool checked",
    ),
    ("mul_normal", "Tensor x, Tensor key, float scale, SymInt[] stride"),
):
    # Otherwise the compiler may hand over tensors in other layouts, each of which costs a copy.
    torch.library.define(
        f"resperturb::{_name}", f"({_arguments}) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,)
    )


@torch.library.impl("resperturb::key", "CompositeExplicitAutograd")
def _key(ticket: Tensor, card: Tensor, training: bool) -> Tensor:
    """The key of a draw, as a tensor: what a network keeps for its backward pass."""
    return _as_tensor(_source_of(card).next_key(training))


def _as_tensor(key: bytes) -> Tensor:
    return torch.frombuffer(bytearray(key), dtype=torch.uint8)


@torch.library.impl("resperturb::add_normal", "CompositeExplicitAutograd")
def _add_normal(
    x: Tensor, plus: Tensor | None, key: Tensor, scale: float, stride: Sequence[int], copies: int
) -> Tensor:
    other = None if plus is None else _laid_out(plus, stride)
    return add_normal(_laid_out(x, stride), other, bytes(key.tolist()), scale, copies)


@torch.library.impl("resperturb::addcmul_normal", "CompositeExplicitAutograd")
def _addcmul_normal(
    x: Tensor,
    plus: Tensor | None,
    factor: Tensor,
    key: Tensor,
    scale: float,
    stride: Sequence[int],
    copies: int,
    checked: bool,
) -> Tensor:
    other = None if plus is None else _laid_out(plus, stride)
    by = _laid_out(factor, stride)
    return addcmul_normal(_laid_out(x, stride), other, by, bytes(key.tolist()), scale, copies, checked)


@torch.library.impl("resperturb::mul_normal", "CompositeExplicitAutograd")
def _mul_normal(x: Tensor, key: Tensor, scale: float, stride: Sequence[int]) -> Tensor:
    return mul_normal(x, bytes(key.tolist()), scale, tuple(stride))


def _laid_out(x: Tensor, stride: Sequence[int]) -> Tensor:
    if x.stride() == tuple(stride):
        return x
    return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x)


def _fake_like(x: Tensor, stride: Sequence[int], copies: int = 1) -> Tensor:
    shape = (copies * x.shape[0], *x.shape[1:]) if copies > 1 else x.shape
    return torch.empty_strided(shape, stride, dtype=x.dtype, device=x.device)


torch.library.register_fake(
    "resperturb::key", lambda ticket, card, training: torch.empty(KEY_BYTES, dtype=torch.uint8)
)
torch.library.register_fake(
    "resperturb::add_normal", lambda x, plus, key, scale, stride, copies: _fake_like(x, stride, copies)
)
torch.library.register_fake(
    "resperturb::addcmul_normal",
    lambda x, plus, factor, key, scale, stride, copies, checked: _fake_like(x, stride, copies),
)
torch.library.register_fake("resperturb::mul_normal", lambda x, key, scale, stride: _fake_like(x, stride))


def _keep_key(ctx: Any, key: Tensor, scale: float, stride: Sequence[int]) -> None:
    ctx.save_for_backward(key)
    ctx.scale, ctx.stride = scale, stride


def _again(ctx: Any, gradient: Tensor) -> Tensor:
    """The gradient times the numbers of the forward pass."""
    drawn: Tensor = torch.ops.resperturb.mul_normal(gradient, ctx.saved_tensors[0], ctx.scale, ctx.stride)
    return drawn


def _add_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, plus = (gradient if needed else None for needed in ctx.needs_input_grad[:2])
    return x, plus, None, None, None, None


def _keep_key_and_side(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _keep_key(ctx, *inputs[3:6])
    ctx.scaled = _scaled_side(*inputs[:3])


def _addcmul_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, plus = (gradient if needed else None for needed in ctx.needs_input_grad[:2])
    towards = None
    if ctx.scaled is not None:
        if ctx.needs_input_grad[ctx.scaled]:
            both = torch.ops.resperturb.addcmul_normal(
                gradient, None, gradient, ctx.saved_tensors[0], ctx.scale, ctx.stride, 1, False
            )
            x, plus = (both, plus) if ctx.scaled == 0 else (x, both)
    elif ctx.needs_input_grad[2]:
        towards = _again(ctx, gradient)
    return x, plus, towards, None, None, None, None, None


def _mul_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _again(ctx, gradient), None, None, None


torch.library.register_autograd("resperturb::add_normal", _add_backward)
torch.library.register_autograd(
    "resperturb::addcmul_normal",
    _addcmul_backward,
    setup_context=_keep_key_and_side,
)
torch.library.register_autograd(
    "resperturb::mul_normal",
    _mul_backward,
    setup_context=lambda ctx, inputs, output: _keep_key(ctx, *inputs[1:4]),
)


@torch.library.custom_op("resperturb::normal", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _normal(like: Tensor, ticket: Tensor, handle: int, training: bool) -> Tensor:
    """A draw that compilers can neither look into nor repeat, fold or drop."""
    source = _sources.get(handle) or NoiseSource()  # a traced graph may outlive the model it came from
    return standard_normal(like, source.next_key(training))


@_normal.register_fake
def _(like: Tensor, ticket: Tensor, handle: int, training: bool) -> Tensor:
    return torch.empty_like(like)


@_normal.register_vmap
def _(info: Any, in_dims: Any, like: Tensor, ticket: Tensor, handle: int, training: bool) -> tuple[Tensor, Any]:
    if info.randomness != "different":
        raise UsageError(
            f"vmap(randomness={info.randomness!r}) cannot give every example its own noise; say "
            "randomness='different'."
        )
    return _normal(like, torch.empty(0), handle, training), in_dims[0]


def _exported_normal(like: Tensor) -> Tensor:
    """Standard normals of the random numbers that the runtime of an exported graph has.

    Sessions of onnxruntime in one process all draw the same normals; only their dropout does not repeat. Its mask
    picks the signs, and is used as a mask because onnxruntime takes out a dropout that only feeds on.
    """
    noise = torch.randn_like(like)
    _, positive = torch.native_dropout(noise, 0.5, True)
    return torch.where(positive, noise, -noise)
