"""All trainings of the reproduction in one folder: what is there, what is damaged, what must be trained.

A run is named by the hash of its configuration, so experiments share what they have in common. Targets lie in the
folder itself, shadow models in ``.shadows`` where the attacks look for them.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

from resperturb.engine import DiedError, Engine, local_engine
from resperturb.errors import BusyError, ResperturbError, UsageError
from resperturb.training import (
    InterruptedTrainingError,
    Run,
    TrainConfig,
    load_inputs,
    network_fingerprint,
    open_run,
    train_many,
)

SECONDS_BETWEEN_LOOKS = 5.0

State = Literal["absent", "begun", "finished", "damaged"]


@dataclass
class Library:
    """The trainings under ``folder``; ``failures`` are those that could not be trained, by their hash.

    Without ``may_train`` nothing is trained: what is there is measured.
    """

    folder: Path
    jobs: int | None = 1
    say: Callable[[str], None] = lambda message: None
    engine: Engine = local_engine
    may_train: bool = True
    failures: dict[str, str] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)

    def place(self, config: TrainConfig) -> Path:
        """The folder of runs that a training belongs to."""
        return self.folder if config.data.part == "target_train" else self.folder / ".shadows"

    def bound(self, config: TrainConfig) -> TrainConfig:
        """The configuration with the fingerprints of its images and its network, as the run will have them.

        That of the images is remembered, because the images of all experiments together do not stay in memory.
        """
        images = f"{config.data.spec} {config.data.limit}"
        if images not in self._fingerprints:
            self._fingerprints[images] = load_inputs(config.data).fingerprint
        data = config.data.model_copy(update={"fingerprint": self._fingerprints[images]})
        return config.model_copy(update={"data": data, "network_fingerprint": network_fingerprint(config)})

    def get(self, config: TrainConfig) -> Run | None:
        """The finished run of a configuration; None if it is not there or not whole."""
        bound = self.bound(config)
        path = self.place(config) / bound.digest
        return open_run(path) if state_of(path)[0] == "finished" else None

    def failure(self, config: TrainConfig) -> str | None:
        """Why a training could not be done, if it was tried and failed."""
        return self.failures.get(self.bound(config).digest)

    def train(self, configs: Iterable[TrainConfig], on_done: Callable[[Run], None] = lambda run: None) -> None:
        """Train what is missing, targets first; a damaged run is put aside and trained again.

        A training that fails by itself (one that diverges) is noted in ``failures`` and does not stop the others; one
        that another process is at is waited for, after everything else.
        """
        bound = {config.digest: config for config in map(self.bound, configs)}
        for folder in (self.folder, self.folder / ".shadows"):
            wanted = [config for config in bound.values() if self.place(config) == folder]
            self._adopt(wanted, folder)
            missing = [c for c in wanted if state_of(folder / c.digest)[0] != "finished"]
            if self.may_train and missing:
                for config in missing:
                    self._repair(folder / config.digest)
                self._train_all(missing, folder, on_done)

    def _train_all(self, missing: list[TrainConfig], folder: Path, on_done: Callable[[Run], None]) -> None:
        again: list[TrainConfig] = []

        def note(config: TrainConfig, error: ResperturbError) -> None:
            self.say(f"a training stopped: {error}")
            if isinstance(error, DiedError | BusyError):
                again.append(config)
            else:
                self.failures[config.digest] = str(error)

        train_many(missing, folder, self.jobs, on_done, engine=self.engine, on_failure=note)
        while again:  # alone, one that died has all of the memory
            config = again.pop(0)
            try:
                train_many([config], folder, 1, on_done, engine=self.engine)
            except BusyError:
                again.append(config)
                time.sleep(SECONDS_BETWEEN_LOOKS)
            except (InterruptedTrainingError, UsageError):
                raise
            except ResperturbError as error:
                self.failures[config.digest] = str(error)

    def _repair(self, path: Path) -> None:
        state, why = state_of(path)
        if state == "damaged":
            aside = path.parent / ".damaged" / f"{path.name}.{time.time_ns()}"
            aside.parent.mkdir(exist_ok=True)
            path.rename(aside)
            self.say(f"{path} is damaged ({why}); it is put aside as {aside} and trained again.")

    def _adopt(self, wanted: Sequence[TrainConfig], folder: Path) -> None:
        """Give finished runs the name that their configuration has now, after settings were added to all of them."""
        lacking = {config.digest for config in wanted if not (folder / config.digest).exists()}
        for path, config in runs_in(folder) if lacking else ():
            if config.digest in lacking and path.name != config.digest and state_of(path)[0] == "finished":
                path.rename(folder / config.digest)


def runs_in(folder: Path) -> list[tuple[Path, TrainConfig]]:
    """Every run in a folder whose configuration can be read."""
    found = []
    for path in sorted(folder.glob("*/config.json")):
        try:
            found.append((path.parent, open_run(path.parent).config))
        except ResperturbError:
            continue
    return found


def audited_models(path: Path) -> list[Run]:
    """Open the finished models that the audit of a run trained."""
    places = sorted((path / "audit" / "models").glob("*/config.json"))
    return [open_run(place.parent) for place in places if state_of(place.parent)[0] == "finished"]


def state_of(path: Path) -> tuple[State, str]:
    """Look at the folder of a run: is it there, is it finished, is it whole; and if not, what is wrong.

    >>> state_of(Path("no/such/run"))
    ('absent', '')
    """
    if not path.exists() or not any(not item.name.startswith(".") for item in path.iterdir()):
        return "absent", ""
    try:
        run = open_run(path)
        finished = run.result_path.exists()
        if finished:
            run.result  # noqa: B018 - it is read
        tensors = run.model_path if finished else run.checkpoint_path
        if finished or tensors.exists():
            with safe_open(tensors, framework="pt") as file:  # compares its length with what its header promises
                file.keys()
    except (ResperturbError, SafetensorError, OSError) as error:
        return "damaged", str(error)
    return ("finished" if finished else "begun"), ""
