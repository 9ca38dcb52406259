"""A model card for the Hugging Face Hub, with its privacy section filled in."""

from importlib.metadata import version
from typing import Any

from resperturb.bounds.audit_result import AuditResult
from resperturb.report.collect import Finding, ReportedModel, kinds_of
from resperturb.report.decision import RESIDUAL, ModelDecision, decision_of
from resperturb.report.policy import Policy
from resperturb.report.wording import plainly, whom

INTRODUCTION = "Fill in what the model is for, what it was trained on and who is responsible."


def model_card(model: ReportedModel, policy: Policy, for_reviewers: bool = False) -> str:
    """Write a model card in Markdown.

    Args:
        model: A run or an audit.
        policy: The policy to decide by.
        for_reviewers: Also name data, seeds and weights.

    Returns:
        The card. What cannot be known from a run (licence, purpose, data) is left for its author.
    """
    import yaml

    header: dict[str, Any] = {"tags": ["privacy", "membership-inference", "resperturb"]}
    decision, subject, guarantee = decision_of(model, policy), model.subject, model.guarantee
    reviewers = [fact for fact in subject.facts if fact.reviewers_only and for_reviewers]
    lines = [
        "---",
        yaml.safe_dump(header, sort_keys=False).strip(),
        "---",
        "",
        f"# {_text(model.name)}",
        "",
        INTRODUCTION,
        "",
        "## Privacy",
        "",
        *_decided(decision, policy),
        "",
        *([f"{_text(plainly(model))}", ""] if model.audit else []),
        "### What was tried",
        "",
        *(
            ["Nothing, so nothing is known about what it leaks."]
            if model.audit is None
            else _audit(model, model.audit)
        ),
        "",
        "### What is proven",
        "",
        f"{_text(_sentence(guarantee.words))}",
        "",
        *(f"- {assumption.status}: {_text(assumption.statement)}" for assumption in guarantee.assumptions),
        *([f"- protects {_text(guarantee.protects)}"] if guarantee.claimed_epsilon < float("inf") else []),
        "",
        f"Not covered: {'; '.join(RESIDUAL)}.",
        "",
        "## Evaluation",
        "",
        f"Accuracy {subject.train_accuracy:.3f} on training records and {subject.test_accuracy:.3f} on others. "
        f"Defence: {_text(model.defence or 'not stated')}.",
        "",
        *(["## For reviewers: do not publish", ""] if reviewers else []),
        *(f"- {fact.label}: {_text(fact.value)}" for fact in reviewers if fact.value),
        *([""] if reviewers else []),
        f"_Privacy section by resperturb {version('resperturb')}._",
    ]
    return "\n".join(lines) + "\n"


def _decided(decision: ModelDecision, policy: Policy) -> list[str]:
    """The decision as a table: what was measured, the interval that decides, the limit."""
    table = ["| measured | found | limit | |", "|---|---|---|---|"]
    for row in decision.rows:
        table.append(f"| {row.title} | {row.found} | {row.limit} | {row.state.shape} {row.verdict} |")
    enough = "reaches the policy's minimum" if decision.enough else "below the policy's minimum"
    return [
        f"**{decision.state.shape} {decision.status}.** {decision.meaning}",
        "",
        *table,
        "",
        f"Evidence: {decision.evidence}; {enough}. Next: {'; '.join(map(_text, decision.next_steps))}",
        "",
        f"Policy: {_text(policy.id)}.",
    ]


def _audit(model: ReportedModel, audit: AuditResult) -> list[str]:
    lines = [f"| attack | on | AUC ({100 * audit.confidence:g}%) | TPR at 1% FPR |", "|---|---|---|---|"]
    lines += [_attack(Finding(attack, kind)) for attack in audit.fixed for kind in kinds_of(attack)]
    lower = model.lower
    assert lower is not None
    return [*lines, "", f"Shown: {_text(_sentence(lower.words, capital=False))}"]


def _attack(found: Finding) -> str:
    point = found.tpr(0.01)
    rate = "not measurable" if point is None or point.tied else f"{point.tpr:.3f}"
    low, high = found.interval
    area = f"{found.auc:.3f} ({low:.3f} to {high:.3f})"
    return f"| {_text(found.name)} | {_text(whom(found.kind))} | {area} | {rate} |"


def _sentence(words: str, capital: bool = True) -> str:
    begun = words[:1].upper() + words[1:] if capital else words
    return begun if begun.endswith(".") else begun + "."


def _text(words: str) -> str:
    """Show a user's words as words: no markup, no cell of a table, no line of its own.

    >>> _text("<b>a|b")
    '&lt;b&gt;a\\\\|b'
    """
    plain = " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "|[]*_`#":
        plain = plain.replace(mark, "\\" + mark)
    return plain
