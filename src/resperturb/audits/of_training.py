"""Audit any training: a function of row numbers and a seed, on any data, in any framework."""

import hashlib
import inspect
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Query
from resperturb.audits.answers import Trained, ask, read_answers, save_answers
from resperturb.audits.assess import Candidates, Settings, assess, check_shadow_count, share_correct
from resperturb.audits.coins import memberships
from resperturb.audits.result import save_audit
from resperturb.audits.source import source_digest
from resperturb.bounds.audit_result import RECORD, AuditResult, Model
from resperturb.data.canaries import Bools
from resperturb.data.splits import Indices
from resperturb.engine import Engine, Task, local_engine
from resperturb.environment import environment
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import held, read_json, write_json
from resperturb.privacy import Guarantee, nothing_proven
from resperturb.progress import Lines, duration

TrainFunction = Callable[[Indices, int], Trained]

PLAN_FILE, ANSWERS_FILE = "plan.json", "answers.npz"
# Records that no model is trained on, for RMIA to compare with: so many at most, and this share at most.
MOST_POPULATION, POPULATION_SHARE = 200, 0.1
SCHEMA = 2
RECIPE = "What was audited is the recipe: models trained as yours, each on the half of the rows that coins chose."


@dataclass(frozen=True)
class Plan:
    """What an audit was asked to do; kept beside its answers, so that another audit is not mixed in.

    ``train`` is the digest of the function, or of the predictions that were given instead.
    """

    train: str
    labels: str
    groups: str | None
    kinds: str | None
    shadows: int
    draws: tuple[int, ...]
    seed: int
    population: int
    schema: int = SCHEMA

    @property
    def digest(self) -> str:
        """A short name for it."""
        return digest_of(np.frombuffer(repr(self).encode(), dtype=np.uint8))


