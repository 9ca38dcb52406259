"""The evidence pack: which clauses of a public text an audit answers, did not test, or leaves to a person."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from resperturb.bounds.audit_result import AuditResult
from resperturb.errors import UsageError
from resperturb.files import parse_yaml, read_yaml
from resperturb.privacy.guarantee import percent
from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Decision, decide
from resperturb.report.policy import Policy
from resperturb.report.wording import attacked, refutation, whom

Status = Literal["answered", "not tested", "for you to fill in"]
Kind = TypeVar("Kind", bound=BaseModel)
TEXTS = ("satre", "nist-800-226", "edpb-28-2024")


class Declared(BaseModel):
    """What no audit can know and its owner states.

    >>> Declared(data_subjects=200, prior=0.01).prior
    0.01
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_subjects: Annotated[int, Field(ge=1)] | None = None
    harm: str | None = None
    prior: Annotated[float, Field(gt=0, lt=1)] | None = None
    purpose: str | None = None
    released_to: str | None = None
    responsible: str | None = None


@dataclass(frozen=True)
class Facts:
    """What answers are taken from."""

    decision: Decision
    declared: Declared

    @property
    def model(self) -> ReportedModel:
        """The model."""
        return self.decision.model

    @property
    def audit(self) -> AuditResult | None:
        """The audit, if there is one."""
        return self.model.audit


Answer = Callable[[Facts], str | None]


def _policy(facts: Facts) -> str:
    policy = facts.decision.policy
    return f"{policy.name}, SHA-256 {policy.digest}: {policy.words}."


def _membership(facts: Facts) -> str | None:
    found = facts.model.strongest
    if found is None:
        return None
    low, high = found.interval
    area = f"AUC {found.auc:.3f} ({low:.3f} to {high:.3f}; guessing: 0.5)"
    return f"{area} on {whom(found.kind, facts.model.unit)}, by {found.name}."


def _low_false_alarms(facts: Facts) -> str | None:
    point = facts.model.tpr
    if point is None or point.tied:
        return None
    low, high = point.interval
    said = f"At 1% false alarms {percent(point.tpr)} of the members are found ({percent(low)} to {percent(high)})."
    prior = facts.declared.prior
    if prior is None:
        return said
    right, least, most = (precision(rate, point.fpr, prior) for rate in (point.tpr, low, high))
    named = f"Of those that the attacker names, {percent(right)} ({percent(least)} to {percent(most)}) are members"
    return f"{said} {named}, if {percent(prior)} of the people asked about are."


def precision(tpr: float, fpr: float, prior: float) -> float:
    """Give the share of members among those that an attack names.

    Args:
        tpr: Share of the members that it names.
        fpr: Share of the non-members that it names.
        prior: Share of members among all people asked about.

    >>> round(precision(0.1, 0.01, 0.5), 2), round(precision(0.1, 0.01, 0.01), 2)
    (0.91, 0.09)
    """
    named = prior * tpr + (1 - prior) * fpr
    return prior * tpr / named if named else 0.0


def _most_exposed(facts: Facts) -> str | None:
    most = None if facts.audit is None else facts.audit.exposed
    if most is None or most.metrics is None:
        return None
    low, high = most.metrics.auc_interval
    return f"AUC {most.metrics.auc:.3f} ({low:.3f} to {high:.3f}) on the {most.count} most exposed candidates."


def _delta(facts: Facts) -> str | None:
    guarantee = facts.model.guarantee
    return f"Delta {guarantee.delta:g}." if guarantee.claimed_epsilon < math.inf else None


def _assumptions(facts: Facts) -> str | None:
    assumed = facts.model.guarantee.assumptions
    return "; ".join(f"{one.statement} ({one.status})" for one in assumed) or None


def _lower_bound(facts: Facts) -> str | None:
    lower = facts.model.lower
    return None if lower is None else f"Shown by attacks: {lower.words}."


def _verdict(facts: Facts) -> str | None:
    return None if facts.audit is None else refutation(facts.model) or facts.audit.verdict_sentence


def _accuracy(facts: Facts) -> str:
    subject = facts.model.subject
    return f"Accuracy {subject.train_accuracy:.3f} on training records, {subject.test_accuracy:.3f} on others."


def _files(facts: Facts) -> str | None:
    if facts.audit is None:
        return None
    return (
        "audit.json and the scores of each attack, bound together by SHA-256 (`resperturb verify` checks them); "
        "`resperturb gate --json` records the policy, its limits and each check."
    )


