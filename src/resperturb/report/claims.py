"""What is proven about a model beside what was shown: never an epsilon without what it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.auditing.result import LowerBound
from resperturb.privacy import Guarantee
from resperturb.report.collect import ReportedModel


@dataclass(frozen=True)
class Claim:
    """The guarantee of a model, also as its audit can test it if that differs, and the lower bound of the audit.

    The last of the guarantees is the one that the lower bound may be compared with: both are about the same
    neighbouring data sets.
    """

    guarantees: tuple[Guarantee, ...]
    lower: LowerBound | None
    refuted: bool
    conclusion: str

    @property
    def tested(self) -> Guarantee:
        """The guarantee to set beside the lower bound."""
        return self.guarantees[-1]


def claim(model: ReportedModel) -> Claim:
    """Say what is proven about a model, and what its audit showed."""
    audit = model.audit
    if audit is None:
        return Claim((model.guarantee,), None, False, "")
    guarantees = [model.guarantee]
    if (audit.tested_guarantee.neighbours, audit.tested_guarantee.epsilon) != (
        model.guarantee.neighbours,
        model.guarantee.epsilon,
    ):
        guarantees.append(audit.tested_guarantee)
    conclusion = "" if audit.verdict == "nothing proven" else audit.verdict_sentence
    return Claim(tuple(guarantees), audit.epsilon_lower, audit.verdict == "refuted", conclusion)


def not_comparable(models: Sequence[ReportedModel]) -> str | None:
    """Say why the lower bounds of models may not stand in one column, if they may not."""
    bounds = [(model.name, model.audit.epsilon_lower) for model in models if model.audit is not None]
    apart = [name for name, bound in bounds if not bound.comparable(bounds[0][1])]
    if not apart:
        return None
    each = "; ".join(f"“{name}”: {bound.words}" for name, bound in bounds)
    return (
        "The lower bounds on epsilon were not measured alike (other neighbours, unit, candidates or correction), so "
        f"they may not be compared. {each}."
    )
