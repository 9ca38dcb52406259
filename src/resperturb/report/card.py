"""A model card for the Hugging Face Hub, with its privacy section filled in."""

from typing import Any

from resperturb.report.decision import RESIDUAL, advice
from resperturb.report.record import PrivacyRecord
from resperturb.report.wording import whom

INTRODUCTION = "Fill in what the model is for, what it was trained on and who is responsible."


def model_card(record: PrivacyRecord) -> str:
    """Write a model card in Markdown.

    Args:
        record: What is known of the model.

    Returns:
        The card. What cannot be known from a run (licence, purpose, data) is left for its author.
    """
    import yaml

    header: dict[str, Any] = {"tags": ["privacy", "membership-inference", "resperturb"]}
    lines = [
        "---",
        yaml.safe_dump(header, sort_keys=False).strip(),
        "---",
        "",
        f"# {_text(record.model)}",
        "",
        INTRODUCTION,
        "",
        "## Privacy",
        "",
        f"**{_text(record.decision.words)}**",
        "",
        *(f"- {check.outcome}: {_text(check.sentence)}" for check in record.decision.checks),
        "",
        advice(record.decision.outcome, record.decision.checks),
        "",
        "### What was tried",
        "",
        *_audit(record),
        "",
        "### What is proven",
        "",
        f"{_text(_sentence(record.proven.words))}",
        "",
        *(f"- {assumption.status}: {_text(assumption.statement)}" for assumption in record.proven.assumptions),
        *([f"- protects {_text(record.proven.protects)}"] if record.proven.epsilon is not None else []),
        "",
        "### Residual risks",
        "",
        *(f"- {risk}" for risk in RESIDUAL),
        "",
        "## Evaluation",
        "",
        f"Accuracy {record.train_accuracy:.3f} on training records and {record.test_accuracy:.3f} on others. "
        f"Defence: {_text(record.defence)}.",
        "",
        *_reviewers(record),
        f"_Privacy section by {record.made_by}._",
    ]
    return "\n".join(lines) + "\n"


def _audit(record: PrivacyRecord) -> list[str]:
    audit = record.audit
    if audit is None:
        return ["Nothing: it was not audited, so nothing can be said about what it leaks."]
    fixed = [attack for attack in audit.attacks if attack.fixed]
    lines = [f"{_text(_sentence(audit.tried))}", ""]
    lines += [
        "| attack | on | AUC (95%) | TPR at 1% FPR |".replace("95%", f"{100 * audit.confidence:g}%"),
        "|---|---|---|---|",
    ]
    for attack in [*fixed, *([audit.most_exposed] if audit.most_exposed else [])]:
        rate = attack.tpr_at_1_percent_fpr
        shown = "not measurable" if rate is None else f"{rate:.3f}"
        area = f"{attack.auc:.3f} ({attack.auc_low:.3f} to {attack.auc_high:.3f})"
        lines.append(f"| {_text(attack.attack)} | {_text(_on(attack.on))} | {area} | {shown} |")
    return [*lines, "", f"Shown: {_text(_sentence(audit.epsilon_shown.words, capital=False))}"]


def _on(kind: str) -> str:
    return kind if "most exposed" in kind or kind.startswith("group") else whom(kind)


def _reviewers(record: PrivacyRecord) -> list[str]:
    made = record.for_reviewers
    if made is None:
        return []
    seeds = ", ".join(f"{name} {seed}" for name, seed in made.seeds.items())
    return [
        "## For reviewers: do not publish",
        "",
        f"- data: {_text(made.data)}",
        f"- seeds: {seeds}",
        f"- SHA-256 of the weights: {made.weights}",
        "",
    ]


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
