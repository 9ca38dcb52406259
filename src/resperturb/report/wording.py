"""What was found, in sentences that say no more than was shown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resperturb.bounds.audit_result import CANARIES, GROUP, RECORD, AuditResult
from resperturb.bounds.result import LowerBound
from resperturb.privacy.guarantee import percent

if TYPE_CHECKING:
    from resperturb.report.collect import ReportedModel
    from resperturb.report.subject import Subject

# More names than this make a headline unreadable.
NAMED = 3
CAVEAT = "An attack that finds a leak shows it. An attack that finds none proves nothing: a stronger one may exist."
LEFT_OUT = (
    "Where an epsilon is proven, accuracies on training records are left out: they are computed without noise, and "
    "the proof assumes that they stay private."
)


def accuracy_words(value: float | None) -> str:
    """Write an accuracy that may be left out.

    >>> accuracy_words(0.5), accuracy_words(None)
    ('0.500', 'left out')
    """
    return "left out" if value is None else f"{value:.3f}"


def accuracies(subject: "Subject") -> str:
    """Write both accuracies as sentences.

    Returns:
        The accuracy on training records, or why it is left out, and the one on others.
    """
    others = f"{subject.test_accuracy:.3f} on others."
    if subject.train_accuracy is None:
        return f"Accuracy {others} {LEFT_OUT}"
    return f"Accuracy {subject.train_accuracy:.3f} on training records, {others}"


def headline(runs: "Sequence[ReportedModel]") -> str:
    """Say in one sentence what the attacks found."""
    audited = [run for run in runs if run.strongest is not None]
    if not audited:
        return "No model was audited, so nothing is known about what they leak."
    if len(runs) == 1:
        return finding(runs[0])
    of, leaking = counted(len(audited), "audited model"), [f"“{run.name}”" for run in audited if run.leaks]
    if not leaking:
        return f"None of {of} was seen to leak, by the attacks that were tried."
    which = f"{len(leaking)} of {of}" + (f" ({', '.join(leaking)})" if len(leaking) <= NAMED else "")
    if len(leaking) == len(audited) > 1:
        which = "both audited models" if len(audited) == 2 else f"all {of}"
    least = None if unequal(runs) else _least_exposed(audited)
    if least is None or least.strongest is None:
        how = "The models are not ranked: they were not attacked alike, or their intervals overlap."
    else:
        area, accuracy = least.strongest.auc, least.subject.test_accuracy
        how = f"The attacks found least in “{least.name}” (AUC {area:.3f}, test accuracy {accuracy:.3f})."
    return f"A leak was seen in {which}. {how}"


def _least_exposed(audited: "Sequence[ReportedModel]") -> "ReportedModel | None":
    """The model whose interval lies below those of all others; None where chance may have made the order.

    An AUC below one half is no merit: an attack that is worse than guessing says nothing of the model.
    """
    found = [(run, [max(0.5, end) for end in run.strongest.interval]) for run in audited if run.strongest]
    least, (_, high) = min(found, key=lambda one: one[1][1])
    return least if all(run is least or low > high for run, (low, _) in found) else None


def finding(run: "ReportedModel") -> str:
    """Say in one sentence what the strongest attack on a model found, and what its number alone would hide."""
    found, audit = run.strongest, run.audit
    if found is None or audit is None:
        return f"“{run.name}” was not audited, so nothing is known about what it leaks."
    tried = f"the strongest of {len(audit.fixed)} attacks" if len(audit.fixed) > 1 else "the only attack"
    unit = whom(found.kind, run.unit)
    members = f"{unit} of the training set" if GROUP in run.kinds else f"training {unit}"
    said = (
        f"“{run.name}” {audit.seen}: {tried} ({found.name}) distinguishes "
        f"{members} from others with an AUC of {found.auc:.3f} ({found.interval.words}; guessing: 0.5)"
    )
    if run.tpr is not None and not run.tpr.tied:
        said += f" and a true positive rate of {percent(run.tpr.tpr)} at a false positive rate of 1%"
    if GROUP in run.kinds:
        area = max(attack.metrics[RECORD].auc for attack in audit.fixed if RECORD in attack.metrics)
        said += f"; single records, with an AUC of {area:.3f}"
    if audit.canaries is not None and CANARIES not in run.kinds and audit.canaries is not found.metrics:
        said += f"; canaries, with an AUC of {audit.canaries.auc:.3f} ({audit.canaries.auc_interval.words})"
    if (one := run.deciding) is not None:
        said += f"; the leak shows on {whom(one.kind, run.unit)} ({one.name}, AUC {one.interval.words})"
    return f"{said}. Its test accuracy is {run.subject.test_accuracy:.3f}."


def plainly(runs: "Sequence[ReportedModel]") -> str:
    """Say without a technical term what the strongest attack on each model can do; empty without an audit.

    The AUC is the share of pairs of a member and a non-member that the attack puts in the right order.
    """
    cases: dict[str, list[str]] = {}
    for run in runs:
        if run.audit is not None and run.strongest is not None:
            found = cases.setdefault(unit_of(run.audit, run.strongest.kind), [])
            right = f"{round(100 * run.strongest.auc)}{'' if found else ' of 100 cases'}"
            found.append(f"{right} for “{run.name}”" if len(runs) > 1 else right)
    return " ".join(
        f"Given one {unit} {who} was in the training data and one {who} was not, the attacker names the right one in "
        f"{', '.join(found)} (guessing: 50)."
        for unit, found in cases.items()
        for who in ["that" if unit in (GROUP, RECORD, "canary") else "who"]
    )


def unit_of(audit: AuditResult, kind: str) -> str:
    """Name one candidate of a kind: ``record``, ``patient``, ``canary``."""
    if kind.startswith(GROUP):
        return group_name(audit)
    return RECORD if kind == RECORD else "canary"


def group_name(audit: AuditResult | None) -> str:
    """Name one group of records after the column that says who they belong to: ``patient`` for ``patient_id``."""
    if audit is None or audit.unit == RECORD:
        return GROUP
    return audit.unit.removesuffix("_id").replace("_", " ") or GROUP


def attacked(audit: AuditResult | None) -> str:
    """Say what the numbers of an audit are about."""
    if audit is None:
        return "nothing"
    if audit.subject == "this model":
        return "this model"
    return (
        f"models of this recipe ({counted(audit.targets, 'model')} trained for the audit), not a model that you hold"
    )


def refutation(run: "ReportedModel") -> str | None:
    """Say that an attack has shown more than was proven possible, if it has."""
    if run.audit is None or run.audit.verdict != "refuted":
        return None
    lower = run.audit.epsilon_lower
    return (
        f"Refuted: “{run.name}” was claimed to have {run.guarantees[-1].words}, but its audit showed "
        f"{lower.words}. A true claim is refuted in at most {100 * (1 - lower.confidence):.3g}% of audits. "
        "Something that the claim rests on does not hold; do not rely on it."
    )


def unequal(runs: "Sequence[ReportedModel]") -> str | None:
    """Warn if the models were not attacked alike: then the one that was attacked least looks best."""
    made = [(run, run.audit, {attack.name for attack in run.audit.fixed}) for run in runs if run.audit is not None]
    anywhere = set().union(*(methods for _, _, methods in made))
    said = [
        f"Missing: {', '.join(sorted(anywhere - had))} of “{run.name}”." for run, _, had in made if anywhere - had
    ]
    for what, values in (
        ("shadow models", [(run.name, str(audit.shadows.count)) for run, audit, _ in made]),
        ("candidates", [(run.name, whom(run.kinds[0], run.unit)) for run, _, _ in made]),
    ):
        if len({value for _, value in values}) > 1:
            said.append(f"The {what}: {', '.join(f'{value} for “{name}”' for name, value in values)}.")
    if not said:
        return None
    return (
        "The models were not attacked alike, so a smaller leak may only mean a weaker attack. "
        f"{' '.join(said)} Audit all of them with the same options before you compare."
    )


def measured_alike(models: "Sequence[ReportedModel]") -> list[LowerBound]:
    """One lower bound of each way in which those of the models were measured: each way is a column of its own."""
    ways: list[LowerBound] = []
    for model in models:
        if model.bound is not None and not any(model.bound.comparable(way) for way in ways):
            ways.append(model.bound)
    return ways


def not_comparable(models: "Sequence[ReportedModel]") -> str | None:
    """Say why the lower bounds of models are in several columns, if they are."""
    ways = measured_alike(models)
    if len(ways) < 2:
        return None
    each = "; ".join(f"{number}, {way.measured}" for number, way in enumerate(ways, start=1))
    return f"The lower bounds on epsilon were not measured alike and may not be compared. Measured as {each}."


def counted(count: int, one: str) -> str:
    """Count something in words.

    >>> counted(1, "record"), counted(2, "canary")
    ('1 record', '2 canaries')
    """
    return f"{count} {one if count == 1 else several(one)}"


def several(one: str) -> str:
    """Give the plural of a word."""
    return one[:-1] + "ies" if one.endswith("y") else one + "s"


def whom(candidates: str, unit: str = GROUP) -> str:
    """Name a kind of candidate in the plural; ``unit`` is what a group is called.

    >>> whom("record"), whom("group", "patient"), whom("near_duplicate")
    ('records', 'patients', 'near-duplicate canaries')
    """
    if candidates.startswith(GROUP):
        return candidates.replace(GROUP, several(unit), 1)
    if candidates in (RECORD, CANARIES):
        return "records" if candidates == RECORD else candidates
    return candidates.replace("_", "-") + " canaries"