@dataclass(frozen=True, eq=False)
class TrainingTask(Task):
    """Train one model by the user's function, ask it about every row, and keep what it says."""

    folder: Path
    train: TrainFunction
    indices: Indices
    rows: Indices
    labels: NDArray[np.int64]
    draws: tuple[int, ...]
    classes: int
    seed: int
    plan: str

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Train and ask; the model itself is not kept."""
        trained = self.train(self.indices.copy(), self.seed)
        pair = isinstance(trained, tuple) and len(trained) == 2
        if not (pair or callable(trained)) or isinstance(trained, nn.Module):
            alone = " alone" if isinstance(trained, nn.Module) else ""
            raise UsageError(
                f"train must return a function of row numbers to probabilities, or a pair of a torch module and a "
                f"function of row numbers to batches; it returned {type(trained).__name__}{alone}."
            )
        answers = ask(trained, self.rows, self.labels, self.draws, self.classes)
        save_answers(folder / ANSWERS_FILE, answers, self.digests)

    def results(self) -> tuple[str, ...]:
        """The answers, which are written whole or not at all."""
        return (ANSWERS_FILE,)

    @property
    def finished(self) -> bool:
        """Whether its answers are there; what is there must be of this audit."""
        return (self.folder / ANSWERS_FILE).exists() and bool(self.answers())

    @property
    def digests(self) -> dict[str, str]:
        """What its answers are bound to: the audit, and what the model was trained on."""
        return {"plan": self.plan, "indices": digest_of(self.indices)}

    def answers(self) -> Answers:
        """Read its answers."""
        return read_answers(self.folder / ANSWERS_FILE, len(self.rows), self.digests)


def audit(
    train: TrainFunction,
    *,
    labels: ArrayLike,
    groups: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    shadows: int = 16,
    draws: int | Sequence[int] = (1, 16),
    out: str | os.PathLike[str] = "runs/audit",
    seed: int = 0,
    jobs: int | None = None,
    engine: Engine = local_engine,
    delta: float = 1e-5,
    confidence: float = 0.95,
    population: int | None = None,
    guarantee: Guarantee | None = None,
    quiet: bool = False,
) -> AuditResult:
    """Audit your own training code: how much do its models tell of who was in?

    A fair coin per row (or per group) decides what the target is trained on, and other coins what each shadow model
    is trained on. All are asked about all rows, every attack scores every row, and epsilon is bounded from below.
    What is audited is the recipe: models trained as ``train`` trains, on half of the rows.

    Args:
        train: ``train(indices, seed)`` fits a model on the rows ``indices`` of your data and returns
            ``predict(indices)``, which gives probabilities ``[rows, classes]``; or a torch module and a function of
            row numbers to batches of its inputs. A module that is perturbed is asked with many draws of its noise and
            without it. The data stay with you: only row numbers go in.
        labels: The class of every row, as whole numbers from 0.
        groups: The group (patient) of every row. Then coins, intervals, tests and the bound are per group.
        kinds: What every row is: ``record``, or the name of a kind of canary of your own.
        shadows: The number of shadow models: even, at least 4; 0 for an audit of one training.
        draws: The numbers of draws that answers of noisy models are combined over.
        out: The folder that keeps everything. Rerun the same call to resume.
        seed: The coins follow from it, and the seeds that ``train`` is given: two shadow models, on opposite rows,
            share one.
        jobs: Trainings at a time; 1 runs them in this process, None as many as the engine has room for.
        engine: Where to train: processes of this machine, or ``resperturb.engine.RayEngine()``.
        delta: At which epsilon is bounded.
        confidence: Of the intervals, and of all bounds together.
        population: Rows that no model is trained on, which RMIA compares with; a tenth, at most 200, if None.
        guarantee: What you claim about such a training, to be compared with what the audit shows.
        quiet: Say nothing on stderr.

    Returns:
        What was found; it is kept in ``out`` too.

    Raises:
        UsageError: ``train`` does not do what it should (the message says what it did), or ``out`` holds another
            audit.
        ResperturbError: A shadow model did not learn.
    """
    settings = Settings((draws,) if isinstance(draws, int) else tuple(draws), delta, confidence)
    check_shadow_count(shadows)
    _check_arguments(train, seed, jobs, engine, guarantee)
    rows = _Rows.of(labels, groups, kinds, population, seed)
    plan = Plan(
        train=source_digest(train),
        labels=digest_of(rows.labels),
        groups=None if rows.groups is None else digest_of(rows.groups),
        kinds=None if kinds is None else digest_of(rows.kinds),
        shadows=shadows,
        draws=settings.draws,
        seed=seed,
        population=len(rows.population),
    )
    folder = Path(out)
    with claimed(folder, plan):
        candidate_groups = None if rows.groups is None else rows.groups[rows.candidates]
        target_members, shadow_members = memberships(len(rows.candidates), shadows, seed, candidate_groups)
        asked = np.concatenate([rows.candidates, rows.population])
        tasks = [
            TrainingTask(
                folder=folder / "models" / ("target" if number == 0 else f"shadow-{number:03d}"),
                train=train,
                indices=rows.candidates[members],
                rows=asked,
                labels=rows.labels[asked],
                draws=settings.draws,
                classes=int(rows.labels.max()) + 1,
                # The two shadow models of opposite coins share a seed: both answer alike where rows are ignored.
                # The target shares its own with none: noise drawn from it would be the attacker's to know.
                seed=seed * 1_000_003 + (number + 1) // 2,
                plan=plan.digest,
            )
            for number, members in enumerate([target_members, *shadow_members])
        ]
        _run(tasks, engine, jobs, Lines("resperturb", (lambda line: None) if quiet else None, unit="models"))
        answers = (task.answers() for task in tasks)
        target = next(answers)
        # Nobody of the population is in any model.
        in_target, *in_shadows = np.pad([target_members, *shadow_members], ((0, 0), (0, len(rows.population))))
        audited = assess(
            Candidates(
                members=target_members,
                labels=rows.labels[rows.candidates],
                kinds=rows.kinds[rows.candidates],
                groups=candidate_groups,
                population=len(rows.population),
            ),
            target,
            zip(answers, in_shadows, strict=True),
            shadows,
            queries=[Query(access, signals.averages) for access, signals in target.items()],
            settings=settings,
            model=Model(
                name=folder.name,
                description="your own training",
                records=int(target_members.sum()),
                train_accuracy=share_correct(target, in_target),
                test_accuracy=share_correct(target, ~in_target),
            ),
            guarantee=guarantee or nothing_proven("No guarantee was given for this training.", delta),
            caveats=(RECIPE,),
            digests={"plan": plan.digest},
            environment=environment(),
            folder=folder,
        )
        save_audit(audited, folder)
        return audited


def _check_arguments(
    train: TrainFunction, seed: int, jobs: int | None, engine: Engine, guarantee: Guarantee | None
) -> None:
    """Refuse before anything is trained what would fail after it."""
    if not callable(train):
        raise UsageError(f"train must be a function of row numbers and a seed, not {type(train).__name__}.")
    try:
        inspect.signature(train).bind(None, 0)
    except TypeError as error:
        raise UsageError(f"train must take two arguments, row numbers and a seed ({error}).") from None
    except ValueError:  # some callables have no signature
        pass
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}.")
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}.")
    if not callable(engine):
        raise UsageError(f"engine must be an engine, such as resperturb.engine.RayEngine(), not {engine!r}.")
    if not (guarantee is None or isinstance(guarantee, Guarantee)):
        raise UsageError(f"guarantee must be a resperturb.privacy.Guarantee, not {guarantee!r}.")


@dataclass(frozen=True, eq=False)
class _Rows:
    """The user's rows: candidates, and the population that no model is trained on."""

    labels: NDArray[np.int64]
    groups: NDArray[Any] | None
    kinds: NDArray[np.str_]
    candidates: Indices
    population: Indices

    @classmethod
    def of(
        cls, labels: ArrayLike, groups: ArrayLike | None, kinds: ArrayLike | None, population: int | None, seed: int
    ) -> "_Rows":
        found = check_labels(labels)
        count = len(found)
        by, names = check_columns(groups, kinds, count)
        wanted = min(MOST_POPULATION, int(POPULATION_SHARE * count)) if population is None else population
        if not 0 <= wanted < count:
            raise UsageError(f"population must be at least 0 and below the {count} rows, not {wanted}.")
        held = _held_out(names, by, wanted, seed)
        units = count - held.sum() if by is None else len(np.unique(by[~held]))
        if units < 2:
            raise UsageError("an audit needs two groups at least, of which one can be left out.")
        return cls(found, by, names, np.flatnonzero(~held), np.flatnonzero(held))


