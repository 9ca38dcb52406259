"""A model card for the Hugging Face Hub, with its privacy section filled in."""

from importlib.metadata import version
from typing import Any

from resperturb.bounds.audit_result import AuditResult
from resperturb.report.collect import Finding, ReportedModel, kinds_of
from resperturb.report.gate import NOT_TESTED, RESIDUAL, Decision, decide
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

    decision, subject, guarantee = decide(model, policy), model.subject, model.guarantee
    reviewers = [fact for fact in subject.facts if fact.reviewers_only and for_reviewers]
    lines = [
        "---",
        yaml.safe_dump(_metadata(decision), sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {_text(model.name)}",
        "",
        INTRODUCTION,
        "",
        "## Privacy",
        "",
        *_decided(decision),
        "",
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


def _metadata(decision: Decision) -> dict[str, Any]:
    """What the Hub indexes: tags, the results that were measured here, and the decision for machines."""
    model, policy = decision.model, decision.policy
    task = "image-classification" if model.subject.network else "other"
    metrics = [{"type": "accuracy", "name": "test accuracy", "value": round(model.subject.test_accuracy, 4)}]
    if model.strongest is not None:
        on = whom(model.strongest.kind, model.unit)
        name = f"AUC of the strongest membership attack on {on} (0.5 is guessing)"
        metrics.append({"type": "membership-inference-auc", "name": name, "value": round(model.strongest.auc, 4)})
    result = {"task": {"type": task}, "dataset": {"name": "not published", "type": "private"}, "metrics": metrics}
    return {
        **({"pipeline_tag": task} if model.subject.network else {}),
        "tags": ["privacy", "membership-inference", "resperturb"],
        "model-index": [{"name": model.name, "results": [result]}],
        "resperturb": {
            "status": decision.state.word,
            "attacked": decision.attacked,
            "policy": policy.name,
            "policy_sha256": policy.digest,
            "not_tested": list(NOT_TESTED),
        },
    }


def _decided(decision: Decision) -> list[str]:
    """The decision as a table: what was measured, the interval that decides, the limit."""
    rows = [
        f"| {row.title} | {row.found} | {row.limit_words} | {row.state.shape} {_text(row.verdict)} |"
        for row in decision.rows
    ]
    plain = _text(plainly([decision.model]))
    return [
        f"**{decision.state.shape} {decision.status}.** {decision.meaning} {plain}".rstrip(),
        "",
        "| measured | found | limit | |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Attacked: {decision.attacked}. Evidence: {decision.evidence}. "
        f"Next: {'; '.join(map(_text, decision.next_steps))}",
        "",
        f"Policy: {_text(decision.policy.id)}.",
    ]


def _audit(model: ReportedModel, audit: AuditResult) -> list[str]:
    lines = [f"| attack | on | AUC ({100 * audit.confidence:g}%) | TPR at 1% FPR |", "|---|---|---|---|"]
    lines += [_attack(Finding(attack, kind), model.unit) for attack in audit.fixed for kind in kinds_of(attack)]
    lower = model.lower
    assert lower is not None
    return [*lines, "", f"Shown: {_text(_sentence(lower.words, capital=False))}"]


def _attack(found: Finding, unit: str) -> str:
    point = found.metrics.at_fpr(0.01)
    rate = "not measurable" if point is None or point.tied else f"{point.tpr:.3f}"
    low, high = found.interval
    area = f"{found.auc:.3f} ({low:.3f} to {high:.3f})"
    return f"| {_text(found.name)} | {_text(whom(found.kind, unit))} | {area} | {rate} |"


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
