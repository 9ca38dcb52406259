"""DP-SGD: the epsilon of clipped, noised gradients on Poisson-sampled batches, by dp-accounting."""

import math

from resperturb.checks import between_0_and_1, not_negative, positive
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, Sampled, exact_delta, least_epsilon, quick_bound
from resperturb.privacy.guarantee import COMPARED, Assumption, Guarantee, counted, number
from resperturb.privacy.length import TrainingLength

PUBLIC_COUNT = Assumption(
    "assumed",
    "The number of records is public: the sampling rate and the number of steps follow from it, so they would "
    "tell of a record more or less.",
)


def dpsgd_guarantee(*, noise_multiplier: float, length: TrainingLength, delta: float) -> Guarantee:
    """Bound what DP-SGD with Poisson-sampled batches gives away about one record, its label included.

    ``noise_multiplier`` is the noise over the clipping norm. Epsilon is the smallest of the valid bounds. Two of them
    are in ``details``: ``epsilon_pld`` (privacy loss distributions; None for an epsilon of hundreds or a delta below
    1e-12) and ``epsilon_rdp`` (Renyi divergences). Above epsilon 20 or so it rests on tails that no computed noise
    has, and has an assumption that is not met.

    >>> from resperturb.privacy.length import training_length
    >>> run = training_length(epochs=2, batch_size=100, records=1000)
    >>> budget = dpsgd_guarantee(noise_multiplier=1.0, length=run, delta=1e-5)
    >>> round(budget.epsilon, 2), budget.level
    (3.59, 'weak')
    """
    not_negative("noise multiplier", noise_multiplier)
    between_0_and_1("delta", delta)
    ledger = _ledger(noise_multiplier, length)
    found, unmet = counted(ledger, delta)
    by_pld, by_rdp = found.epsilons.get("pld"), found.epsilons["rdp"]
    pld = "not computed" if by_pld is None else number(by_pld)
    return Guarantee(
        mechanism="dpsgd",
        setting=f"DP-SGD: noise {noise_multiplier:g} times the clipping norm, batches of {length.batch_size} of "
        f"{length.records} records, {length.steps} steps.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects="one training record, image and label, even from someone who holds the weights and knows every "
        "other record.",
        assumptions=(
            Assumption("assumed", "Every record's gradient is clipped on its own before the noise is added."),
            Assumption(
                "assumed",
                "Batches are Poisson samples: each record joins each batch independently. Shuffled batches "
                "are not covered and can leak far more.",
            ),
            Assumption("assumed", "No layer mixes records of a batch: no BatchNorm."),
            PUBLIC_COUNT,
            Assumption(
                "assumed",
                "Nothing else is computed from the records: no pixel statistics, no accuracy on them that is "
                "published or used to choose a model.",
            ),
            *unmet,
        ),
        ledger=ledger,
        neighbours=ledger.neighbours,
        compares=COMPARED[ledger.neighbours],
        records=length.records,
        details={
            "epsilon_pld": by_pld,
            "epsilon_rdp": by_rdp,
            "noise_multiplier": noise_multiplier,
            "batch_size": length.batch_size,
            "records": length.records,
            "steps": length.steps,
            "epochs": length.epochs,
        },
        notes=(("", f"by privacy loss distributions {pld}, by Renyi divergences {number(by_rdp)}."),),
    )


def calibrate_dpsgd(*, epsilon: float, delta: float, length: TrainingLength) -> Guarantee:
    """Return the guarantee with the least noise that gives ``epsilon``: its ``details["noise_multiplier"]``.

    Raises:
        UsageError: Hardly any noise is needed, epsilon is too large for computed noise, or the length does not name
            batch size and records.

    >>> from resperturb.privacy.length import training_length
    >>> run = training_length(epochs=1, batch_size=100, records=1000)
    >>> budget = calibrate_dpsgd(epsilon=3.0, delta=1e-5, length=run)
    >>> budget.epsilon <= 3.0, round(budget.epsilon, 3)
    (True, 3.0)
    """
    positive("epsilon", epsilon)
    from scipy.optimize import brentq

    between_0_and_1("delta", delta)
    tried: dict[float, float] = {}

    def excess(log_noise: float) -> float:
        if log_noise not in tried:
            ledger = _ledger(math.exp(log_noise), length)
            tried[log_noise] = least_epsilon(ledger, exact_delta(ledger, delta)[0]) - epsilon
        return tried[log_noise]

    # The quick bound at half of delta is never the smaller, so the noise it asks for is enough; a little less may do.
    high = _enough_noise(epsilon, delta / 2, length)
    low = high - 0.1
    while excess(low) <= 0:
        high, low = low, low - 0.2
        if low < -30:
            raise UsageError(f"epsilon {epsilon:g} at delta {delta:g} needs hardly any noise; ask for less.")
    brentq(excess, low, high, xtol=1e-5)
    enough = min(log_noise for log_noise, over in tried.items() if over <= 0)
    found = dpsgd_guarantee(noise_multiplier=math.exp(enough), length=length, delta=delta)
    if found.not_met:
        raise UsageError(f"epsilon {epsilon:g} at delta {delta:g}: {found.not_met[0].statement} Ask for less.")
    return found


def _enough_noise(epsilon: float, delta: float, length: TrainingLength) -> float:
    """The logarithm of a noise multiplier that is enough, and hardly more than the quick bound needs."""

    def is_enough(log_noise: float) -> bool:
        return quick_bound(_ledger(math.exp(log_noise), length), delta) <= epsilon

    low, high = -30.0, 0.0
    while not is_enough(high):
        low, high = high, high + 2
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _ledger(noise_multiplier: float, length: TrainingLength) -> Ledger:
    if length.steps is None or length.batch_size is None or length.records is None:
        raise UsageError("DP-SGD needs the batch size and the number of records as well as the epochs or steps.")
    rate = length.batch_size / length.records
    return Ledger("add_remove", sampled=(Sampled(noise_multiplier, rate, length.steps),))
