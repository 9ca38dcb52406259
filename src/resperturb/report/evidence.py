"""The evidence pack: which clauses of a public text an audit answers, did not test, or leaves to a person."""

import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from resperturb.bounds.attack_metrics import TruePositiveRate
from resperturb.errors import UsageError
from resperturb.files import parse_yaml, read_yaml
from resperturb.privacy.guarantee import percent
from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Decision, decide
from resperturb.report.page import environment
from resperturb.report.policy import Policy, parsed
from resperturb.report.wording import accuracies, attacked, refutation, whom

Status = Literal["answered", "not tested", "for you to fill in"]
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
    defence: str | None = None


# What a clause can be answered by; the fields of Declared come on top.
FIELDS = (
    *("policy", "decision", "tried", "membership", "low_false_alarms", "most_exposed", "attribute_inference"),
    *("model_inversion", "reconstruction", "guarantee", "delta", "unit", "assumptions", "lower_bound", "verdict"),
    *("accuracy", "files", *Declared.model_fields),
)


def answers(decision: Decision, declared: Declared) -> dict[str, str | None]:
    """Give every field its answer; None where nothing was measured or stated.

    No audit makes the attacks of attribute inference, inversion and reconstruction.
    """
    model, policy = decision.model, decision.policy
    guarantee, subject = model.guarantee, model.subject
    found: dict[str, str | None] = dict.fromkeys(FIELDS)
    found["policy"] = f"{policy.name}, SHA-256 {policy.digest}: {policy.words}."
    found["guarantee"] = guarantee.words
    if guarantee.claimed_epsilon < math.inf:
        found["delta"], found["unit"] = f"Delta {guarantee.delta:g}.", guarantee.compares
    found["assumptions"] = "; ".join(f"{one.statement} ({one.status})" for one in guarantee.assumptions) or None
    found["accuracy"] = accuracies(model.published().subject)
    for name, value in declared.model_dump(exclude_none=True).items():
        found[name] = percent(value) if name == "prior" else f"{value}"
    if subject.defence:
        found["defence"] = f"Defence: {subject.defence}."
    if model.audit is None:
        return found
    found["decision"] = f"{decision.status}. {decision.meaning}"
    found["tried"] = f"{decision.evidence}."
    found["lower_bound"] = f"Shown by attacks: {model.audit.epsilon_lower.words}."
    found["verdict"] = refutation(model) or model.audit.verdict_sentence
    found["files"] = (
        "audit.json and the scores of each attack, bound together by SHA-256 (“resperturb verify” checks them); "
        "“resperturb gate --json” records the policy, its limits and each check."
    )
    if (one := model.strongest) is not None:
        area = f"AUC {one.auc:.3f} ({one.interval.words}; guessing: 0.5)"
        found["membership"] = f"{area} on {whom(one.kind, model.unit)}, by {one.name}."
    if model.tpr is not None and not model.tpr.tied:
        found["low_false_alarms"] = _low_false_alarms(model.tpr, declared.prior)
    most = model.audit.exposed
    if most is not None and most.metrics is not None:
        area = f"AUC {most.metrics.auc:.3f} ({most.metrics.auc_interval.words})"
        found["most_exposed"] = f"{area} on the {most.count} most exposed candidates."
    return found


def _low_false_alarms(point: TruePositiveRate, prior: float | None) -> str:
    low, high = point.interval
    said = f"At 1% false alarms {percent(point.tpr)} of the members are found ({percent(low)} to {percent(high)})."
    if prior is None:
        return said
    right, least, most = (percent(precision(rate, point.fpr, prior)) for rate in (point.tpr, low, high))
    named = f"Of those that the attacker names, {right} ({least} to {most}) are members"
    return f"{said} {named}, if {percent(prior)} of the people queried are."


def precision(tpr: float, fpr: float, prior: float) -> float:
    """Give the share of members among those that an attack names; ``prior`` is that among all people queried.

    >>> round(precision(0.1, 0.01, 0.5), 2), round(precision(0.1, 0.01, 0.01), 2)
    (0.91, 0.09)
    """
    named = prior * tpr + (1 - prior) * fpr
    return prior * tpr / named if named else 0.0


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
    return parsed(Text, content, name)


def read_declared(path: Path | None) -> Declared:
    """Read what the owner states: a YAML file with the fields of :class:`Declared`.

    Raises:
        UsageError: It cannot be read, or holds something else.
    """
    return Declared() if path is None else parsed(Declared, read_yaml(path) or {}, str(path))


def entries(text: Text, model: ReportedModel, policy: Policy, declared: Declared) -> list[Entry]:
    """Answer the clauses of a text from an audit: a clause is answered only if each of its fields has a value."""
    known = answers(decide(model, policy), declared)
    found = []
    for clause in text.clauses:
        values = {name: known[name] for name in clause.fields}
        missing = tuple(name for name, value in values.items() if value is None)
        status: Status = "answered" if values and not missing else "not tested"
        if not values or (missing and set(missing) <= Declared.model_fields.keys()):
            status = "for you to fill in"
        found.append(Entry(clause, status, tuple(value for value in values.values() if value is not None), missing))
    return found


def render_evidence(text: Text, found: list[Entry], model: ReportedModel, declared: Declared) -> str:
    """Return the pack as one self-contained HTML page."""
    template = environment().get_template("evidence.html")
    return template.render(
        text=text,
        entries=found,
        counts=counts(found),
        model=model,
        attacked=attacked(model.audit),
        declared={name.replace("_", " "): value for name, value in declared},
    )


def counts(found: list[Entry]) -> dict[str, int]:
    """Count the clauses of each status."""
    statuses: tuple[Status, ...] = ("answered", "not tested", "for you to fill in")
    return {status: sum(entry.status == status for entry in found) for status in statuses}
