"""The multiplicative strategy: the paper's Theorem 2, a guarantee for the answers to queries.

It compares two models trained on *any* two data sets. Given the same features, their blocks differ in the mean by at
most ``2 bound`` and carry noise of at least ``gamma * floor`` in every coordinate; their last layers differ by at
most ``2 weight_norm |x|`` and carry noise ``output_std |x|``. A query is therefore a chain of ``blocks + 1`` Gaussian
mechanisms, whose Gaussian-DP parameters add in squares.
"""

import math
from dataclasses import dataclass
from typing import Any

from resperturb.checks import between_0_and_1, count, not_negative, positive, ratio
from resperturb.privacy.accounting import Ledger, account
from resperturb.privacy.gaussian import mu_for_budget, rdp_epsilon, rdp_rho
from resperturb.privacy.guarantee import COMPARED, Assumption, Guarantee, number


@dataclass(frozen=True)
class NoisyQuery:
    """How noisy the answer to one query is, in the letters of Theorem 2.

    ``bound`` is B (the norm of a residual mapping), ``floor`` eta (the least magnitude the noise multiplies),
    ``weight_norm`` a (the norm of the last layer's weights), ``blocks`` M, ``output_std`` pi.
    """

    gamma: float
    output_std: float
    bound: float
    floor: float
    weight_norm: float
    blocks: int

    def __post_init__(self) -> None:
        not_negative("gamma", self.gamma)
        not_negative("output std", self.output_std)
        not_negative("bound", self.bound)
        not_negative("weight norm", self.weight_norm)
        not_negative("floor", self.floor)
        count("blocks", self.blocks)

    @property
    def block_mu(self) -> float:
        """The Gaussian-DP parameter of one block."""
        return ratio(2 * self.bound, self.gamma * self.floor)

    @property
    def output_mu(self) -> float:
        """The Gaussian-DP parameter of the last layer."""
        return ratio(2 * self.weight_norm, self.output_std)

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter of one query: all blocks and the last layer.

        >>> NoisyQuery(gamma=8, output_std=4, bound=1, floor=0.5, weight_norm=2, blocks=3).mu
        1.3228756555322954
        """
        return math.hypot(math.sqrt(self.blocks) * self.block_mu, self.output_mu)


def theorem2(query: NoisyQuery, delta: float) -> float:
    """Return Theorem 2's epsilon of one query, as printed and at the best lambda.

    Its proof gives each layer a share of one in M, but there are M + 1 layers: where both conditions bind, the
    printed number is too small by that factor. Do not claim it.

    >>> query = NoisyQuery(gamma=8, output_std=4, bound=1, floor=0.5, weight_norm=2, blocks=3)
    >>> round(theorem2(query, 1e-5), 3)
    9.811
    """
    worst = max(query.block_mu, query.output_mu)
    return rdp_epsilon(query.blocks * worst * worst / 2, delta)


def theorem2_noise(
    *, epsilon: float, delta: float, bound: float, floor: float, weight_norm: float, blocks: int
) -> tuple[float, float]:
    """Return the least ``(gamma, output_std)`` for which Theorem 2, as printed, gives ``epsilon`` for one query.

    >>> gamma, output_std = theorem2_noise(
    ...     epsilon=8, delta=1e-5, bound=1, floor=0.5, weight_norm=2, blocks=3)
    >>> round(gamma, 2), round(output_std, 2)
    (4.78, 4.78)
    """
    positive("epsilon", epsilon)
    positive("floor", floor)
    between_0_and_1("delta", delta)
    scale = math.sqrt(ratio(2 * count("blocks", blocks), rdp_rho(epsilon, delta)))
    return bound / floor * scale, weight_norm * scale


def queries_afforded(query: NoisyQuery, epsilon: float, delta: float) -> float:
    """Count the queries that stay within ``(epsilon, delta)``.

    Args:
        query: The noise of the model and the bounds of its network.
        epsilon: The most that all answers together may cost.
        delta: Beside it.

    Returns:
        The number of draws, to all users together; infinite if an answer gives nothing away.

    >>> query = NoisyQuery(gamma=80, output_std=40, bound=1, floor=0.5, weight_norm=2, blocks=3)
    >>> queries_afforded(query, 8.0, 1e-5)
    158
    """
    if query.mu == 0:
        return math.inf
    times = mu_for_budget(epsilon, delta) / query.mu
    # A hair more, so that a budget calibrated for q queries affords q and not q - 1.
    queries = times * times * (1 + 1e-9)
    return math.floor(queries) if math.isfinite(queries) else math.inf


@dataclass(frozen=True, kw_only=True)
class MultiplicativeGuarantee(Guarantee):
    """The guarantee of ``queries`` answers of a model with the multiplicative strategy.

    ``epsilon`` is ``epsilon_exact``, the composition of every layer of every query; ``epsilon_rdp`` composes the
    same by Renyi divergences. ``epsilon_theorem`` is Theorem 2 as printed, for one query.
    """

    query: NoisyQuery
    queries: int
    epsilon_rdp: float
    epsilon_theorem: float

    @property
    def epsilon_exact(self) -> float:
        """The exact Gaussian-DP bound of all layers of all queries."""
        return self.epsilon

    def _details(self) -> dict[str, Any]:
        """Return every bound and the setting."""
        return {
            "epsilon_exact": self.epsilon_exact,
            "epsilon_rdp": self.epsilon_rdp,
            "epsilon_theorem": self.epsilon_theorem,
            "mu": 0.0 if self.ledger is None else self.ledger.mu,
            "mu_per_query": self.query.mu,
            "queries": self.queries,
            "gamma": self.query.gamma,
            "output_std": self.query.output_std,
            "bound": self.query.bound,
            "floor": self.query.floor,
            "weight_norm": self.query.weight_norm,
            "blocks": self.query.blocks,
        }

    def _notes(self) -> list[tuple[str, str]]:
        """Say where epsilon comes from, and what the paper's theorem would say."""
        many = "one query" if self.queries == 1 else f"{self.queries} queries"
        return [
            ("", f"for {many}, exactly: {self.query.blocks} blocks and the last layer composed."),
            ("by RDP", f"{number(self.epsilon_rdp)} for the same"),
            (
                "Theorem 2",
                f"{number(self.epsilon_theorem)} for one query, as the paper prints it; it leaves one of its "
                f"{self.query.blocks + 1} noisy layers uncounted: do not claim it.",
            ),
        ]


