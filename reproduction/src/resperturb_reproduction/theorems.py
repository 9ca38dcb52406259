"""Compute the paper's Theorems 1 and 2 as printed; docs/theory.md says what of them is proven."""

import math
from dataclasses import dataclass

from resperturb.checks import between_0_and_1, count, not_negative, ratio
from resperturb.privacy import epsilon_for_delta

# What Theorem 1 assumes besides the exact bound; the second is not true in general.
THEOREM1_ASSUMES = (
    "The mean output of every block has norm at most {bound:g}.",
    "The output of every block is normal with the same spread for both data sets, which is not true in general: a "
    "nonlinear block makes normal inputs not normal.",
)


@dataclass(frozen=True)
class Theorem1:
    """What Theorem 1 gives for the whole model: ``epsilon`` at the ``lam`` used.

    ``from_input`` and ``from_blocks`` are what each of its two conditions gives alone.
    """

    epsilon: float
    lam: float
    from_input: float
    from_blocks: float

    def layers(self, blocks: int) -> tuple[float, ...]:
        """Return the printed budgets of each block's weights and of the last layer's, which are not proven.

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
    >>> round(result.epsilon), round(result.from_blocks)
    (2891516, 725758)
    """
    between_0_and_1("delta", delta)
    if lam is not None:
        between_0_and_1("lambda", lam)
    from_input, from_blocks = _rho(radius, input_std, epochs), _rho(bound, gamma, epochs)
    rho = max(from_input, from_blocks)
    return Theorem1(
        epsilon=_epsilon(rho, delta, lam),
        lam=_best_lam(rho, delta) if lam is None else lam,
        from_input=_epsilon(from_input, delta, lam),
        from_blocks=_epsilon(from_blocks, delta, lam),
    )


def _rho(size: float, noise: float, epochs: float) -> float:
    signal = ratio(size, noise)
    return 2 * epochs * signal * signal


def _epsilon(rho: float, delta: float, lam: float | None) -> float:
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
        for name in ("gamma", "output_std", "bound", "floor", "weight_norm"):
            not_negative(name.replace("_", " "), getattr(self, name))
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

    def exact_epsilon(self, delta: float, queries: int = 1) -> float:
        """Return the exact epsilon of so many answers, for any two data sets."""
        return epsilon_for_delta(delta, math.sqrt(count("queries", queries)) * self.mu)


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


def rdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of a mechanism with Renyi divergence ``rho * alpha``, by the classical conversion.

    It is ``min over alpha of rho alpha + log(1/delta)/(alpha - 1)``; a ``mu``-GDP mechanism has ``rho = mu^2/2``.

    Args:
        rho: Renyi divergence per order.
        delta: Delta of the guarantee.

    Returns:
        Epsilon; infinite when ``rho`` is.

    >>> round(rdp_epsilon(0.5, 1e-5), 4)
    5.2985
    """
    return rho + 2 * math.sqrt(rho) * math.sqrt(-math.log(delta)) if math.isfinite(rho) else math.inf


def rdp_rho(epsilon: float, delta: float) -> float:
    """Invert ``rdp_epsilon``.

    >>> round(rdp_rho(5.2985, 1e-5), 4)
    0.5
    """
    log_inverse = -math.log(delta)
    return float((epsilon / (math.sqrt(epsilon + log_inverse) + math.sqrt(log_inverse))) ** 2)
