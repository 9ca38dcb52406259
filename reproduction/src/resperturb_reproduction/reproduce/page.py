"""The pages of the reproduction, written from the results and the paragraphs beside them.

One page on top: how many rows agree, a matrix of the paper's claims, the conclusions, one figure. Then a page for
each experiment.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from resperturb.audits import LEARNING_RATES
from resperturb.files import write_bytes
from resperturb_reproduction.reproduce.declarations import BY_ID, DATA_TITLES, EXPERIMENTS, TOPICS, Experiment, Topic
from resperturb_reproduction.reproduce.plan import estimate, needs_of, rounds
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.readings import ID as READINGS_ID
from resperturb_reproduction.reproduce.readings import table, watched
from resperturb_reproduction.reproduce.results import (
    NOT_COMPARED,
    AnyResult,
    BudgetRow,
    Budgets,
    ClaimFound,
    Computed,
    Made,
    Row,
    Spread,
    Theorem,
    Trained,
)
from resperturb_reproduction.reproduce.verdicts import TOLERANCE, WIDEST, expected_by_chance, in_words, pointing

NOTES = "notes.md"
CONCLUSION, OPEN_QUESTION, MISSING = "conclusion", "open-question", "missing"
MATRIX = ("idc-table", "idc-table-multiplicative", "mnist-table", "cifar10-table", "cifar100-table")
SIGNS = {"holds": "✓", "fails": "✗", "open": "?", "not measured": "–", "not compared": "–"}

_TOP = """# The paper, reproduced

Every table and figure of "Deep Learning with Data Privacy via Residual Perturbation" (arXiv:2408.05723), beside
what this package measures. Written by `resperturb reproduce report` from the JSON files in `results/`; no measured
number is typed by hand, and none is the paper's."""

_READ = f"""## How to read it

*Measured* is the mean over seeds; each seed has its own quarters of the data, shared by all rows. ± is one standard
deviation over seeds, or with one seed the sampling error of that one training, which does not know the luck of a
training nor, on IDC, which patients happened to be in.

A row *agrees* if each printed number differs from the measured mean by at most {TOLERANCE:g} + t e √(1 + 1/n), e
being that error, n the seeds and t Student's 97.5% quantile (1.96 for one seed); where that bound is above
{WIDEST:g} it is *undecided*. *At reduced settings* goes with everything that is not trained as the paper did.

A *claim* compares two rows at the best preset at which both were measured. Their differences are paired by seed: it
*holds* or *fails* if the mean difference is more than t of its standard errors, and is *open* otherwise. With one
seed it is *seen once*, and neither; what several seeds at a lower preset say then stands behind it.

**Presets.** `paper` is the paper's settings as we read them: 200 epochs (IDC and DP-SGD: 100), batches of 128, no
augmentation, pixels normalised by constants. `long` is the same for 60 epochs (DP-SGD: 100), `cpu` a fraction of
that, and DP-SGD, which needs the most steps, suffers most from it. The row of the best preset is on these pages; the
JSON keeps all.

**Attacks.** The paper's, whose shadow model is a standard ResNet8; *adaptive*, the same with a shadow model trained
with the target's noise (or by DP-SGD); and the strongest attack of `resperturb audit` (LiRA, RMIA, thresholds;
averaged and noiseless draws) on the first seed's training, with the 95% interval of that one attack. The
strongest is found in hindsight, which makes it a little larger by luck; without shadow models the
strong attacks cannot be made. *Epsilon at least* is the lower bound of all attacks together; 0 is no evidence.

**Noise and memorisation.** Noise makes a network fit its images less well, which by itself narrows the gap and lowers
every AUC. Whether it protects *beyond* that is a question of equal accuracy, which the paper's tables cannot answer;
[the audit study](audit-results.md) asks it, and there early stopping, weight decay and dropout did as well."""


