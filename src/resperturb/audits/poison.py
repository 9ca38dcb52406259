"""An audit over many trainings: half of them with copies of a poisoned record, and can one tell which?

This is the method of Jagielski, Ullman and Oprea (2020), which the paper used. It is slow, a whole training for one
bit, but what it shows about epsilon rests on nothing but independent trainings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resperturb.attacks.signals import label_confidence
from resperturb.audits.shadow import shadow_folder
from resperturb.bounds.audit_result import Verdict, verdict_of
from resperturb.bounds.rates import jagielski
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import Scores, check_probability
from resperturb.data.images import ImageSet
from resperturb.data.poison import Kind
from resperturb.engine import Engine, train_many
from resperturb.engine.local import local
from resperturb.errors import UsageError
from resperturb.perturbation import noise_off
from resperturb.privacy import Guarantee
from resperturb.sealed import write_bound_json
from resperturb.training.config import PoisonConfig, TrainConfig
from resperturb.training.inputs import load_inputs
from resperturb.training.predict import predict
from resperturb.training.run import Run

# A model has noticed the poison if it gives its label more than half of the probability: log-odds of 0. Those are
# counted for the reader; the bound looks at all scores.
THRESHOLD = 0.0
SCHEMA = 1


@dataclass(frozen=True)
class PoisonSettings:
    """Which poison, in how many ``copies``; ``trials`` models are trained with it and as many without."""

    kind: Kind = "clipbkd"
    copies: int = 1
    trials: int = 20
    delta: float = 1e-5
    confidence: float = 0.95
    jobs: int | None = None
    engine: Engine = local

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_probability("confidence", self.confidence)
        if self.copies < 1 or self.trials < 1:
            raise UsageError(f"copies and trials must be at least 1, not {self.copies} and {self.trials}.")


@dataclass(frozen=True)
class PoisonAudit:
    """What models trained with and without the poison show, beside what is proven.

    Attributes:
        hash: What names the configuration of the run.
        noticed_with: How many of the models with the poison give its label more than half of the probability.
        scores_with: How much each model with the poison believes in its label, as log-odds.
        most_that_could_be_shown: The epsilon that a perfect attack would show with so many trials.
        guarantee: What is proven, if that is about records that are added.
    """

    run: str
    hash: str
    poison: Kind
    copies: int
    trials: int
    noticed_with: int
    noticed_without: int
    scores_with: tuple[float, ...]
    scores_without: tuple[float, ...]
    epsilon_lower: LowerBound
    most_that_could_be_shown: float
    guarantee: Guarantee | None
    verdict: Verdict
    schema: int = SCHEMA


def poison_configs(target: TrainConfig, settings: PoisonSettings) -> list[TrainConfig]:
    """Say how the models are trained: like the target, every other one with the poison, each from a seed of its own.

    >>> from resperturb.training.config import DataConfig
    >>> target = TrainConfig(data=DataConfig(spec="x"))
    >>> [config.data.poison.present for config in poison_configs(target, PoisonSettings(trials=2))]
    [True, False, True, False]
    """
    configs = []
    for number in range(2 * settings.trials):
        poison = PoisonConfig(kind=settings.kind, copies=settings.copies, present=number % 2 == 0)
        data = target.data.model_copy(update={"poison": poison})
        configs.append(target.model_copy(update={"data": data, "seed": target.seed + 1 + number}))
    return configs


def poison_audit(
    target: Run,
    settings: PoisonSettings = PoisonSettings(),  # noqa: B008 - it is frozen
    on_done: Callable[[int, int], None] = lambda done, count: None,
) -> PoisonAudit:
    """Train the models that are missing, look for the poison in each, and bound epsilon; keep it in the run."""
    if target.config.data.poison is not None:
        raise UsageError(f"{target.path} is itself a model of a poison audit; give the run that the audit is about.")
    target.result  # noqa: B018 - unfinished runs are refused here
    configs = poison_configs(target.config, settings)
    done = 0

    def tell(run: Run) -> None:
        nonlocal done
        done += 1
        on_done(done, len(configs))

    on_done(0, len(configs))
    runs = train_many(configs, shadow_folder(target), settings.jobs, tell, engine=settings.engine)
    data = configs[0].data
    poison = load_inputs(data).poison(data.part)  # the same for all, and dear to make from large images
    scores = np.array([poison_score(run, poison) for run in runs])
    found = poison_result(target, settings, scores[::2], scores[1::2])
    write_bound_json(target.path / "poison.json", found, target.digests)
    return found


def poison_score(run: Run, poison: ImageSet) -> float:
    """Ask a model, its noise off, for the log-odds that it gives the label of the poison."""
    config = run.config
    model = run.load_model()
    with noise_off(model):
        logits = predict(model, poison.images, mean=config.mean, std=config.std)
    return float(label_confidence(logits.double().numpy(), poison.labels.numpy())[0])


def poison_result(target: Run, settings: PoisonSettings, poisoned: Scores, clean: Scores) -> PoisonAudit:
    """Bound epsilon by the scores of models with and without poison, beside what is proven."""
    bound = _bound(poisoned, clean, settings)
    # The data sets differ by records that were added, which only the guarantee of DP-SGD is about.
    upper = target.guarantee(settings.delta)
    comparable = upper.neighbours == "add_remove"
    return PoisonAudit(
        run=str(target.path),
        hash=target.config.digest,
        poison=settings.kind,
        copies=settings.copies,
        trials=settings.trials,
        noticed_with=int((poisoned > THRESHOLD).sum()),
        noticed_without=int((clean > THRESHOLD).sum()),
        scores_with=tuple(poisoned.tolist()),
        scores_without=tuple(clean.tolist()),
        epsilon_lower=bound,
        most_that_could_be_shown=most(settings),
        guarantee=upper if comparable else None,
        verdict=verdict_of(upper.claimed_epsilon, bound.epsilon) if comparable else "nothing proven",
    )


def most(settings: PoisonSettings) -> float:
    """The epsilon that a perfect attack would show with so many trials: no result can be larger.

    >>> round(most(PoisonSettings(trials=20)), 2), round(most(PoisonSettings(trials=20, copies=4)), 2)
    (2.0, 0.5)
    """
    ones = np.ones(settings.trials)
    return _bound(ones, -ones, settings).epsilon


def _bound(poisoned: Scores, clean: Scores, settings: PoisonSettings) -> LowerBound:
    return jagielski(poisoned, clean, copies=settings.copies, delta=settings.delta, confidence=settings.confidence)
