"""The additive strategy: the exact bound that follows from the input noise.

Training sees the images only as ``x + input_std * n`` with fresh noise ``n``, so the weights are a function of the
noised images and of the labels. That gives the bound without a word about the network; docs/theory.md derives it.
"""

import math

from resperturb.checks import between_0_and_1, count, not_negative, positive, ratio
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, exact_delta
from resperturb.privacy.gaussian import mu_for_budget
from resperturb.privacy.guarantee import SAME_LABEL, Assumption, Guarantee, Status, counted
from resperturb.privacy.length import TrainingLength

SECRET_NOISE = Assumption(
    "assumed",
    "The noise of the training is secret and used once: anyone who can draw it again can subtract it. A seed that is "
    "written down or easily guessed is no secret.",
)


def additive_guarantee(
    *,
    input_std: float,
    radius: float,
    length: TrainingLength,
    delta: float,
    networks: int = 1,
    radius_status: Status = "assumed",
) -> Guarantee:
    """Bound what a training run with the additive strategy gives away about one image.

    Above epsilon 20 or so it rests on tails that no computed noise has, and has an assumption that is not met.

    Args:
        radius: Largest norm of an input.
        networks: Networks of an ensemble. Each draws its own input noise, so a record is released that many times per
            pass.
        radius_status: Whether the radius is assumed or enforced.

    >>> from resperturb.privacy.length import training_length
    >>> run = training_length(epochs=100)
    >>> round(additive_guarantee(input_std=400, radius=30, length=run, delta=1e-5).epsilon, 2)
    7.05
    >>> additive_guarantee(input_std=0.25, radius=30, length=run, delta=1e-5).claimed_epsilon
    inf
    """
    radius = not_negative("radius", radius)
    input_std = not_negative("input std", input_std)
    between_0_and_1("delta", delta)
    networks = count("networks", networks)
    ledger = Ledger("swap", mu=exact_mu(radius, input_std, length.passes * networks))
    exact, unmet = counted(ledger, delta)
    ensemble = "" if networks == 1 else f", {networks} networks"
    clipped = " (no larger one can reach it)" if radius_status == "enforced" else ""
    each = "" if networks == 1 else f", {length.passes} passes through {networks} networks"
    return Guarantee(
        mechanism="additive",
        setting=f"Additive noise: {input_std:g} on the input; {length.epochs:g} epochs{ensemble}; images of norm up "
        f"to {radius:g}.",
        epsilon=exact.epsilon,
        delta=delta,
        max_tpr=exact.max_tpr,
        protects="the pixels of one training image, even from someone who holds the weights and knows every other "
        "record. NOT its label, nor the number of images.",
        assumptions=(
            Assumption(radius_status, f"Every image, as the noise finds it, has norm at most {radius:g}{clipped}."),
            Assumption(
                "assumed",
                f"An image is used at most {length.passes * networks} times{each}: shuffled epochs, no duplicates, "
                "fresh noise each time.",
            ),
            SECRET_NOISE,
            Assumption(
                "assumed",
                "Nothing else is computed from the images: no pixel statistics, no accuracy on them that is "
                "published or used to choose a model.",
            ),
            *unmet,
        ),
        ledger=ledger,
        neighbours="swap",
        compares=SAME_LABEL,
        records=length.records,
        details={
            "mu": ledger.mu,
            "input_std": input_std,
            "radius": radius,
            "epochs": length.epochs,
            "passes": length.passes,
            "networks": networks,
            "records": length.records,
        },
        notes=(("", "by the input noise alone: gamma, the noise in the blocks, adds nothing to the proof."),),
    )


def calibrate_additive(
    *, epsilon: float, delta: float, length: TrainingLength, radius: float, networks: int = 1
) -> Guarantee:
    """Return the guarantee with the least input noise that gives ``epsilon``: its ``details["input_std"]``.

    The other arguments are those of :func:`additive_guarantee`.

    Raises:
        UsageError: A number is out of range, or epsilon too large for computed noise.

    >>> from resperturb.privacy.length import training_length
    >>> budget = calibrate_additive(epsilon=8, delta=1e-5, length=training_length(epochs=100), radius=30)
    >>> round(budget.details["input_std"], 1), round(budget.epsilon, 6)
    (360.1, 8.0)
    """
    positive("radius", radius)
    networks = count("networks", networks)
    # The tails are paid for at a mu that is a little too large, so the one that is then found affords them too.
    left, enough = exact_delta(Ledger("swap", mu=mu_for_budget(epsilon, delta)), delta)
    if not enough:
        raise UsageError(
            f"an epsilon of {epsilon:g} at delta {delta:g} would rest on tails that computed noise does not have; "
            "ask for a smaller epsilon."
        )
    input_std = 2 * radius * math.sqrt(length.passes * networks) / mu_for_budget(epsilon, left)
    return additive_guarantee(input_std=input_std, length=length, delta=delta, radius=radius, networks=networks)


def exact_mu(radius: float, input_std: float, releases: int) -> float:
    """Return the Gaussian-DP parameter of ``releases`` noised copies of an image in a ball of ``radius``.

    Replacing the image moves each copy by at most ``2 radius``.

    >>> exact_mu(30, 0.25, 100)
    2400.0
    """
    return ratio(2 * radius * math.sqrt(releases), input_std)