def write_pages(page: Path, results: Path, found: Mapping[str, AnyResult]) -> list[Path]:
    """Write the page and beside it, in a folder of its name, one for each experiment that has a result."""
    notes = read_notes(results / NOTES)
    folder = page.with_suffix("")
    parts = [
        _TOP,
        _tally(found),
        _matrix(found),
        notes.get(CONCLUSION, ""),
        f"![AUC of the paper, measured, and of the strongest attack]({_relative(results, page.parent)}/forest.png)",
        notes.get(OPEN_QUESTION, ""),
        _overview(found, folder.name),
        _missing(found, notes.get(MISSING, "")),
        _READ,
        _costs(),
    ]
    _write(page, parts)
    written = [page]
    for name, result in found.items():
        path = folder / f"{name}.md"
        _write(path, _experiment_page(BY_ID[name], result, path, results, notes.get(name, "")))
        written.append(path)
    return written


def read_notes(path: Path) -> dict[str, str]:
    """Read hand-written paragraphs, each under the ID of its experiment.

    >>> read_notes(Path("no/such/file"))
    {}
    """
    if not path.exists():
        return {}
    parts = re.split(r"^## +(\S+) *$", path.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}


def _write(path: Path, parts: Iterable[str]) -> None:
    write_bytes(path, ("\n\n".join(part.strip() for part in parts if part.strip()) + "\n").encode())


def _trained(found: Mapping[str, AnyResult]) -> list[Trained]:
    """The results that count: those of ROC curves have the rows of the sweeps."""
    return [result for result in found.values() if isinstance(result, Trained) and result.kind != "roc"]


def _tally(found: Mapping[str, AnyResult]) -> str:
    """Count rows and claims, with what qualifies them."""
    rows: dict[str, tuple[str, bool]] = {}
    claims: list[ClaimFound] = []
    for result in _trained(found):
        claims += result.claims
        # The rows of the hypotheses are ours: that most of them do not meet the printed one says nothing of it.
        if BY_ID[result.id].size != "choice" and result.id != "cifar10-tried":
            for row in result.shown:
                if row.paper is not None and row.seeds:
                    reduced = bool(result.data_of(row).reduced)
                    rows["/".join(row.runs)] = row.verdict.split()[0].rstrip(":"), reduced
    lines = ["| | all | at the paper's settings | at reduced settings |", "|---|---|---|---|"]
    for word in ("agrees", "differs", "undecided", "not"):
        counts = [sum(verdict == word and reduced in kinds for verdict, reduced in rows.values()) for kinds in _KINDS]
        if counts[0]:
            label = "not fully measured" if word == "not" else word
            lines.append(f"| rows with printed numbers: {label} | {' | '.join(map(str, counts))} |")
    tested = [claim.tested for claim in claims if claim.tested is not None]
    for outcome in ("holds", "fails", "open"):
        chosen = [claim for claim in tested if claim.outcome == outcome]
        if chosen:
            lines.append(f"| claims over several seeds: {outcome} | {_counted(chosen)} |")
    once = [claim for claim in claims if claim.outcome == "seen once"]
    if once:
        ways = Counter(map(pointing, once))
        shares = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
        lines.append(f"| claims seen once, at the best preset | {_counted(once, f' ({shares})')} |")
    unknown = sum(claim.outcome == "not measured" for claim in claims)
    if unknown:
        lines.append(f"| claims: not measured | {unknown} | 0 | 0 |")
    both = sum(claim.over_seeds is not None for claim in claims)
    chance = (
        f"{len(tested)} claims were tested over several seeds"
        + (f", {both} of them at a lower preset than the best, where they are seen once" if both else "")
        + ". At 95%, chance alone would decide about "
        f"{expected_by_chance(claims):.1f} of them if nothing made any difference."
    )
    return "## What came out\n\n" + "\n".join(lines) + (f"\n\n{chance}" if tested else "")


def _counted(claims: Sequence[ClaimFound], shares: str = "") -> str:
    counts = [sum(claim.reduced in kinds for claim in claims) for kinds in _KINDS]
    return f"{counts[0]}{shares} | {counts[1]} | {counts[2]}"


_KINDS: tuple[tuple[bool, ...], ...] = ((False, True), (False,), (True,))


