"""The models of an audit of a run: trained as the target is, noise and all, on subsets that coins decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resperturb.attacks.signals import Query
from resperturb.audits.ask import ANSWER_FILES, answers_of, is_asked
from resperturb.audits.candidates import candidate_images
from resperturb.audits.shadow import features_of, has_features, learned_shadow_configs, shadow_folder
from resperturb.engine import Engine, local_engine
from resperturb.training.config import DataConfig, TrainConfig
from resperturb.training.many import train_many
from resperturb.training.run import Run


def shadow_configs(target: TrainConfig, count: int) -> list[TrainConfig]:
    """Say how shadows are trained: like the target, every candidate in half of them.

    Args:
        target: The configuration of the target.
        count: The number of shadow models, even.

    Returns:
        Their configurations.

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


def learned_draws(draws: Sequence[int]) -> list[int]:
    """Say over how many draws the paper's attack averages: as the paper does, over one, and over the most."""
    return sorted({1, max(draws, default=1)})


@dataclass(frozen=True)
class AskAfterTraining:
    """Ask a model what the attacks need of it where it was trained; for :func:`resperturb.training.train_many`.

    Attributes:
        data: Of the target.
        queries: How the target and the shadow models are asked about the candidates.
        draws: Over how many draws the paper's attack averages; none if it is not made.
    """

    data: DataConfig
    queries: tuple[Query, ...]
    draws: tuple[int, ...]

    def __call__(self, run: Run) -> None:
        """Ask, unless the answers are there already."""
        if self._in_audit(run):
            answers_of(run, candidate_images(self.data), self.queries)
        if self._in_attack(run):
            for draws in self.draws:
                features_of(run, draws)

    def is_done(self, run: Run) -> bool:
        """Whether all answers are kept."""
        asked = not self._in_audit(run) or is_asked(run, candidate_images(self.data), self.queries)
        return asked and not (self._in_attack(run) and any(not has_features(run, draws) for draws in self.draws))

    def results(self) -> tuple[str, ...]:
        """The answers."""
        return ANSWER_FILES

    def _in_audit(self, run: Run) -> bool:
        return run.config.data.part != "shadow_train"

    def _in_attack(self, run: Run) -> bool:
        data = run.config.data
        return data.part == "shadow_train" or (data.part, data.subset_seed) == (self.data.part, self.data.subset_seed)


def configs_of_audit(target: TrainConfig, attacked: TrainConfig, count: int) -> list[TrainConfig]:
    """List what is trained for an audit: what is attacked, unless that is the target, and the shadow models.

    Args:
        target: The configuration of the target.
        attacked: The target's, or that of a model of its recipe.
        count: How many shadow models; the two of the paper's attack come on top, unless there are none.

    Returns:
        The configurations, in this order.
    """
    stand_ins = [] if attacked == target else [attacked]
    return [*stand_ins, *shadow_configs(attacked, count), *(learned_shadow_configs(attacked) if count else [])]


def train_models(
    target: Run,
    attacked: TrainConfig,
    count: int,
    queries: Sequence[Query],
    draws: Sequence[int] = (1,),
    jobs: int | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    engine: Engine = local_engine,
) -> tuple[Run, list[Run]]:
    """Train all models of an audit that are missing, side by side, and ask each of them where it was trained.

    Args:
        target: The run under audit.
        attacked: What is attacked: the target, or a model of its recipe, which is trained with the others.
        count: How many shadow models, without those of the paper's attack.
        queries: How to ask them.
        draws: The numbers of draws that the audit averages over.
        jobs: Trainings at a time.
        on_done: Told of progress.
        engine: Where to train.

    Returns:
        The attacked model and the shadow models.
    """
    configs = configs_of_audit(target.config, attacked, count)
    learned = learned_shadow_configs(attacked) if count else []
    done = 0
    on_done(done, len(configs))

    def tell(run: Run) -> None:
        nonlocal done
        done += 1
        on_done(done, len(configs))

    after = AskAfterTraining(attacked.data, tuple(queries), tuple(learned_draws(draws)) if learned else ())
    trained = [target] if attacked == target.config else []
    runs = train_many(configs, shadow_folder(target), jobs, tell, engine=engine, after=after, trained=trained)
    attacked_run, *others = [*trained, *runs]
    return attacked_run, others[:count]
