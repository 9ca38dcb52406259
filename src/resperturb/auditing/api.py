"""The one pipeline: claim the folder, fit what is missing, assess, write."""

from __future__ import annotations  # short signatures in help()

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from resperturb.attacks.registry import ATTACKS
from resperturb.auditing.assess import Settings, assess
from resperturb.auditing.candidates import (
    Candidates,
    candidates_of,
    check_columns,
    check_labels,
    check_rows,
    unit_name,
)
from resperturb.auditing.design import Design, check_shadow_count, given, leave_one_out, one_target
from resperturb.auditing.existing import (
    Existing,
    Predictions,
    check_flags,
    check_model,
    check_whole_units,
    shift_by_features,
    shift_words,
)
from resperturb.auditing.fit import fit_models
from resperturb.auditing.function import (
    EstimatorTraining,
    Function,
    TrainFunction,
    check_train,
    checked_features,
    is_estimator,
    predictor_of,
    rows_of,
)
from resperturb.auditing.store import SCORES, Plan, array_digest, keep_scores, opened_store, save_audit
from resperturb.auditing.trainee import Trainee, weakest_guarantee
from resperturb.bounds.arrays import Ints, Texts
from resperturb.bounds.audit_result import CAVEATS, RECORD, AuditResult, Subject
from resperturb.bounds.one_run import chance_of_sizes
from resperturb.checks import refuse_other_index
from resperturb.engine import Engine, local_engine
from resperturb.environment import environment
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee

# Fair coins give sizes at least as uneven as those that are refused with this probability.
NO_COINS = 0.02
# With fewer models on independent coins, more than one row in twenty is left out.
FEWEST_WITHOUT_BIAS = 12
RECIPE = "What was audited is the recipe: models trained as yours, each on the half of the rows that coins chose."


def audit_trainee(
    trainee: Trainee,
    candidates: Candidates,
    design: Design,
    settings: Settings,
    *,
    out: Path | None,
    engine: Engine = local_engine,
    jobs: int | None = None,
    attacks: Sequence[str] = (),
    digests: Mapping[str, str] | None = None,
    caveats: Sequence[str] = (),
    subject: Subject = "models of this recipe",
    quiet: bool = False,
) -> AuditResult:
    """Audit a trainee: fit and query the models of a design, attack the targets, and keep everything in a folder.

    Args:
        out: The folder; None to keep nothing, and to fit in this process.
        attacks: Names of attacks that are fixed beforehand besides the default ones; they share the error.
        digests: Digests of a run that the result belongs to.
        caveats: What else must be said with the numbers.
        subject: What the numbers are about.

    Raises:
        UsageError: The trainee does not do what it promises, or the folder holds something else.
        ResperturbError: Fewer than half of the models learned.
    """
    for name in attacks:
        _ = ATTACKS[name]  # one that is not registered is refused before anything is trained
    plan = plan_of(trainee, candidates, design, settings.draws)
    if out is None:  # answers are not kept: in this process, one model after the other
        engine, jobs = local_engine, 1
    with opened_store(out, plan) as store:
        left, models, left_out = fit_models(trainee, candidates, design, settings.draws, store, engine, jobs, quiet)
        records = left.members[left.targets].sum(axis=1) + len(candidates.always)
        guarantee = weakest_guarantee(trainee, settings.delta, records.tolist())
        result, scores = assess(models, left, settings, guarantee, attacks, None if out is None else out / SCORES)
        result = replace(
            result,
            caveats=(*CAVEATS, *caveats, *result.caveats, *models.doubts(), *left_out),
            digests={"question": plan.question, **(digests or {})},
            environment=environment(),
            left_out=left_out,
            subject=subject,
        )
        if out is None:
            return result
        return save_audit(replace(result, digests={**result.digests, "scores": keep_scores(out, scores)}), out)


def plan_of(trainee: Trainee, candidates: Candidates, design: Design, draws: tuple[int, ...]) -> Plan:
    """Describe what models are fitted on and queried about, so that a folder holds one audit only."""
    count = len(candidates)
    existing = design.members[design.seeds < 0]
    return Plan(
        train=trainee.digest(),
        labels=array_digest(candidates.labels[np.argsort(candidates.rows)]),
        groups=array_digest(candidates.units),
        kinds=array_digest(candidates.kinds),
        rows=array_digest(candidates.rows[:count], candidates.always),
        design=design.kind,
        members=array_digest(existing) if len(existing) else "",
        seed=design.seed,
        draws=draws,
        population=array_digest(candidates.rows[count:]),
    )


