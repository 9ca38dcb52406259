"""A DP head: what is proven about a linear classifier that was trained from Gaussian releases on public features.

Both heads are Gaussian mechanisms without sampling, so one number, mu, says all: the exact curve gives epsilon, and
``Phi(mu / sqrt 2)`` is the largest AUC that an attack can have.
"""

import math

from resperturb.checks import between_0_and_1, positive
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, exact_delta
from resperturb.privacy.additive import SECRET_NOISE
from resperturb.privacy.gaussian import mu_for_budget
from resperturb.privacy.guarantee import Assumption, Guarantee, counted

MOST_NUMBERS = 2**32
# Units times mu. From the first number on, a head lost at most 0.02 of AUROC on chest X-rays (two classes), and at
# most 0.04 of accuracy on CIFAR10 (ten). Below the second it lost 0.1 or more.
USEFUL, HARDLY_USEFUL = 150.0, 60.0
USEFUL_OF_TEN, HARDLY_USEFUL_OF_TEN = 3000.0, 400.0


def head_mu(epsilon: float, delta: float) -> float:
    """Return the mu to train a head with for ``(epsilon, delta)``; infinite for an infinite epsilon.

    >>> round(head_mu(3.0, 1e-5), 4)
    0.7191
    """
    if epsilon == math.inf:
        return math.inf
    positive("epsilon", epsilon)
    left, enough = exact_delta(Ledger("add_remove", mu=mu_for_budget(epsilon, delta)), delta, MOST_NUMBERS)
    if not enough:
        raise UsageError(
            f"an epsilon of {epsilon:g} at delta {delta:g} would rest on tails that computed noise does not have; "
            "ask for a smaller epsilon or a larger delta."
        )
    return mu_for_budget(epsilon, left) * (1 - 1e-9)  # so that the epsilon of this mu is not above the one asked for


def head_guarantee(
    *,
    mu: float,
    delta: float,
    head: str,
    records: int,
    unit: str = "record",
    secrecy: Assumption = SECRET_NOISE,
    extra: tuple[Assumption, ...] = (),
) -> Guarantee:
    """State what a head proves whose releases are ``mu``-GDP.

    ``head`` is its name in a sentence. ``records`` is the public number of units: records, or groups that are called
    ``unit``. ``secrecy`` says whether the noise can be drawn again.

    >>> proven = head_guarantee(
    ...     mu=head_mu(3.0, 1e-5), delta=1e-5, head="noisy gradient descent", records=2924, unit="patient"
    ... )
    >>> proven.level, round(proven.max_auc, 3), round(proven.epsilon, 6)
    ('meaningful', 0.694, 3.0)
    """
    between_0_and_1("delta", delta)
    ledger = Ledger("add_remove", mu=mu)
    found, unmet = counted(ledger, delta, MOST_NUMBERS)
    whole = "its label included" if unit == "record" else "all of its records, their labels and their number included"
    several = "The number of records" if unit == "record" else f"The numbers of records and of {unit}s"
    grouped = (
        Assumption(
            "assumed",
            f"All records of one {unit} carry the same name in the group column; one who has k names is protected "
            "with k times the mu.",
        ),
    )
    return Guarantee(
        mechanism="dp-head",
        setting=f"DP head on public features: {head}, {records:,} {unit}s, mu {mu:.3g}.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=f"one {unit}, {whole}, even from someone who holds the weights, every release of the training and "
        "all other records.",
        neighbours="add_remove",
        compares=f"data sets in one of which a {unit}'s contribution is replaced by zero (add or remove); the "
        "number of records stays the same.",
        assumptions=(
            Assumption(
                "enforced", f"Every {unit} contributes a vector of norm at most 1, added up without rounding errors."
            ),
            *(grouped if unit != "record" else ()),
            secrecy,
            Assumption(
                "assumed",
                f"The features are public: their extractor was trained without these {unit}s, and each record's "
                "features follow from that record alone.",
            ),
            Assumption("assumed", f"{several} and the list of classes are public."),
            Assumption(
                "assumed",
                "Nothing else is computed from the records: no setting chosen by accuracy on them, and no such "
                "accuracy published.",
            ),
            *extra,
            *unmet,
        ),
        records=records,
        ledger=ledger,
        details={"mu": mu, "head": head, "unit": unit},
    )


def check_numbers(drawn: int) -> None:
    """Refuse to draw more normals than the guarantee counts.

    Raises:
        UsageError: They are more.
    """
    if drawn > MOST_NUMBERS:
        raise UsageError(
            f"these features need {drawn:,} normals, and the guarantee counts {MOST_NUMBERS:,} at most; use fewer."
        )


def too_few(units: int, mu: float, unit: str = "record", classes: int = 2) -> str:
    """Say what the noise costs if there are few units; empty if there are enough.

    >>> too_few(2924, mu=0.7191)
    ''
    >>> print(too_few(100, mu=0.7191, unit="patient"))
    100 patients are few for this epsilon. With two classes the noise cost 0.02 to 0.1 of AUROC at this size, as
    measured on chest X-rays. About 210 patients bring the loss down to 0.02; a larger epsilon does too.
    """
    two = classes == 2
    useful, hardly, loss = (USEFUL, HARDLY_USEFUL, 0.02) if two else (USEFUL_OF_TEN, HARDLY_USEFUL_OF_TEN, 0.04)
    if units * mu >= useful:
        return ""
    cost = "0.1 or more" if units * mu < hardly else "0.02 to 0.1"
    score = "two classes the noise cost {} of AUROC at this size, as measured on chest X-rays"
    if not two:
        score = "ten classes the noise cost {} of accuracy at this size, as measured on CIFAR10"
    enough = -(-useful / mu // 10) * 10
    return (
        f"{units:,} {unit}s are few for this epsilon. With {score.format(cost)}. About {enough:,.0f} {unit}s bring "
        f"the loss down to {loss}; a larger epsilon does too."
    )
