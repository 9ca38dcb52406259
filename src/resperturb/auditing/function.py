"""A user's training function, or an estimator of scikit-learn, as a trainee."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from resperturb.auditing.ask import FittedFunction
from resperturb.auditing.store import array_digest
from resperturb.auditing.trainee import Claims, Fitted, Job
from resperturb.bounds.arrays import Array, Ints
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee

TrainFunction = Callable[[Ints, int], Any]
_PLAIN = (int, float, str, bytes, bool, type(None), np.generic)
_DATA = (*_PLAIN, np.ndarray)


@dataclass(frozen=True, eq=False)
class Function(Claims):
    """A function of row numbers and a seed that returns a predictor, or yields one per checkpoint.

    ``claimed`` is what the user claims about such a training; None for nothing.
    """

    train: TrainFunction
    classes: int
    claimed: Guarantee | None = None
    name: str = "audit"
    description: str = "your own training"

    def digest(self) -> str:
        """Hash the source, the defaults and the constants of the function itself, not of what it calls."""
        return function_digest(self.train)

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Call the function, and take every predictor that it gives."""
        try:
            made: Any = self.train(job.rows, job.seed)
            if not inspect.isgenerator(made):
                yield fitted(made, self.classes)
                return
            for number, one in enumerate(made, start=1):
                if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str):
                    yield fitted(one[1], self.classes, one[0])
                else:
                    yield fitted(one, self.classes, f"checkpoint-{number:03d}")
        except SystemExit as error:
            raise UsageError(
                f"train called sys.exit({error.code!r}); it must return a predictor, or raise an error."
            ) from error


def fitted(predictor: Any, classes: int, stage: str = "") -> Fitted:
    """Make a predictor something that can be queried.

    Raises:
        UsageError: It is neither a function of row numbers to probabilities, nor a pair of a torch module and a
            function of row numbers to batches of its inputs.
    """
    if isinstance(predictor, tuple) and len(predictor) == 2 and _is_module(predictor[0]) and callable(predictor[1]):
        from resperturb.auditing.modules import FittedModule

        return FittedModule(predictor[0], predictor[1], classes, stage)
    alone = _is_module(predictor)
    if callable(predictor) and not alone:
        return FittedFunction(predictor, classes, stage)
    raise UsageError(
        "train must return a function of row numbers to probabilities, or a pair of a torch module and a function of "
        f"row numbers to batches; it returned {type(predictor).__name__}{' alone' if alone else ''}."
    )


def _is_module(thing: Any) -> bool:
    """Whether it is a torch module, which is not asked of torch, for it need not be loaded."""
    return hasattr(thing, "state_dict") and hasattr(thing, "eval")


def check_train(train: Any, **setting: Any) -> None:
    """Refuse what cannot be called with row numbers, a seed and the keywords of a setting."""
    if not callable(train):
        raise UsageError(f"train must be a function of row numbers and a seed, not {type(train).__name__}.")
    try:
        inspect.signature(train).bind(np.arange(1), 0, **setting)
    except TypeError as error:
        more = f", and {', '.join(setting)}" if setting else ""
        raise UsageError(f"train must take row numbers and a seed{more} ({error}).") from None
    except ValueError:  # some callables have no signature
        pass


def is_estimator(thing: Any) -> bool:
    """Whether it is an estimator by the conventions of scikit-learn: ``fit``, ``predict_proba``, ``get_params``."""
    return all(hasattr(thing, name) for name in ("fit", "get_params")) and not isinstance(thing, type)


@dataclass(frozen=True, eq=False)
class EstimatorTraining:
    """Fits copies of an estimator of scikit-learn on rows of an array, a sparse matrix or a DataFrame."""

    estimator: Any
    features: Any
    labels: Ints

    def __call__(self, indices: Ints, seed: int) -> Callable[[Ints], Array]:
        """Fit a copy with a seed of its own."""
        from sklearn.base import clone

        model = clone(self.estimator)
        seeds = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
        model.set_params(**dict.fromkeys(seeds, seed % 2**32))
        model.fit(rows_of(self.features, indices), self.labels[indices])
        return predictor_of(model, self.features, self.labels)


def predictor_of(model: Any, features: Any, labels: Ints) -> Callable[[Ints], Array]:
    """Return the predictor of a fitted estimator, a function of row numbers to probabilities.

    Raises:
        UsageError: There is not one row of features per label, or the estimator gives no probabilities of them.
    """
    if not hasattr(model, "predict_proba"):
        raise UsageError(f"{type(model).__name__} has no predict_proba; an audit needs class probabilities.")
    if not set(getattr(model, "classes_", ())) <= set(range(int(labels.max()) + 1)):
        raise UsageError(f"labels must be the classes that the model was fitted on, which are {model.classes_}.")
    return functools.partial(_probabilities, model, checked_features(features, labels), int(labels.max()) + 1)


