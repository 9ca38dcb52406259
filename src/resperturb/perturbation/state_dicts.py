"""A ``state_dict`` of a perturbed model says so, and a model without noise that loads it warns.

Weights and keys are those of the user's model. The mark is a string in the metadata that torch keeps next to them,
which ``torch.save`` writes and ``torch.load`` reads. For the warning ``nn.Module.load_state_dict`` is extended, once,
when this module is imported: torch has no hook that would tell a model without noise what it is being given.
"""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from resperturb.perturbation.junctions import slots_of
from resperturb.perturbation.strategy import Strategy

KEY = "resperturb"


@dataclass
class StateDictMark:
    """A hook of ``state_dict()`` that notes in its metadata what perturbs the model."""

    strategy: Strategy

    def __call__(self, module: nn.Module, state_dict: Any, prefix: str, metadata: dict[str, Any]) -> None:
        """Note the strategy."""
        metadata[KEY] = self.strategy.describe()


_load_state_dict = nn.Module.load_state_dict


@functools.wraps(_load_state_dict)
def _warning_load_state_dict(self: nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    metadata = getattr(state_dict, "_metadata", None) or {}
    marks = [entry[KEY] for entry in metadata.values() if isinstance(entry, Mapping) and KEY in entry]
    if marks and not slots_of(self):
        warnings.warn(
            f"these weights were trained with noise ({marks[0]}), and {type(self).__name__}, which loads them, has "
            "none: perturb it first, or keep weights and noise together with resperturb.save and resperturb.load.",
            stacklevel=2,
        )
    return _load_state_dict(self, state_dict, *args, **kwargs)


if _load_state_dict.__module__ != __name__:
    nn.Module.load_state_dict = _warning_load_state_dict  # type: ignore[method-assign]
