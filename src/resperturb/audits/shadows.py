"""The shadow models of an audit of a run: trained as the target is, noise and all, on subsets that coins decide."""

from collections.abc import Callable, Sequence

from resperturb.attacks.signals import Query
from resperturb.audits.ask import ANSWER_FILES, AskAfterTraining
from resperturb.audits.shadow import shadow_folder
from resperturb.engine import Engine, local_engine, train_many
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run


def shadow_configs(target: TrainConfig, count: int) -> list[TrainConfig]:
    """Say how shadows are trained: like the target, every candidate in half of them.

    >>> from resperturb.training.config import DataConfig
    >>> target = TrainConfig(data=DataConfig(spec="x", part="target_train"))
    >>> [(config.data.part, config.data.subset_seed) for config in shadow_configs(target, 2)]
    [('audit', 2), ('audit', 3)]
    """
    # Neither the coins of the target nor their opposite.
    first = 2 * (target.data.subset_seed // 2 + 1)
    part = target.data.part if target.data.part in ("all", "half") else "audit"
    return [
        target.model_copy(
            update={
                "data": target.data.model_copy(update={"part": part, "subset_seed": first + number}),
                "seed": target.seed + 1 + number,
            }
        )
        for number in range(count)
    ]


def train_shadows(
    target: Run,
    count: int,
    queries: Sequence[Query],
    jobs: int | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    engine: Engine = local_engine,
    along: Sequence[TrainConfig] = (),
) -> list[Run]:
    """Train the shadow models that are missing beside the target, and ask each where it was trained.

    Args:
        target: The run under audit.
        count: How many.
        queries: How to ask them.
        jobs: Trainings at a time.
        on_done: Told of progress.
        engine: Where to train.
        along: Other trainings to do at the same time, so that all cores have work.

    Returns:
        The shadow models.
    """
    configs = [*shadow_configs(target.config, count), *along]
    done = 0
    on_done(done, len(configs))

    def tell(run: Run) -> None:
        nonlocal done
        done += 1
        on_done(done, len(configs))

    after = AskAfterTraining(target.config.data, tuple(queries))
    folder = shadow_folder(target)
    return train_many(configs, folder, jobs, tell, engine=engine, after=after, keeps=(ANSWER_FILES,))[:count]
