"""How a network is trained: a base class for training methods, and their registry.

A method says how a step is taken, what it changes in the defaults of a training, what it enforces and what it proves.
Adding one is one file under ``@register_method``; another package adds one through the entry point group
``resperturb.methods``. Nothing outside a method's own file asks which method it is.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from resperturb.errors import UsageError
from resperturb.registry import Registry

if TYPE_CHECKING:
    from resperturb.data.images import ImageSet
    from resperturb.privacy.guarantee import Guarantee
    from resperturb.training.config import TrainConfig
    from resperturb.training.distributed import Execution
    from resperturb.training.steps import Steps

# A number above 0; None where the user says inf, which JSON does not have.
PositiveOrNone = Annotated[
    Annotated[float, Field(gt=0)] | None, BeforeValidator(lambda value: None if value == math.inf else value)
]


class Method(BaseModel):
    """A way of training. Its fields are its parameters, and part of the configuration of a run.

    Attributes:
        name: What it is called in configurations; ``@register_method`` sets it.
        title: What it is called in sentences.
        private: Whether it proves something about the weights for each record, whatever noise is in the network.
        channels_last: Whether it trains with that memory layout.
        relative_cost: How long a step takes, in steps of SGD.
        defaults: Fields of the training configuration that it sets unless the user does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    title: ClassVar[str]
    private: ClassVar[bool] = False
    channels_last: ClassVar[bool] = True
    relative_cost: ClassVar[float] = 1.0
    defaults: ClassVar[Mapping[str, Any]] = {}

    @property
    def label(self) -> str:
        """What makes it private, in two words for a table: ``DP-SGD 1.1``; empty if nothing does."""
        return ""

    def describe(self) -> str:
        """Say in a line how it was set, for a report; empty if there is nothing to say."""
        return ""

    def check(self, config: "TrainConfig") -> None:
        """Refuse a configuration with which the method would not keep its word.

        Raises:
            UsageError: With what is wrong and what to do.
        """

    def settle(self, config: "TrainConfig", members: "ImageSet") -> "TrainConfig":
        """Replace what depends on the records, such as a wanted epsilon, by what it takes to get it."""
        return config

    def steps(self, config: "TrainConfig", members: "ImageSet", execution: "Execution") -> "Steps":
        """Build the network and what trains it, step by step."""
        raise NotImplementedError

    def guarantee(self, config: "TrainConfig", records: int, steps: int, delta: float | None = None) -> "Guarantee":
        """Say what ``steps`` steps on ``records`` records prove; asked of ``private`` methods only."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the parameters."""
        return {"name": self.name, **self.model_dump(mode="json")}


methods: Registry[type[Method]] = Registry(
    "training method", group="resperturb.methods", package="resperturb.training.methods"
)
register_method = methods.register


def method_of(value: object) -> Method:
    """Make a method of a name, or of a name with parameters; a method is returned as it is.

    >>> method_of("sgd").name, method_of({"name": "dpsgd", "clip": 0.5}).label
    ('sgd', 'DP-SGD 1.1')
    """
    if isinstance(value, Method):
        return value
    fields = {"name": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping) or "name" not in fields:
        raise UsageError(f"a training method is a name, or a name with parameters, not {value!r}.")
    parameters = {key: item for key, item in fields.items() if key != "name"}
    return methods[str(fields["name"])](**parameters)
