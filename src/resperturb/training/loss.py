"""Losses other than cross-entropy: a base class, and their registry.

Adding one is one file under ``@register_loss`` in ``training/losses``; another package adds one through the entry
point group ``resperturb.losses``. ``resperturb train --loss NAME:KEY=VALUE`` and ``TrainConfig.loss`` then know it.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from resperturb.errors import UsageError
from resperturb.files import parse_yaml
from resperturb.registry import Registry


class Loss(BaseModel):
    """What a training minimises; the fields are its parameters and part of the configuration of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]

    def of_batch(self, logits: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """Compute the scalar whose gradient a step follows, of logits ``[N, C]`` in an epoch counted from 0."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Name and parameters in a few words: ``relaxloss 0.5``."""
        values = [f"{value:g}" for value in self.model_dump().values() if not isinstance(value, bool)]
        return " ".join([self.name, *values])

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the parameters."""
        return {"name": self.name, **self.model_dump(mode="json")}


LOSSES: Registry[type[Loss]] = Registry("loss", group="resperturb.losses", package="resperturb.training.losses")
register_loss = LOSSES.register


def parse_pairs(text: str) -> dict[str, Any]:
    """Read ``key=value`` pairs of the command line; values are numbers, true, false, text, or lists of these.

    >>> parse_pairs("width=64,act_layer=gelu,depths=[1,2]")
    {'width': 64, 'act_layer': 'gelu', 'depths': [1, 2]}
    """
    found: dict[str, Any] = {}
    for part in re.split(r",(?![^\[]*\])", text):  # not at the commas of a list
        key, equals, value = part.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"pairs are separated by commas, such as width=64,pool=true; not {part!r}.")
        found[key.strip()] = parse_yaml(value, part)
    return found


def loss_of(value: object) -> Loss | None:
    """Read a loss as configurations and the command line write it; None is cross-entropy.

    >>> loss_of("relaxloss:alpha=0.5")
    RelaxLoss(alpha=0.5, detach=False)
    >>> loss_of("hinge")
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: unknown loss 'hinge'; known are hamp, relaxloss.
    """
    if value is None or isinstance(value, Loss):
        return value
    if isinstance(value, str):
        name, _, text = value.partition(":")
        value = {"name": name, **(parse_pairs(text) if text else {})}
    if not isinstance(value, Mapping) or "name" not in value:
        raise UsageError(f"a loss is a name with parameters, such as relaxloss:alpha=0.5; not {value!r}.")
    parameters = {str(key): item for key, item in value.items() if key != "name"}
    if value["name"] in ("none", "cross-entropy") and not parameters:
        return None
    try:
        return LOSSES[str(value["name"])](**parameters)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise UsageError(f"loss {value['name']}, {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
