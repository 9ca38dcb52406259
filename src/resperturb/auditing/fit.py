"""Fit and query the models of a design; report, retrain once, and leave out models that did not learn."""

import io
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Query
from resperturb.auditing.ask import ask
from resperturb.auditing.candidates import Candidates
from resperturb.auditing.design import EXISTS, Design
from resperturb.auditing.store import MODELS, Store, answers_path, array_digest, keep_answers
from resperturb.auditing.trainee import Fitted, Job, Trainee
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.bounds.attack_metrics import attack_metrics
from resperturb.engine import Engine, Shared, Task
from resperturb.engine.task import Files
from resperturb.errors import ResperturbError, UsageError
from resperturb.progress import Lines, duration

# What is added to the seed of a pair that is trained again.
RETRIED = 500_009
# The error of the test that says a model was trained on other rows than it was given.
WRONG_ROWS = 1e-6


@dataclass(frozen=True, eq=False)
class Asked:
    """What every model is asked: which rows, and over how many draws."""

    candidates: Candidates
    draws: tuple[int, ...]

    def of(self, fitted: Fitted) -> Answers:
        """Query one model."""
        return ask(fitted, self.candidates.rows, self.candidates.labels, self.draws)


@dataclass(frozen=True, eq=False)
class FitTask(Task):
    """Fit one model of a trainee, query it and its checkpoints, and keep the answers; the trainee keeps the rest."""

    folder: Path
    trainee: Trainee
    job: Job
    asked: Asked
    bound: dict[str, str]
    alike: ClassVar[bool] = True

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Fit, query, keep."""
        place = folder / MODELS / self.job.folder.name
        job = replace(self.job, folder=place, shared=shared, accelerator=accelerator)

        def keep(stage: str, answers: Answers) -> None:
            keep_answers(answers_path(folder, job.number, stage), answers, {**self.bound, "stage": stage})

        with _silenced(job.number > 0):
            keep("", queried(self.trainee, job, self.asked, keep))

    def results(self) -> tuple[str, ...]:
        """What the trainee left, the checkpoints' answers, and the model's own, which come last."""
        number = f"{MODELS}/{self.job.number:03d}"
        return f"{MODELS}/{self.job.folder.name}/**/*", f"{number}.?*.npz", f"{number}.npz"

    def shared(self) -> Shared | None:
        """The data of the trainee."""
        return self.trainee.shared()

    def receive(self, files: Files) -> None:
        """Write what was made elsewhere, in place of what was begun here."""
        for path in (self.folder / MODELS / self.job.folder.name).rglob("*"):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in files:
                path.unlink()
        super().receive(files)


@contextmanager
def _silenced(silent: bool) -> Iterator[None]:
    """Keep what a library prints of every training off the screen; show the end of it if the training fails."""
    if not silent:
        yield
        return
    said, disabled = io.StringIO(), logging.root.manager.disable
    logging.disable(max(disabled, logging.INFO))  # handlers hold the screen that they were made with
    try:
        with redirect_stdout(said), redirect_stderr(said):
            yield
    except Exception:
        print(said.getvalue()[-2000:], end="", file=sys.stderr)
        raise
    finally:
        logging.disable(disabled)


def queried(trainee: Trainee, job: Job, asked: Asked, keep: Callable[[str, Answers], None]) -> Answers:
    """Fit a model and query it and its checkpoints.

    Args:
        trainee: What fits.
        job: On which rows.
        asked: What to query.
        keep: Called with name and answers of every checkpoint, the last one too if there are several.

    Returns:
        The answers of the model, which is the last.

    Raises:
        UsageError: There is no model.
    """
    last: tuple[str, Answers] | None = None
    for fitted in trainee.fit(replace(job, rows=job.rows.copy())):
        last = fitted.stage, asked.of(fitted)
        if fitted.stage:
            keep(*last)
    if last is None:
        raise UsageError("train yielded no predictor; it must yield one per checkpoint, and the model at the end.")
    return last[1]


def fit_models(
    trainee: Trainee,
    candidates: Candidates,
    design: Design,
    draws: tuple[int, ...],
    store: Store,
    engine: Engine,
    jobs: int | None,
    quiet: bool = False,
) -> tuple[Design, "Models", tuple[str, ...]]:
    """Fit and query what is missing, and apply the rules for failures.

    Args:
        trainee: What fits.
        candidates: What is queried.
        design: Who is trained on what.
        draws: The numbers of draws that answers are averaged over.
        store: Where answers are kept.
        engine: Where to fit.
        jobs: Fits at a time; as many as the engine has room for if None.
        quiet: Say nothing on stderr.

    Returns:
        The design without models that did not learn, access to the answers, and what was left out and why.

    Raises:
        UsageError: The trainee does not do what it promises.
        ResperturbError: Fewer than half of the models learned.
    """
    progress = Lines("resperturb", (lambda line: None) if quiet else None, unit="models")
    models = Models(trainee, candidates, design, draws, store, engine, jobs, progress)
    models.fit(range(len(design)))
    weak = models.weak()
    again = sorted({one for number in weak for one in models.pair(number)})
    if again:
        models.progress.say(
            f"{len(weak)} of {len(design)} models did not learn ({', '.join(map(str, weak[:8]))}); their pairs are "
            "trained once more with another seed."
        )
        models.fit(again, retry=True)
        weak = models.weak()
    left = frozenset(one for number in weak for one in models.pair(number))
    models.check_rows(left)
    trained = np.flatnonzero(design.seeds != EXISTS) if design.kind == "leave one out" else _shadows(design)
    if len(trained) and len(left) > len(trained) / 2:
        raise ResperturbError(
            f"{len(left)} of {len(trained)} models did not learn, also with another seed: {models.words(weak)} "
            "Their answers are kept. Train for longer, or audit without shadow models (--one-run, shadows=0)."
        )
    said = tuple(f"{len(left)} models were left out: {models.words(weak)}" for _ in range(bool(left)))
    return design.without(left), models, said


def _shadows(design: Design) -> Ints:
    return np.setdiff1d(np.arange(len(design)), design.targets)


@dataclass(frozen=True)
class Summary:
    """What the rules for failures need of a model's answers, which are read once for it.

    Attributes:
        queries: The queries that were answered.
        accuracy: Accuracy on all rows, by one draw as served; members and others alike.
        on_members: Accuracy on members.
        on_others: Accuracy on all other rows.
        digest: Digest of the answers; empty where one answer is given to everything.
        wrong_rows: Whether the model is better on rows that it was not given, far beyond chance.
    """

    queries: tuple[Query, ...]
    accuracy: float
    on_members: float
    on_others: float
    digest: str
    wrong_rows: bool

    @classmethod
    def of(cls, answers: Answers, members: Bools, candidates: Candidates) -> "Summary":
        """Summarise the answers of a model; ``members`` are among all rows."""
        served = next(iter(answers.values()))
        correct, last = served.correct[:, 0], list(answers.values())[-1].confidence
        each = [last[candidates.labels == label] for label in np.unique(candidates.labels)]
        same = all((one == one[0]).all() for one in each) and not correct.all()
        inside, confidence = members[: len(candidates)], served.confidence[: len(candidates), 0]
        wrong = False
        if inside.any() and not inside.all():
            units = candidates.units
            found = attack_metrics(
                confidence[inside],
                confidence[~inside],
                member_groups=units[inside],
                nonmember_groups=units[~inside],
                rates=(),
            )
            wrong = found.estimate.interval(1 - WRONG_ROWS).high < 0.5
        return cls(
            tuple(Query(access, signals.averages) for access, signals in answers.items()),
            float(correct.mean()),
            float(correct[members].mean()) if members.any() else float("nan"),
            float(correct[~members].mean()) if not members.all() else float("nan"),
            "" if same or (last == last[0]).all() else array_digest(last),
            wrong,
        )


@dataclass(eq=False)
class Models:
    """The models of a design and their answers."""

    trainee: Trainee
    candidates: Candidates
    design: Design
    draws: tuple[int, ...]
    store: Store
    engine: Engine
    jobs: int | None
    progress: Lines
    _existing: dict[int, Answers] = field(default_factory=dict)
    _retried: set[int] = field(default_factory=set)
    _summaries: dict[int, Summary] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)
    _recent: dict[tuple[int, str], Answers] = field(default_factory=dict)

    def answers(self, number: int, stage: str = "") -> Answers:
        """Return the answers of a model, or of a checkpoint of it.

        Raises:
            ResperturbError: They are gone.
        """
        if number in self._existing:
            return self._existing[number]
        if (number, stage) not in self._recent:
            found = self._kept(number, stage)
            if found is None:
                raise ResperturbError(f"the answers of model {number} are gone; run the audit again.")
            while len(self._recent) > 1:  # a target and its partner are read in turn
                del self._recent[next(iter(self._recent))]
            self._recent[number, stage] = found
        return self._recent[number, stage]

    def summary(self, number: int) -> Summary:
        """Summarise the answers of a model."""
        if number not in self._summaries:
            answers, members = self.answers(number), self.members(number)
            self._summaries[number] = Summary.of(answers, members, self.candidates)
        return self._summaries[number]

    def stages(self) -> list[str]:
        """List the checkpoints that every model has, in their order."""
        numbers = [number for number in range(len(self.design)) if number not in self.design.unused]
        common = set.intersection(*(set(self.store.stages(number)) for number in numbers)) if numbers else set()
        return [stage for stage in self.store.stages(numbers[0]) if stage in common]

    def pair(self, number: int) -> list[int]:
        """Return a model and its partner."""
        partner = int(self.design.partner[number])
        return [number] if partner < 0 else sorted((number, partner))

    def members(self, number: int) -> Bools:
        """Say of every row, the population included, whether a model was trained on it."""
        return np.pad(self.design.members[number], (0, self.candidates.population))

    def fit(self, numbers: Sequence[int] | range, retry: bool = False) -> None:
        """Fit and query some models, unless their answers are there; with ``retry`` those of another seed."""
        asked = Asked(self.candidates, self.draws)
        tasks = []
        if retry:
            self._retried.update(numbers)
        for number in numbers:
            if self.design.seeds[number] == EXISTS:
                if number not in self._existing:
                    self._existing[number] = self._ask_existing(number, asked)
                    self._finished(number)
            elif self._kept(number) is not None:
                self._finished(number)
            else:
                tasks.append(FitTask(self._folder, self.trainee, self._job(number), asked, self._bound(number)))
        if tasks and self.store.folder is None:
            for task in tasks:
                answers = queried(self.trainee, task.job, asked, partial(self._remember, task.job.number))
                self._remember(task.job.number, "", answers)
                self._finished(task.job.number)
        elif tasks:
            self._run(tasks, len(numbers))

    def _ask_existing(self, number: int, asked: Asked) -> Answers:
        """Query a model that exists; answers are kept where its weights have a digest."""
        *_, fitted = self.trainee.fit(self._job(number))
        bound = {**self._bound(number), "weights": fitted.digest, "stage": ""}
        found = self.store.answers(number, len(self.candidates.rows), bound) if fitted.digest else None
        if found is None:
            found = asked.of(fitted)
            if fitted.digest:
                self.store.keep(number, found, bound)
        return found

    def _remember(self, number: int, stage: str, answers: Answers) -> None:
        self.store.keep(number, answers, {**self._bound(number), "stage": stage}, stage)

    def _run(self, tasks: list[FitTask], count: int) -> None:
        sizes = sorted(len(task.job.rows) for task in tasks)
        models, each = ("models", f"each on {sizes[0]} to {sizes[-1]}") if count > 1 else ("model", f"on {sizes[0]}")
        self.progress.say(
            f"training {len(tasks)} of {count} {models}, {each} rows and queried about {len(self.candidates.rows)}."
        )
        done = 0

        def tell(task: Task, error: ResperturbError | None) -> None:
            nonlocal done
            if error is not None:
                raise error
            assert isinstance(task, FitTask)
            self._finished(task.job.number)
            done += 1
            self.progress.step(done, len(tasks))

        first = 0
        if len(tasks) > 1 and tasks[0].job.number == 0:
            # One first: it shows whether the trainee can be used, and how long the others will take.
            started = time.monotonic()
            self.engine(tasks[:1], 1, tell)
            self.progress.say(f"the first took {duration(time.monotonic() - started)}; {len(tasks) - 1} follow.")
            first = 1
        self.progress.step(done, len(tasks))
        self.engine(tasks[first:], self.jobs, tell)

    @property
    def _folder(self) -> Path:
        return self.store.folder or Path()

    def _seed(self, number: int) -> int:
        return int(self.design.seeds[number]) + RETRIED * (number in self._retried)

    def _job(self, number: int) -> Job:
        rows = self.candidates.rows[: len(self.candidates)][self.design.members[number]]
        every = np.sort(np.concatenate([rows, self.candidates.always]))
        name = f"{number:03d}{'-again' if number in self._retried else ''}"
        return Job(number, every, self._seed(number), self._folder / MODELS / name)

    def _bound(self, number: int) -> dict[str, str]:
        rows = array_digest(self.design.members[number])
        return {
            "question": self.store.plan.question,
            "model": str(number),
            "rows": rows,
            "seed": str(self._seed(number)),
        }

    def _kept(self, number: int, stage: str = "") -> Answers | None:
        """Read the answers of a model; those of a second seed replace those of the first."""
        folder = self.store.folder
        path = None if folder is None else answers_path(folder, number, stage)
        if path is not None and path.exists():
            seed = kept_seed(path)
            if number not in self._retried and seed == str(self._seed(number) + RETRIED):
                self._retried.add(number)
            elif number in self._retried and seed != str(self._seed(number)):
                return None  # of the first seed
        return self.store.answers(number, len(self.candidates.rows), {**self._bound(number), "stage": stage}, stage)

    def _finished(self, number: int) -> None:
        """Refuse a model that answers as one on other rows does; report one that seems not to have learned."""
        for kept in [key for key in self._recent if key[0] == number]:
            del self._recent[kept]
        self._summaries.pop(number, None)
        digest = self.summary(number).digest
        other = self._seen.setdefault(digest, number)
        if digest and other != number and (self.design.members[other] != self.design.members[number]).any():
            raise UsageError(
                f"two models that were to be trained on different rows (models {other} and {number}) give exactly "
                "the same answers: does train use its indices? It must fit a fresh model on those rows alone, each "
                "time it is called."
            )
        first = self._summaries.get(int(self.design.targets[0]))
        if first is not None and self._is_weak(self.summary(number).accuracy, first.accuracy):
            self.progress.say(
                f"model {number} seems not to have learned (accuracy {self.summary(number).accuracy:.3f}); if the "
                "others show it too, its pair is trained once more."
            )

    def accuracies(self) -> Floats:
        """Return the accuracy of every model on all rows, members or not, by one draw as served."""
        return np.array([self.summary(number).accuracy for number in range(len(self.design))])

    def weak(self) -> list[int]:
        """List the models that did not learn; models that exist and a lone target are never among them.

        A model learned if it is less than half as far above naming the most frequent class as the median target,
        give or take 1/sqrt(rows). All rows count, so that the rule is blind to membership and biases no bound.
        """
        every = self.accuracies()
        reference = float(np.median(every[self.design.targets]))
        fixed = {0} if self.design.kind == "one target" else set()
        low = [number for number, accuracy in enumerate(every.tolist()) if self._is_weak(accuracy, reference)]
        return [number for number in low if self.design.seeds[number] != EXISTS and number not in fixed]

    def _is_weak(self, accuracy: float, reference: float) -> bool:
        chance, luck = self._chance()
        return reference - chance > luck and accuracy - chance < (reference - chance) / 2 - luck

    def _chance(self) -> tuple[float, float]:
        counts = np.bincount(self.candidates.labels)
        return float(counts.max() / counts.sum()), 1 / float(np.sqrt(len(self.candidates.rows)))

    def doubts(self) -> tuple[str, ...]:
        """Say if the targets are no better than always naming the most frequent class."""
        found, (chance, luck) = float(np.median(self.accuracies()[self.design.targets])), self._chance()
        if found - chance > luck:
            return ()
        return (
            f"The attacked model has an accuracy of {found:.3f}; always naming the most frequent class gives "
            f"{chance:.3f}. If it did not learn, it had little to reveal, and shadow models that did not learn were "
            "not recognised.",
        )

    def words(self, weak: Sequence[int]) -> str:
        """Say how little some models learned."""
        if not weak:
            return ""
        every = self.accuracies()
        return (
            f"model {weak[0]} did not learn: its accuracy is {every[weak[0]]:.3f}, that of the targets "
            f"{np.median(every[self.design.targets]):.3f}, and always naming the most frequent class gives "
            f"{self._chance()[0]:.3f}. Attacks with such models would look harmless whatever the target leaks."
        )

    def check_rows(self, left: frozenset[int]) -> None:
        """Refuse models that are better on rows that they were not given.

        Raises:
            UsageError: Two models are, far beyond chance.
        """
        trained = [number for number in range(len(self.design)) if self.design.seeds[number] != EXISTS]
        wrong = sum(self.summary(number).wrong_rows for number in trained if number not in left)
        if wrong >= 2:
            raise UsageError(
                f"{wrong} models are better on rows that they were not given than on those they were given: does "
                "train use the rows of its indices, and no others? It must fit a fresh model on those rows alone."
            )


def kept_seed(path: Path) -> str:
    """Read which seed the answers in a file are bound to; empty where the file does not say."""
    from resperturb.sealed import read_binding

    try:
        return (read_binding(path).digests or {}).get("seed", "")
    except ResperturbError:
        return ""
