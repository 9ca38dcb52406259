"""A model that exists, with shadow models of a recipe, as a trainee; and whether its two sets look alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from resperturb.attacks.evidence import ShadowStatistics
from resperturb.auditing.function import fitted
from resperturb.auditing.store import text_digest
from resperturb.auditing.trainee import Claims, Fitted, Job, Trainee
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.engine.task import Shared
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee

# Two sets are called different from this confidence on.
SURE = 0.99
FOLDS, MOST_COLUMNS = 5, 200


@dataclass(frozen=True, eq=False)
class Existing(Claims):
    """A model that exists.

    Attributes:
        predict: Its predictor: a function of row numbers to probabilities, or a module and a loader.
        classes: The number of classes.
        recipe: What trains shadow models; None for an audit without any.
        claimed: What is claimed about its training.
        name: Name in headlines.
    """

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
        if job.number == 0:
            yield fitted(self.predict, self.classes)
            return
        if self.recipe is None:
            raise UsageError("shadow models take a recipe.")
        yield from self.recipe.fit(job)

    def shared(self) -> Shared | None:
        """Return the recipe's data."""
        return None if self.recipe is None else self.recipe.shared()


def shift_by_features(features: Any, members: Bools, units: Ints) -> AttackMetrics:
    """Distinguish members from non-members by their features alone, with a cross-validated linear classifier.

    Args:
        features: Numbers of every row: an array ``[rows, ...]``, a sparse matrix, or a DataFrame, of which numeric
            columns are used. Only the first 200 columns count; missing values are replaced by the column's mean.
        members: Membership of every row.
        units: The group of every row; no group is in two folds.

    Returns:
        Metrics on rows that the classifier was not fitted on.

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
    return attack_metrics(
        guessed[members],
        guessed[~members],
        confidence=SURE,
        member_groups=units[members],
        nonmember_groups=units[~members],
        rates=(),
    )


def shift_by_models(shadows: ShadowStatistics, members: Bools, units: Ints) -> AttackMetrics:
    """Compare what models that saw neither say about members and about non-members."""
    view = next(view for view in shadows.outside if view.combination == "mean logit")
    outside: Floats = shadows.outside[view].mean[: len(members), 0]
    return attack_metrics(
        outside[members],
        outside[~members],
        confidence=SURE,
        member_groups=units[members],
        nonmember_groups=units[~members],
        rates=(),
    )


def shift_words(found: AttackMetrics, how: str) -> list[str]:
    """Warn where two sets differ; return None where no difference was found."""
    low, high = found.estimate.interval(SURE)
    if low <= 0.5 <= high:
        return []
    return [
        f"Members and non-members differ in distribution: {how} distinguishes them with an AUC of {found.auc:.3f} "
        f"({low:.3f} to {high:.3f}). An attack can win by that alone; draw both sets from the same source."
    ]