def _declared(name: str, facts: Facts) -> str | None:
    value = getattr(facts.declared, name)
    return None if value is None else percent(value) if name == "prior" else f"{value}"


def _never(facts: Facts) -> None:
    """No audit makes this attack."""


# Each field answers a clause, or gives None where nothing was measured or stated.
FIELDS: dict[str, Answer] = {
    "policy": _policy,
    "decision": lambda facts: None if facts.audit is None else f"{facts.decision.status}. {facts.decision.meaning}",
    "tried": lambda facts: None if facts.audit is None else f"{facts.decision.evidence}.",
    "membership": _membership,
    "low_false_alarms": _low_false_alarms,
    "most_exposed": _most_exposed,
    "attribute_inference": _never,
    "model_inversion": _never,
    "reconstruction": _never,
    "guarantee": lambda facts: facts.model.guarantee.words,
    "delta": _delta,
    "unit": lambda facts: facts.model.guarantee.compares if _delta(facts) else None,
    "assumptions": _assumptions,
    "lower_bound": _lower_bound,
    "verdict": _verdict,
    "defence": lambda facts: f"Defence: {facts.model.defence}." if facts.model.defence else None,
    "accuracy": _accuracy,
    "files": _files,
    **{name: partial(_declared, name) for name in Declared.model_fields},
}


class Clause(BaseModel):
    """A clause of a text: what it asks in our words, and the fields that answer it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    asks: str
    fields: tuple[str, ...] = ()

    @field_validator("fields")
    @classmethod
    def _known(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in fields if name not in FIELDS]:
            raise ValueError(f"there is no field {unknown[0]!r}; there are {', '.join(FIELDS)}")
        return fields


class Text(BaseModel):
    """A public text as a list of clauses, where it is, and what of it was read to write the list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    url: str
    read: str
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class Entry:
    """A clause with what came of it; ``missing`` names the fields that have no value."""

    clause: Clause
    status: Status
    answers: tuple[str, ...]
    missing: tuple[str, ...]


def read_text(name: str) -> Text:
    """Read a text by its name, or one of your own from a YAML file.

    Raises:
        UsageError: There is no such text, or it has no valid clause.

    >>> read_text("satre").clauses[0].id
    '3.1.05'
    """
    if name in TEXTS:
        content = parse_yaml((files("resperturb.report") / "texts" / f"{name}.yaml").read_text(), name)
    elif Path(name).is_file():
        content = read_yaml(Path(name))
    else:
        raise UsageError(f"there is no text {name!r}; there are {', '.join(TEXTS)}, or name a YAML file of your own.")
    return _parsed(Text, content, name)


def read_declared(path: Path | None) -> Declared:
    """Read what the owner states: a YAML file with the fields of :class:`Declared`.

    Raises:
        UsageError: It cannot be read, or holds something else.
    """
    return Declared() if path is None else _parsed(Declared, read_yaml(path) or {}, str(path))


def entries(text: Text, model: ReportedModel, policy: Policy, declared: Declared) -> list[Entry]:
    """Answer the clauses of a text from an audit.

    A clause is answered only if each of its fields has a value.

    Args:
        text: The text.
        model: The model with its audit.
        policy: The policy to decide by.
        declared: What the owner states.
    """
    facts = Facts(decide(model, policy), declared)
    found = []
    for clause in text.clauses:
        values = {name: FIELDS[name](facts) for name in clause.fields}
        missing = tuple(name for name, value in values.items() if value is None)
        status: Status = "answered" if values and not missing else "not tested"
        if not values or (missing and set(missing) <= Declared.model_fields.keys()):
            status = "for you to fill in"
        found.append(Entry(clause, status, tuple(value for value in values.values() if value is not None), missing))
    return found


def render_evidence(text: Text, found: list[Entry], model: ReportedModel) -> str:
    """Return the pack as one self-contained HTML page."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("evidence.html").render(
        text=text,
        entries=found,
        counts=counts(found),
        model=model,
        attacked=attacked(model.audit),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("resperturb"),
    )


def counts(found: list[Entry]) -> dict[str, int]:
    """Count the clauses of each status."""
    statuses: tuple[Status, ...] = ("answered", "not tested", "for you to fill in")
    return {status: sum(entry.status == status for entry in found) for status in statuses}


def _parsed(kind: type[Kind], content: Any, where: str) -> Kind:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        known = f"; known: {', '.join(kind.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise UsageError(f"{where}: {place}: {first['msg']}{known}.") from error
