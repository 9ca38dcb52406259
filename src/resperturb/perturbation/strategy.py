"""What a strategy of noise is, and the strategies by name.

A strategy is a frozen dataclass of its parameters. A new one is one file in ``perturbation/strategies``, or an entry
point of another package in the group ``resperturb.strategies`` (docs/extend.md has one). ``perturb``, ``load``,
configurations, the audit and the report then know it by its name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from resperturb.errors import UsageError
from resperturb.noise import Draw, NoiseSource
from resperturb.registry import Registry

if TYPE_CHECKING:
    from resperturb.privacy import Guarantee

# Larger ones do not fit single precision once they are multiplied with a draw.
LARGEST_LEVEL = 1e30


@dataclass(frozen=True)
class TrainingFacts:
    """What a guarantee must know of a training besides the strategy.

    ``input_radius`` is the largest Euclidean norm that an input can have, whatever the record. Each of the
    ``networks`` of an ensemble sees every record.
    """

    epochs: int
    batch_size: int
    records: int
    input_radius: float
    networks: int = 1


NoisyPlace = Literal["model", "input", "junction", "output"]


class Probe(ABC):
    """Measures the noise of one place while a model runs."""

    where: str
    kind: NoisyPlace = "output"
    handle: RemovableHandle | None = None

    @abstractmethod
    def attach(self) -> None:
        """Start to look, by a hook that :attr:`handle` removes."""

    def detach(self) -> None:
        """Stop to look, and leave the model as it was."""
        if self.handle is not None:
            self.handle.remove()

    @abstractmethod
    def draws(self) -> list[Tensor]:
        """Return what was added at each call in units of what should be: standard normals, or zeros if it is lost."""


@dataclass(frozen=True)
class Strategy(ABC):
    """How noise enters a network; subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str] = ""
    needs_shortcut: ClassVar[bool] = False

    @abstractmethod
    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Draw) -> Tensor:
        """Add noise to a residual sum.

        Args:
            total: The sum of shortcut and branch.
            shortcut: The shortcut alone; None where a network has no skip connections.
            noise: Standard normals ``n`` of the shape of ``total``: ``noise.add(total, scale)`` is
                ``total + scale n``, ``noise.addcmul(total, factor, scale)`` is ``total + scale factor n``, and
                ``noise.like(total)`` is ``n``. One of them, once.

        Returns:
            ``total`` with noise that is linear in ``n``.
        """

    def apply_to_sum(self, left: Tensor, right: Tensor, shortcut: Tensor, noise: Draw) -> Tensor:
        """Add noise to ``left + right``, as :meth:`apply` does to their sum; override it to do so in one pass.

        Both sides have one shape and type, and one is the shortcut. Methods of ``noise`` take the other as ``plus``.
        """
        return self.apply(left + right, shortcut, noise)

    @property
    @abstractmethod
    def is_noisy(self) -> bool:
        """Whether it makes the answers of a model random at all."""

    @property
    def is_noisy_at_junctions(self) -> bool:
        """Whether :meth:`apply` changes anything; if not, nothing is drawn."""
        return self.is_noisy

    @property
    def sums_by_draw(self) -> bool:
        """Whether :meth:`apply_to_sum` is one call of ``noise.add`` or ``noise.addcmul``, right in half precision."""
        return False

    @property
    def mixes_records(self) -> bool:
        """Whether the noise of a record depends on the others of its batch."""
        return False

    def check(self, networks: Sequence[nn.Module]) -> None:  # noqa: B027
        """Make sure that :meth:`install` has where to put the noise.

        Raises:
            UsageError: These networks have no place for it.
        """

    def install(self, networks: Sequence[nn.Module], source: NoiseSource) -> None:  # noqa: B027
        """Put noise where there is no junction, such as on the input; the junctions have theirs already."""

    def lost(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[str]:
        """Say what of :meth:`install` is no longer there, one phrase each."""
        return []

    def probes(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[Probe]:
        """Return what measures the noise of :meth:`install`."""
        return []

    def guarantee(self, facts: TrainingFacts, delta: float) -> "Guarantee":
        """Say what is proven of the weights of a model that was trained with this noise.

        Returns:
            A guarantee; its epsilon is infinite where nothing is proven, as here, and ``setting`` says why.
        """
        from resperturb.privacy.guarantee import nothing_proven

        return nothing_proven(f"Nothing is known to be proven of the strategy {self.name!r}.", delta)

    @property
    def label(self) -> str:
        """What it is in a word or two for a table: its name, and its level of noise if it has one.

        >>> from resperturb import Additive
        >>> Additive(gamma=0.5).label
        'additive 0.5'
        """
        level = getattr(self, "gamma", None)
        return self.name if level is None else f"{self.name} {level:g}"

    def describe(self) -> str:
        """Say in a few words what it is.

        >>> from resperturb import Additive
        >>> Additive(gamma=0.5).describe()
        'additive, gamma=0.5, input_std=0.25, scale=constant'
        """
        given = {key: value for key, value in asdict(self).items() if value is not None}
        values = (
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in given.items()
        )
        return ", ".join([self.name, *values])

    def to_dict(self) -> dict[str, Any]:
        """Return its name and parameters as plain data, which :func:`strategy_from_dict` reads."""
        return {"name": self.name, **asdict(self)}


STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy", "resperturb.strategies", "resperturb.perturbation.strategies"
)
register_strategy = STRATEGIES.register


def strategy_to_dict(strategy: Strategy | None) -> dict[str, Any]:
    """Describe a strategy, or None for no noise, as plain data: its name and parameters.

    >>> from resperturb import Multiplicative
    >>> strategy_to_dict(Multiplicative(2.0))
    {'name': 'multiplicative', 'gamma': 2.0, 'floor': 0.0, 'output_std': 0.0}
    """
    return {"name": "none"} if strategy is None else strategy.to_dict()


def strategy_from_dict(description: Mapping[str, Any]) -> Strategy | None:
    """Build the strategy that :func:`strategy_to_dict` described.

    Raises:
        UsageError: No strategy has that name, or it does not take these parameters.

    >>> strategy_from_dict({"name": "additive", "gamma": 1.0})
    Additive(gamma=1.0, input_std=0.5, clip_radius=None, scale='constant')
    """
    parameters = dict(description)
    name = parameters.pop("name", None)
    if name == "none" and not parameters:
        return None
    kind = STRATEGIES[str(name)]
    known = {field.name for field in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if (wrong := parameters.keys() - known) or (wrong := needed - parameters.keys()):
        raise UsageError(f"the strategy {name!r} takes {sorted(known)}; check {sorted(wrong)}.")
    return kind(**parameters)


def check_level(strategy: Strategy, field: str) -> None:
    """Make sure that a parameter is a level of noise, and keep it as a float.

    Raises:
        UsageError: It is no number, negative, or too large.
    """
    value = getattr(strategy, field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LARGEST_LEVEL:
        raise UsageError(
            f"{type(strategy).__name__}: {field} must be a number from 0 to {LARGEST_LEVEL:g}, not {value!r}."
        )
    object.__setattr__(strategy, field, float(value))