def _probabilities(model: Any, features: Any, classes: int, rows: Ints) -> Array:
    found = np.zeros((len(rows), classes))
    columns = np.asarray(model.classes_).astype(np.int64)  # they may be bool or float
    found[:, columns] = model.predict_proba(rows_of(features, rows))
    return found


def rows_of(features: Any, rows: Ints) -> Any:
    """Return some rows of an array, a list, a sparse matrix or a DataFrame."""
    if hasattr(features, "tocsr"):
        return features.tocsr()[rows]
    return features.iloc[rows] if hasattr(features, "iloc") else np.asarray(features)[rows]


def checked_features(features: Any, labels: Ints) -> Any:
    """Return the data of an estimator; a DataFrame keeps its columns, and a sparse matrix is never filled.

    Raises:
        UsageError: There are none, or not one row of them per label.
    """
    if features is None:
        raise UsageError(
            "an estimator needs its data: rp.audit(estimator, X, y), or rp.audit_model(..., features=X)."
        )
    found = features.tocsr() if hasattr(features, "tocsr") else features
    if not (hasattr(found, "tocsr") or hasattr(found, "iloc")):
        found = np.asarray(found)
    if found.shape[:1] != (len(labels),):
        raise UsageError(
            f"features must have a row for each of the {len(labels)} labels; their shape is {found.shape}."
        )
    return found


def function_digest(function: Any) -> str:
    """Hash a training: its source, and the numbers, texts and arrays that it uses; not what it calls.

    These are defaults, constants, what it captures, globals that it names, and attributes of the object whose method
    it is. Of an estimator they are its parameters and its data.

    >>> function_digest(lambda x: x + 1) == function_digest(lambda x: x + 2)
    False
    """
    if isinstance(function, functools.partial):
        parts = [function_digest(function.func), _plain(function.args), _plain(function.keywords)]
    elif isinstance(function, EstimatorTraining):
        parts = [_plain(function.estimator), _plain(function.features)]
    else:
        owner = getattr(function, "__self__", None if inspect.isfunction(function) else function)
        function = getattr(function, "__func__", function)
        called = function if hasattr(function, "__code__") else type(function).__call__
        code = getattr(called, "__code__", None)
        try:
            source = inspect.getsource(function if hasattr(function, "__code__") else type(function))
        except (OSError, TypeError):  # typed at a prompt
            source = getattr(function, "__qualname__", type(function).__qualname__)
        held = [getattr(function, name, None) for name in ("__defaults__", "__kwdefaults__")]
        used = []
        for cell in getattr(function, "__closure__", None) or ():
            with suppress(ValueError):  # not assigned yet
                used.append(cell.cell_contents)
        if not isinstance(owner, type | ModuleType):
            used += [value for _, value in sorted(getattr(owner, "__dict__", {}).items())]
        known = getattr(called, "__globals__", {})
        used += [known[name] for name in _names(code) if name in known and isinstance(known[name], _DATA)]
        # Lists are mostly of results, and grow.
        held += [value for value in used if not isinstance(value, list | dict)]
        parts = [source, _constants(code), *map(_plain, held)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _names(code: CodeType | None) -> list[str]:
    """List the globals that a function and those within it name."""
    if code is None:
        return []
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return sorted({*code.co_names, *inner})


def _constants(code: CodeType | None) -> str:
    if code is None:
        return ""
    inner = [_constants(one) if isinstance(one, CodeType) else _plain(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {inner}"


def _plain(value: Any) -> str:
    """Write what prints the same in every process; of arrays and tables a digest, of estimators their parameters."""
    if isinstance(value, tuple | list | frozenset):
        return repr(sorted(map(_plain, value)) if isinstance(value, frozenset) else [_plain(one) for one in value])
    if isinstance(value, dict):
        return repr({key: _plain(one) for key, one in value.items()})
    if isinstance(value, _PLAIN):
        return repr(value)
    if is_estimator(value):
        of = {
            name: function_digest(one) if inspect.isfunction(one) else _plain(one)
            for name, one in value.get_params().items()
        }
        return f"{type(value).__qualname__} {sorted(of.items())}"
    if isinstance(value, type):
        return value.__qualname__
    if hasattr(value, "tocsr"):
        sparse = value.tocsr()
        return f"{sparse.shape} {array_digest(sparse.data, sparse.indices, sparse.indptr)}"
    if hasattr(value, "iloc"):
        columns = value.items() if hasattr(value, "columns") else [("", value)]
        return repr([(name, _plain(column.to_numpy())) for name, column in columns])
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if str(value.dtype) != "torch.bfloat16" else value.float()).numpy()
    if isinstance(value, np.ndarray):
        return array_digest(value) if value.dtype != object else repr([_plain(one) for one in value.tolist()])
    return type(value).__qualname__
