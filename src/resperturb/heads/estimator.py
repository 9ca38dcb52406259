"""``dp_head`` and ``DPHead``: private classifiers on features, by scikit-learn's conventions."""

from __future__ import annotations  # short signatures in help()

import copy
import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from resperturb.bounds.arrays import Array, Floats, Ints
from resperturb.checks import finite_rows, missing, refuse_masked, refuse_other_index
from resperturb.errors import UsageError
from resperturb.heads import HEADS, Descent, OneShot
from resperturb.heads.release import OnRelease, noise_of
from resperturb.heads.rows import rows_of, unit_rows
from resperturb.privacy.dp_head import check_numbers, head_guarantee, head_mu, too_few
from resperturb.privacy.guarantee import Assumption, Guarantee, nothing_proven

Head = Literal["gradient", "one-shot"]

OWN_SECRET = Assumption("enforced", "The noise comes from 128 bits of the operating system, which were not kept.")
SEEDED = Assumption(
    "not met",
    "The noise must be secret, and it follows from random_state: anyone who knows it can draw the noise again and "
    "take it away.",
)


class DPHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier on public features with differential privacy, per record or per group of records.

    Each row is normalised by itself, so features need no scaling. The defaults need no search; the guarantee
    would not cover a search on the private data.

    Args:
        epsilon: Epsilon of the guarantee; ``math.inf`` trains the same head without noise.
        delta: Delta of the guarantee.
        classes: All classes that exist, in the order of the columns of ``predict_proba``; a public list. None reads
            them from the labels, which the guarantee then names as an assumption.
        head: ``"gradient"`` (noisy gradient descent), or ``"one-shot"``.
        settings: Constants of the head, :class:`Descent` or :class:`OneShot`; None for the defaults.
        unit: What a group is called in the guarantee, such as ``"patient"``.
        random_state: Seed of the noise for experiments that must repeat; the guarantee is then void. None takes 128
            bits from the operating system.

    Attributes:
        classes_: The classes.
        coef_: The weights of the normalised rows, one row per class; the last column belongs to the constant.
        guarantee_: The guarantee, also :meth:`guarantee`.
        n_features_in_: The number of features.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 2000)
    >>> features = rng.normal(size=(2000, 8)) + 2 * labels[:, None]
    >>> head = DPHead(epsilon=3, classes=[0, 1]).fit(features, labels)
    >>> head.score(features, labels) > 0.9, head.guarantee().words
    (True, 'epsilon at most 3 at delta 1e-05, attack AUC at most 0.694')
    """

    def __init__(
        self,
        epsilon: float = 3.0,
        delta: float = 1e-5,
        *,
        classes: Sequence[Hashable] | None = None,
        head: Head = "gradient",
        settings: Descent | OneShot | None = None,
        unit: str = "group",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.head = head
        self.settings = settings
        self.unit = unit
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None, *, on_release: OnRelease | None = None
    ) -> DPHead:
        """Train the head.

        Args:
            X: One row of features per record.
            y: The class of each record.
            groups: The group (patient) of each record, protected as a whole; None protects single records.
            on_release: Called with every noisy sum that the guarantee covers, for audits.

        Raises:
            UsageError: A parameter or an array cannot be used.
        """
        fitted = copy.copy(self)  # a fit that fails leaves this head as it was
        fitted._fit(X, y, groups, on_release)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, on_release: OnRelease | None) -> None:
        for what, values in (("X", X), ("y", y), ("groups", groups)):
            refuse_masked(what, values)
        refuse_other_index(X=X, y=y, groups=groups)
        settings = self._settings()
        mu = head_mu(self.epsilon, self.delta)
        features, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        codes = self._coded(labels)
        unit, units = _units(groups, len(features))
        if (name := "record" if groups is None else self.unit) and (
            warning := too_few(units, mu, name, len(self.classes_))
        ):
            warnings.warn(warning, UserWarning, stacklevel=3)
        rows = rows_of(features, codes, len(self.classes_), unit, units)
        check_numbers(settings.numbers(rows.x.shape[1], len(self.classes_)))
        secret = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))
        self.coef_ = settings.fit(rows, mu, noise_of(secret), on_release).T
        self.guarantee_ = self._proven(mu, settings.words, units, name)

    def guarantee(self) -> Guarantee:
        """Return what is proven about the weights and every release of their training."""
        check_is_fitted(self)
        proven: Guarantee = self.guarantee_
        return proven

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the logits; with two classes their difference, as scikit-learn has it."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class."""
        probabilities: Floats = softmax(self._logits(X), axis=1)
        return probabilities

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class."""
        best = self._logits(X).argmax(axis=1)
        predicted: Array = self.classes_[best]
        return predicted

    def _logits(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        logits: Floats = unit_rows(validate_data(self, X, reset=False)) @ self.coef_.T
        return logits

    def _settings(self) -> Descent | OneShot:
        if self.head not in HEADS:
            raise UsageError(f"there is no head {self.head!r}; known are {', '.join(HEADS)}.")
        kind = HEADS[self.head]
        settings = kind() if self.settings is None else self.settings
        if not isinstance(settings, kind):
            raise UsageError(f"the head {self.head!r} takes settings of {kind.__name__}, not {settings!r}.")
        return settings

    def _coded(self, labels: Array) -> Ints:
        """Number the labels by the public list of classes; a class that does not occur is no error."""
        self.classes_ = np.unique(labels) if self.classes is None else np.asarray(self.classes)
        if len(self.classes_) < 2:
            raise UsageError("a classifier needs more than one class; name all that exist by classes=.")
        places = {value: place for place, value in enumerate(self.classes_.tolist())}
        if len(places) < len(self.classes_):
            raise UsageError(f"classes names a class twice: {self.classes_.tolist()}.")
        unknown = sorted({str(label) for label in labels.tolist() if label not in places})
        if unknown:
            raise UsageError(f"there are labels that classes does not name: {', '.join(unknown[:5])}.")
        return np.array([places[label] for label in labels.tolist()], dtype=np.int64)

    def _proven(self, mu: float, words: str, units: int, unit: str) -> Guarantee:
        if math.isinf(mu):
            return nothing_proven("The head was trained without noise.", self.delta)
        return head_guarantee(
            mu=mu,
            delta=self.delta,
            head=words,
            records=units,
            unit=unit,
            secrecy=OWN_SECRET if self.random_state is None else SEEDED,
            extra=(_read_classes(unit),) if self.classes is None else (),
        )

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True  # the checks give it some ten records
        return tags


def dp_head(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    epsilon: float = 3.0,
    delta: float = 1e-5,
    groups: ArrayLike | None = None,
    classes: Sequence[Hashable] | None = None,
    head: Head = "gradient",
    settings: Descent | OneShot | None = None,
    on_release: OnRelease | None = None,
) -> DPHead:
    """Train a classifier on public features that is differentially private, per record or per patient.

    Other arguments are those of :class:`DPHead`.

    Args:
        features: One row per record, from an extractor that was trained without these records.
        groups: The patient of each record; a pandas Series names the unit. None protects single records.
        on_release: Called with every noisy sum that the guarantee covers, for audits.

    Returns:
        The trained estimator, with ``predict``, ``predict_proba`` and ``guarantee()``.

    Raises:
        UsageError: An argument cannot be used.

    >>> rng = np.random.default_rng(0)
    >>> patients = rng.integers(0, 1000, 3000)
    >>> labels = patients % 2
    >>> features = rng.normal(size=(3000, 8)) + 2 * labels[:, None]
    >>> head = dp_head(features, labels, epsilon=3, groups=patients, classes=[0, 1])
    >>> head.guarantee().protects
    'one group, all of its records, their labels and their number included, even from ...'
    """
    unit = str(getattr(groups, "name", None) or "group")
    try:
        estimator = DPHead(epsilon, delta, classes=classes, head=head, settings=settings, unit=unit)
        rows = np.asarray(features)
        if rows.ndim == 2 and rows.dtype.kind == "f":
            finite_rows("the features", rows)
        return estimator.fit(features, labels, groups, on_release=on_release)
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        reason = str(error).partition("\n")[0].rstrip(".:")  # what follows shows private rows
        raise UsageError(f"the features or labels cannot be used: {reason}.") from error


def _read_classes(unit: str) -> Assumption:
    return Assumption(
        "assumed", f"The list of classes was read from the labels: no class occurs because of a single {unit}."
    )


def _units(groups: ArrayLike | None, records: int) -> tuple[Ints | None, int]:
    """Number the units of the records and count them."""
    if groups is None:
        return None, records
    names = np.asarray(groups)
    if names.shape != (records,):
        raise UsageError(f"groups must name one group per record, {records}, not have the shape {names.shape}.")
    if any(map(missing, names.tolist())):
        raise UsageError("groups has missing values; every record needs a group, its own if it belongs to no other.")
    found, codes = np.unique(names.astype(str) if names.dtype == object else names, return_inverse=True)
    return codes.astype(np.int64), len(found)
