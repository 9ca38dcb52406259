"""Audit answers that exist already: probabilities of a target, of shadow models, and who was in each."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Query, signals_of
from resperturb.audits.answers import LEAST_PROBABILITY, check_probabilities
from resperturb.audits.assess import Candidates, Settings, assess, check_shadow_count, share_correct
from resperturb.audits.of_training import Plan, check_columns, check_labels, claimed, digest_of
from resperturb.audits.result import save_audit
from resperturb.bounds.audit_result import AuditResult, Model
from resperturb.environment import environment
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee, nothing_proven


def audit_predictions(
    probabilities: ArrayLike,
    members: ArrayLike,
    labels: ArrayLike,
    shadow_probabilities: ArrayLike | Sequence[ArrayLike] = (),
    shadow_members: ArrayLike = (),
    groups: ArrayLike | None = None,
    *,
    kinds: ArrayLike | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guarantee: Guarantee | None = None,
    name: str | None = None,
    out: str | os.PathLike[str] | None = None,
) -> AuditResult:
    """Audit a model by answers that you have.

    Rows that are in none of the models serve as the population that RMIA compares with.

    Args:
        probabilities: The target's answers ``[rows, classes]``, or ``[draws, rows, classes]`` of a noisy model.
        members: Which rows the target was trained on. A fair coin per row (or group) must have decided that.
        labels: The class of every row, as whole numbers from 0.
        shadow_probabilities: The answers of every shadow model, each like ``probabilities``; none for an audit of one
            training.
        shadow_members: Which rows each shadow model was trained on, ``[shadows, rows]``.
        groups: The group (patient) of every row, if groups were in or out together.
        kinds: What every row is: ``record``, or the name of a kind of canary.
        delta: At which epsilon is bounded.
        confidence: Of the intervals, and of all bounds together.
        guarantee: What is claimed about the training.
        name: What to call the model; after ``out``, or ``predictions``, if None.
        out: The folder that keeps the audit, for ``report`` and ``compare``; nothing is kept if None.

    Returns:
        What was found.

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
    classes = check_labels(labels)
    count = len(classes)
    inside = _flags("members", members, (count,))
    target, draws = _answers("probabilities", probabilities, classes)
    shadows = [
        _answers(f"shadow_probabilities[{number}]", one, classes)[0]
        for number, one in enumerate(shadow_probabilities)  # type: ignore[arg-type]
    ]
    check_shadow_count(len(shadows))
    trained_on = _flags("shadow_members", shadow_members, (len(shadows), count)) if shadows else None
    by, names = check_columns(groups, kinds, count)
    if by is not None:
        _check_whole_groups(by, inside)
    outside = np.zeros(count, dtype=bool) if trained_on is None else ~(inside | trained_on.any(axis=0))
    usable = ~outside if trained_on is None else ~outside & _in_enough(trained_on)
    left_out = count - int(usable.sum() + outside.sum())
    if not usable.any():
        raise UsageError("no row is in two of the shadow models and outside of two; train more of them.")
    candidates = np.flatnonzero(usable)
    order = np.concatenate([candidates, np.flatnonzero(outside)])
    settings = Settings(tuple({1, draws}), delta, confidence)
    caveats = [] if shadows else ["Without shadow models the strongest attacks are left out."]
    if left_out:
        caveats.append(
            f"{left_out} rows are left out: they are in fewer than two of the shadow models, or outside of fewer."
        )
    plan = Plan(
        train=_contents(probabilities, members, *shadow_probabilities, shadow_members),  # type: ignore[misc]
        labels=digest_of(classes),
        groups=None if by is None else digest_of(by),
        kinds=None if kinds is None else digest_of(names),
        shadows=len(shadows),
        draws=settings.draws,
        seed=0,
        population=int(outside.sum()),
    )
    folder = None if out is None else Path(out)
    with nullcontext() if folder is None else claimed(folder, plan):
        found = assess(
            Candidates(
                members=inside[candidates],
                labels=classes[candidates],
                kinds=names[candidates],
                groups=None if by is None else by[candidates],
                population=int(outside.sum()),
            ),
            _ordered(target, order),
            (
                (_ordered(answers, order), members_of[order])
                for answers, members_of in zip(shadows, trained_on if trained_on is not None else (), strict=True)
            ),
            len(shadows),
            queries=[Query(access, signals.averages) for access, signals in target.items()],
            settings=settings,
            model=Model(
                name=name or (folder.name if folder else "predictions"),
                description="given predictions",
                records=int(inside.sum()),
                train_accuracy=share_correct(target, inside),
                test_accuracy=share_correct(target, ~inside),
            ),
            guarantee=guarantee or nothing_proven("No guarantee was given for this training.", delta),
            caveats=caveats,
            digests={"plan": plan.digest},
            environment=environment(),
            folder=folder,
        )
        if folder is not None:
            save_audit(found, folder)
        return found


def _contents(*given: ArrayLike) -> str:
    """Name what was given by its contents."""
    return digest_of(np.array([digest_of(np.asarray(one, dtype=np.float64)) for one in given]))


def _in_enough(trained_on: NDArray[np.bool_], least: int = 2) -> NDArray[np.bool_]:
    """Which rows are in at least two of the shadow models and outside of two: attacks need a variance of both."""
    inside = trained_on.sum(axis=0)
    found: NDArray[np.bool_] = (inside >= least) & (len(trained_on) - inside >= least)
    return found


def _flags(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    found = np.asarray(values)
    if found.shape != shape:
        raise UsageError(f"{name} must have the shape {shape}, not {found.shape}.")
    if found.dtype.kind != "b" and not np.isin(found, (0, 1)).all():
        raise UsageError(f"{name} must be true or false for every row; row numbers are not understood here.")
    return found.astype(bool)


def _answers(name: str, values: ArrayLike, labels: NDArray[np.int64]) -> tuple[Answers, int]:
    found = np.asarray(values, dtype=np.float64)
    every = found[None] if found.ndim == 2 else found
    if every.ndim != 3:
        raise UsageError(f"{name} must be [rows, classes] or [draws, rows, classes], not {found.shape}.")
    needed = int(labels.max()) + 1
    try:
        checked = [check_probabilities(one, len(labels), needed) for one in every]
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    logs = (np.log(np.maximum(one, LEAST_PROBABILITY)) for one in checked)
    averages = tuple(sorted({1, len(checked)}))
    return {"served": signals_of(logs, labels, averages)}, len(checked)


def _ordered(answers: Answers, order: NDArray[np.int64]) -> Answers:
    return {access: signals.select(order) for access, signals in answers.items()}


def _check_whole_groups(groups: NDArray[Any], members: NDArray[np.bool_]) -> None:
    _, codes = np.unique(groups, return_inverse=True)
    share = np.bincount(codes, weights=members) / np.bincount(codes)
    torn = int(((share > 0) & (share < 1)).sum())
    if torn:
        raise UsageError(f"{torn} groups have members and non-members; all records of a group must be in or out.")
