"""A study: the same K coin vectors and seeds for every setting, each model the target once, and a curve per setting.

Each setting has a folder of the audit core, so whatever stops a study, the same call resumes it.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

import numpy as np

from resperturb.auditing.api import plan_of
from resperturb.auditing.assess import exposed_units
from resperturb.auditing.candidates import Candidates
from resperturb.auditing.design import Design, leave_one_out
from resperturb.auditing.fit import Models, fit_models, silenced
from resperturb.auditing.store import Store, answers_path, array_digest, opened_store
from resperturb.auditing.trainee import Trainee, weakest_guarantee
from resperturb.bounds.arrays import Bools, Floats, Texts
from resperturb.bounds.audit_result import RECORD
from resperturb.bounds.exposed import Exposed
from resperturb.engine import Engine, local_engine, usable_cores
from resperturb.environment import environment
from resperturb.errors import ResperturbError, StoppedError, UsageError
from resperturb.files import read_json, write_json
from resperturb.frontiers.compare import FEWEST_TARGETS, GroupDifference, comparisons_of, group_differences
from resperturb.frontiers.curve import ATTACK, Curve, curve_of
from resperturb.frontiers.defence import Setting
from resperturb.frontiers.result import FrontierResult, SettingResult
from resperturb.progress import Lines, duration

RESULT_FILE, SECONDS_FILE, EXPOSED_FILE = "frontier.json", "seconds.json", "exposed.json"
FEWEST_UNITS = 40
DELTA = 1e-5  # of the epsilon of every setting
# What is fitted and asked, and where the answers are kept.
Given = tuple[Trainee, Candidates, Design, tuple[int, ...], Store]


@runtime_checkable
class Timed(Protocol):
    """A trainee that can measure, on a few steps, how long a model takes."""

    def seconds(self, rows: int, asked: int, draws: int) -> float:
        """Estimate the seconds of a training on a number of rows, and of queries about other rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StudiedSetting(Setting):
    """A setting, and the trainee that fits its models."""

    trainee: Trainee

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.") or "setting"


@dataclass(frozen=True)
class StudyPlan:
    """The seconds of each setting that a study will train, one model after the other, and what is left out."""

    seconds: Mapping[str, float]
    left_out: tuple[str, ...] = ()

    def lines(self, models: int, jobs: int | None = None) -> list[str]:
        """Say what will be trained and how long that takes: in all, what is left out, and by setting."""
        jobs = _room(jobs)
        total = duration(sum(self.seconds.values()) / jobs)
        return [
            f"{len(self.seconds)} settings of {models} models, {jobs} at a time, about {total} in all",
            *(f"left out: {one}" for one in self.left_out),
            *(f"{name}: {duration(seconds / jobs)}" for name, seconds in self.seconds.items()),
        ]


