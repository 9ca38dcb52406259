"""What is proven about a run: computed from its configuration, never read from a file."""

import math
from dataclasses import replace

from resperturb.models.names import parse_name
from resperturb.perturbation.strategy import TrainingFacts
from resperturb.privacy import Guarantee, nothing_proven
from resperturb.privacy.additive import SECRET_NOISE
from resperturb.training.run import Run
from resperturb.training.secret import secrecy


def run_guarantee(run: Run, delta: float) -> Guarantee:
    """Say what is proven about the weights of a finished run.

    Args:
        run: The run.
        delta: At which epsilon is stated.

    Returns:
        The guarantee of its training method, or else of its strategy of noise; one of infinite epsilon, with the
        reason, where nothing is proven.
    """
    config, result = run.config, run.result
    if config.method.private:
        steps = config.epochs * math.ceil(result.records / config.batch_size)
        found = config.method.guarantee(config, result.records, steps, delta)
        return found or nothing_proven(f"{config.method.title} proves nothing here.", delta)
    if config.strategy is None:
        return nothing_proven("It was trained without noise.", delta)
    height, width = result.image_size
    facts = TrainingFacts(
        epochs=config.epochs,
        batch_size=config.batch_size,
        records=result.records,
        input_radius=config.input_radius(result.channels, height, width),
        networks=parse_name(config.model).networks,
        input_numbers=result.channels * height * width,
    )
    proven = config.strategy.guarantee(facts, delta)
    if proven.epsilon == math.inf:
        return proven
    known = tuple(secrecy(config) if a == SECRET_NOISE else a for a in proven.assumptions)
    return replace(proven, assumptions=known)