def check_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """Return labels as whole numbers from 0, or say what is wrong with them.

    >>> check_labels([0, 1, 1])
    array([0, 1, 1])
    """
    found = np.asarray(labels)
    if found.ndim != 1 or not found.size:
        raise UsageError(f"labels must hold one class per row, not have the shape {found.shape}.")
    if found.dtype.kind not in "biu" or (found.astype(np.int64) < 0).any():
        raise UsageError(
            f"labels must be whole numbers from 0, not of type {found.dtype}: numpy.unique(labels, "
            "return_inverse=True)[1] makes such."
        )
    return found.astype(np.int64)


def check_columns(
    groups: ArrayLike | None, kinds: ArrayLike | None, rows: int
) -> tuple[NDArray[Any] | None, NDArray[np.str_]]:
    """Return groups as whole numbers, and kinds as text, one of each per row; or say what is wrong with them.

    >>> check_columns(["ann", "bob", "ann"], None, rows=3)
    (array([0, 1, 0]), array(['record', 'record', 'record'], dtype='<U6'))
    """
    by = None if groups is None else np.asarray(groups)
    names = np.full(rows, RECORD) if kinds is None else np.asarray(kinds, dtype=np.str_)
    for name, column in (("groups", by), ("kinds", names)):
        if column is not None and column.shape != (rows,):
            raise UsageError(f"{name} must hold one value for each of the {rows} rows, not {column.shape}.")
    if by is None:
        return None, names
    missing = sum(value is None or value != value for value in by.tolist())
    if missing:
        raise UsageError(
            f"{missing} of {rows} rows have no group (None or NaN); give each a group of its own, or leave them out."
        )
    return np.unique(by.astype(np.str_) if by.dtype == object else by, return_inverse=True)[1], names


