"""Add up what several noisy releases of the same records cost, and bound what an attacker can then do.

A ``Ledger`` lists the releases. Its Gaussian part is counted in closed form. Poisson-sampled releases (DP-SGD) are
counted by dp-accounting.

**Tails.** Proofs assume exact normals, and a computed normal has a largest value. Each is within total variation
``TAIL_PROBABILITY`` of an exact one (:mod:`resperturb.noise.normals`), so ``d`` of them are within ``d`` times that.
:func:`exact_delta` takes what this costs from delta before the exact mechanism is counted.
"""

import logging
import math
from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import ndtr

from resperturb.checks import ratio
from resperturb.privacy.gaussian import attack_tpr, epsilon_for_delta

Neighbours = Literal["swap", "add_remove"]

# False positive rate of the attacker in the meaning of a guarantee.
FALSE_POSITIVE_RATE = 1e-3

_RDP_ORDERS = (1.1, 1.2, 1.35, 1.5, 1.75, *(2 + step / 4 for step in range(36)), *range(11, 64), 128, 256, 512, 1024)

# The largest total variation between a computed normal and an exact one, over all generators.
TAIL_PROBABILITY = 2.0**-100
# More normals than any training draws: for each record's noised copies, or for the gradients of all steps.
MOST_NUMBERS = 2.0**48

# Beyond this epsilon every bound is vacuous, and a privacy loss distribution costs gigabytes.
_PLD_LIMIT = 500.0
# It is convolved by Fourier transforms, whose rounding drowns smaller probabilities.
_PLD_SMALLEST_DELTA = 1e-12


@dataclass(frozen=True)
class Sampled:
    """``steps`` Gaussian releases, each on a Poisson sample of the records at ``rate``.

    ``noise_multiplier`` is the noise over the largest contribution of one record.
    """

    noise_multiplier: float
    rate: float
    steps: int


@dataclass(frozen=True)
class Ledger:
    """What has been released about a set of records.

    ``neighbours`` says which two data sets the guarantee compares: ``swap`` (one record replaced) or ``add_remove``
    (one record more or fewer). ``mu`` is the Gaussian-DP parameter, for that relation, of all plain Gaussian releases
    together.

    >>> Ledger("swap", mu=3.0).plus(Ledger("swap", mu=4.0)).mu
    5.0
    """

    neighbours: Neighbours
    mu: float = 0.0
    sampled: tuple[Sampled, ...] = ()

    def plus(self, other: "Ledger") -> "Ledger":
        """Add the releases of another ledger, in the one relation that covers both.

        A swap is a removal and an addition, and a swap guarantee says nothing about additions: a mixture is counted
        for a swap.
        """
        common: Neighbours = self.neighbours if self.neighbours == other.neighbours else "swap"
        mu = math.hypot(self._mu_for(common), other._mu_for(common))
        return Ledger(common, mu, self.sampled + other.sampled)

    def _mu_for(self, neighbours: Neighbours) -> float:
        """The Gaussian part for another relation."""
        return 2 * self.mu if (self.neighbours, neighbours) == ("add_remove", "swap") else self.mu

    def as_swap(self) -> "Ledger":
        """The same releases, counted for the replacement of one record."""
        return self.plus(Ledger("swap"))


@dataclass(frozen=True)
class Account:
    """Every valid epsilon by the name of its method, and the largest true positive rate they leave an attacker.

    ``max_tpr`` is at a false positive rate of one in a thousand.

    >>> Account({"rdp": 5.1, "pld": 4.7}, 0.2).epsilon
    4.7
    """

    epsilons: dict[str, float]
    max_tpr: float

    @property
    def epsilon(self) -> float:
        """The smallest of the valid bounds, which is the one to claim."""
        return min(self.epsilons.values())


def account(ledger: Ledger, delta: float) -> Account:
    """Bound what the ledger gives away, by every method that applies.

    >>> account(Ledger("swap", mu=1.0), 1e-5)
    Account(epsilons={'gaussian': 4.377...}, max_tpr=0.018...)
    """
    found, accountant = _epsilons(ledger, delta)
    tprs = [1.0, tpr_from_budget(min(found.values()), delta, FALSE_POSITIVE_RATE)]
    tprs.append(attack_tpr(_mu_without_sampling(ledger), FALSE_POSITIVE_RATE))
    if accountant is not None:
        grid = [-math.log(FALSE_POSITIVE_RATE) * step / 20 for step in range(21)]
        tprs.extend(math.exp(e) * FALSE_POSITIVE_RATE + float(accountant.get_delta(e)) for e in grid)
    return Account(found, min(tprs))


