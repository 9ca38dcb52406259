"""The mechanism: Gaussian noise in every residual mapping, in training and at test time.

``n`` is standard normal, fresh for every call, block, example and element. :func:`perturb` changes a model in place;
the noise is on in ``train()`` and in ``eval()``, and :func:`noise_off` is the only way to silence it. What the noise
is like is a :class:`~resperturb.perturbation.strategy.Strategy`.
"""

import copy
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import torch
from torch import fx, nn
from torch.optim.swa_utils import AveragedModel

from resperturb.errors import UsageError
from resperturb.noise.source import NoiseSource
from resperturb.perturbation.junctions import Junction, all_sums, set_noise, slots_of
from resperturb.perturbation.presence import (
    MARK,
    Mark,
    StrategyNoise,
    check_presence,
    networks_of,
    noises_of,
    reseeded,
    sources_of,
)
from resperturb.perturbation.state_dicts import StateDictMark
from resperturb.perturbation.strategy import STRATEGIES, Strategy, strategy_to_dict
from resperturb.perturbation.sums import unreadable_modules

SCHEMA = 1
log = logging.getLogger(__name__)
M = TypeVar("M", bound=nn.Module)


def _keep_slow_path(module: nn.Module, args: Any) -> None:
    """A forward pre-hook: torch's transformer layer skips its own sums in ``eval()`` unless it has a hook."""


def perturb(
    model: M, strategy: Strategy, *, targets: str | Sequence[str] | None = None, seed: int | None = None
) -> M:
    """Put ``strategy`` into the junctions of ``model``, in place, and return the model.

    The junctions are those that ``junctions(model)`` lists: networks of torchvision, timm and transformers are
    understood, and most that are written alike.

    Args:
        model: Any module; parameter names and ``state_dict`` keys stay as they are.
        targets: Names of junctions, or patterns such as ``"layer3.*"``; all of them if None.
        seed: Makes the noise of *predictions* repeatable. Anyone who knows it can compute the noise and subtract it
            from every answer: leave it out unless you are testing. Left out, that noise comes from the operating
            system; the noise of training follows ``torch.manual_seed``.

    Raises:
        UsageError: The model is perturbed already, has no junctions, or has sums that look residual and are not
            understood; the message lists them, and ``targets`` then says where the noise goes.

    >>> from resperturb import Additive, models
    >>> model = perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5))
    >>> strategy_of(model)
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """
    _check_types(model, strategy)
    if (present := strategy_of(model)) is not None:
        raise UsageError(f"the model is perturbed already, by {present}; start from a fresh one.")
    inner = unwrapped(model)
    if any(getattr(module, "_compiled_call_impl", None) is not None for module in inner.modules()):
        raise UsageError(
            "the model was compiled in place by model.compile(), and code that is compiled already need not look for "
            "new noise: perturb the model first, then compile it."
        )
    if any(nn.parameter.is_lazy(parameter) for parameter in inner.parameters()):
        raise UsageError(
            "some layers do not know their sizes yet (Lazy...): call the model on a batch before perturb."
        )
    seen = _readable_sums(inner)
    chosen = _chosen(inner, seen, targets)
    if strategy.needs_shortcut:
        _check_shortcuts(strategy, chosen)
    source = NoiseSource(seed)
    networks = networks_of(inner)
    strategy.check(networks)
    set_noise(chosen, StrategyNoise(strategy, source))
    strategy.install(networks, source)
    setattr(inner, MARK, Mark(strategy, source, len(chosen)))
    inner.register_state_dict_post_hook(StateDictMark(strategy))  # type: ignore[no-untyped-call]
    for junction in chosen:
        if isinstance(junction.module, nn.TransformerEncoderLayer):
            junction.module.register_forward_pre_hook(_keep_slow_path)
    config: Any = getattr(inner, "config", None)
    if hasattr(config, "to_json_file"):  # transformers saves it next to the weights, and load() finds it there
        config = copy.copy(config)  # another model may have been made from it
        config.resperturb = perturbation_record(inner)
        inner.config = config
    log.info(
        "%s: noise (%s) at %d of %d junctions%s",
        type(inner).__name__,
        strategy.describe(),
        sum(junction.live for junction in chosen),
        sum(junction.live and not junction.problem for junction in seen),
        "" if targets is None else f", chosen by targets={targets!r}",
    )
    return model


