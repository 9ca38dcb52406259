"""What exists already as a trainee: a model, or predictions; and whether members and non-members look alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from resperturb.attacks.evidence import ShadowStatistics
from resperturb.attacks.signals import LEAST_PROBABILITY, Query
from resperturb.auditing.ask import check_probabilities
from resperturb.auditing.candidates import unmasked
from resperturb.auditing.function import fitted
from resperturb.auditing.store import array_digest, text_digest
from resperturb.auditing.trainee import Claims, Fitted, Job, Trainee
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.bounds.attack_metrics import AttackMetrics, split_metrics
from resperturb.engine.task import Shared
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee

# Two sets are called different from this confidence on.
SURE = 0.99
FOLDS, MOST_COLUMNS = 5, 200


@dataclass(frozen=True, eq=False)
class Existing(Claims):
    """A model that exists, by its predictor; ``recipe`` trains shadow models, None for an audit without any."""

    predict: Any
    classes: int
    recipe: Trainee | None = None
    claimed: Guarantee | None = None
    name: str = "this model"
    description: str = "an existing model"

    def digest(self) -> str:
        """Name the recipe; the model itself is queried each time, for its source does not name its weights."""
        return text_digest("existing" + ("" if self.recipe is None else self.recipe.digest()))

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Give the model, or fit a shadow model."""
        if self.recipe is None or job.number == 0:
            yield fitted(self.predict, self.classes)
        else:
            yield from self.recipe.fit(job)

    def shared(self) -> Shared | None:
        """Return the recipe's data."""
        return None if self.recipe is None else self.recipe.shared()


@dataclass(frozen=True, eq=False)
class KeptPredictions:
    """The predictions of one model: log-probabilities ``[draws, rows, classes]``."""

    logs: Floats
    stage: str = ""
    digest: str = ""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """As many draws as there are."""
        return (Query("served", tuple(sorted({1, len(self.logs)}))),)

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield what is kept."""
        for one in self.logs[: query.draws]:
            yield one[rows]


@dataclass(frozen=True, eq=False)
class Predictions(Claims):
    """Predictions of several models about the same rows."""

    probabilities: Sequence[Floats]
    name: str = "predictions"
    claimed: Guarantee | None = None
    description: str = "given predictions"

    def digest(self) -> str:
        """Name the predictions by their contents."""
        return array_digest(*self.probabilities)

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Give the predictions of a model."""
        yield KeptPredictions(np.log(np.maximum(self.probabilities[job.number], LEAST_PROBABILITY)))


def check_model(name: str, values: ArrayLike, labels: Ints) -> Floats:
    """Return the predictions of a model as ``[draws, rows, classes]``, or say what is wrong with them."""
    try:
        found = unmasked(name, values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must hold probabilities ({error}).") from error
    every = found[None] if found.ndim == 2 else found
    if every.ndim != 3:
        raise UsageError(f"{name} must be [rows, classes] or [draws, rows, classes], not {found.shape}.")
    try:
        checked: Floats = np.stack([check_probabilities(one, len(labels), int(labels.max()) + 1) for one in every])
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    return checked


def check_flags(name: str, values: Any, shape: tuple[int, ...]) -> Bools:
    """Return a mask of members, or say what is wrong with it."""
    found = unmasked(name, values)
    if found.shape != shape:
        raise UsageError(f"{name} must have the shape {shape}, not {found.shape}.")
    if found.dtype.kind != "b" and not np.isin(found, (0, 1)).all():
        raise UsageError(f"{name} must be true or false for every row; row numbers are not understood here.")
    return found.astype(bool)


def check_whole_units(units: Ints, members: Bools) -> None:
    """Refuse units with members and non-members."""
    _, codes = np.unique(units, return_inverse=True)
    share = np.bincount(codes, weights=members) / np.bincount(codes)
    torn = int(((share > 0) & (share < 1)).sum())
    if torn:
        raise UsageError(f"{torn} groups have members and non-members; all records of a group must be in or out.")


def shift_by_features(features: Any, members: Bools, units: Ints) -> AttackMetrics:
    """Distinguish members from non-members by their features alone, with a cross-validated linear classifier.

    Features are an array ``[rows, ...]``, a sparse matrix, or a DataFrame, of which numeric columns are used. The
    first 200 columns count; missing values are replaced by the column's mean. No unit is in two folds.

    Raises:
        UsageError: The features are not one row of numbers per row.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if hasattr(features, "select_dtypes"):
        features = features.select_dtypes(("number", "bool"))
    elif hasattr(features, "tocsr"):
        features = features[:, :MOST_COLUMNS].toarray()
    try:
        array = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"features must be numbers ({error}).") from None
    if array.ndim < 2 or len(array) != len(members) or np.isinf(array).any():
        raise UsageError(f"features must be finite numbers, one row for each of the {len(members)} rows.")
    flat = array.reshape(len(array), -1)[:, :MOST_COLUMNS]
    model = make_pipeline(
        SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(C=0.1, max_iter=500)
    )
    folds = StratifiedGroupKFold(FOLDS)
    guessed = cross_val_predict(model, flat, members, groups=units, cv=folds, method="decision_function")
    return split_metrics(guessed, members, units, confidence=SURE, rates=())


def shift_by_models(shadows: ShadowStatistics, members: Bools, units: Ints) -> AttackMetrics:
    """Compare what models that saw neither say about members and about non-members."""
    view = next(view for view in shadows.outside if view.combination == "mean logit")
    outside = shadows.outside[view].mean[: len(members), 0]
    return split_metrics(outside, members, units, confidence=SURE, rates=())


def shift_words(found: AttackMetrics, how: str) -> list[str]:
    """Warn where two sets differ; return None where no difference was found."""
    low, high = found.estimate.interval(SURE)
    if low <= 0.5 <= high:
        return []
    return [
        f"Members and non-members differ in distribution: {how} distinguishes them with an AUC of {found.auc:.3f} "
        f"({low:.3f} to {high:.3f}). An attack can win by that alone; draw both sets from the same source."
    ]