def _matrix(found: Mapping[str, AnyResult]) -> str:
    """The claims of the tables by data set, each with what qualifies it."""
    tables = [(name, found.get(name)) for name in MATRIX]
    shown = [(name, result) for name, result in tables if isinstance(result, Trained)]
    if not shown:
        return ""
    heads = [
        f"{DATA_TITLES[result.rows[0].data]}{' (II)' if name.endswith('multiplicative') else ''}"
        for name, result in shown
        if result.rows
    ]
    lines = [f"| claim of the paper | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for topic in TOPICS:
        cells = [_sign(result, topic) for _, result in shown if result.rows]
        lines.append(f"| {topic} | {' | '.join(cells)} |")
    lines += [
        "",
        "✓ holds, ✗ fails, ? open, over several seeds; – not claimed or not measured; *seen once* is one training of "
        "each row, at the best preset. "
        "*Reduced* is another preset than `paper`, or a subset of the data.",
    ]
    return "\n".join(lines)


def _sign(result: Trained, topic: Topic) -> str:
    claim = next((claim for claim in result.claims if claim.topic == topic), None)
    if claim is None:
        return "–"
    sign = _qualified(claim)
    return sign if claim.over_seeds is None else f"{sign}; {_qualified(claim.over_seeds)}"


def _qualified(claim: ClaimFound) -> str:
    sign = f"seen once: {pointing(claim)}" if claim.outcome == "seen once" else SIGNS[claim.outcome]
    return sign + (" (reduced)" if claim.reduced and sign != "–" else "")


def _overview(found: Mapping[str, AnyResult], folder: str) -> str:
    lines = ["## Every table and figure", "", "| | in the paper | presets | what came out |", "|---|---|---|---|"]
    for experiment in EXPERIMENTS:
        result = found.get(experiment.id)
        if result is None:
            lines.append(f"| {experiment.id} | {experiment.place} | | not measured yet |")
            continue
        presets = ", ".join(made.preset for made in result.made)
        link = f"[{experiment.id}]({folder}/{experiment.id}.md)"
        lines.append(f"| {link} | {experiment.place} | {presets} | {_summary(result)} |")
    return "\n".join(lines)


def _summary(result: AnyResult) -> str:
    """Say in one sentence what came out of an experiment, with every qualifier."""
    if isinstance(result, Computed):
        return result.verdict
    if isinstance(result, Budgets):
        agreeing = sum(row.verdict == "agrees" for row in result.rows)
        return f"{agreeing} of {len(result.rows)} printed budgets follow from the formulas"
    if {made.preset for made in result.made} == {"quick"}:
        return NOT_COMPARED
    rows = Counter(_head(row.verdict) for row in result.shown if row.paper is not None and row.seeds)
    parts = [f"{count} {'row' if count == 1 else 'rows'}: {verdict}" for verdict, count in sorted(rows.items())]
    claims = Counter(in_words(claim) for claim in result.claims)
    parts += [f"{count} {'claim' if count == 1 else 'claims'}: {words}" for words, count in sorted(claims.items())]
    if result.theorem is not None and result.theorem.predicted_gap:
        first, last = (f"{gap.mean:.3f}" for row in (result.shown[0], result.shown[-1]) if (gap := row.measured.gap))
        predicted = list(result.theorem.predicted_gap.values())[-1]
        return f"the gap is {first} without noise, {last} with the most; by the theorem's factor {predicted:.3f}"
    if result.kind == "roc" or not parts:
        means = [found.mean for row in result.shown if (found := row.measured.auc) is not None]
        parts = [f"AUC {min(means):.3f} to {max(means):.3f}"] if means else ["not measured yet"]
    reduced = " at reduced settings"
    if all(reduced in part for part in parts):  # said once for all of them
        return "at reduced settings: " + "; ".join(part.replace(reduced, "") for part in parts)
    return "; ".join(parts)


def _head(verdict: str) -> str:
    """A verdict without the numbers that follow it."""
    return verdict.split(":")[0]


def _missing(found: Mapping[str, AnyResult], note: str) -> str:
    """Which rows of the tables are not there at the paper's settings."""
    lines = []
    for name in MATRIX:
        result = found.get(name)
        there = {
            (row.data, row.key): row
            for row in (result.rows if isinstance(result, Trained) else ())
            if row.preset == "paper" and row.seeds
        }
        lacking = [cell.name for cell in BY_ID[name].cells if (cell.data, cell.key) not in there]
        partial = [row.name for row in there.values() if row.measured.auc is None]
        if lacking:
            lines.append(f"- {name}: {'; '.join(lacking)}.")
        if partial:
            lines.append(f"- {name}, trained and not attacked yet: {'; '.join(partial)}.")
    if not lines and not note:
        return ""
    head = "## What is missing\n\nRows of the tables that are not trained at preset `paper`:\n\n"
    return (head + "\n".join(lines) if lines else "## What is missing") + (f"\n\n{note}" if note else "")


def _experiment_page(experiment: Experiment, result: AnyResult, page: Path, results: Path, note: str) -> list[str]:
    link = _relative(results, page.parent)
    parts = [f"# {experiment.id}", f"{experiment.title} ({experiment.place})."]
    figures = [experiment.id, *(f"{experiment.id}-gamma" for _ in (1,) if experiment.id.startswith("sde-"))]
    parts += [f"![{experiment.title}]({link}/{name}.png)" for name in figures if (results / f"{name}.png").exists()]
    if isinstance(result, Trained):
        parts += _trained_parts(result)
    elif isinstance(result, Budgets):
        parts.append(_budgets(result.rows))
    else:
        parts.append(f"Verdict: {result.verdict}.")
        parts += [table(watched(result))] if result.id == READINGS_ID else []
    parts.append(note)
    parts.append(_fold("Notes", _notes(experiment, result)))
    parts.append(_fold("Not measured", _whys(result)))
    parts.append(_fold("How it was made", [line for made in result.made for line in _provenance(made, experiment)]))
    parts.append(f"[The numbers]({link}/{experiment.id}.json), [all experiments](../{page.parent.name}.md).")
    return parts


def _trained_parts(result: Trained) -> list[str]:
    rows = result.shown
    parts = []
    if rows and result.kind != "roc":
        parts.append(_rows(rows))
        parts.append(_harder_attacks(result.attacked))
    if any(row.measured.averaged_test_accuracy for row in rows):
        parts.append(_answers(rows))
    if result.theorem is not None:
        parts.append(_theorem(result.theorem, rows))
    if result.claims:
        parts.append("\n".join(map(_claim, result.claims)))
    return parts


def _claim(claim: ClaimFound) -> str:
    more = claim.over_seeds
    behind = f" Over several seeds: *{in_words(more)}*.{_difference(more)}" if more is not None else ""
    return f"- *{in_words(claim)}*: {claim.text}{_difference(claim)}{behind}"


def _difference(claim: ClaimFound) -> str:
    if claim.difference is None or claim.interval is None:
        return ""
    low, high = claim.interval
    return f" Difference {claim.difference:+.3f} [{low:+.3f}, {high:+.3f}], preset `{claim.preset}`."


def _rows(rows: Sequence[Row]) -> str:
    heads = ["model", "preset", "AUC, paper", "AUC, measured", "train, paper", "train, measured", "test, paper"]
    heads += ["test, measured", "seeds", "verdict"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        paper, measured = row.paper, row.measured
        cells = [_named(row, rows), row.preset, _number(paper.auc if paper else None), _spread(measured.auc)]
        cells += [_number(paper.train_accuracy if paper else None), _spread(measured.train_accuracy)]
        cells += [_number(paper.test_accuracy if paper else None), _spread(measured.test_accuracy)]
        cells += [f"{len(row.seeds)} of {max(len(row.seeds), row.seeds_wanted)}", row.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _named(row: Row, among: Sequence[Row]) -> str:
    several = len({row.data for row in among}) > 1
    return f"{DATA_TITLES[row.data]}: {row.name}" if several else row.name


def _harder_attacks(rows: Sequence[Row]) -> str:
    """What attacks find that the paper did not make: a table of its own, for they may be of shorter trainings."""
    if not rows:
        return ""
    heads = ["model", "preset", "train / test", "AUC, the paper's attack", "AUC, adaptive"]
    heads += ["AUC, strongest of the audit", "TPR at 1% FPR", "epsilon at least"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        measured, audit = row.measured, row.audit
        accuracies = [found.mean if found else None for found in (measured.train_accuracy, measured.test_accuracy)]
        cells = [_named(row, rows), f"{row.preset}, {row.epochs} epochs" if row.epochs else row.preset]
        cells += [" / ".join(map(_number, accuracies)), _spread(measured.auc), _spread(measured.adaptive_auc)]
        if audit is None:
            cells += ["–"] * 3
        else:
            low, high = audit.auc_interval
            cells.append(
                f"{audit.auc:.3f} [{low:.3f}, {high:.3f}] ({audit.strongest}; best of {audit.attacks} attacks, "
                f"{audit.shadows or 'no'} shadows)"
            )
            cells.append(_number(audit.tpr_at_1_percent_fpr))
            cells.append("refused" if audit.refusal else f"{audit.epsilon_lower:.2f} ({audit.confidence:.0%})")
        lines.append(f"| {' | '.join(cells)} |")
    return (
        "**Attacks that the paper did not make.** Accuracies and AUCs of a line are of the same trainings, which may "
        "be shorter than those above; the audit is of the first of them.\n\n" + "\n".join(lines)
    )


def _answers(rows: Sequence[Row]) -> str:
    """Accuracies with the noise drawn once, averaged, and switched off."""
    lines = [
        "| model | train / test, one draw | train / test, averaged | train / test, noiseless |",
        "|---|---|---|---|",
    ]
    for row in rows:
        pairs = [
            tuple(row.measured.of(f"{way}{part}_accuracy") for part in ("train", "test"))
            for way in ("", "averaged_", "noiseless_")
        ]
        cells = [" / ".join(_number(found.mean if found else None) for found in pair) for pair in pairs]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _budgets(rows: Sequence[BudgetRow]) -> str:
    heads = ("training", "printed", "the formula gives", "exact", "lower bound, printed", "by the paper's attack",
             "by our audit", "verdict")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        shown = [
            "–" if found is None else "refused" if found.refusal else f"{found.epsilon:.3g} (preset {row.preset})"
            for found in (row.paper_attack, row.audit)
        ]
        cells = [
            f"{row.data}: {row.name}",
            f"{row.printed:.4g}",
            f"{row.epsilon:.4g}",
            "–" if row.epsilon_exact is None else f"{row.epsilon_exact:.4g}",
            f"{row.printed_lower:.4g}",
            *shown,
            row.verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    more = []
    for row in rows:
        needed = (
            f"Theorem 1 gives the printed epsilon if R were at most {row.radius_needed:.3g} and G at most "
            f"{row.bound_needed:.3g}, not 30. "
            if row.radius_needed is not None
            else ""
        )
        more.append(f"- {row.data}, {row.name}: {needed}{row.setting}")
    assumed: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        assumed.setdefault((f"It protects {row.protects}", *row.assumptions), []).append(f"{row.data}, {row.name}")
    items = [
        f"What the epsilon of {' and '.join(names)} assumes. {' '.join(said)}" for said, names in assumed.items()
    ]
    return "\n".join([*lines, "", *more]) + "\n\n" + _fold("Assumptions", items)


def _theorem(theorem: Theorem, rows: Sequence[Row]) -> str:
    lines = ["| gamma | R(G)/R(F) | predicted gap | measured gap |", "|---|---|---|---|"]
    predicted = theorem.predicted_gap or {}
    measured = {f"{row.gamma:g}": row.measured.gap for row in rows}
    for gamma, ratio in theorem.ratios.items():
        lines.append(f"| {gamma} | {ratio:.3f} | {_number(predicted.get(gamma))} | {_spread(measured.get(gamma))} |")
    return "\n".join(lines) + f"\n\nThe bound itself is {theorem.verdict}"


def _notes(experiment: Experiment, result: AnyResult) -> list[str]:
    rows = result.shown if isinstance(result, Trained) else ()
    slower = [
        f"{', '.join(f'{rate:g}' for rate in row.attack_learning_rates)} ({row.data}, {row.name})"
        for row in rows
        if any(rate != LEARNING_RATES[0] for rate in row.attack_learning_rates)
    ]
    rates = (
        f"At the paper's learning rate of {LEARNING_RATES[0]:g} the attack network gave the same answer for every "
        f"record, or did worse than a threshold, in every start. Its rate is instead {'; '.join(slower)}."
    )
    memorised = [
        f"{row.data}, {row.name}, preset {row.preset}: training accuracy 1.000 after {row.memorised_after} epochs."
        for row in rows
        if row.memorised_after is not None
    ]
    return [*experiment.notes, *([rates] if slower else []), *memorised]


def _whys(result: AnyResult) -> list[str]:
    if isinstance(result, Computed):
        return []
    if isinstance(result, Budgets):
        return [f"{row.data}, {row.name}: {row.why}" for row in result.rows if row.why]
    return sorted(
        {
            f"{row.data}, {row.name}: {why}"
            for row in result.shown
            for why in (*row.why, *((row.audit_why,) if row.audit_why else ()))
        }
    )


def _provenance(made: Made, experiment: Experiment) -> list[str]:
    parts = [f"Preset {made.preset}" + ("" if experiment.cells else ": nothing is trained")]
    for data in made.data:
        groups = f", {data.groups} patients kept apart" if data.groups else ""
        reduced = f"; {data.reduced or 'the settings of the paper as we read them'}" if experiment.cells else ""
        parts.append(
            f"{data.shown} (fingerprint {data.fingerprint}): {data.training_images:,} training images, "
            f"{data.a_quarter:,} per quarter, {data.test_images:,} test images{groups}{reduced}"
        )
    if made.trainings:
        parts.append(f"{made.trainings} trainings of {made.seconds / 3600:.2f} hours in all")
    elif made.seconds:
        parts.append(f"{made.seconds:.0f} seconds")
    with_what = made.environment
    parts.append(
        f"resperturb {with_what['resperturb']}, torch {with_what['torch']}, Python {with_what['python']}, "
        f"{with_what['machine']}, {with_what['made'][:10]}"
    )
    return [". ".join(parts) + "."]


def _fold(title: str, items: Sequence[str]) -> str:
    """A list that opens when it is asked for; HTML, which every Markdown reader shows."""
    if not items:
        return ""
    listed = "".join(f"<li>{_html(item)}</li>" for item in items)
    return f"<details><summary>{title}</summary><ul>{listed}</ul></details>"


def _html(text: str) -> str:
    """The emphasis and code of a sentence in HTML.

    >>> _html("*Averaged* by `paper` <b>")
    '<em>Averaged</em> by <code>paper</code> &lt;b&gt;'
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text)


def _costs() -> str:
    """What the presets cost, by the plan: the same numbers that `status` starts from."""
    names = [name for name in PRESETS if name != "quick"]
    heads = ["work", *(f"{name}: trainings | {name}: core-hours" for name in names)]
    columns: dict[str, dict[str, tuple[int, float]]] = {}
    for name in names:
        seen: set[str] = set()
        for units in rounds(EXPERIMENTS, PRESETS[name]):
            for unit in units:
                work = unit.experiment.id + (", audit" if unit.audit else f", seed {unit.seed}" if unit.seed else "")
                for need in needs_of(unit, PRESETS[name]):
                    for config in (need.target, *need.shadows):
                        if config.digest not in seen:
                            seen.add(config.digest)
                            count, seconds = columns.setdefault(work, {}).get(name, (0, 0.0))
                            columns[work][name] = (count + 1, seconds + estimate(config))
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---|---|' * len(names)}"]
    totals = dict.fromkeys(names, (0, 0.0))
    for work, counted in columns.items():
        cells = []
        for name in names:
            count, seconds = counted.get(name, (0, 0.0))
            totals[name] = (totals[name][0] + count, totals[name][1] + seconds)
            cells += [str(count), f"{seconds / 3600:.2f}"]
        lines.append(f"| {work} | {' | '.join(cells)} |")
    cells = [text for count, seconds in totals.values() for text in (str(count), f"{seconds / 3600:.1f}")]
    lines.append(f"| **all** | {' | '.join(cells)} |")
    return (
        "## What it costs\n\nPlanned times on one core of the machine this was planned on; what is shared is counted "
        "where it is first needed. `resperturb reproduce status` corrects the plan by what it has measured.\n\n"
        + "\n".join(lines)
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _spread(found: Spread | None) -> str:
    return "–" if found is None else f"{found.mean:.3f} ± {found.error:.3f}"


def _relative(folder: Path, start: Path) -> str:
    return Path(os.path.relpath(folder, start)).as_posix()
