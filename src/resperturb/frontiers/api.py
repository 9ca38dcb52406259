"""``rp.frontier``: which defence, how strong, for a training function of your own."""

from __future__ import annotations  # short signatures in help()

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from resperturb.auditing.candidates import Candidates, candidates_of, check_labels
from resperturb.auditing.function import Function, check_train
from resperturb.bounds.arrays import Texts
from resperturb.bounds.audit_result import RECORD
from resperturb.checks import missing
from resperturb.engine import Engine, local_engine
from resperturb.errors import UsageError
from resperturb.frontiers.defence import DEFENCES
from resperturb.frontiers.result import FrontierResult
from resperturb.frontiers.study import StudiedSetting, Study

Arguments = Mapping[str, Any]


def frontier(
    train: Callable[..., Any],
    settings: Mapping[str, Arguments | Sequence[Arguments]],
    labels: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    subgroups: ArrayLike | None = None,
    ordinary: Sequence[str] | None = None,
    models: int = 16,
    draws: int = 16,
    out: str | os.PathLike[str] | None = "runs/frontier",
    seed: int = 0,
    jobs: int | None = None,
    engine: Engine = local_engine,
    hours: float | None = None,
    population: int | None = None,
    confidence: float = 0.95,
    margin: float = 0.02,
    quiet: bool = False,
) -> FrontierResult:
    """Find which defence costs the least accuracy for the leak that you accept.

    K models of every setting are trained on random halves of the rows, with the same halves and seeds for every
    setting. Each model is attacked once, by the models outside its pair. Checkpoints make every setting a curve, so
    that settings are compared at equal accuracy and early stopping costs nothing. Other arguments are those of
    :func:`resperturb.audit`.

    Args:
        train: ``train(indices, seed, **setting)`` fits a model as for :func:`resperturb.audit`. If it yields a
            predictor per checkpoint, best about eight of them, every setting is a curve.
        settings: By the name of each defence, the keyword arguments of one or several strengths. One setting has
            none: ``{"none": {}, "dropout": [{"rate": 0.2}, {"rate": 0.5}]}``.
        kinds: What every row is: ``record``, or the name of a kind of canary; canaries should be 1 to 2% of the rows.
        subgroups: The subgroup of every row, such as its sex, to compare how much subgroups leak.
        ordinary: The defences that are ordinary regularisation, which the others must beat; those that are
            registered as such, and the setting without arguments, if None.
        models: K: even and at least 8; 64 or more name exposed records.
        draws: The number of draws that answers of noisy models are averaged over.
        hours: The most hours of this call; settings that do not fit are left out, and the result names them.
        confidence: Confidence of intervals, and joint confidence of comparisons.
        margin: The largest difference in leak that does not matter.

    Returns:
        Curves, comparisons and the finding; ``.recommend(max_auc=0.6)`` chooses, ``.report("frontier.html")`` writes
        a page.

    Raises:
        UsageError: A setting does not fit ``train``, ``train`` ignores its settings, or a column does not fit.
        ResperturbError: The models without a defence did not learn.
    """
    known = check_labels(labels)
    candidates = candidates_of(known, groups, kinds, population=population, seed=seed)
    study = Study(
        subject="your own training",
        settings=tuple(_settings(train, settings, int(known.max()) + 1, ordinary)),
        candidates=candidates,
        models=models,
        draws=draws,
        seed=seed,
        confidence=confidence,
        margin=margin,
        subgroups=None if subgroups is None else subgroups_of(subgroups, candidates, len(known)),
    )
    return study.run(None if out is None else Path(out), engine=engine, jobs=jobs, hours=hours, quiet=quiet)


def subgroups_of(values: ArrayLike, candidates: Candidates, count: int) -> Texts:
    """Return the subgroup of every candidate as text, of those of ``count`` rows; ``""`` where it is not known."""
    column = np.asarray(values, dtype=object)
    if column.shape != (count,):
        raise UsageError(f"subgroups must hold one value for each of the {count} rows, not {column.shape}.")
    texts = np.array(["" if missing(one) else str(one) for one in column.tolist()])
    found = texts[candidates.rows[: len(candidates)]]
    found[candidates.kinds != RECORD] = ""
    return found


def _settings(train: Any, settings: Any, classes: int, ordinary: Sequence[str] | None) -> Iterator[StudiedSetting]:
    """Name every setting, and check that ``train`` takes it; the one without arguments comes first."""
    every = list(_flat(settings))
    if not any(not arguments for _, arguments in every):
        raise UsageError("settings must have one without a defence, such as {'none': {}, ...}.")
    if ordinary is not None and (unknown := [name for name in ordinary if name not in settings]):
        raise UsageError(f"ordinary names {unknown[0]!r}, and settings has no such defence.")
    if len(every) < 2:
        raise UsageError("settings must have a defence besides the one without arguments.")
    for name, arguments in every:
        try:
            check_train(train, **arguments)
        except UsageError as error:
            raise UsageError(f"the setting {_named(name, arguments)!r} does not fit: {error}") from None

    plain = {name: name.lower().replace("_", "-").replace(" ", "-") for name, _ in every}
    formal = {name for name in DEFENCES if DEFENCES[name].formal}
    regular = {name for name in DEFENCES if DEFENCES[name].ordinary}

    def is_ordinary(name: str, arguments: Arguments) -> bool:
        return not arguments or (plain[name] in regular if ordinary is None else name in ordinary)

    order = sorted(every, key=lambda one: (bool(one[1]), not is_ordinary(*one)))
    for name, arguments in order:
        numbers = [value for value in arguments.values() if isinstance(value, int | float)]
        strength = float(numbers[0]) if len(numbers) == 1 else None
        kind = is_ordinary(name, arguments), plain[name] in formal
        trainee = Function(partial(train, **arguments), classes, name=name)
        yield StudiedSetting(_named(name, arguments), name, *kind, strength, trainee=trainee)


def _flat(settings: Any) -> Iterator[tuple[str, Arguments]]:
    if not isinstance(settings, Mapping) or not settings:
        raise UsageError(
            "settings must be a dictionary of defences, such as {'none': {}, 'dropout': [{'rate': 0.2}]}."
        )
    for name, value in settings.items():
        strengths = [value] if isinstance(value, Mapping) else value
        if not isinstance(strengths, Sequence) or isinstance(strengths, str) or not strengths:
            raise UsageError(
                f"settings[{name!r}] must be keyword arguments of train, or a list of such dictionaries."
            )
        for arguments in strengths:
            if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
                raise UsageError(
                    f"settings[{name!r}] must hold dictionaries of keyword arguments, not {arguments!r}."
                )
            yield str(name), dict(arguments)


def _named(name: str, arguments: Arguments) -> str:
    """Name a setting.

    >>> _named("dropout", {"rate": 0.2}), _named("noise", {"gamma": 1, "decay": 0.1}), _named("none", {})
    ('dropout 0.2', 'noise gamma=1, decay=0.1', 'none')
    """
    if len(arguments) == 1:
        return f"{name} {next(iter(arguments.values()))}"
    return " ".join(filter(None, (name, ", ".join(f"{key}={value}" for key, value in arguments.items()))))
