"""A model card for the Hugging Face Hub, with its privacy section filled in."""

from importlib.metadata import version
from typing import Any

from resperturb.report.collect import Finding, ReportedModel, kinds_of
from resperturb.report.gate import NOT_TESTED, RESIDUAL, Decision, decide
from resperturb.report.policy import Policy
from resperturb.report.wording import accuracies, plainly, whom


def model_card(model: ReportedModel, policy: Policy, for_reviewers: bool = False) -> str:
    """Write a model card in Markdown; ``for_reviewers`` it has data, seeds, weights and training accuracy too.

    What cannot be known from a run (licence, purpose, data) is left for its author.
    """
    import yaml

    decision, guarantee = decide(model, policy), model.guarantee
    subject = (model if for_reviewers else model.published()).subject
    measured = [
        f"| {row.title} | {row.found} | {row.limit_words} | {row.state.shape} {_text(row.verdict)} |"
        for row in decision.rows
    ]
    rests_on = [f"- {assumption.status}: {_text(assumption.statement)}" for assumption in guarantee.assumptions]
    if guarantee.claimed_epsilon < float("inf"):
        rests_on.append(f"- protects {_text(guarantee.protects)}")
    lines = [
        "---",
        yaml.safe_dump(_metadata(decision), sort_keys=False, allow_unicode=True).strip(),
        "---",
        f"\n# {_text(model.name)}",
        "\nFill in what the model is for, what it was trained on and who is responsible.",
        "\n## Privacy",
        f"\n**{decision.state.shape} {decision.status}.** {decision.meaning} {_text(plainly([model]))}".rstrip(),
        "\n| measured | found | limit | |\n|---|---|---|---|",
        *measured,
        f"\nAttacked: {decision.attacked}. Evidence: {decision.evidence}. "
        f"Next: {'; '.join(map(_text, decision.next_steps))}",
        f"\nPolicy: {_text(policy.id)}.",
        "\n### What was tried\n",
        *_tried(model),
        f"\n### What is proven\n\n{_text(_sentence(guarantee.words[:1].upper() + guarantee.words[1:]))}\n",
        *rests_on,
        f"\nNot covered: {'; '.join(RESIDUAL)}.",
        f"\n## Evaluation\n\n{accuracies(subject)} Defence: {_text(model.defence)}.\n",
    ]
    reviewers = [fact for fact in subject.facts if fact.reviewers_only and fact.value and for_reviewers]
    if reviewers:
        facts = (f"- {fact.label}: {_text(fact.value)}" for fact in reviewers)
        lines += ["## For reviewers: do not publish\n", *facts, ""]
    return "\n".join([*lines, f"_Privacy section by resperturb {version('resperturb')}._", ""])


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


def _tried(model: ReportedModel) -> list[str]:
    """A table of the fixed attacks, and the bound that they show."""
    if model.audit is None:
        return ["Nothing, so nothing is known about what it leaks."]
    lines = [f"| attack | on | AUC ({100 * model.audit.confidence:g}%) | TPR at 1% FPR |", "|---|---|---|---|"]
    for one in (Finding(attack, kind) for attack in model.audit.fixed for kind in kinds_of(attack)):
        point = one.metrics.at_fpr(0.01)
        rate = "not measurable" if point is None or point.tied else f"{point.tpr:.3f}"
        area = f"{one.auc:.3f} ({one.interval.words})"
        lines.append(f"| {_text(one.name)} | {_text(whom(one.kind, model.unit))} | {area} | {rate} |")
    return [*lines, f"\nShown: {_text(_sentence(model.audit.epsilon_lower.words))}"]


def _sentence(words: str) -> str:
    return words if words.endswith(".") else words + "."


def _text(words: str) -> str:
    """Show a user's words as words: no markup, no cell of a table, no line of its own.

    >>> _text("<b>a|b")
    '&lt;b&gt;a\\\\|b'
    """
    plain = " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "|[]*_`#":
        plain = plain.replace(mark, "\\" + mark)
    return plain