def audit(
    train: TrainFunction | Trainee | Any,
    features: Any = None,
    labels: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    validation: ArrayLike | None = None,
    shadows: int | None = None,
    models: int | None = None,
    draws: int | Sequence[int] = (1, 16),
    out: str | os.PathLike[str] | None = "runs/audit",
    seed: int = 0,
    jobs: int | None = None,
    engine: Engine = local_engine,
    delta: float = 1e-5,
    confidence: float = 0.95,
    population: int | None = None,
    guarantee: Guarantee | None = None,
    attacks: Sequence[str] = (),
    quiet: bool = False,
) -> AuditResult:
    """Audit training code for membership leakage.

    A fair coin per row (or per group) decides what each model is trained on. Every model is queried about all rows,
    every attack scores every row, and epsilon is bounded from below. What is audited is the recipe: models trained
    as ``train`` trains, on half of the rows.

    Args:
        train: ``train(indices, seed)`` fits a model on the rows ``indices`` of your data and returns
            ``predict(indices)``, which gives probabilities ``[rows, classes]``; or a torch module and a function of
            row numbers to batches of its inputs. It may yield one of these per checkpoint. A module that is perturbed
            is queried over many draws of its noise and without it. Or an estimator of scikit-learn, with its data.
        features: Rows of an estimator's data; not used otherwise.
        labels: The class of every row, as whole numbers from 0.
        groups: The group (patient) of every row. Then coins, intervals, tests and the bound are per group.
        kinds: What every row is: ``record``, or the name of a kind of canary. Every canary has a coin of its own.
        validation: Rows for early stopping: they are neither members nor non-members.
        shadows: The number of shadow models of one target: even, at least 4; 0 for an audit of one training. 16
            unless ``models`` is given.
        models: K, for the leave-one-out design: each of K models is a target once, attacked by the others.
        draws: The numbers of draws that answers of noisy models are combined over.
        out: The folder that keeps everything; rerun the same call to resume. None keeps nothing, and trains
            one model after the other in this process.
        seed: Seed of coins and trainings; the two models on opposite coins share a training seed.
        jobs: Trainings at a time; 1 runs them in this process, None as many as the engine has room for.
        engine: Where to train: processes of this machine, or ``resperturb.engine.RayEngine()``.
        delta: Delta of the bound on epsilon.
        confidence: Confidence of each interval, and joint confidence of all bounds on epsilon.
        population: Rows that no model is trained on, which RMIA compares with; a tenth, at most 200, if None.
        guarantee: What you claim about such a training, to be compared with what the audit shows.
        attacks: Names of attacks of your own that are fixed beforehand, and bound epsilon too.
        quiet: Say nothing on stderr.

    Returns:
        What was found; it is kept in ``out`` too.

    Raises:
        UsageError: ``train`` does not do what it should (the message says what it did), or ``out`` holds another
            audit.
        ResperturbError: Fewer than half of the models learned.
    """
    settings = Settings.of(draws, delta, confidence)
    if labels is None and features is not None and not is_estimator(train):
        labels = features
    if labels is None:
        raise UsageError("labels must hold one class per row, as whole numbers from 0.")
    _check_arguments(seed, jobs, engine, guarantee)
    refuse_other_index(features=features, labels=labels, groups=groups, kinds=kinds)
    known = check_labels(labels)
    trainee = _trainee(train, features, known, guarantee, "audit" if out is None else Path(out).name)
    candidates = candidates_of(known, groups, kinds, population=population, validation=validation, seed=seed)
    if models is not None and shadows is not None:
        raise UsageError("shadows belongs to one target, models to the leave-one-out design; give one of them.")
    design = (
        leave_one_out(candidates.units, models, seed)
        if models is not None
        else one_target(candidates.units, 16 if shadows is None else shadows, seed)
    )
    return audit_trainee(
        trainee,
        candidates,
        design,
        settings,
        out=None if out is None else Path(out),
        engine=engine,
        jobs=jobs,
        attacks=attacks,
        caveats=(RECIPE,),
        quiet=quiet,
    )


def _trainee(train: Any, features: Any, labels: Ints, guarantee: Guarantee | None, name: str) -> Trainee:
    """Make a trainee of what a user gives."""
    if all(hasattr(train, method) for method in ("fit", "digest", "guarantee", "shared")):
        found: Trainee = train
        return found
    classes = int(labels.max()) + 1
    if is_estimator(train):
        described = f"scikit-learn's {type(train).__name__}"
        fits = EstimatorTraining(train, checked_features(features, labels), labels)
        return Function(fits, classes, guarantee, name, described)
    check_train(train)
    return Function(train, classes, guarantee, name)


