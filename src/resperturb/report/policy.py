"""What a user permits a model to show: thresholds, and the least evidence, read from a YAML file."""

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resperturb.errors import UsageError
from resperturb.files import parse_yaml, read_yaml
from resperturb.report.wording import counted

Count = Annotated[int, Field(ge=0)]
Kind = TypeVar("Kind", bound=BaseModel)


EVIDENCE = {"shadows": "shadow model", "records": "record", "canaries": "canary", "fixed_attacks": "fixed attack"}


class _Part(BaseModel):
    # Strict: `yes` and "0.6" are no numbers.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Limits(_Part):
    """The largest values that may stand; None asks nothing."""

    auc: float | None = Field(default=None, ge=0.5, le=1, title="AUC")
    tpr_at_1_percent_fpr: float | None = Field(default=None, ge=0.01, le=1, title="TPR at 1% FPR")
    tpr_at_0_1_percent_fpr: float | None = Field(default=None, ge=0.001, le=1, title="TPR at 0.1% FPR")
    canary_auc: float | None = Field(default=None, ge=0.5, le=1, title="AUC on canaries")
    most_exposed_auc: float | None = Field(default=None, ge=0.5, le=1, title="AUC on the most exposed")
    epsilon_shown: float | None = Field(default=None, ge=0, title="epsilon shown")
    epsilon_proven: float | None = Field(default=None, gt=0, title="epsilon proven")
    delta_proven: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class RequiredEvidence(_Part):
    """The least that an audit must have tried."""

    shadows: Count = 0
    records: Count = 0
    canaries: Count = 0
    fixed_attacks: Count = 1


class Policy(_Part):
    """Limits, evidence, and how sure a decision must be.

    >>> Policy(limits=Limits(auc=0.6)).evidence.fixed_attacks
    1
    """

    limits: Limits
    name: str = "unnamed"
    evidence: RequiredEvidence = RequiredEvidence()
    error_rate: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    pass_by: Literal["upper limit", "estimate"] = "upper limit"

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that the policy asks, whatever its name."""
        return hashlib.sha256(self.model_dump_json(exclude={"name"}).encode()).hexdigest()

    @property
    def id(self) -> str:
        """Name and digest in a few words.

        >>> Policy(limits=Limits(auc=0.6), name="mine").id
        'mine (sha b4f978fc)'
        """
        return f"{self.name} (sha {self.digest[:8]})"

    def named(self, name: str) -> "Policy":
        """Give the policy a name, unless it has one."""
        return self if "name" in self.model_fields_set else self.model_copy(update={"name": name})

    @property
    def words(self) -> str:
        """The limits and the least evidence, in a line.

        >>> Policy(limits=Limits(auc=0.6), evidence=RequiredEvidence(shadows=16)).words
        'at most: AUC 0.6; at least: 16 shadow models, 1 fixed attack'
        """
        limits = self.limits.model_dump(exclude_none=True, exclude={"delta_proven"})
        least = {name: count for name, count in self.evidence.model_dump().items() if count}
        most = ", ".join(f"{Limits.model_fields[name].title} {value:g}" for name, value in limits.items())
        needed = ", ".join(counted(count, EVIDENCE[name]) for name, count in least.items())
        return f"at most: {most}" + (f"; at least: {needed}" if needed else "")


def default_text() -> str:
    """The default policy with its comments, as ``resperturb gate --init`` writes it."""
    return (files("resperturb.report") / "templates" / "policy.yaml").read_text()


@cache
def default_policy() -> Policy:
    """The default policy.

    >>> default_policy().limits.auc
    0.6
    """
    return parsed(Policy, parse_yaml(default_text(), "the default policy"), "the default policy").named("default")


def read_policy(path: Path) -> Policy:
    """Read a policy.

    Raises:
        UsageError: It cannot be read, is no YAML, or asks for something that is not known.
    """
    policy = parsed(Policy, read_yaml(path), str(path), "; `resperturb gate --init` writes one to begin with")
    if all(value is None for value in policy.limits.model_dump(exclude={"delta_proven"}).values()):
        raise UsageError(f"{path} sets no limit, so it asks nothing; set at least one under limits.")
    return policy.named(path.stem)


def parsed(kind: type[Kind], content: Any, where: str, hint: str = "") -> Kind:
    """Make an object of plain data.

    Raises:
        UsageError: A value is missing, unknown or not permitted.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        wrong = first["msg"]
        if first["type"] == "extra_forbidden":
            known = kind.model_fields if len(first["loc"]) == 1 else {}
            wrong = "there is no such key" + (f"; known: {', '.join(known)}" if known else "")
        raise UsageError(f"{where}: {place}: {wrong}{hint}.") from error