@dataclass(frozen=True, eq=False)
class Study:
    """Settings that are compared on the same records, coins and seeds, the one without a defence first.

    ``models`` is K, and answers of noisy models are averaged over ``draws``. ``subgroups`` has the subgroup of every
    candidate, ``""`` where it is not known. ``left_out`` says which settings cannot be trained, and why.
    """

    subject: str
    settings: tuple[StudiedSetting, ...]
    candidates: Candidates
    models: int = 16
    draws: int = 16
    seed: int = 0
    confidence: float = 0.95
    margin: float = 0.02
    subgroups: Texts | None = None
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        folders = Counter(setting.folder for setting in self.settings)
        if twice := [name for name, count in folders.items() if count > 1]:
            raise UsageError(f"two settings have the same name, {twice[0]!r}.")
        units = len(np.unique(self.candidates.units))
        if units < FEWEST_UNITS or not self.candidates.population:
            raise UsageError(
                f"there are {units} {self.candidates.unit}s whose membership is in question, and "
                f"{self.candidates.population} rows for the population; it needs {FEWEST_UNITS} and 1 at least."
            )
        wrong = {
            f"a frontier compares at least {FEWEST_TARGETS} models of each setting, not {self.models}.": (
                self.models < FEWEST_TARGETS
            ),
            f"draws must be at least 1, not {self.draws}.": self.draws < 1,
            f"confidence must lie between 0.5 and 1, not at {self.confidence:g}.": not 0.5 < self.confidence < 1,
            f"margin must lie between 0 and 1, not at {self.margin:g}.": not 0 < self.margin < 1,
        }
        for sentence, holds in wrong.items():
            if holds:
                raise UsageError(sentence)
        _ = self.design  # refuses an odd number of models

    @cached_property
    def design(self) -> Design:
        """The coins and seeds of all settings."""
        return leave_one_out(self.candidates.units, self.models, self.seed)

    @property
    def _rows(self) -> int:
        return int(self.design.members.sum(axis=1).mean())

    def plan(self, out: Path | None = None, hours: float | None = None, jobs: int | None = None) -> StudyPlan | None:
        """Estimate how long each setting takes, and leave out what does not fit; train and write nothing.

        Models that are there already take no time. It is None where trainees cannot say how long they take.

        Raises:
            UsageError: Not even the setting without a defence fits into the hours.
        """
        if hours is not None and not hours > 0:
            raise UsageError(f"hours must be above 0, not {hours:g}.")
        seconds = {}
        for setting in self.settings:
            if not isinstance(setting.trainee, Timed):
                return None
            missing = self._missing(setting, out)
            with silenced():
                each = setting.trainee.seconds(self._rows, len(self.candidates.rows), self.draws) if missing else 0.0
            seconds[setting.name] = missing * each
        return self._fitting(seconds, hours, jobs)

    def run(
        self,
        out: Path | None,
        *,
        engine: Engine = local_engine,
        jobs: int | None = None,
        hours: float | None = None,
        quiet: bool = False,
    ) -> FrontierResult:
        """Fit and query what is missing, attack every model, compare the settings, and keep the result in ``out``.

        Raises:
            UsageError: Two settings give the same models, or nothing fits into the hours.
            ResperturbError: The models without a defence did not learn.
        """
        if out is not None and out.is_file():
            raise UsageError(f"{out} is a file; a frontier is kept in a folder.")
        if out is None:
            engine, jobs = local_engine, 1
        lines = Lines("frontier", (lambda line: None) if quiet else None, unit="settings")
        plan = self.plan(out, hours, jobs)
        curves: list[Curve] = []
        named: dict[str, Exposed] = {}
        groups: list[GroupDifference] = []
        with ExitStack() as held:
            place = Path(held.enter_context(TemporaryDirectory())) if out is None else out
            asked = self.candidates, self.design, (self.draws,)
            given: dict[str, Given] = {}
            for one in self.settings:
                if plan is None or one.name in plan.seconds:
                    store = held.enter_context(opened_store(place / one.folder, plan_of(one.trainee, *asked)))
                    given[one.name] = (one.trainee, *asked, store)
            plan = plan or self._measured_plan(given, place, engine, jobs, hours)
            for line in plan.lines(self.models, jobs)[: 1 + len(plan.left_out)]:
                lines.say(line)
            left_out = [*self.left_out, *plan.left_out]
            for setting in (one for one in self.settings if one.name in plan.seconds):
                lines.say(f"{setting.name} ({len(curves) + 1} of {len(plan.seconds)})")
                try:
                    left, models, words = fit_models(*given[setting.name], engine, jobs, quiet)
                except (UsageError, StoppedError):
                    raise
                except ResperturbError as error:
                    if not curves:
                        raise
                    left_out.append(f"{setting.name}: {error}")
                    continue
                left_out += [f"{setting.name}: {text}" for text in words]
                records = left.members[left.targets].sum(axis=1) + len(self.candidates.always)
                guarantee = weakest_guarantee(setting.trainee, DELTA, records.tolist())
                curve, scores = curve_of(setting, models, left, guarantee)
                if not curves:
                    self._check_learned(curve)
                curves.append(curve)
                groups += self._groups(setting, scores, left.members[left.targets])
                if (exposed := exposed_units(models, left)) is not None:
                    named[setting.name] = exposed
        kinds = Counter(self.candidates.kinds.tolist())
        result = FrontierResult(
            subject=self.subject,
            attack=f"{ATTACK} on the mean logit of {self.draws} draws as served (one where the model is not noisy)",
            models=self.models,
            records=kinds.pop(RECORD, 0),
            canaries=dict(kinds),
            confidence=self.confidence,
            margin=self.margin,
            settings=tuple(SettingResult.of(one, self.confidence, named.get(one.name)) for one in curves),
            comparisons=comparisons_of(curves, self.confidence, self.margin),
            left_out=tuple(left_out),
            groups=tuple(groups),
            seed=self.seed,
            environment=environment(),
        )
        if out is not None:
            result.save(out / RESULT_FILE)
            self._keep_exposed(out / EXPOSED_FILE, named)
        return result

    def _check_learned(self, curve: Curve) -> None:
        """Refuse to compare defences of models that learn nothing without one."""
        counts, accuracy = np.bincount(self.candidates.labels), float(curve.accuracy[-1].mean())
        chance = counts.max() / counts.sum()
        if accuracy <= chance + 1 / np.sqrt(counts.sum()):
            raise ResperturbError(
                f"the models of {curve.name!r} did not learn: their test accuracy is {accuracy:.3f}, and always "
                f"naming the most frequent class gives {chance:.3f}. Train for longer, or in smaller batches."
            )

    def _groups(self, setting: StudiedSetting, scores: Floats, members: Bools) -> tuple[GroupDifference, ...]:
        if self.subgroups is None:
            return ()
        of = self.candidates.kinds == RECORD
        units = self.candidates.units[of]
        return group_differences(
            setting.name, scores[:, of], members[:, of], self.subgroups[of], units, self.confidence
        )

    def _measured_plan(
        self,
        given: Mapping[str, Given],
        out: Path,
        engine: Engine,
        jobs: int | None,
        hours: float | None,
    ) -> StudyPlan:
        """Fit the first model of every setting: it shows how long the others take, and that the setting is used."""
        path = out / SECONDS_FILE
        took = read_json(dict[str, float], path) if path.exists() else {}
        seen: dict[str, str] = {}
        silent = Lines("frontier", lambda line: None)
        for setting in self.settings:
            models, started = Models(*given[setting.name], engine, jobs, silent), time.monotonic()
            there = answers_path(out / setting.folder, 0).exists()
            models.fit([0])
            if not there or setting.name not in took:
                took[setting.name] = time.monotonic() - started
            write_json(path, took)
            answers = models.answers(0)
            digest = array_digest(*(answers[access].confidence for access in sorted(answers)))
            if (other := seen.setdefault(digest, setting.name)) != setting.name:
                raise UsageError(
                    f"train gives exactly the same answers with the settings {other!r} and {setting.name!r}; it must "
                    "use what it is given: train(indices, seed, **setting)."
                )
        return self._fitting(
            {one.name: self._missing(one, out) * took[one.name] for one in self.settings}, hours, jobs
        )

    def _fitting(self, seconds: Mapping[str, float], hours: float | None, jobs: int | None) -> StudyPlan:
        """Choose what fits: the first setting, then the middle strength of each defence, then the others."""
        if hours is None:
            return StudyPlan(dict(seconds))
        room = _room(jobs)
        first, budget, chosen = self.settings[0].name, hours * 3600 * room, set()
        levels: dict[str, list[str]] = {}
        for one in self.settings:
            levels.setdefault(one.defence, []).append(one.name)
        middle = {names[len(names) // 2] for names in levels.values()}
        for name in sorted(seconds, key=lambda name: (name != first, name not in middle)):
            if seconds[name] <= budget:
                budget -= seconds[name]
                chosen.add(name)
            elif name == first:
                raise UsageError(
                    f"{hours:g} h are too few: {self.models} models of {name!r} alone take about "
                    f"{duration(seconds[name] / room)} here."
                )
        left = tuple(
            f"{name}: it takes about {duration(seconds[name] / room)}, and {hours:g} h were given"
            for name in seconds
            if name not in chosen
        )
        return StudyPlan({name: value for name, value in seconds.items() if name in chosen}, left)

    def _missing(self, setting: StudiedSetting, out: Path | None) -> int:
        """Count the models of a setting whose answers are not there yet."""
        if out is None:
            return self.models
        return sum(not answers_path(out / setting.folder, number).exists() for number in range(self.models))

    def _keep_exposed(self, path: Path, named: Mapping[str, Exposed]) -> None:
        """Write the rows of the exposed units, for the owner's eyes only."""
        codes = np.unique(self.candidates.units, return_inverse=True)[1]
        rows = self.candidates.rows[: len(self.candidates)]
        found = {
            name: [rows[codes == unit].tolist() for unit in one.records] if one.resolved else None
            for name, one in named.items()
        }
        write_json(path, found, private=True)


def _room(jobs: int | None) -> int:
    return usable_cores() if jobs is None else jobs