def least_epsilon(ledger: Ledger, delta: float) -> float:
    """Return ``account(ledger, delta).epsilon`` without the work on attacks.

    >>> round(least_epsilon(Ledger("swap", mu=1.0), 1e-5), 3)
    4.377
    """
    return min(_epsilons(ledger, delta)[0].values())


def tpr_from_budget(epsilon: float, delta: float, fpr: float) -> float:
    """Return the largest true positive rate that ``(epsilon, delta)`` alone allows at ``fpr``.

    >>> round(tpr_from_budget(3.0, 1e-5, 0.001), 3)
    0.02
    """
    if epsilon > 700:
        return 1.0
    return min(1.0, math.exp(epsilon) * fpr + delta, 1 - math.exp(-epsilon) * max(0.0, 1 - delta - fpr))


def largest_auc(ledger: Ledger | None, epsilon: float, delta: float) -> float:
    """Bound the AUC of every attack: by the Gaussian curve where all releases are Gaussian, else by the budget.

    A mu-GDP mechanism allows ``Phi(mu / sqrt 2)``; the area under the region of (epsilon, delta) is the other bound.

    >>> round(largest_auc(Ledger("add_remove", mu=0.7191), 3.0, 1e-5), 3), round(largest_auc(None, 3.0, 1e-5), 3)
    (0.694, 0.953)
    """
    # The two lines of the region meet at the false positive rate `corner`, written so that no epsilon overflows.
    corner = (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    area = min(1.0, delta + corner * delta + (1 - delta) / (1 + math.exp(-epsilon)))
    if ledger is None or ledger.sampled:
        return area
    return min(area, float(ndtr(ledger.mu / math.sqrt(2))))


def _epsilons(ledger: Ledger, delta: float) -> tuple[dict[str, float], Any]:
    """Every valid epsilon by the name of its method, and the PLD accountant if there is one."""
    gaussian = epsilon_for_delta(delta, _mu_without_sampling(ledger))
    if not ledger.sampled:
        return {"gaussian": gaussian}, None
    rdp = _rdp_bound(ledger, delta)
    found = {"rdp": rdp, "gaussian": gaussian}
    guess = rdp if ledger.neighbours != "swap" else _guess(ledger, delta)
    if min(found.values()) == 0 or guess > _PLD_LIMIT or delta < _PLD_SMALLEST_DELTA:
        return found, None
    # The rounding is upwards, by about 1.6 steps interval^2: spend a ten-thousandth of epsilon on it, within reason.
    steps = 1 + sum(release.steps for release in ledger.sampled)
    fine = max(math.sqrt(1e-4 * guess / (1.6 * steps)), _largest_loss(ledger) / 1e5, 2e-6)
    interval = min(fine, 1e-3 * max(1.0, guess / 20))
    accountant = _pld_accountant(ledger, interval)
    return {**found, "pld": float(accountant.get_epsilon(delta))}, accountant


def _moves(neighbours: Neighbours) -> int:
    """By how many record norms a release can move between neighbours."""
    return 2 if neighbours == "swap" else 1


def _mu_without_sampling(ledger: Ledger) -> float:
    """The Gaussian-DP parameter if every record were in every batch: always an upper bound."""
    moves = _moves(ledger.neighbours)
    return math.hypot(ledger.mu, *(ratio(math.sqrt(r.steps) * moves, r.noise_multiplier) for r in ledger.sampled))


def _library() -> Any:
    from resperturb.extras import needed

    needed("train", "the accounting of sampled batches", "dp_accounting")
    import dp_accounting

    return dp_accounting


def _event(noise: float, sampled: tuple[Sampled, ...] = ()) -> Any:
    """A Gaussian release with this noise multiplier (infinite: none) and sampled ones, for dp-accounting."""
    dp = _library()
    parts: list[Any] = [] if math.isinf(noise) else [dp.GaussianDpEvent(noise)]
    for release in sampled:
        step = dp.PoissonSampledDpEvent(release.rate, dp.GaussianDpEvent(release.noise_multiplier))
        parts.append(dp.SelfComposedDpEvent(step, release.steps))
    return parts[0] if len(parts) == 1 else dp.ComposedDpEvent(parts)


def quick_bound(ledger: Ledger, delta: float) -> float:
    """Return an epsilon that is quick to compute and never below ``least_epsilon``.

    >>> round(quick_bound(Ledger("swap", mu=1.0), 1e-5), 2)
    4.38
    """
    gaussian = epsilon_for_delta(delta, _mu_without_sampling(ledger))
    return min(_rdp_bound(ledger, delta), gaussian) if ledger.sampled else gaussian


def tail_delta(epsilon: float, numbers: float = MOST_NUMBERS) -> float:
    """Return what the missing tails of ``numbers`` computed normals add to the delta of a guarantee.

    If a mechanism M is (epsilon, delta)-private and M' is within total variation t of it on every input, then
    ``P(M'(x) in S) <= P(M(x) in S) + t <= e^epsilon P(M(y) in S) + delta + t <= e^epsilon P(M'(y) in S) + delta +
    (1 + e^epsilon) t``.

    >>> f"{tail_delta(8.0):.1e}"
    '6.6e-13'
    """
    exponent = math.log(numbers) + math.log(TAIL_PROBABILITY) + epsilon + math.log1p(math.exp(-epsilon))
    return math.exp(min(0.0, exponent))


def exact_delta(ledger: Ledger, delta: float, numbers: float = MOST_NUMBERS) -> tuple[float, bool]:
    """Return the delta that is left for the exact mechanism, and whether that is enough.

    The tails are paid for at an epsilon that is surely not exceeded. Where they would take more than half of delta,
    half of it is returned, and the mechanism as computed has no guarantee.

    >>> exact_delta(Ledger("swap", mu=1.0), 1e-5), exact_delta(Ledger("swap", mu=100.0), 1e-5)
    ((9.99...e-06, True), (5e-06, False))
    """
    paid = tail_delta(quick_bound(ledger, delta / 2), numbers)
    if paid > delta / 2 and ledger.sampled:
        paid = tail_delta(least_epsilon(ledger, delta / 2), numbers)
    return max(delta - paid, delta / 2), paid <= delta / 2


def _rdp_bound(ledger: Ledger, delta: float) -> float:
    """Epsilon by Renyi divergences, which know no sampled swap: such a release is taken as if it were not sampled."""
    dp = _library()
    import numpy as np

    whole = _mu_without_sampling(ledger)
    if math.isinf(whole):
        return math.inf
    swap = ledger.neighbours == "swap"
    event = _event(ratio(1, whole)) if swap else _event(ratio(1, ledger.mu), ledger.sampled)
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)  # it warns of each order whose series did not converge, and leaves that out
    try:
        accountant = dp.rdp.RdpAccountant(_RDP_ORDERS).compose(event)
    finally:
        logger.setLevel(before)
    # The divergence of one step is right to some 1e-16 only: where the truth is smaller, the sum may even come
    # out negative, and dp-accounting would then answer an epsilon of zero.
    rounding = 1e-13 * sum(release.steps for release in ledger.sampled)
    divergence = np.maximum(accountant.rdp, 0.0) + rounding / (accountant.orders - 1)
    return float(dp.rdp.compute_epsilon(accountant.orders, divergence, delta)[0])


def _largest_loss(ledger: Ledger) -> float:
    """About the largest privacy loss of a single release, ten standard deviations out."""
    losses = [10 * ledger.mu + ledger.mu**2 / 2]
    for release in ledger.sampled:
        shift = _moves(ledger.neighbours) / release.noise_multiplier
        losses.append(10 * shift + shift**2 / 2 + math.log(release.rate))
        losses.append(release.rate * 10 * shift)
    return max(losses)


def _guess(ledger: Ledger, delta: float) -> float:
    """About the epsilon to expect of a swap, to choose how finely to discretise; it bounds nothing."""
    sampled = tuple(Sampled(r.noise_multiplier / 2, r.rate, r.steps) for r in ledger.sampled)
    return _rdp_bound(Ledger("add_remove", ledger.mu, sampled), delta)


def _pld_accountant(ledger: Ledger, interval: float) -> Any:
    """The PLD accountant, which measures noise per record norm and counts a swap as two norms."""
    dp = _library()
    swap = ledger.neighbours == "swap"
    relation = dp.NeighboringRelation.REPLACE_ONE if swap else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event = _event(ratio(_moves(ledger.neighbours), ledger.mu), ledger.sampled)
    return dp.pld.PLDAccountant(relation, interval).compose(event)
