"""Train many configurations at once: those that are not finished are given to an engine.

An engine is one function. Two exist: :func:`resperturb.engine.local.local`, processes of this machine, and
:class:`resperturb.engine.ray.RayEngine`, tasks of a Ray cluster.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from resperturb.engine.local import Tell, local
from resperturb.errors import ResperturbError, UsageError
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run, open_run


class Engine(Protocol):
    """Where trainings happen."""

    def __call__(self, configs: Sequence[TrainConfig], runs: Path, jobs: int | None, tell: Tell) -> None:
        """Train every configuration, at most ``jobs`` at a time, into ``runs``/its hash.

        As each ends, ``tell`` is called with its finished run, or with the error that it failed by. An exception
        that ``tell`` raises ends all the others. The configurations all differ, and carry their fingerprints.
        """


def train_many(
    configs: Sequence[TrainConfig],
    runs: Path,
    jobs: int | None = None,
    on_done: Callable[[Run], None] = lambda run: None,
    *,
    engine: Engine = local,
    on_failure: Callable[[TrainConfig, ResperturbError], None] | None = None,
) -> list[Run]:
    """Train every configuration into a run under ``runs``, ``jobs`` at a time, and return the runs in order.

    ``jobs`` is as many as the engine has room for unless given. A run that is finished is not trained again.
    ``on_failure`` is told of a training that fails by itself, which is then left out; without it, the first that
    fails ends the others. Call this from a script under ``if __name__ == "__main__"``: processes may be spawned.
    """
    from resperturb.training.loop import InterruptedTrainingError

    done: dict[str, Run] = {}
    settled = [_settled(config) for config in configs]
    asked: dict[str, list[TrainConfig]] = {}
    for config, bound in zip(configs, settled, strict=True):
        asked.setdefault(bound.digest, []).append(config)

    def tell(config: TrainConfig, outcome: Run | ResperturbError) -> None:
        if isinstance(outcome, Run):
            done[config.digest] = outcome
            for _ in asked[config.digest]:
                on_done(outcome)
        elif on_failure is None or isinstance(outcome, InterruptedTrainingError | UsageError):
            raise outcome
        else:
            for original in asked[config.digest]:
                on_failure(original, outcome)

    todo = []
    for bound in {bound.digest: bound for bound in settled}.values():
        if (run := _finished(bound, runs)) is not None:
            tell(bound, run)
        else:
            todo.append(bound)
    if todo:
        engine(todo, runs, jobs, tell)
    return [done[bound.digest] for bound in settled if bound.digest in done]


def _settled(config: TrainConfig) -> TrainConfig:
    """Say everything that names the run: which images exactly, and how much noise a wanted epsilon takes."""
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import with_fingerprint

    inputs = load_inputs(config.data)
    bound = with_fingerprint(config, inputs)
    if bound.dpsgd is None or bound.dpsgd.target_epsilon is None:
        return bound
    from resperturb.training.dpsgd import settled

    return settled(bound, inputs.members(bound.data.part))


def _finished(config: TrainConfig, runs: Path) -> Run | None:
    path = runs / config.digest
    run = open_run(path) if (path / "config.json").exists() else None
    return run if run is not None and run.finished else None