def _check_types(model: Any, strategy: Any) -> None:
    if not isinstance(strategy, Strategy):
        known = ", ".join(STRATEGIES[name].__name__ for name in STRATEGIES)
        raise UsageError(f"perturb needs a strategy such as {known}, not {strategy!r}.")
    if not isinstance(model, nn.Module):
        raise UsageError(f"perturb needs a torch.nn.Module, not {model!r}.")


# By the names of their classes: neither library is imported for it.
_INSIDE = {"_FabricModule": "_forward_module", "AbstractGradSampleModule": "_module"}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile``, data parallelism, averaging, Fabric or Opacus; its names are the user's."""
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif wrapper := next((base.__name__ for base in type(model).__mro__ if base.__name__ in _INSIDE), None):
            model = getattr(model, _INSIDE[wrapper])
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel | AveragedModel):
            model = model.module
        else:
            return model


def _readable_sums(model: nn.Module) -> list[Junction]:
    for name, module in model.named_modules():
        if isinstance(module, fx.GraphModule | torch.jit.ScriptModule):
            raise UsageError(
                f"{name or 'the model'} is a traced {type(module).__name__}, whose sums cannot be perturbed; perturb "
                "the model first, then trace it."
            )
    return all_sums(model)


def _chosen(model: nn.Module, seen: list[Junction], targets: str | Sequence[str] | None) -> list[Junction]:
    """The junctions to perturb, or an error that lists what was seen."""
    live = [junction for junction in seen if junction.live]
    if targets is not None:
        return _targeted(live, [targets] if isinstance(targets, str) else list(targets))
    if unclear := [junction for junction in live if junction.problem]:
        understood = ", ".join(junction.name for junction in live if not junction.problem) or "none"
        possible = [junction for junction in live if not junction.problem or junction.addition is not None]
        advice = "Say with targets=[...] which of all these are to be perturbed."
        if len(possible) < len(live):
            impossible = ", ".join(junction.name for junction in live if junction not in possible)
            choice = ", or say with targets=[...] which of the others are to be perturbed" if possible else ""
            advice = f"Write {impossible} as x + f(x) in a method of the module{choice}."
        if line := _targets_line(live):
            advice += f" For those that are understood, and no other:\n  targets={line}"
        raise UsageError(
            f"{type(model).__name__} has sums that look residual and are not understood:\n{_listed(unclear)}\n"
            f"Understood: {understood}.\n{advice}"
        )
    if unreadable := sorted({type(module).__qualname__ for module in unreadable_modules(model)}):
        raise UsageError(
            f"the source of {', '.join(unreadable)} cannot be read, so it is not known whether it has junctions; "
            "define it in a file" + (", or say with targets=[...] what to perturb of the rest." if live else ".")
        )
    if not live:
        raise UsageError(
            f"{type(model).__name__} has no residual junction: in none of its {len(list(model.modules()))} modules "
            "was a tensor seen that is added to a function of itself."
        )
    # What an instance does not run now it may run after an attribute is changed: the noise is there before.
    return [junction for junction in seen if not junction.problem]


def _targets_line(live: Sequence[Junction]) -> str:
    """The targets that take all junctions that are understood and nothing else, in few words."""
    unclear = [junction for junction in live if junction.problem]
    targets: dict[str, None] = {}
    for junction in live:
        if not junction.problem:
            pattern = re.sub(r"\d+", "*", junction.name)
            targets[junction.name if any(_matches(other, pattern) for other in unclear) else pattern] = None
    return str(list(targets)) if targets else ""


def _matches(junction: Junction, target: str) -> bool:
    return fnmatchcase(junction.name, target) or fnmatchcase(junction.name.partition(":")[0], target)


