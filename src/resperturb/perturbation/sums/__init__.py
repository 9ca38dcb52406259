"""Find the residual sums in other people's networks: which addition is ``x + F(x)``, and which side of it is ``x``.

The ``forward`` of every module is read, not run: each value in it is followed to the tensors that it derives from
(:mod:`.reader`), and :mod:`.rules` decide by that. Sums that look residual and are not understood are reported too,
so that they are not taken for perturbed. Networks of this package name their junctions themselves, and are not read.
"""

from dataclasses import replace

from torch import nn

from resperturb.perturbation.sums.reader import Reader, ResidualSum, is_torch
from resperturb.perturbation.sums.rewrite import class_of
from resperturb.perturbation.sums.rules import Side
from resperturb.perturbation.sums.source import function_source, plain_function

__all__ = ["ResidualSum", "Side", "find_sums", "unreadable_modules"]


def unreadable_modules(model: nn.Module) -> list[nn.Module]:
    """List the modules with weights whose ``forward`` has no source to be read, so that nothing is known of its sums.

    >>> unreadable_modules(nn.Linear(2, 2))
    []
    """
    unreadable = []
    for module in model.modules():
        if _is_to_be_read(module) and next(module.parameters(), None) is not None:
            function = plain_function(class_of(module).forward)
            own = vars(module).get("forward", class_of(module).forward)  # the instance may have another one
            if function is None or function_source(function) is None or plain_function(own) is not function:
                unreadable.append(module)
    return unreadable


def _is_to_be_read(module: nn.Module) -> bool:
    """Whether a module is user-written; what torch defines has no junctions, except for its transformers."""
    if says_its_junctions(module):
        return False
    own = isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    return own or not is_torch(class_of(module).forward)


def says_its_junctions(module: nn.Module) -> bool:
    """Whether a module is of this package, or written for it, so that its junctions are where it calls ``join``."""
    kinds = class_of(module).__mro__
    return kinds[0].__module__.startswith("resperturb.") or any(kind.__name__ == "HasJunction" for kind in kinds)


def find_sums(model: nn.Module) -> list[ResidualSum]:
    """List the sums in ``model`` that are residual or look so, in the order of its modules and of their source.

    >>> find_sums(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    []
    """
    order = {id(module): position for position, module in enumerate(model.modules())}
    reader = Reader()
    for module in reversed(list(model.modules())):  # what is inside first: what is around looks it up
        if _is_to_be_read(module):
            try:
                reader.read(module)
            except Exception as error:  # an odd program must not be taken for one without sums
                reader.failed(module, error)
    sums = [_best(readings) for readings in reader.found.values()]
    known = {found.key for found in sums}
    for found in reader.from_caller:
        # A list of blocks is read by one block of each class, so that one followed call stands for all of the class.
        if found is None or found.module is model or class_of(found.module) in reader.followed:
            continue
        if found.key not in known:
            sums.append(found)
            known.add(found.key)
    return sorted(
        (found for found in sums if id(found.module) in order and not says_its_junctions(found.module)),
        key=lambda found: (order[id(found.module)], found.line, found.index or 0),
    )


def _best(readings: list[ResidualSum]) -> ResidualSum:
    """The reading that understands most: a caller's arguments may explain what a method alone does not."""
    live = any(found.live for found in readings)
    return replace(next((found for found in readings if not found.problem), readings[0]), live=live)
