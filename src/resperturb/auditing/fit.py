"""Fit and query the models of a design; report, retrain once, and leave out models that did not learn."""

import io
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Query
from resperturb.auditing.ask import ask
from resperturb.auditing.candidates import Candidates
from resperturb.auditing.design import EXISTS, Design
from resperturb.auditing.store import MODELS, Store, answers_path, array_digest, keep_answers
from resperturb.auditing.trainee import Job, Trainee
from resperturb.bounds.arrays import Bools
from resperturb.bounds.attack_metrics import split_metrics
from resperturb.bounds.audit_result import COARSE
from resperturb.engine import Engine, Shared, Task
from resperturb.engine.task import Files
from resperturb.errors import ResperturbError, UsageError
from resperturb.progress import Lines, duration

# What is added to the seed of a pair that is trained again.
RETRIED = 500_009
# The error of the test that says a model was trained on other rows than it was given.
WRONG_ROWS = 1e-6
# Answers with more distinct values than this, or than half of the rows, do not coincide by chance.
FINE = 32


@dataclass(frozen=True, eq=False)
class FitTask(Task):
    """Fit one model of a trainee, query it and its checkpoints, and keep the answers; the trainee keeps the rest."""

    alike: ClassVar[bool] = True
    folder: Path
    trainee: Trainee
    job: Job
    candidates: Candidates
    draws: tuple[int, ...]
    bound: dict[str, str]

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Fit, query the model and its checkpoints, and keep the answers.

        Raises:
            UsageError: There is no model.
        """
        place = folder / MODELS / self.job.folder.name
        job = replace(self.job, rows=self.job.rows.copy(), folder=place, shared=shared, accelerator=accelerator)
        answers = None
        with silenced() if job.number else nullcontext():
            for fitted in self.trainee.fit(job):
                answers = ask(fitted, self.candidates.rows, self.candidates.labels, self.draws)
                if fitted.stage:
                    self._keep(folder, answers, fitted.stage)
        if answers is None:
            raise UsageError("train yielded no predictor; it must yield one per checkpoint, the model at last.")
        self._keep(folder, answers, "")

    def _keep(self, folder: Path, answers: Answers, stage: str) -> None:
        keep_answers(answers_path(folder, self.job.number, stage), answers, {**self.bound, "stage": stage})

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
def silenced() -> Iterator[None]:
    """Keep what a library prints of every training off the screen; show the end of it if the training fails."""
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
    if weak:
        progress.say(
            f"{len(weak)} of {len(design)} models did not learn ({', '.join(map(str, weak[:8]))}); their pairs are "
            "trained once more with another seed."
        )
        models.fit(design.with_partners(weak), retry=True)
        weak = models.weak()
    left = design.with_partners(weak)
    models.check_rows(left)
    if not left:
        return design, models, ()
    learning = len(design) if design.kind == "leave one out" else len(design) - 1
    if len(left) > learning / 2:
        raise ResperturbError(
            f"{len(left)} of {learning} models did not learn, also with another seed: {models.words(weak[0])} "
            "Their answers are kept. Train for longer, or audit without shadow models (--one-run, shadows=0)."
        )
    return design.without(left), models, (f"{len(left)} models were left out: {models.words(weak[0])}",)


@dataclass(frozen=True)
class Summary:
    """What the rules for failures need of a model's answers, which are read once for it.

    ``accuracy`` is that on all rows, members and others alike, by one draw as served. ``digest`` is that of the
    answers, empty where one is given to everything. ``fine`` says that they take too many distinct values to coincide
    with another model's by chance. ``wrong_rows`` says that it is better on rows that it was not given, far beyond
    chance.
    """

    queries: tuple[Query, ...]
    accuracy: float
    on_members: float
    on_others: float
    digest: str
    fine: bool
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
            found = split_metrics(confidence, inside, candidates.units, rates=())
            wrong = found.estimate.interval(1 - WRONG_ROWS).high < 0.5
        return cls(
            tuple(Query(access, signals.averages) for access, signals in answers.items()),
            float(correct.mean()),
            float(correct[members].mean()) if members.any() else float("nan"),
            float(correct[~members].mean()) if not members.all() else float("nan"),
            "" if same or (last == last[0]).all() else array_digest(last),
            len(np.unique(last)) > min(FINE, len(last) / 2),
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
            found = self.store.answers(number, len(self.candidates.rows), self._bound(number, stage), stage)
            if found is None:
                raise ResperturbError(f"the answers of model {number} are gone; run the audit again.")
            while len(self._recent) > 1:  # a target and its partner are read in turn
                del self._recent[next(iter(self._recent))]
            self._recent[number, stage] = found
        return self._recent[number, stage]

    def summary(self, number: int) -> Summary:
        """Summarise the answers of a model."""
        if number not in self._summaries:
            self._summaries[number] = Summary.of(self.answers(number), self.members(number), self.candidates)
        return self._summaries[number]

    def stages(self) -> list[str]:
        """List the checkpoints that every model has, in their order."""
        first, *others = (self.store.stages(number) for number in self.design.used)
        return [stage for stage in first if all(stage in other for other in others)]

    def members(self, number: int) -> Bools:
        """Say of every row, the population included, whether a model was trained on it."""
        return np.pad(self.design.members[number], (0, self.candidates.population))

    def fit(self, numbers: Iterable[int], retry: bool = False) -> None:
        """Fit and query some models, unless their answers are there; with ``retry`` those of another seed."""
        wanted, tasks = list(numbers), []
        if retry:
            self._retried.update(wanted)
        for number in wanted:
            if self.design.seeds[number] == EXISTS:
                self._ask_existing(number)
            elif self._is_kept(number):
                self._finished(number)
            else:
                tasks.append(self._task(number))
        if tasks:
            self._run(tasks, len(wanted))

    def _ask_existing(self, number: int) -> None:
        """Query a model that exists; answers are kept where its weights have a digest."""
        *_, fitted = self.trainee.fit(self._task(number).job)
        bound = {**self._bound(number), "weights": fitted.digest}
        found = self.store.answers(number, len(self.candidates.rows), bound) if fitted.digest else None
        if found is None:
            found = ask(fitted, self.candidates.rows, self.candidates.labels, self.draws)
            if fitted.digest:
                self.store.keep(number, found, bound)
        self._existing[number] = found
        self._finished(number)

    def _run(self, tasks: list[FitTask], count: int) -> None:
        sizes = sorted(len(task.job.rows) for task in tasks)
        models, each = ("models", f"each on {sizes[0]} to {sizes[-1]}") if count > 1 else ("model", f"on {sizes[0]}")
        self.progress.say(
            f"training {len(tasks)} of {count} {models}, {each} rows and queried about {len(self.candidates.rows)}."
        )
        done, total = 0, len(tasks)

        def tell(task: Task, error: ResperturbError | None) -> None:
            nonlocal done
            if error is not None:
                raise error
            assert isinstance(task, FitTask)
            self._finished(task.job.number)
            done += 1
            self.progress.step(done, total)

        if total > 1 and tasks[0].job.number == 0:
            # One first: it shows whether the trainee can be used, and how long the others will take.
            started = time.monotonic()
            self.engine(tasks[:1], 1, tell)
            self.progress.say(f"the first took {duration(time.monotonic() - started)}; {total - 1} follow.")
            tasks = tasks[1:]
        self.progress.step(done, total)
        self.engine(tasks, self.jobs, tell)

    def _seed(self, number: int) -> int:
        return int(self.design.seeds[number]) + RETRIED * (number in self._retried)

    def _task(self, number: int) -> FitTask:
        rows = self.candidates.rows[: len(self.candidates)][self.design.members[number]]
        every = np.sort(np.concatenate([rows, self.candidates.always]))
        folder = self.store.folder
        place = folder / MODELS / f"{number:03d}{'-again' if number in self._retried else ''}"
        job = Job(number, every, self._seed(number), place)
        return FitTask(folder, self.trainee, job, self.candidates, self.draws, self._bound(number))

    def _bound(self, number: int, stage: str = "") -> dict[str, str]:
        return {
            "question": self.store.plan.question,
            "model": str(number),
            "rows": array_digest(self.design.members[number]),
            "seed": str(self._seed(number)),
            "stage": stage,
        }

    def _is_kept(self, number: int) -> bool:
        """Whether the answers of a model are there; those of a second seed replace those of the first."""
        seed, first = self.store.seed(number), int(self.design.seeds[number])
        if seed == str(first + RETRIED):
            self._retried.add(number)
        elif seed == str(first) and number in self._retried:
            return False
        return self.store.answers(number, len(self.candidates.rows), self._bound(number)) is not None

    def _finished(self, number: int) -> None:
        """Refuse a model of another kind, or one that ignores its rows; report one that seems not to have learned."""
        for kept in [key for key in self._recent if key[0] == number]:
            del self._recent[kept]
        self._summaries.pop(number, None)
        found = self.summary(number)
        first, wanted = next((one, summary.queries) for one, summary in self._summaries.items())
        if found.queries != wanted:
            of_it, of_first = (
                ", ".join(f"{one.access} x {one.draws}" for one in queries) for queries in (found.queries, wanted)
            )
            raise UsageError(
                f"model {number} was queried by {of_it}, and model {first} by {of_first}; every model must be of the "
                "same kind (noisy or not, of as many networks)."
            )
        other = self._seen.setdefault(found.digest, number)
        if found.digest and found.fine and (self.design.members[other] != self.design.members[number]).any():
            raise UsageError(
                f"two models that were to be trained on different rows (models {other} and {number}) give exactly "
                "the same answers: does train use its indices? It must fit a fresh model on those rows alone, each "
                "time it is called."
            )
        target = self._summaries.get(int(self.design.targets[0]))
        if target is not None and self._is_weak(found.accuracy, target.accuracy):
            self.progress.say(
                f"model {number} seems not to have learned (accuracy {found.accuracy:.3f}); this is decided when all "
                "have finished."
            )

    def weak(self) -> list[int]:
        """List the models that did not learn; models that exist and a lone target are never among them.

        A model learned if it is less than half as far above naming the most frequent class as the median target,
        give or take 1/sqrt(rows). All rows count, so that the rule is blind to membership and biases no bound.
        """
        typical, lone = self._typical(), self.design.kind == "one target"
        trained = np.flatnonzero(self.design.seeds != EXISTS).tolist()
        return [n for n in trained if self._is_weak(self.summary(n).accuracy, typical) and not (lone and n == 0)]

    def _above(self, accuracy: float) -> float:
        """How far it is above always naming the most frequent class, in multiples of 1/sqrt(rows), which are luck."""
        return (accuracy - self._chance) * float(np.sqrt(len(self.candidates.rows)))

    def _is_weak(self, accuracy: float, typical: float) -> bool:
        return self._above(typical) > 1 and self._above(accuracy) < self._above(typical) / 2 - 1

    def _typical(self) -> float:
        """The median accuracy of the targets on all rows, members or not, by one draw as served."""
        return float(np.median([self.summary(target).accuracy for target in self.design.targets.tolist()]))

    @property
    def _chance(self) -> float:
        """The accuracy of always naming the most frequent class."""
        return float(np.bincount(self.candidates.labels).max() / len(self.candidates.labels))

    def doubts(self) -> tuple[str, ...]:
        """Say if the targets hardly learned, and if answers are too coarse to show that training used its rows."""
        coarse, typical = (COARSE,) if self._coincide() else (), self._typical()
        if self._above(typical) > 1:
            return coarse
        return (
            *coarse,
            f"The attacked model has an accuracy of {typical:.3f}; always naming the most frequent class gives "
            f"{self._chance:.3f}. If it did not learn, it had little to reveal, and shadow models that did not learn "
            "were not recognised.",
        )

    def _coincide(self) -> bool:
        """Whether two models that were trained on different rows give the same answers."""
        rows: dict[str, set[bytes]] = {}
        for number, summary in self._summaries.items():
            rows.setdefault(summary.digest, set()).add(self.design.members[number].tobytes())
        return any(digest and len(different) > 1 for digest, different in rows.items())

    def words(self, weak: int) -> str:
        """Say how little a model learned."""
        return (
            f"model {weak} did not learn: its accuracy is {self.summary(weak).accuracy:.3f}, that of the targets "
            f"{self._typical():.3f}, and always naming the most frequent class gives {self._chance:.3f}. Attacks "
            "with such models would look harmless whatever the target leaks."
        )

    def check_rows(self, left: Sequence[int]) -> None:
        """Refuse models that are better on rows that they were not given.

        Raises:
            UsageError: A lone target, or two models, are far beyond chance.
        """
        wrong = [n for n in range(len(self.design)) if n not in left and self.summary(n).wrong_rows]
        lone = self.design.kind == "one target" and int(self.design.targets[0]) in wrong
        if len(wrong) < 2 and not lone:
            return
        which = "1 model is" if len(wrong) == 1 else f"{len(wrong)} models are"
        if self.design.seeds[wrong[0]] == EXISTS:
            raise UsageError(
                f"{which} better on non-members than on members, far beyond chance. Are the two swapped, or are "
                "the records of one easier? Attacks would look harmless whatever leaks."
            )
        raise UsageError(
            f"{which} better on rows that were not given to train than on those that were: does train use the rows "
            "of its indices, and no others? It must fit a fresh model on those rows alone."
        )
