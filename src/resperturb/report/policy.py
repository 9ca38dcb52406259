"""What a user permits a model to show: thresholds, and the least evidence, read from a YAML file."""

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resperturb.errors import UsageError
from resperturb.files import parse_yaml, read_yaml
from resperturb.report.wording import counted

Area = Annotated[float, Field(ge=0.5, le=1)]
Count = Annotated[int, Field(ge=0)]


# What each limit is about, for a person.
LIMITS = {
    "auc": "AUC",
    "tpr_at_1_percent_fpr": "TPR at 1% FPR",
    "tpr_at_0_1_percent_fpr": "TPR at 0.1% FPR",
    "canary_auc": "AUC on canaries",
    "most_exposed_auc": "AUC on the most exposed",
    "epsilon_shown": "epsilon shown",
    "epsilon_proven": "epsilon proven",
}


EVIDENCE = {"shadows": "shadow model", "records": "record", "canaries": "canary", "fixed_attacks": "fixed attack"}


class _Part(BaseModel):
    # Strict: `yes` and "0.6" are no numbers.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Limits(_Part):
    """The largest values that may stand; None asks nothing."""

    auc: Area | None = None
    tpr_at_1_percent_fpr: Annotated[float, Field(ge=0.01, le=1)] | None = None
    tpr_at_0_1_percent_fpr: Annotated[float, Field(ge=0.001, le=1)] | None = None
    canary_auc: Area | None = None
    most_exposed_auc: Area | None = None
    epsilon_shown: Annotated[float, Field(ge=0)] | None = None
    epsilon_proven: Annotated[float, Field(gt=0)] | None = None
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

    @property
    def words(self) -> str:
        """The limits and the least evidence, in a line.

        >>> Policy(limits=Limits(auc=0.6), evidence=RequiredEvidence(shadows=16)).words
        'at most: AUC 0.6; at least: 16 shadow models, 1 fixed attack'
        """
        limits = self.limits.model_dump(exclude_none=True, exclude={"delta_proven"})
        least = {name: count for name, count in self.evidence.model_dump().items() if count}
        most = ", ".join(f"{LIMITS[name]} {value:g}" for name, value in limits.items())
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
    return _parsed(parse_yaml(default_text(), "the default policy"), "the default policy", "default")


def read_policy(path: Path) -> Policy:
    """Read a policy.

    Raises:
        UsageError: It cannot be read, is no YAML, or asks for something that is not known.
    """
    return _parsed(read_yaml(path), str(path), path.stem)


def _wrong(kind: str, message: str) -> str:
    """Say what is wrong with a value, in our words where pydantic's are about its own models."""
    return "there is no such key" if kind == "extra_forbidden" else message


def _parsed(content: Any, where: str, name: str) -> Policy:
    try:
        policy = Policy.model_validate(content)
        policy = policy if "name" in policy.model_fields_set else policy.model_copy(update={"name": name})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        wrong = _wrong(first["type"], first["msg"])
        raise UsageError(f"{where}: {place}: {wrong}; `resperturb gate --init` writes one to begin with.") from error
    limits = policy.limits.model_dump(exclude={"delta_proven"})
    if all(value is None for value in limits.values()):
        raise UsageError(f"{where} sets no limit, so it asks nothing; set at least one under limits.")
    return policy