def _held_out(kinds: NDArray[np.str_], groups: NDArray[Any] | None, wanted: int, seed: int) -> Bools:
    """Choose records for the population, by whole groups; never canaries."""
    order = np.random.default_rng([seed, 77]).permutation(len(kinds))
    order = order[kinds[order] == RECORD]
    held = np.zeros(len(kinds), dtype=bool)
    if groups is None:
        held[order[:wanted]] = True
        return held
    for row in order:
        if held.sum() >= wanted:
            break
        own = (groups == groups[row]) & (kinds == RECORD)
        if held.sum() + own.sum() <= 2 * wanted:
            held |= own
    return held


@contextmanager
def claimed(folder: Path, plan: Plan) -> Iterator[None]:
    """Take a folder for a plan and hold it; nothing is written before it is ours."""
    _check_free(folder, plan)
    with held(folder):
        _check_free(folder, plan)
        if not (folder / PLAN_FILE).exists():
            write_json(folder / PLAN_FILE, plan)
        yield


def _check_free(folder: Path, plan: Plan) -> None:
    """Refuse a folder that holds another audit, or something else."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; out= must name a folder.")
    # Looked at first, or it could be what another process writes after it was seen that there is no plan.
    foreign = folder.exists() and any(not item.name.startswith(".") for item in folder.iterdir())
    path = folder / PLAN_FILE
    if path.exists():
        present = read_json(Plan, path, "choose another folder")
        changed = [name for name, value in asdict(plan).items() if asdict(present)[name] != value]
        if changed:
            raise UsageError(
                f"{folder} holds an audit that was asked for otherwise (other {', '.join(changed)}); its models "
                "would not be comparable. Choose another out=, or delete the folder."
            )
    elif foreign:
        raise UsageError(f"{folder} exists and holds no audit; choose another out=.")


def _run(tasks: Sequence[TrainingTask], engine: Engine, jobs: int | None, progress: Lines) -> None:
    todo = [task for task in tasks if not task.finished]
    different = _Different()
    for task in tasks:
        if task not in todo:
            different.add(task)
    if not todo:
        return
    sizes = sorted(len(task.indices) for task in tasks)
    progress.say(
        f"auditing: {len(tasks)} models ({len(tasks) - len(todo)} there already), each trained on {sizes[0]} to "
        f"{sizes[-1]} rows and asked about {len(tasks[0].rows)}."
    )
    done = 0

    def tell(task: Task, error: ResperturbError | None) -> None:
        nonlocal done
        if error is not None:
            raise error
        assert isinstance(task, TrainingTask)
        different.add(task)
        done += 1
        progress.step(done, len(todo))

    if todo[0] is tasks[0] and len(todo) > 1:
        # The target first: it shows whether the function can be used, and how long the others will take.
        started = time.monotonic()
        engine(todo[:1], 1, tell)
        progress.say(
            f"the target took {duration(time.monotonic() - started)}; the {len(todo) - 1} shadow models follow."
        )
    progress.step(done, len(todo))
    engine(todo[done:], jobs, tell)


class _Different:
    """Refuses models that answer alike although they were trained on different rows, as soon as there are two."""

    def __init__(self) -> None:
        self._seen: dict[bytes, TrainingTask] = {}

    def add(self, task: TrainingTask) -> None:
        """Compare a model with those before it."""
        other = self._seen.setdefault(list(task.answers().values())[-1].confidence.tobytes(), task)
        if other is not task and not np.array_equal(other.indices, task.indices):
            raise UsageError(
                f"two models that were to be trained on different rows ({task.folder.name} and {other.folder.name}) "
                "give exactly the same answers: does train use its indices? It must fit a fresh model on those rows "
                "alone, each time it is called."
            )


def digest_of(values: NDArray[Any]) -> str:
    """Name an array by its contents."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes() + str(values.dtype).encode()).hexdigest()[:16]
