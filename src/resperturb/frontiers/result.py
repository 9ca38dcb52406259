"""What a frontier found: curves with intervals, comparisons at equal accuracy, a finding, recommendations."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from resperturb.bounds.arrays import Floats
from resperturb.bounds.exposed import Exposed
from resperturb.bounds.targets import mean_estimate
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import read_json, write_bytes, write_json
from resperturb.frontiers.compare import FEWEST_TARGETS, Compared, GroupDifference, named
from resperturb.frontiers.curve import CANARY_TPR, PRIMARY, WEIGHTS_AUC, Curve
from resperturb.frontiers.defence import Setting

SCHEMA = 2


@dataclass(frozen=True)
class Measured:
    """A mean over targets, with its interval."""

    value: float
    low: float
    high: float

    def words(self, digits: int = 3) -> str:
        """Write the value with its interval.

        >>> Measured(0.6, 0.55, 0.65).words(2)
        '0.60 (0.55–0.65)'
        >>> Measured(-1e-9, 0, 0.01).words(2)  # rounding errors get no sign
        '0.00 (0.00–0.01)'
        """
        return f"{self.value:z.{digits}f} ({self.low:z.{digits}f}–{self.high:z.{digits}f})"


@dataclass(frozen=True)
class Stage:
    """One checkpoint of a setting: its name, its accuracy, and what it leaks by endpoint."""

    name: str
    accuracy: Measured
    leaks: dict[str, Measured]


@dataclass(frozen=True, kw_only=True)
class SettingResult(Setting):
    """One setting: a curve through the checkpoints of its training; the last stage is the model.

    ``epsilon`` is what the accounting gives for one training, and ``claimed`` whether that is proven. ``exposed`` is
    the number of records named at a false discovery rate of 5%, None where there are too few models to name any.
    ``per`` is what epsilon is of where that is less than the unit of the audit.
    """

    models: int
    stages: tuple[Stage, ...]
    epsilon: float | None = None
    claimed: bool = False
    exposed: int | None = None
    per: str = ""

    @classmethod
    def of(cls, curve: Curve, confidence: float, exposed: Exposed | None = None) -> "SettingResult":
        """Summarise a curve: intervals of every point."""

        def measured(values: Floats) -> Measured:
            found = mean_estimate(values)
            low, high = found.interval(confidence)
            return Measured(found.value, max(0.0, low), min(1.0, high))

        stages = tuple(
            Stage(name, measured(curve.accuracy[row]), {leak: measured(at[row]) for leak, at in curve.leaks.items()})
            for row, name in enumerate(curve.stages)
        )
        named = exposed.count if exposed is not None and exposed.resolved else None
        return cls(
            **curve.values,
            models=len(curve.targets),
            stages=stages,
            epsilon=curve.epsilon,
            claimed=curve.claimed,
            per=curve.per,
            exposed=named,
        )

    @property
    def final(self) -> Stage:
        """The model as it is trained to its end."""
        return self.stages[-1]

    @property
    def guarantee(self) -> str:
        """Epsilon in words."""
        if self.epsilon is None:
            return "none"
        number = f"{self.epsilon:.3g}" + (f" per {self.per}" if self.per else "")
        return number if self.claimed else f"{number}, not claimed"

    @property
    def words(self) -> str:
        """Name, and what anyone with the weights finds where that is more than its served answers give away."""
        served, weights = (self.final.leaks.get(name) for name in (PRIMARY, WEIGHTS_AUC))
        if served is None or weights is None or weights.value <= served.high:
            return self.name
        return f"{self.name} (as served; AUC {weights.value:.3f} with its weights)"


@dataclass(frozen=True)
class Recommendation:
    """The setting that the constraints choose; ``setting`` is None where none meets them."""

    sentence: str
    setting: str | None = None
    stage: str | None = None


@dataclass(frozen=True, repr=False)
class FrontierResult:
    """What a frontier found; printed, it is the finding, a line per setting and the comparisons.

    ``models`` is K, the models of each setting, each the target once; ``records`` and ``canaries`` count candidates.
    ``settings`` begin with *no defence*. ``confidence`` is that of intervals, and the joint one of all comparisons of
    an endpoint; differences within ``margin`` do not matter. ``left_out`` says which settings were not run, and why.
    """

    subject: str
    attack: str
    models: int
    records: int
    canaries: dict[str, int]
    confidence: float
    margin: float
    settings: tuple[SettingResult, ...]
    comparisons: tuple[Compared, ...]
    left_out: tuple[str, ...] = ()
    groups: tuple[GroupDifference, ...] = ()
    seed: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def __getitem__(self, name: str) -> SettingResult:
        """Return a setting by its name."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise UsageError(f"there is no setting {name!r}; there are {', '.join(one.name for one in self.settings)}.")

    def __repr__(self) -> str:
        lines = [
            f"  {one.name}: accuracy {one.final.accuracy.words()}, AUC {one.final.leaks[PRIMARY].words()}"
            for one in self.settings
        ]
        return "\n".join([f"{self.title}.", *lines, *self.remarks])

    @property
    def remarks(self) -> tuple[str, ...]:
        """The primary comparisons in sentences, then the settings that were not compared, then what was left out."""
        compared = tuple(one.sentence for one in self.primary)
        left_out = tuple(f"Left out: {one.rstrip('.')}." for one in self.left_out)
        return (*compared, *([self.uncompared] if self.uncompared else []), *left_out)

    @property
    def uncompared(self) -> str:
        """Which settings were not compared with ordinary regularisation, and why; empty where all were."""
        compared = {one.setting for one in self.primary if one.verdict != "not comparable"}
        names = [one.name for one in self.settings if not one.ordinary and one.name not in compared]
        if not names:
            return ""
        return (
            f"Not compared with ordinary regularisation: {', '.join(names)}. Fewer than {FEWEST_TARGETS} models are "
            "left, or no ordinary regularisation of that accuracy was measured."
        )

    @property
    def title(self) -> str:
        """The finding, from the joint intervals of the primary endpoint."""
        found = [one for one in self.primary if one.verdict != "not comparable"]
        better = sorted((one for one in found if one.verdict == "leaks less"), key=lambda one: one.difference.mean)
        if better:
            named = [self[one.setting].words for one in better]
            most = f"by up to {-better[0].difference.mean:.3f} AUC"
            if len(named) > 2:
                most, named = f"{most}, {named[0]}", [f"{len(named)} of {len(found)} settings"]
            return (
                f"{' and '.join(named)} leaked less than ordinary regularisation of the same accuracy: {most}; "
                f"{self.models} models per setting"
            )
        if not found:
            return (
                "No defence could be compared with ordinary regularisation"
                if self.uncompared
                else "Ordinary regularisation alone was measured"
            )
        if all(one.verdict in ("equivalent", "leaks more") for one in found):
            return (
                f"No defence tested leaked less than ordinary regularisation of the same accuracy, within "
                f"{self.margin:g} AUC"
            )
        return (
            f"No defence tested was told apart from ordinary regularisation as better, with {self.models} models "
            "per setting"
        )

    @property
    def primary(self) -> tuple[Compared, ...]:
        """The comparisons with ordinary regularisation by the primary endpoint, which decide the finding."""
        return tuple(one for one in self.comparisons if one.endpoint == PRIMARY and not one.against)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The comparisons in sentences."""
        return tuple(one.sentence for one in self.comparisons)

    def recommend(
        self,
        *,
        max_auc: float | None = None,
        max_canary_tpr: float | None = None,
        max_accuracy_loss: float | None = None,
    ) -> Recommendation:
        """Choose a setting and a checkpoint under constraints.

        A leak meets a limit if the upper end of its interval does. With a limit on leaks the most accurate is chosen,
        and with a limit on accuracy alone the one that leaks least.

        Args:
            max_auc: Largest AUC on records.
            max_canary_tpr: Largest TPR at 1% FPR on canaries.
            max_accuracy_loss: Largest loss of accuracy compared with no defence.

        Raises:
            UsageError: There is no constraint, or one is not between 0 and 1.
        """
        given = {"max_auc": max_auc, "max_canary_tpr": max_canary_tpr, "max_accuracy_loss": max_accuracy_loss}
        if not check_limits(given):
            raise UsageError(f"a recommendation needs a limit: {', '.join(given)}.")
        limits = {PRIMARY: max_auc, CANARY_TPR: max_canary_tpr}
        wanted = {name: limit for name, limit in limits.items() if limit is not None}
        every = list(self._points())
        if missing := [name for name in wanted if any(name not in stage.leaks for _, stage in every)]:
            raise UsageError(f"{missing[0]} was not measured: there are too few canaries or models for it.")
        least = -1.0 if max_accuracy_loss is None else self.settings[0].final.accuracy.value - max_accuracy_loss
        met = [
            (setting, stage)
            for setting, stage in every
            if stage.accuracy.value >= least
            and all(stage.leaks[name].high <= limit for name, limit in wanted.items())
        ]
        asked = " and ".join(
            [f"{name} at most {limit:g}" for name, limit in wanted.items()]
            + ([] if max_accuracy_loss is None else [f"accuracy at least {least:.3f}"])
        )
        if not met:
            name = next(iter(wanted), PRIMARY)
            setting, stage = min(every, key=lambda point: point[1].leaks[name].high)
            return Recommendation(
                f"No setting meets {asked}. The least leaking is {_named(setting, stage)}: {name} "
                f"{stage.leaks[name].words()}, accuracy {stage.accuracy.words()}."
            )
        setting, stage = (
            max(met, key=lambda point: point[1].accuracy.value)
            if wanted
            else min(met, key=lambda point: point[1].leaks[PRIMARY].value)
        )
        proven = (
            "nothing is proven of it"
            if not setting.claimed
            else f"epsilon {setting.guarantee} is proven of one training to its end; the choice by this audit "
            "looked at the records too, which epsilon does not cover"
        )
        return Recommendation(
            f"Under {asked}: {_named(setting, stage)}, accuracy {stage.accuracy.words()}, AUC "
            f"{stage.leaks[PRIMARY].words()}; {proven}. It was chosen among {len(every)} points by the same data: "
            "audit the model that you release.",
            setting.name,
            stage.name,
        )

    def choice(self, **limits: float | None) -> Recommendation | None:
        """Recommend a setting where there are limits; None where there are none."""
        given = check_limits(limits)
        return self.recommend(**given) if given else None

    def to_dict(self, **limits: float | None) -> dict[str, object]:
        """Return plain values, with the finding, the comparisons in words and what :meth:`recommend` says."""
        choice = self.choice(**limits)
        said = {"finding": self.title, "sentences": list(self.sentences)}
        return {**said, "recommendation": None if choice is None else asdict(choice), **asdict(self)}

    def _points(self) -> Iterator[tuple[SettingResult, Stage]]:
        return ((setting, stage) for setting in self.settings for stage in setting.stages)

    def save(self, path: Path | str) -> Path:
        """Write the result as JSON, whole or not at all."""
        write_json(Path(path), asdict(self))
        return Path(path)

    def report(self, path: Path | str, **limits: float | None) -> Path:
        """Write a page with figure, comparisons and what :meth:`recommend` says."""
        from resperturb.frontiers.page import render

        write_bytes(Path(path), render(self, **limits).encode())
        return Path(path)


def check_limits(limits: Mapping[str, float | None]) -> dict[str, float]:
    """Return the limits that are given.

    Raises:
        UsageError: One is not between 0 and 1.

    >>> check_limits({"max_auc": 0.6, "max_accuracy_loss": None})
    {'max_auc': 0.6}
    """
    found = {name: limit for name, limit in limits.items() if limit is not None}
    for name, limit in found.items():
        if not 0 <= limit <= 1:
            raise UsageError(f"the limit {name} must lie between 0 and 1, not at {limit:g}.")
    return found


def read_frontier(path: Path | str) -> FrontierResult:
    """Read what :meth:`FrontierResult.save` wrote.

    Raises:
        ResperturbError: The file is damaged, or of another version.
    """
    found = read_json(dict[str, object], Path(path))
    if found.get("schema") != SCHEMA:
        raise ResperturbError(f"{path} has schema {found.get('schema')}, not {SCHEMA}; run the frontier again.")
    return read_json(FrontierResult, Path(path))


def _named(setting: SettingResult, stage: Stage) -> str:
    return setting.words if stage is setting.final else named(setting.words, stage.name)
