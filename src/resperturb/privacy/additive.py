"""The additive strategy: the paper's Theorem 1 as printed, and the bound that really holds.

Training sees the images only as ``x + input_std * n`` with fresh noise ``n``, so the weights are a function of the
noised images (and of the labels). That gives the exact bound without a word about the network; docs/theory.md
derives it in a few lines.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from resperturb.checks import between_0_and_1, count, not_negative, positive, ratio
from resperturb.privacy.accounting import Ledger, account
from resperturb.privacy.gaussian import mu_for_budget, rdp_epsilon, rdp_rho
from resperturb.privacy.guarantee import SAME_LABEL, Assumption, Guarantee, Status, number
from resperturb.privacy.length import TrainingLength

SECRET_NOISE = Assumption(
    "assumed",
    "The noise of the training is secret and used once: whoever can draw it again can take it away. A seed that is "
    "written down or easily guessed is no secret.",
)


@dataclass(frozen=True)
class Theorem1:
    """What the paper's Theorem 1 gives: ``epsilon`` at the ``lam`` used, and the condition that binds.

    ``epsilon_from_input`` and ``epsilon_from_blocks`` are what each of its two conditions would ask alone.
    """

    epsilon: float
    lam: float
    epsilon_from_input: float
    epsilon_from_blocks: float

    @property
    def binds(self) -> Literal["input_std", "gamma", "both"]:
        """The noise whose condition decides epsilon."""
        if self.epsilon_from_input == self.epsilon_from_blocks:
            return "both"
        return "input_std" if self.epsilon_from_input > self.epsilon_from_blocks else "gamma"

    def layers(self, blocks: int) -> tuple[float, ...]:
        """Return the printed budgets of each block's weights, and of the last layer's.

        The proof of these (not of the whole model's) is wrong, see docs/theory.md: do not claim them.

        >>> [round(epsilon, 2) for epsilon in Theorem1(10.0, 0.5, 10.0, 10.0).layers(2)]
        [10.0, 7.5, 6.67]
        """
        return tuple((self.lam / (i + 1) + 1 - self.lam) * self.epsilon for i in range(blocks + 1))


def theorem1(
    *,
    gamma: float,
    input_std: float,
    radius: float,
    bound: float,
    epochs: float,
    delta: float,
    lam: float | None = None,
) -> Theorem1:
    """Return Theorem 1's epsilon for the whole model, at the best ``lam`` or the one given.

    With ``rho = 2 epochs max(radius^2/input_std^2, bound^2/gamma^2)`` both conditions read
    ``rho alpha <= lam epsilon``. The least epsilon over ``lam`` is ``rho + 2 sqrt(rho log(1/delta))``.

    >>> result = theorem1(gamma=0.5, input_std=0.25, radius=30, bound=30, epochs=100, delta=1e-5)
    >>> round(result.epsilon), result.binds
    (2891516, 'input_std')
    """
    between_0_and_1("delta", delta)
    if lam is not None:
        between_0_and_1("lambda", lam)
    from_input = _rho(radius, input_std, epochs)
    from_blocks = _rho(bound, gamma, epochs)
    rho = max(from_input, from_blocks)
    return Theorem1(
        epsilon=_theorem1_epsilon(rho, delta, lam),
        lam=_best_lam(rho, delta) if lam is None else lam,
        epsilon_from_input=_theorem1_epsilon(from_input, delta, lam),
        epsilon_from_blocks=_theorem1_epsilon(from_blocks, delta, lam),
    )


def theorem1_noise(
    *, epsilon: float, delta: float, radius: float, bound: float, epochs: float, lam: float | None = None
) -> tuple[float, float]:
    """Return the least ``(gamma, input_std)`` for which Theorem 1 gives ``epsilon``.

    >>> gamma, input_std = theorem1_noise(epsilon=8, delta=1e-5, radius=30, bound=15, epochs=100)
    >>> round(gamma, 2), round(input_std, 2)
    (207.1, 414.21)
    """
    positive("epsilon", epsilon)
    between_0_and_1("delta", delta)
    if lam is None:
        rho = rdp_rho(epsilon, delta)
    else:
        between_0_and_1("lambda", lam)
        alpha = -math.log(delta) / ((1 - lam) * epsilon) + 1
        rho = lam * epsilon / alpha
    scale = math.sqrt(ratio(2 * epochs, rho))
    return bound * scale, radius * scale


@dataclass(frozen=True, kw_only=True)
class AdditiveGuarantee(Guarantee):
    """The guarantee of a training run with the additive strategy.

    ``epsilon`` is ``epsilon_exact``. At whole epochs that is never above ``epsilon_theorem``; where a begun epoch
    makes it so, the theorem has counted too few uses of a record and may not be claimed.
    """

    gamma: float
    input_std: float
    radius: float
    bound: float
    length: TrainingLength
    networks: int
    theorem: Theorem1
    blocks: int | None

    @property
    def epsilon_exact(self) -> float:
        """The Gaussian-DP bound of the noised inputs."""
        return self.epsilon

    @property
    def epsilon_theorem(self) -> float:
        """Theorem 1 as printed."""
        return self.theorem.epsilon

    def _details(self) -> dict[str, Any]:
        """Return both bounds and the setting."""
        return {
            "epsilon_exact": self.epsilon_exact,
            "epsilon_theorem": self.epsilon_theorem,
            "theorem": {
                "lambda": self.theorem.lam,
                "binds": self.theorem.binds,
                "epsilon_from_input": self.theorem.epsilon_from_input,
                "epsilon_from_blocks": self.theorem.epsilon_from_blocks,
                "layers": None if self.blocks is None else list(self.theorem.layers(self.blocks)),
            },
            "mu": 0.0 if self.ledger is None else self.ledger.mu,
            "gamma": self.gamma,
            "input_std": self.input_std,
            "radius": self.radius,
            "bound": self.bound,
            "epochs": self.length.epochs,
            "passes": self.length.passes,
            "networks": self.networks,
            "records": self.records,
        }

    def _notes(self) -> list[tuple[str, str]]:
        """Say where epsilon comes from, and what the paper's theorem would say."""
        noise = {"input_std": "the input noise decides", "gamma": "gamma decides", "both": "both noises decide"}
        lines = [
            ("", "by the exact bound, which the input noise alone decides: gamma adds nothing to it."),
            (
                "Theorem 1",
                f"{number(self.epsilon_theorem)} as the paper prints it ({noise[self.theorem.binds]}; gamma alone "
                f"would give {number(self.theorem.epsilon_from_blocks)})",
            ),
        ]
        if self.epsilon_theorem < self.epsilon:
            lines.append(("", "not to be claimed: it counts a begun epoch in part only."))
        if self.blocks is not None:
            layers = ", ".join(number(epsilon) for epsilon in self.theorem.layers(self.blocks))
            lines.append(("", f"per block, then the last layer, as printed (not proven): {layers}"))
        return lines


def additive_guarantee(
    *,
    gamma: float,
    length: TrainingLength,
    delta: float,
    radius: float,
    bound: float | None = None,
    input_std: float | None = None,
    networks: int = 1,
    blocks: int | None = None,
    lam: float | None = None,
    radius_status: Status = "assumed",
) -> AdditiveGuarantee:
    """Bound what a training run with the additive strategy gives away about one image.

    Args:
        gamma: The noise on every residual sum.
        length: How often a record is used.
        delta: At which epsilon is stated.
        radius: The largest norm of an input (the paper's R).
        bound: The largest norm of a block's mean output (the paper's G); the radius if None.
        input_std: The noise on the input; the paper's ``gamma / 2`` if None.
        networks: Of an ensemble. Each draws its own input noise, so a record is released that many times per pass.
        blocks: Also give Theorem 1's budgets of so many blocks.
        lam: Theorem 1's lambda; the best one if None.
        radius_status: Whether the radius is assumed or enforced.

    Returns:
        The exact bound that holds, beside Theorem 1 as printed.

    >>> from resperturb.privacy.length import training_length
    >>> budget = additive_guarantee(gamma=0.5, radius=30, length=training_length(epochs=100), delta=1e-5)
    >>> round(budget.epsilon), round(budget.epsilon_theorem), budget.level
    (2890235, 2891516, 'vacuous')
    """
    gamma = not_negative("gamma", gamma)
    radius = not_negative("radius", radius)
    input_std = gamma / 2 if input_std is None else not_negative("input std", input_std)
    bound = radius if bound is None else not_negative("bound", bound)
    between_0_and_1("delta", delta)
    networks = count("networks", networks)
    blocks = None if blocks is None else count("blocks", blocks)
    printed = theorem1(
        gamma=gamma,
        input_std=input_std,
        radius=radius,
        bound=bound,
        epochs=length.epochs * networks,
        delta=delta,
        lam=lam,
    )
    ledger = Ledger("swap", mu=exact_mu(radius, input_std, length.passes * networks))
    exact = account(ledger, delta)
    ensemble = "" if networks == 1 else f", {networks} networks"
    return AdditiveGuarantee(
        mechanism="additive",
        setting=f"Additive noise: gamma {gamma:g} in every block, {input_std:g} on the input; "
        f"{length.epochs:g} epochs{ensemble}; images of norm up to {radius:g}.",
        epsilon=exact.epsilon,
        delta=delta,
        max_tpr=exact.max_tpr,
        protects="the pixels of one training image, even from someone who holds the weights and knows every other "
        "record. NOT its label, nor the number of images.",
        assumptions=_assumptions(radius, bound, length, networks, radius_status),
        ledger=ledger,
        neighbours="swap",
        compares=SAME_LABEL,
        records=length.records,
        gamma=gamma,
        input_std=input_std,
        radius=radius,
        bound=bound,
        length=length,
        networks=networks,
        theorem=printed,
        blocks=blocks,
    )


def calibrate_additive(
    *,
    epsilon: float,
    delta: float,
    length: TrainingLength,
    radius: float,
    bound: float | None = None,
    networks: int = 1,
) -> AdditiveGuarantee:
    """Return the guarantee with the least input noise that gives ``epsilon`` by the exact bound.

    That bound does not depend on gamma; it is set to twice the input noise, the paper's proportion.

    Args:
        epsilon: To reach.
        delta: Beside it.
        length: How often a record is used.
        radius: The largest norm of an input.
        bound: The largest norm of a block's mean output, for Theorem 1; the radius if None.
        networks: Of an ensemble.

    Returns:
        The guarantee; ``input_std`` and ``gamma`` are the noise.

    >>> from resperturb.privacy.length import training_length
    >>> budget = calibrate_additive(epsilon=8, delta=1e-5, length=training_length(epochs=100), radius=30)
    >>> round(budget.input_std, 1), round(budget.epsilon, 6)
    (360.1, 8.0)
    """
    positive("radius", radius)
    networks = count("networks", networks)
    mu = mu_for_budget(epsilon, delta)
    input_std = 2 * radius * math.sqrt(length.passes * networks) / mu
    return additive_guarantee(
        gamma=2 * input_std,
        input_std=input_std,
        length=length,
        delta=delta,
        radius=radius,
        bound=bound,
        networks=networks,
    )


def exact_mu(radius: float, input_std: float, releases: int) -> float:
    """Return the Gaussian-DP parameter of ``releases`` noised copies of an image in a ball of ``radius``.

    Replacing the image moves each copy by at most ``2 radius``.

    >>> exact_mu(30, 0.25, 100)
    2400.0
    """
    return ratio(2 * radius * math.sqrt(releases), input_std)


def _rho(size: float, noise: float, epochs: float) -> float:
    signal = ratio(size, noise)
    return 2 * epochs * signal * signal


def _theorem1_epsilon(rho: float, delta: float, lam: float | None) -> float:
    if lam is None or math.isinf(rho):
        return rdp_epsilon(rho, delta)
    # The positive root of lam eps^2 - rho eps - rho log(1/delta)/(1 - lam) = 0.
    other = 2 * math.sqrt(lam * -math.log(delta) / (1 - lam)) * math.sqrt(rho)
    return (rho + math.hypot(rho, other)) / (2 * lam)


def _best_lam(rho: float, delta: float) -> float:
    if math.isinf(rho):
        return 1.0
    root, log_root = math.sqrt(rho), math.sqrt(-math.log(delta))
    return (root + log_root) / (root + 2 * log_root)


def _assumptions(
    radius: float, bound: float, length: TrainingLength, networks: int, radius_status: Status
) -> tuple[Assumption, ...]:
    clipped = " (no larger one can reach it)" if radius_status == "enforced" else ""
    uses = f"{length.passes * networks} times"
    each = "" if networks == 1 else f", {length.passes} passes through {networks} networks"
    return (
        Assumption(radius_status, f"Every image, as the noise finds it, has norm at most {radius:g}{clipped}."),
        Assumption(
            "assumed",
            f"An image is used at most {uses}{each}: shuffled epochs, no duplicates, fresh noise each time.",
        ),
        SECRET_NOISE,
        Assumption(
            "assumed",
            "Nothing else is computed from the images: no pixel statistics, no accuracy on them that is published "
            "or used to choose a model.",
        ),
        Assumption("assumed", f"The mean output of every block has norm at most {bound:g}.", needed_by="Theorem 1"),
        Assumption(
            "assumed",
            "The output of every block is normal with the same spread for both data sets, which is not true in "
            "general: a nonlinear block makes normal inputs not normal.",
            needed_by="Theorem 1",
        ),
    )
