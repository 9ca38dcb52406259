"""Train many configurations at once: those that are not finished are given to an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resperturb.engine.local import local
from resperturb.engine.task import Engine, Files, Shared, Task
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import write_bytes
from resperturb.training.config import TrainConfig
from resperturb.training.inputs import load_inputs, packed, receive
from resperturb.training.loop import InterruptedTrainingError, resolve_config, train
from resperturb.training.precision import settle_precision
from resperturb.training.run import Run, held_run, open_run


@dataclass(frozen=True)
class TrainTask(Task):
    """Train a configuration, which carries its fingerprint."""

    config: TrainConfig
    folder: Path

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Train into ``folder``."""
        receive(self.config.data, shared)
        if shared is None and folder != self.folder:
            try:
                load_inputs(self.config.data)
            except UsageError as error:
                raise UsageError(
                    "images that are kept on disk because memory is too small for them are not sent to the nodes of "
                    f"a Ray cluster, and a node does not have them under the same name: {error}"
                ) from error
        train(self.config, out=folder, accelerator=accelerator)

    def results(self) -> tuple[str, ...]:
        """The files of a run; its result comes last, as its presence says that it is finished."""
        return ("config.json", "metrics.jsonl", "model.safetensors", "result.json")

    def shared(self) -> Shared:
        """The images, if they are in memory."""
        return Shared(self.config.data.fingerprint, lambda: packed(self.config.data))

    def receive(self, files: Files) -> None:
        """Write the files of a run that was trained elsewhere."""
        with held_run(self.config, self.folder, self.folder.parent) as run:
            for path in run.secrets():
                path.unlink()
            for name, content in files.items():
                if name != "config.json":
                    write_bytes(run.path / name, content)


def train_many(
    configs: Sequence[TrainConfig],
    runs: Path,
    jobs: int | None = None,
    on_done: Callable[[Run], None] = lambda run: None,
    *,
    engine: Engine = local,
    on_failure: Callable[[TrainConfig, ResperturbError], None] | None = None,
) -> list[Run]:
    """Train every configuration into a run under ``runs``, named by its hash, and return the finished runs in order.

    A run that is finished is not trained again.

    Args:
        jobs: Trainings at a time; as many as the engine has room for if None.
        on_done: Called with every finished run.
        on_failure: Called with a training that fails by itself, which is then left out; without it, the first failure
            ends the others.
    """
    done: dict[str, Run] = {}
    settled = [_settled(config, runs) for config in configs]
    asked: dict[str, list[TrainConfig]] = {}
    for config, bound in zip(configs, settled, strict=True):
        asked.setdefault(bound.digest, []).append(config)

    def finish(run: Run) -> None:
        done[run.config.digest] = run
        for _ in asked[run.config.digest]:
            on_done(run)

    def tell(task: Task, error: ResperturbError | None) -> None:
        assert isinstance(task, TrainTask)
        if error is None:
            finish(open_run(task.folder))
        elif on_failure is None or isinstance(error, InterruptedTrainingError | UsageError):
            raise error
        else:
            for original in asked.get(task.config.digest, ()):
                on_failure(original, error)

    todo = []
    for bound in {bound.digest: bound for bound in settled}.values():
        path = runs / bound.digest
        if (path / "config.json").exists() and (run := open_run(path)).finished:
            finish(run)
        else:
            todo.append(TrainTask(bound, path))
    if todo:
        engine(todo, jobs, tell)
    return [done[bound.digest] for bound in settled if bound.digest in done]


def _settled(config: TrainConfig, runs: Path) -> TrainConfig:
    """Say everything that names the run: which images, how much noise a wanted epsilon takes, which precision."""
    inputs = load_inputs(config.data)
    return settle_precision(resolve_config(config, inputs), inputs, None, runs)