def _targeted(live: list[Junction], targets: list[Any]) -> list[Junction]:
    chosen: dict[int, Junction] = {}
    for target in targets:
        exact = [j for j in live if j.name == target]
        matching = exact or [j for j in live if _matches(j, str(target))]
        if not matching:
            names = ", ".join(junction.name for junction in live) or "none"
            raise UsageError(f"no junction matches the target {target!r}; there are: {names}.")
        chosen.update({live.index(junction): junction for junction in matching})
    if not chosen:
        raise UsageError("targets is empty, so nothing would be perturbed; leave it out to perturb every junction.")
    if impossible := [j for j in chosen.values() if j.problem and j.addition is None]:
        raise UsageError(f"these sums cannot be perturbed:\n{_listed(impossible)}")
    return [chosen[position] for position in sorted(chosen)]


def _listed(sums: Sequence[Junction]) -> str:
    return "\n".join(f"  {junction.name}: {junction.text!r} ({junction.problem})" for junction in sums)


def _check_shortcuts(strategy: Strategy, chosen: Sequence[Junction]) -> None:
    if not all(junction.has_shortcut for junction in chosen):
        raise UsageError(
            f"{strategy.name} noise is scaled by the shortcut's value, and this network has no skip connections; "
            "use Additive."
        )
    if unclear := [j for j in chosen if j.addition is not None and j.addition.shortcut is None]:
        raise UsageError(
            f"{strategy.name} noise is scaled by the shortcut's value, and it is not clear which side of these sums "
            f"is the shortcut; use Additive, or leave them out of the targets:\n{_listed(unclear)}"
        )


def strategy_of(model: nn.Module) -> Strategy | None:
    """Return what perturbs ``model``, which may be compiled or data-parallel; None if nothing does.

    Raises:
        NoiseLostError: It was perturbed, and some of its noise was taken out since: hooks were cleared, or a head, a
            first layer or a block was replaced. What one cannot see without a batch ``verify_noise`` measures.
    """
    check_presence(model)
    noises = noises_of(model)
    return noises[0].strategy if noises else None


def perturbed_junctions(model: nn.Module) -> list[str]:
    """Name the junctions of ``model`` that have noise.

    >>> from resperturb import Additive, models
    >>> perturbed_junctions(perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5), targets="*.2"))
    ['blocks.2']
    """
    return [name for name, _, slot in slots_of(model) if slot.live]


def perturbation_record(model: nn.Module) -> dict[str, Any]:
    """Describe what perturbs ``model``, and where, as plain data that is saved with the weights.

    >>> from resperturb import models
    >>> perturbation_record(models.build("resnet8", num_classes=10))
    {'schema': 1, 'strategy': {'name': 'none'}, 'junctions': []}
    """
    strategy = strategy_to_dict(strategy_of(model))
    return {"schema": SCHEMA, "strategy": strategy, "junctions": perturbed_junctions(model)}


@contextmanager
def noise_off(model: nn.Module) -> Iterator[None]:
    """Silence the noise of ``model`` inside a ``with`` block: what an attacker who holds the weights can always do.

    It holds for the whole model, in every thread that uses it.

    >>> from resperturb import Additive, models
    >>> model = perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5)).eval()
    >>> x = torch.zeros(1, 3, 32, 32)
    >>> with noise_off(model):
    ...     bool(model(x).equal(model(x)))
    True
    >>> bool(model(x).equal(model(x)))
    False
    """
    sources = sources_of(model)
    for source in sources:
        source.silenced += 1
    try:
        yield
    finally:
        for source in sources:
            source.silenced -= 1


@contextmanager
def seeded_predictions(model: nn.Module, seed: int | None) -> Iterator[None]:
    """Make the noise of predictions repeatable inside a ``with`` block, for measurements that can be repeated.

    Anyone who knows the seed can subtract the noise. None changes nothing, nor does a model without noise.
    """
    with nullcontext() if seed is None else reseeded(model, seed):
        yield