def _check_arguments(seed: Any, jobs: Any, engine: Any, guarantee: Any) -> None:
    """Refuse before anything is trained what would fail after it."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}.")
    if jobs is not None and (not isinstance(jobs, int | np.integer) or jobs < 1):
        raise UsageError(f"jobs must be a whole number of at least 1, not {jobs!r}.")
    if not callable(engine):
        raise UsageError(f"engine must be an engine, such as resperturb.engine.RayEngine(), not {engine!r}.")
    if not (guarantee is None or isinstance(guarantee, Guarantee)):
        raise UsageError(f"guarantee must be a resperturb.privacy.Guarantee, not {guarantee!r}.")


def audit_model(
    predict: Any,
    *,
    members: ArrayLike,
    nonmembers: ArrayLike,
    labels: ArrayLike,
    recipe: TrainFunction | Trainee | None = None,
    features: Any = None,
    groups: ArrayLike | None = None,
    shadows: int = 16,
    draws: int | Sequence[int] = (1, 16),
    out: str | os.PathLike[str] | None = "runs/audit-model",
    seed: int = 0,
    jobs: int | None = None,
    engine: Engine = local_engine,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guarantee: Guarantee | None = None,
    quiet: bool = False,
) -> AuditResult:
    """Audit a model that exists: its training set and a held-out set are given.

    Epsilon is not bounded, since membership was not decided by coins. Other arguments are those of :func:`audit`.

    Args:
        predict: The model: a function of row numbers to probabilities ``[rows, classes]``, a pair of a torch module
            and a function of row numbers to batches of its inputs, or a fitted estimator of scikit-learn.
        members: Its training set: row numbers, or a mask of all rows.
        nonmembers: The held-out set, from the same source.
        recipe: ``train(indices, seed)``, which trains as this model was trained; shadow models are trained on halves
            of both sets. Without it only attacks that need no shadow model are made.
        features: Numbers of every row, which an estimator needs; a classifier on them tests whether the two sets
            differ in distribution.
        shadows: The number of shadow models: even, at least 4.

    Raises:
        UsageError: The sets overlap or are empty, or the model does not answer as it should.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> sure = np.where(np.arange(200) < 100, 0.95, rng.uniform(0.3, 0.9, 200))
    >>> p = np.where(np.arange(2) == y[:, None], sure[:, None], 1 - sure[:, None])
    >>> found = audit_model(lambda rows: p[rows], members=np.arange(100), nonmembers=np.arange(100, 200), labels=y,
    ...     out=None)
    >>> found.leaks, found.subject
    (True, 'this model')
    """
    settings = Settings.of(draws, delta, confidence)
    _check_arguments(seed, jobs, engine, guarantee)
    refuse_other_index(features=features, labels=labels, groups=groups)
    known = check_labels(labels)
    inside, outside = (
        check_rows(name, rows, len(known)) for name, rows in (("members", members), ("nonmembers", nonmembers))
    )
    if both := len(np.intersect1d(inside, outside)):
        raise UsageError(f"{both} rows are among members and non-members; a row is one or the other.")
    rows = np.sort(np.concatenate([inside, outside]))
    units, kinds = check_columns(groups, None, len(known))
    own = np.isin(rows, inside)
    check_whole_units(units[rows], own)
    candidates = Candidates(rows, known[rows], kinds[rows], units[rows], unit_name(groups))
    classes = int(known.max()) + 1
    if is_estimator(predict):
        predict = predictor_of(predict, features, known)
    count = 0 if recipe is None else shadows
    check_shadow_count(count)
    name = "this model" if out is None else Path(out).name
    trained = None if recipe is None else _trainee(recipe, features, known, guarantee, name)
    caveats = ["Without a recipe no shadow model is trained: stronger attacks exist."] if recipe is None else []
    if features is not None:
        shift = shift_by_features(rows_of(features, rows), own, units[rows])
        if shift.auc > 0.5:  # worse than guessing on rows that it did not see: it learned no difference
            caveats += shift_words(shift, "a linear classifier on the features")
    return audit_trainee(
        Existing(predict, classes, trained, guarantee, name),
        candidates,
        one_target(candidates.units, count, seed, own, "given"),
        settings,
        out=None if out is None else Path(out),
        engine=engine,
        jobs=jobs,
        caveats=caveats,
        subject="this model",
        quiet=quiet,
    )


def _no_coins(design: Design, units: Ints, kinds: Texts) -> str:
    """Say that fair coins per unit hardly decided the members of a lone target, if that is so.

    A bound would reward an attacker who guesses the more frequent side. This misjudges 2% of audits with fair coins.
    """
    some = kinds != RECORD if (kinds != RECORD).any() else np.ones(len(units), dtype=bool)
    first = np.unique(units[some], return_index=True)[1]
    inside, count = int(design.members[design.targets[0]][some][first].sum()), len(first)
    if len(design.targets) > 1 or chance_of_sizes(inside, count - inside) >= NO_COINS:
        return ""
    return f"{inside} of {count} are members, which fair coins hardly give; epsilon is not bounded."


def audit_predictions(
    probabilities: ArrayLike | Sequence[ArrayLike],
    members: ArrayLike,
    labels: ArrayLike,
    shadow_probabilities: ArrayLike | Sequence[ArrayLike] = (),
    shadow_members: ArrayLike = (),
    groups: ArrayLike | None = None,
    *,
    units: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    leave_one_out: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guarantee: Guarantee | None = None,
    name: str | None = None,
    out: str | os.PathLike[str] | None = None,
) -> AuditResult:
    """Audit models by predictions that exist.

    Rows that are in none of the models are the population that RMIA compares with. Where every row is in exactly
    half of all models, as with lira-pytorch, that is found out and corrected for, and epsilon is not bounded. Other
    arguments are those of :func:`audit`.

    Args:
        probabilities: The target's predictions ``[rows, classes]``, or ``[draws, rows, classes]`` of a noisy model;
            with ``leave_one_out`` those of K models, ``[K, rows, classes]`` or ``[K, draws, rows, classes]``.
        members: Which rows the target was trained on, ``[rows]``, or ``[K, rows]``. A fair coin per row (or group)
            must have decided that.
        shadow_probabilities: The predictions of every shadow model, each like ``probabilities``.
        shadow_members: Which rows each shadow model was trained on, ``[shadows, rows]``.
        groups: The group (patient) of every row, if groups were members together; canaries too.
        units: What shared a coin, if that is not the group.
        leave_one_out: Whether each of K models is a target once.
        name: Name of the model; after ``out``, or ``predictions``, if None.
        out: The folder that keeps the audit, for ``report`` and ``compare``; nothing is kept if None.

    Raises:
        UsageError: The arrays do not fit together, or hold something other than probabilities; or ``out`` holds
            something else.

    >>> rng = np.random.default_rng(0)
    >>> members, labels = rng.random(200) < 0.5, rng.integers(0, 2, 200)
    >>> right = np.where(members, 0.95, rng.uniform(0.3, 0.9, 200))
    >>> p = np.where(np.arange(2) == labels[:, None], right[:, None], 1 - right[:, None])
    >>> found = audit_predictions(p, members, labels)
    >>> found.attacks[0].auc > 0.9, found.epsilon_lower.epsilon > 0
    (True, True)
    """
    refuse_other_index(labels=labels, groups=groups, units=units, kinds=kinds)
    known = check_labels(labels)
    count, coins = len(known), groups if units is None else units
    models: dict[str, Any]
    if leave_one_out:
        models = {f"probabilities[{number}]": one for number, one in enumerate(probabilities)}  # type: ignore[arg-type]
        inside = check_flags("members", members, (len(models), count))
    else:
        shadows = {f"shadow_probabilities[{number}]": one for number, one in enumerate(shadow_probabilities)}  # type: ignore[arg-type]
        models = {"probabilities": probabilities, **shadows}
        inside = check_flags("members", members, (count,))[None]
        if shadows:
            inside = np.concatenate([inside, check_flags("shadow_members", shadow_members, (len(shadows), count))])
    every = [check_model(name, one, known) for name, one in models.items()]
    by, kind = check_columns(coins, None, count)[0], check_columns(None, kinds, count)[1]
    for one in inside:
        check_whole_units(by, one)
    nobody = ~inside.any(axis=0) & (len(every) > 1)
    design = given(inside[:, ~nobody], np.arange(len(every) if leave_one_out else 1))
    caveats = [] if len(every) > 1 else ["Without shadow models the strongest attacks are left out."]
    if design.chance == "coins" and (why := _no_coins(design, by[~nobody], kind[~nobody])):
        design = replace(design, chance="given")
        caveats.append(why)
    usable = design.answerable()
    if not usable.any():
        raise UsageError("no row is in two of the shadow models and outside of two; train more of them.")
    if left_out := int((~usable).sum()):
        caveats.append(
            f"{left_out} of {count} rows are left out: in fewer than two of the shadow models, or outside of fewer."
        )
        if leave_one_out and len(every) < FEWEST_WITHOUT_BIAS:
            caveats.append(
                f"With {len(every)} models, which rows are left out depends on the coins of the targets, and attacks "
                "are understated; use 16 models."
            )
    first = np.flatnonzero(~nobody)[usable]
    rows = np.concatenate([first, np.flatnonzero(nobody)])
    folder = None if out is None else Path(out)
    return audit_trainee(
        Predictions(every, name or (folder.name if folder else "predictions"), guarantee),
        Candidates(rows, known[rows], kind[first], by[first], unit_name(coins)),
        design.select(usable),
        Settings((1, *map(len, every)), delta, confidence),
        out=folder,
        caveats=caveats,
        subject="models of this recipe" if leave_one_out else "this model",
        quiet=True,
    )