def multiplicative_guarantee(query: NoisyQuery, *, delta: float, queries: int = 1) -> MultiplicativeGuarantee:
    """Bound what ``queries`` answers give away about the training set.

    Args:
        query: The noise of the model and the bounds of its network.
        delta: At which epsilon is stated.
        queries: Draws of the noise that are answered in all.

    Returns:
        The guarantee, for what is answered and not for the weights.

    >>> query = NoisyQuery(gamma=8, output_std=4, bound=1, floor=0.5, weight_norm=2, blocks=3)
    >>> one, ten = (multiplicative_guarantee(query, delta=1e-5, queries=q).epsilon for q in (1, 10))
    >>> round(one, 2), round(ten, 2)
    (6.07, 25.9)
    """
    between_0_and_1("delta", delta)
    queries = count("queries", queries)
    ledger = Ledger("any", mu=math.sqrt(queries) * query.mu)
    exact = account(ledger, delta)
    return MultiplicativeGuarantee(
        mechanism="multiplicative",
        setting=f"Multiplicative noise: gamma {query.gamma:g} on features of magnitude at least {query.floor:g}, "
        f"{query.output_std:g} on the output; {query.blocks} blocks; queries: {queries}.",
        epsilon=exact.epsilon,
        delta=delta,
        max_tpr=exact.max_tpr,
        protects="everything about the training set, labels too, from someone who sees only these answers; not from "
        "anyone who holds the weights. A small epsilon means that the answers hardly depend on training at all.",
        assumptions=_assumptions(query, queries),
        ledger=ledger,
        neighbours="any",
        compares=COMPARED["any"],
        query=query,
        queries=queries,
        epsilon_rdp=rdp_epsilon(ledger.mu * ledger.mu / 2, delta),
        epsilon_theorem=theorem2(query, delta),
    )


def calibrate_multiplicative(
    *,
    epsilon: float,
    delta: float,
    bound: float,
    floor: float,
    weight_norm: float,
    blocks: int,
    queries: int = 1,
) -> MultiplicativeGuarantee:
    """Return the guarantee that gives ``epsilon`` for ``queries`` answers, every layer taking the same share.

    Args:
        epsilon: To reach.
        delta: Beside it.
        bound: The largest norm of a residual mapping (the paper's B).
        floor: The least feature magnitude that the noise multiplies (the paper's eta).
        weight_norm: The largest norm of the last layer's weights (the paper's a).
        blocks: The number of residual blocks.
        queries: Draws of the noise that are answered in all.

    Returns:
        The guarantee; ``query`` holds the noise.

    >>> budget = calibrate_multiplicative(
    ...     epsilon=8, delta=1e-5, bound=1, floor=0.5, weight_norm=2, blocks=3, queries=10)
    >>> round(budget.query.gamma, 2), round(budget.epsilon, 6)
    (15.18, 8.0)
    """
    positive("bound", bound)
    positive("floor", floor)
    positive("weight norm", weight_norm)
    share = mu_for_budget(epsilon, delta) / math.sqrt(count("queries", queries) * (count("blocks", blocks) + 1))
    query = NoisyQuery(
        gamma=2 * bound / (floor * share),
        output_std=2 * weight_norm / share,
        bound=bound,
        floor=floor,
        weight_norm=weight_norm,
        blocks=blocks,
    )
    return multiplicative_guarantee(query, delta=delta, queries=queries)


def _assumptions(query: NoisyQuery, queries: int) -> tuple[Assumption, ...]:
    return (
        Assumption(
            "assumed", f"Every residual mapping has norm at most {query.bound:g} on every input anyone can send."
        ),
        Assumption("assumed", f"The last layer has no bias and weights of norm at most {query.weight_norm:g}."),
        Assumption(
            "assumed",
            f"Block noise multiplies features of magnitude at least {query.floor:g}, a feature of exactly 0 too; "
            f"output noise has standard deviation {query.output_std:g} times the norm of the last features.",
        ),
        Assumption(
            "assumed",
            "No trained layer is without noise: no stem, no trained shortcut, no trained head beyond the last layer.",
        ),
        Assumption(
            "assumed",
            f"No more than {queries} draw{'s' if queries > 1 else ''} of the noise, over all users; averaging k "
            "draws or k networks counts k times.",
        ),
    )
