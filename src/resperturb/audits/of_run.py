"""Audit a run: train its shadow models, ask them all, attack, and set what that shows beside what is proven."""

import logging
from collections.abc import Callable, Iterator
from itertools import product

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Query
from resperturb.audits.ask import answers_of, queries_of
from resperturb.audits.assess import Settings, assess, check_shadow_count
from resperturb.audits.candidates import CandidateImages, candidate_images
from resperturb.audits.result import save_audit
from resperturb.audits.shadow import AttackFailedError, learned_shadow_configs, run_shadow_attack, shadow_folder
from resperturb.audits.shadows import configs_of_audit, learned_draws, train_models
from resperturb.bounds.audit_result import AttackResult, AuditResult, Model
from resperturb.data.canaries import Bools
from resperturb.engine import Engine, local_engine
from resperturb.environment import environment
from resperturb.errors import UsageError
from resperturb.progress import duration
from resperturb.training.config import TrainConfig
from resperturb.training.many import unfinished
from resperturb.training.run import Run

_logger = logging.getLogger(__name__)

OnStage = Callable[[str, int, int], None]

RECIPE = (
    "The run was trained on all of its images, so nobody is known to be left out. What was audited is its recipe: "
    "models trained in the same way, each on the half of the images that coins chose."
)


def audit_run(
    target: Run,
    *,
    shadows: int = 16,
    draws: tuple[int, ...] = (1, 16),
    delta: float = 1e-5,
    confidence: float = 0.95,
    jobs: int | None = None,
    engine: Engine = local_engine,
    on_stage: OnStage = lambda what, done, count: None,
) -> AuditResult:
    """Audit a run: train the shadows that are missing, attack, measure, bound. Keep all in the run and return it.

    A run on all of its images without canaries is audited through models of the same recipe on halves of them.

    Args:
        target: A finished run.
        shadows: The number of shadow models: even, at least 4; 0 for an audit without any.
        draws: The numbers of draws that answers of noisy models are combined over.
        delta: At which epsilon is bounded.
        confidence: Of the intervals, and of all bounds together.
        jobs: Trainings at a time; as many as the engine has room for if None.
        engine: Where to train.
        on_stage: Told what is being done, and how much of it is done.

    Returns:
        What was found.

    Raises:
        UsageError: The run cannot be audited.
        ResperturbError: A shadow model did not learn.
    """
    settings = Settings(tuple(draws), delta, confidence)
    check_shadow_count(shadows)
    _ = target.result  # unfinished runs are refused here
    if target.config.data.part == "shadow_train":
        raise UsageError(f"{target.path} is a shadow of the paper's attack; audit a run of the part target_train.")
    recipe = target.config.data.part == "all" and target.config.data.canaries is None
    config = _half(target.config) if recipe else target.config
    caveats = [RECIPE] if recipe else []
    _announce(target, config, shadows)
    queried = candidate_images(config.data)
    queries = queries_of(config, settings.draws)
    learned: list[AttackResult] = []

    def tell(done: int, count: int) -> None:
        if count:
            on_stage("training shadow models" if shadows else "training a model of the same recipe", done, count)

    attacked, trained = train_models(target, config, shadows, queries, settings.draws, jobs, tell, engine)
    if shadows:
        learned, failures = _learned(attacked, settings, on_stage)
        caveats += failures
    found = assess(
        queried.candidates(),
        answers_of(attacked, queried, queries),
        _shadow_answers(trained, queried, queries, on_stage),
        len(trained),
        queries=queries,
        settings=settings,
        model=_model(target, attacked),
        guarantee=attacked.guarantee(settings.delta),
        more=learned,
        caveats=caveats,
        digests=target.digests,
        environment=environment(),
        folder=target.path,
        on_attack=lambda done, count: on_stage("scoring", done, count),
    )
    save_audit(found, target.path)
    return found


def describe(config: TrainConfig) -> str:
    """Say in a few words what a configuration trains: the network, and what keeps it from leaking.

    >>> from resperturb.training.config import make_config
    >>> describe(make_config(data={"spec": "x"}, perturbation={"name": "additive", "gamma": 0.5}))
    'resnet8, additive, gamma=0.5, input_std=0.25, scale=constant'
    """
    strategy = config.perturbation
    parts = [] if strategy is None else [strategy.describe()]
    if config.method.label:
        parts.append(config.method.label)
    return ", ".join([config.network.public, *(parts or ["no noise"])])


def _model(target: Run, attacked: Run) -> Model:
    result = attacked.result
    return Model(
        name=target.path.name,
        description=describe(target.config),
        records=result.records,
        train_accuracy=result.train_accuracy,
        test_accuracy=result.test_accuracy,
    )


def _half(config: TrainConfig) -> TrainConfig:
    """The same recipe on the half of the images that coins choose."""
    return config.model_copy(update={"data": config.data.model_copy(update={"part": "half", "subset_seed": 0})})


def _announce(target: Run, attacked: TrainConfig, shadows: int) -> None:
    """Say what will be trained, and how long that takes if it takes as long as the run did."""
    recipe = attacked != target.config
    configs = configs_of_audit(target.config, attacked, shadows)
    left = unfinished(configs, shadow_folder(target))
    if left:
        # Models of the recipe have half of the run's images, all others as many as the run.
        seconds = left * target.result.seconds * (0.5 if recipe else 1.0)
        _logger.info(
            "audit: %d models to train (%d there already)%s: about %s of computing, as the run itself took %s.",
            left,
            len(configs) - left,
            ", each on half of the images" if recipe else "",
            duration(seconds),
            duration(target.result.seconds),
        )


def _shadow_answers(
    shadows: list[Run], queried: CandidateImages, queries: tuple[Query, ...], on_stage: OnStage
) -> Iterator[tuple[Answers, Bools]]:
    """Read the answers of one shadow model after the other: what is kept does not grow with their number."""
    for number, shadow in enumerate(shadows):
        on_stage("reading answers", number, len(shadows))
        yield answers_of(shadow, queried, queries), queried.members(shadow.config.data)


def _learned(target: Run, settings: Settings, on_stage: OnStage) -> tuple[list[AttackResult], list[str]]:
    """The paper's attack on the records, with a shadow that knows of the perturbation and with one that does not.

    Its network may fail to learn where there is little to see; the other attacks stand without it, so that is told.
    """
    noisy = target.config.is_noisy
    found: list[AttackResult] = []
    failures: list[str] = []
    shadows = (False, True)[: len(learned_shadow_configs(target.config))]
    attacks = list(product(shadows, learned_draws(settings.draws) if noisy else [1]))
    for number, (adaptive, draws) in enumerate(attacks):
        on_stage("fitting attack networks", number, len(attacks))
        try:
            found.append(run_shadow_attack(target, adaptive=adaptive, draws=draws))
        except AttackFailedError as error:
            kind = "adaptive" if adaptive else "not adaptive"
            failures.append(f"The paper's attack ({kind}, draws: {draws}) is missing: {error}")
    return found, failures
