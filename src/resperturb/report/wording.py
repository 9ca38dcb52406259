"""What was found, in sentences that say no more than was shown."""

from collections.abc import Sequence

from resperturb.bounds.audit_result import RECORD
from resperturb.bounds.result import LowerBound
from resperturb.privacy.guarantee import percent
from resperturb.report.collect import ReportedModel

# More names than this make a headline unreadable.
NAMED = 3
CAVEAT = "An attack that finds a leak shows it; one that finds none proves nothing, for a stronger one may exist."


def headline(runs: Sequence[ReportedModel]) -> str:
    """Say in one sentence what the attacks found."""
    attacked = [run for run in runs if run.attacks]
    if not attacked:
        return "No attack was run on these models, so nothing can be said about what they leak."
    if len(runs) == 1:
        return finding(runs[0])
    leaking = [run for run in attacked if run.leaks]
    if not leaking:
        return f"None of {counted(len(attacked), 'attacked model')} was seen to leak, by the attacks that were tried."
    seen = f"A leak was seen in {_which(leaking, attacked)}"
    least = _least_exposed(attacked)
    best = max(attacked, key=lambda run: run.test_accuracy)
    if least is None or unequal(runs):
        return f"{seen}; the most accurate is {_placed(best)}."
    if least is best:
        return f"{seen}; {_placed(best)} is the most accurate, and the attacks found least in it."
    return f"{seen}; the attacks found least in {_placed(least)}; the most accurate is {_placed(best)}."


def _which(leaking: Sequence[ReportedModel], attacked: Sequence[ReportedModel]) -> str:
    """How many of the models leak, and which where that is not all of them and they are few."""
    of = counted(len(attacked), "attacked model")
    if len(leaking) == len(attacked) > 1:
        return "both attacked models" if len(attacked) == 2 else f"all {of}"
    names = ", ".join(f"“{run.name}”" for run in leaking)
    return f"{len(leaking)} of {of}" + (f" ({names})" if len(leaking) <= NAMED else "")


def _least_exposed(attacked: Sequence[ReportedModel]) -> ReportedModel | None:
    """The run whose interval lies below those of all others; None where chance may have made the order.

    An AUC below one half is no merit: an attack that is worse than a coin says nothing of the model.
    """
    found = [(run, [max(0.5, end) for end in run.attacks[0].interval]) for run in attacked]
    least, (_, high) = min(found, key=lambda one: one[1][1])
    return least if all(run is least or low > high for run, (low, _) in found) else None


def finding(run: ReportedModel) -> str:
    """Say in one sentence what the strongest attack on a run found."""
    attack, accuracy = run.worst, run.test_accuracy
    if attack is None:
        return f"“{run.name}” was not attacked, so nothing can be said about what it leaks."
    low, high = attack.interval
    tried = (
        "the only attack that was tried" if len(run.attacks) == 1 else f"the strongest of {len(run.attacks)} attacks"
    )
    verb = "leaks" if run.leaks else "was not seen to leak"
    return (
        f"“{run.name}” {verb}: {tried} ({attack.name}) tells {whom(attack.candidates)} that were in its training set "
        f"from others with an AUC of {attack.auc:.3f} ({low:.3f} to {high:.3f}), where 0.5 is a coin toss"
        f"{_recognised(run)}{_canaries(run)}; its test accuracy is {accuracy:.3f}."
    )


def refutation(run: ReportedModel) -> str | None:
    """Say that an attack has shown more than was proven possible, if it has."""
    if not run.refuted or run.lower is None:
        return None
    return (
        f"Refuted: “{run.name}” was claimed to have {run.guarantees[-1].words}, but its audit showed "
        f"{run.lower.words}. A true claim is refuted in at most {100 * (1 - run.lower.confidence):.3g}% of audits. "
        "Something that the claim rests on does not hold; do not rely on it."
    )


def unequal(runs: Sequence[ReportedModel]) -> str | None:
    """Warn if the runs were not attacked alike: then the one that was attacked least looks best."""
    made = [(run, {attack.name.split(",")[0] for attack in run.attacks}) for run in runs if run.attacks]
    anywhere = set().union(*(methods for _, methods in made))
    said = [
        f"{', '.join(sorted(missing))} of “{run.name}”" for run, methods in made if (missing := anywhere - methods)
    ]
    said = [f"Missing: {'; '.join(said)}."] if said else []
    for what, values in (
        ("shadow models", {run.name: 0 if run.audit is None else run.audit.shadows.count for run, _ in made}),
        ("candidates", {run.name: whom(run.kind) for run, _ in made}),
    ):
        if len(set(values.values())) > 1:
            said.append(f"The {what}: {', '.join(f'{value} for “{name}”' for name, value in values.items())}.")
    if not said:
        return None
    return (
        "The runs were not attacked alike, so a smaller leak may only mean a weaker attack. "
        f"{' '.join(said)} Make the same attacks on all of them before you compare (“resperturb audit” "
        "with the same options; shadow is “resperturb attack”)."
    )


def measured_alike(models: Sequence[ReportedModel]) -> list[LowerBound]:
    """One lower bound of each way in which those of the models were measured: each way is a column of its own."""
    ways: list[LowerBound] = []
    for model in models:
        if model.lower is not None and not any(model.lower.comparable(way) for way in ways):
            ways.append(model.lower)
    return ways


def not_comparable(models: Sequence[ReportedModel]) -> str | None:
    """Say why the lower bounds of models stand in several columns, if they do."""
    ways = measured_alike(models)
    if len(ways) < 2:
        return None
    each = "; ".join(f"{number}, {way.measured}" for number, way in enumerate(ways, start=1))
    return (
        "The lower bounds on epsilon were not measured alike, so they stand apart and may not be compared. Measured "
        f"as {each}."
    )


def _recognised(run: ReportedModel) -> str:
    found = run.tpr(0.01)
    if found is None or found.tied:
        return ""
    return f", with a true positive rate of {percent(found.tpr)} at a false positive rate of 1%"


def _canaries(run: ReportedModel) -> str:
    found = None if run.audit is None or run.kind != RECORD else run.audit.canaries
    if found is None:
        return ""
    low, high = found.auc_interval
    return f"; canaries, the records made for the audit, with an AUC of {found.auc:.3f} ({low:.3f} to {high:.3f})"


def _placed(run: ReportedModel) -> str:
    return f"“{run.name}” (AUC {run.attacks[0].auc:.3f}, test accuracy {run.test_accuracy:.3f})"


def counted(count: int, one: str) -> str:
    """Count something in words.

    >>> counted(1, "record"), counted(2, "canary")
    ('1 record', '2 canaries')
    """
    several = one[:-1] + "ies" if one.endswith("y") else one + "s"
    return f"{count} {one if count == 1 else several}"


def whom(candidates: str) -> str:
    """Name a kind of candidate in the plural.

    >>> whom("record"), whom("canaries"), whom("near_duplicate")
    ('records', 'canaries', 'near-duplicate canaries')
    """
    if candidates in ("record", "canaries"):
        return candidates if candidates == "canaries" else "records"
    return candidates.replace("_", "-") + " canaries"
