"""The pages of the reproduction, written from the results and the paragraphs in ``notes.md`` of their folder.

A summary, a page for each table, one for all sweeps, one for the open row.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from resperturb.files import write_bytes
from resperturb_reproduction.reproduce.declarations import BFLOAT16, BY_ID, DATA_TITLES, EXPERIMENTS, TOPICS, Topic
from resperturb_reproduction.reproduce.missing import missing
from resperturb_reproduction.reproduce.readings import table as readings_table
from resperturb_reproduction.reproduce.readings import watched
from resperturb_reproduction.reproduce.results import AnyResult, Budgets, Computed, Made, Row, Spread, Trained
from resperturb_reproduction.reproduce.verdicts import (
    DECIDED,
    TOLERANCE,
    WIDEST,
    ClaimFound,
    Spreads,
    Verdict,
    expected_by_chance,
    judge_claims,
    judge_row,
)

NOTES = "notes.md"
TABLES = ("idc-table", "idc-table-multiplicative", "mnist-table", "cifar10-table", "cifar100-table")
DECAYED = "weight-decay"
SWEEP_IDS = (
    *(e.id for e in EXPERIMENTS if e.kind in ("sweep", "ensemble", "roc")),
    "cifar10-no-skip",
    "generalisation",
)
OPEN_IDS = ("readings", DECAYED, "cifar10-hypotheses", "gamma-times-dt", "gamma-curve", "cifar10-tried")
# What the paper claims first: less leakage, and more correct answers than DP-SGD and than no noise.
HEADLINE: tuple[Topic, ...] = ("lower AUC", "beats DP-SGD", "beats non-private")

_TOP = """# The paper, reproduced

This page compares "Deep Learning with Data Privacy via Residual Perturbation" (arXiv:2408.05723) with our
measurements. `resperturb reproduce report` writes it from the JSON files in `results/`."""

_METHOD = f"""## Method

**Settings.** *Full length* means 200 epochs (IDC and DP-SGD: 100), batches of 128, SGD at rate 0.1, weight
decay 1e-4, no augmentation: the paper's settings as we read them. *Reduced* means fewer epochs, a subset of the
images, or both. The IDC rows use the subset of the patches that could be had.

**Spread between seeds.** Most rows have one seed at full length. Their spread between seeds is taken from the
rows with several seeds, as a multiple of the sampling error. The multiple is pooled per data set for AUC, and
per kind of training (no noise, noise, DP-SGD) for accuracies. It assumes that the multiple is the same at full
length.

**Rows.** A published value is met if it is within {TOLERANCE:g} + t e √(1 + 1/n) of the measured mean (n seeds,
spread e, Student's t). A row is *supported* if all its values are met, *contradicted* if one is not, and
*inconclusive* where that tolerance exceeds {WIDEST:g}.

**Claims.** A claim compares two rows over the seeds that both have. It is *supported* or *contradicted* if the
difference exceeds t e √(2/n), and *inconclusive* otherwise. AUC counts by its deviation from 0.5, as in the
paper.

**Attacks.** The paper's attack trains a standard ResNet8 as its shadow model. The *adaptive* attack trains the
shadow model like the target. The *strongest* attack of `resperturb audit` is the best of several in hindsight,
which favours it.

**Limits.** Noise makes a network fit its images less well, which lowers every AUC. Whether noise protects more
than other regularisers at equal accuracy is the question of [the audit study](audit-results.md)."""


@dataclass(frozen=True)
class Page:
    """One page: where it is, and what it is written from."""

    path: Path
    results: Path
    found: Mapping[str, AnyResult]
    spreads: Spreads
    notes: Mapping[str, str]

    def figure(self, name: str, alt: str) -> str:
        """Show a figure that is there."""
        there = (self.results / f"{name}.svg").exists()
        return f"![{alt}]({self._link(f'{name}.svg')})" if there else ""

    def numbers(self, name: str) -> str:
        """Link the JSON of an experiment."""
        return f"[{name}]({self._link(f'{name}.json')})"

    def note(self, name: str) -> str:
        """Give the paragraphs of a name."""
        return self.notes.get(name, "")

    def _link(self, name: str) -> str:
        return Path(os.path.relpath(self.results / name, self.path.parent)).as_posix()


def write_pages(page: Path, results: Path, found: Mapping[str, AnyResult]) -> list[Path]:
    """Write the summary, and in a folder of its name the other pages."""
    notes, spreads, folder = read_notes(results / NOTES), Spreads(found.values()), page.with_suffix("")
    parts = {
        page: _summary,
        **{folder / f"{name}.md": _table_page for name in TABLES if name in found},
        **({folder / "sweeps.md": _sweeps_page} if found.keys() & set(SWEEP_IDS) else {}),
        **({folder / "open-row.md": _open_page} if found.keys() & set(OPEN_IDS) else {}),
    }
    for path, write in parts.items():
        written = write(Page(path, results, found, spreads, notes))
        write_bytes(path, ("\n\n".join(part.strip() for part in written if part.strip()) + "\n").encode())
    return list(parts)


def read_notes(path: Path) -> dict[str, str]:
    """Read paragraphs, each under the name that it belongs to.

    >>> read_notes(Path("no/such/file"))
    {}
    """
    if not path.exists():
        return {}
    parts = re.split(r"^## +(\S+) *$", path.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}


def _summary(page: Page) -> list[str]:
    folder = page.path.stem
    return [
        _TOP,
        _headline(page, folder),
        page.note("conclusion"),
        page.figure("differences", _differences_alt(page)),
        "Measured minus published values. Grey bars: the range in which a published value counts as met."
        if (page.results / "differences.svg").exists()
        else "",
        "## The open row" if page.note("open-row") else "",
        page.note("open-row"),
        page.figure("readings", "Every reading of the published row as a path through training and test accuracy"),
        f"[All readings and settings that were tried]({folder}/open-row.md)." if _has(page, OPEN_IDS) else "",
        _claims_matrix(page),
        _budgets(page),
        _everything(page, folder),
        _missing(page),
        _METHOD,
    ]


def _has(page: Page, ids: Iterable[str]) -> bool:
    return any(name in page.found for name in ids)


def _trained(page: Page, name: str) -> Trained | None:
    result = page.found.get(name)
    return result if isinstance(result, Trained) else None


def _headline(page: Page, folder: str) -> str:
    """Say per table whether its headline holds, with the noisy row next to the published one."""
    lines = [
        "## Does the headline hold?",
        "",
        "The headline: noise brings the attack's AUC near 0.5. Test accuracy is higher than with DP-SGD and, except "
        "on MNIST, than without noise. It holds where these claims are supported and the published row is met. "
        "Published values are in brackets.",
        "",
        "| data | as published | test accuracy | AUC | with decay 5e-4, no input noise |",
        "|---|---|---|---|---|",
    ]
    for name in TABLES:
        result = _trained(page, name)
        noisy = [row for row in result.shown if row.strategy in ("additive", "multiplicative")] if result else []
        if result is None or not noisy:
            continue
        row, strategy = noisy[0], " (II)" if name.endswith("multiplicative") else ""
        claims = [found for found in judge_claims(result, page.spreads) if found.claim.topic in HEADLINE]
        cells = (
            f"[{DATA_TITLES[row.data]}{strategy}]({folder}/{name}.md)",
            _holds([judge_row(row, result, page.spreads), *(found.verdict for found in claims)]),
            _beside(row, "test_accuracy"),
            _beside(row, "auc"),
            "–" if strategy else _decayed(page, row.data),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 6 else ""


def _holds(verdicts: Sequence[Verdict]) -> str:
    """Sum up the verdicts of a headline.

    >>> _holds([Verdict("supported", 1), Verdict("inconclusive", 1, reduced=True)])
    '**undecided** (1 seed, reduced)'
    >>> _holds([Verdict("supported", 3), Verdict("contradicted", 3)])
    '**no** (3 seeds)'
    """
    decided = [verdict for verdict in verdicts if verdict.word in DECIDED]
    if not decided:
        return "not measured"
    words = {verdict.word for verdict in verdicts}
    answer = "no" if "contradicted" in words else "yes" if words == {"supported"} else "undecided"
    least = Verdict("supported", min(v.seeds for v in decided), any(v.reduced for v in decided))
    return f"**{answer}** {str(least).removeprefix('supported ')}"


def _decayed(page: Page, data: str) -> str:
    result = _trained(page, DECAYED)
    rows = [row for row in result.shown if row.data == data and row.gamma and row.seeds] if result else []
    if result is None or not rows:
        return "not trained yet"
    verdict = judge_row(rows[0], result, page.spreads)
    return f"{_value(rows[0], 'test_accuracy')}, AUC {_value(rows[0], 'auc')}: published row {verdict}"


def _differences_alt(page: Page) -> str:
    rows = [
        judge_row(row, result, page.spreads).word
        for name in TABLES
        if (result := _trained(page, name)) is not None
        for row in result.shown
        if row.paper is not None
    ]
    counts = ", ".join(f"{rows.count(word)} {word}" for word in DECIDED)
    return f"Measured minus published AUC and test accuracy. Of {len(rows)} table rows: {counts}."


def _claims_matrix(page: Page) -> str:
    """Give the claims of the tables by data set."""
    tables = [(name, result) for name in TABLES if (result := _trained(page, name)) is not None and result.rows]
    if not tables:
        return ""
    heads = [f"{DATA_TITLES[r.rows[0].data]}{' (II)' if n.endswith('multiplicative') else ''}" for n, r in tables]
    judged = {name: judge_claims(result, page.spreads) for name, result in tables}
    lines = ["## Claims", "", f"| claim | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for topic in TOPICS:
        cells = []
        for name, _ in tables:
            found = next((each for each in judged[name] if each.claim.topic == topic), None)
            cells.append("–" if found is None else _with_mark(found.verdict))
        lines.append(f"| {topic} | {' | '.join(cells)} |")
    every = [
        found
        for name in page.found
        if (r := _trained(page, name)) is not None
        for found in judge_claims(r, page.spreads)
    ]
    seeds = sorted({f.verdict.seeds for f in every if f.verdict.word in DECIDED})
    lines += [
        "",
        f"● full length, ○ reduced. {sum(f.verdict.word in DECIDED for f in every)} claims were tested in all, with "
        f"{' or '.join(map(str, seeds)) or 'no'} seed{'' if seeds == [1] else 's'} each. Chance alone would decide "
        f"about {expected_by_chance(every):.1f} of them.",
    ]
    return "\n".join(lines)


def _with_mark(verdict: Verdict) -> str:
    return f"{'○' if verdict.reduced else '●'} {verdict.word}" if verdict.word in DECIDED else verdict.word


def _budgets(page: Page) -> str:
    result = page.found.get("budgets")
    if not isinstance(result, Budgets):
        return ""
    lines = [
        "## Published budgets",
        "",
        "| training | published epsilon | the formula gives | lower bound by the paper's attack, paired records |",
        "|---|---|---|---|",
    ]
    for row in result.rows:
        lower = row.paper_attack
        shown = "–" if lower is None else "refused" if lower.refusal else f"{lower.epsilon:.3g} (preset {row.preset})"
        lines.append(f"| {row.data.upper()}, {row.name} | {row.printed:.4g} | {row.epsilon:.4g} | {shown} |")
    return "\n".join([*lines, "", page.note("budgets"), "", f"Numbers and assumptions: {page.numbers('budgets')}."])


def _everything(page: Page, folder: str) -> str:
    lines = ["## Every table and figure", "", "| in the paper | result | numbers |", "|---|---|---|"]
    for experiment in EXPERIMENTS:
        result = page.found.get(experiment.id)
        if result is not None:
            lines.append(f"| {experiment.place} | {_outcome(page, result)} | {page.numbers(experiment.id)} |")
    return "\n".join([*lines, "", f"The sweeps share [one page]({folder}/sweeps.md)."]) if len(lines) > 4 else ""


def _outcome(page: Page, result: AnyResult) -> str:
    """Sum up an experiment in one line."""
    if all(made.preset == "quick" for made in result.made):
        return "smoke test, not compared"
    if isinstance(result, Computed):
        return result.verdict.split(":")[0]
    if result.id in OPEN_IDS[2:]:
        return "settings of ours for the open row"
    if isinstance(result, Trained) and result.kind == "roc":
        return "the rows of the sweeps; the paper publishes no numbers"
    if isinstance(result, Budgets):
        return f"{sum(row.verdict == 'supported' for row in result.rows)} of {len(result.rows)} budgets follow"
    rows = [judge_row(row, result, page.spreads).word for row in result.shown if row.paper is not None and row.seeds]
    claims = [found.verdict.word for found in judge_claims(result, page.spreads)]
    parts = []
    for name, words in (("rows", rows), ("claims", claims)):
        counts = ", ".join(f"{words.count(word)} {word}" for word in DECIDED if word in words)
        parts += [f"{name}: {counts}"] if counts else []
    reduced = all(bool(result.data_of(row).reduced) for row in result.shown)
    return ("; ".join(parts) or "the paper publishes no numbers") + (" (reduced)" if reduced else "")


def _missing(page: Page) -> str:
    """List what is not measured at full length, with the core-hours that it takes."""
    lines = missing(page.found, TABLES)
    if not lines:
        return ""
    total = sum(line.core_seconds for line in lines) / 3600
    head = (
        f"## What is missing\n\nAbout {total:.0f} core-hours, by times measured on two cores without a GPU. "
        "Shadow models are included.\n\n| not measured at full length | trainings | core-hours |\n|---|---|---|\n"
    )
    return head + "\n".join(f"| {line.what} | {line.trainings} | {line.core_seconds / 3600:.1f} |" for line in lines)


def _table_page(page: Page) -> list[str]:
    name = page.path.stem
    experiment, result = BY_ID[name], page.found[name]
    assert isinstance(result, Trained)
    return [
        f"# {DATA_TITLES[experiment.cells[0].data]}: {experiment.place}",
        page.note(name),
        _rows(result, result.shown, page.spreads),
        _claims(judge_claims(result, page.spreads)),
        _harder_attacks(result),
        _fold("Notes", (*experiment.notes, *_memorised(result), *_rates(result))),
        _fold("Not measured", _whys(result)),
        _fold("How it was made", _provenance(result.made)),
        f"Numbers: {page.numbers(name)}. [Summary](../{page.path.parent.name}.md).",
    ]


def _rows(result: Trained, rows: Sequence[Row], spreads: Spreads) -> str:
    """Compare rows with the published ones; the numbers that decided follow the table."""
    lines = ["| model | published row | AUC | train | test | trained |", "|---|---|---|---|---|---|"]
    details = []
    for row in rows:
        verdict = judge_row(row, result, spreads) if row.paper is not None else None
        if verdict is not None and verdict.detail:
            details.append(f"{_named(row, rows)}: {verdict.detail}.")
        word = "ours" if verdict is None else verdict.word
        cells = [
            _named(row, rows),
            word,
            *(_beside(row, name) for name in ("auc", "train_accuracy", "test_accuracy")),
        ]
        lines.append(f"| {' | '.join((*cells, _length(row)))} |")
    return "\n".join(lines) + ("\n\n" + _fold("What decided", details) if details else "")


def _length(row: Row) -> str:
    seeds = f"{len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"
    return f"{row.epochs} epochs, {seeds}" if row.epochs else f"preset {row.preset}, {seeds}"


def _named(row: Row, among: Sequence[Row]) -> str:
    several = len({row.data for row in among}) > 1
    return f"{DATA_TITLES[row.data]}, {row.name}" if several else row.name


def _claims(claims: Sequence[ClaimFound]) -> str:
    if not claims:
        return ""
    lines = ["| claim | verdict | difference, as claimed | |", "|---|---|---|---|"]
    for found in claims:
        shown = "–" if found.difference is None else f"{found.difference:+.3f}"
        if found.reach is not None:
            shown += f" ± {found.reach:.3f}"
        lines.append(f"| {found.claim.text} | {found.verdict} | {shown} | {found.verdict.detail} |")
    return "\n".join(lines)


def _harder_attacks(result: Trained) -> str:
    """Show attacks that the paper did not make, which may be of shorter trainings."""
    rows = result.attacked
    if not rows:
        return ""
    lines = ["| model | trained | AUC, paper's attack | adaptive | strongest of the audit |", "|---|---|---|---|---|"]
    for row in rows:
        audit = row.audit
        strongest = "–" if audit is None else (
            f"{audit.auc:.3f} [{audit.auc_interval[0]:.3f}, {audit.auc_interval[1]:.3f}] ({audit.strongest}, "
            f"{audit.shadows or 'no'} shadow models)"
        )  # fmt: skip
        cells = (_named(row, rows), _length(row), *(_value(row, name) for name in ("auc", "adaptive_auc")), strongest)
        lines.append(f"| {' | '.join(cells)} |")
    return (
        "## Attacks not in the paper\n\nEach line is about one training, which may be shorter than those above. The "
        "audit uses the first seed.\n\n" + "\n".join(lines)
    )


def _sweeps_page(page: Page) -> list[str]:
    parts = [
        "# Sweeps over gamma",
        page.note("sweeps"),
        page.figure("sweeps", "AUC and test accuracy over gamma for three data sets and two strategies"),
    ]
    for name in SWEEP_IDS:
        result = _trained(page, name)
        claims = judge_claims(result, page.spreads) if result is not None else ()
        if result is not None and claims:
            parts += [f"## {BY_ID[name].place}: {BY_ID[name].title}", _claims(claims)]
    theorem = _trained(page, "generalisation")
    if theorem is not None and theorem.theorem is not None:
        parts += ["## Theorem 3", page.note("generalisation"), _theorem(theorem)]
    made = {line for name in SWEEP_IDS if name in page.found for line in _provenance(page.found[name].made)}
    parts += [_fold("How they were made", sorted(made))]
    listed = ", ".join(page.numbers(name) for name in SWEEP_IDS if name in page.found)
    return [*parts, f"Numbers: {listed}. [Summary](../{page.path.parent.name}.md)."]


def _theorem(result: Trained) -> str:
    theorem = result.theorem
    assert theorem is not None
    lines = ["| gamma | R(G)/R(F) | predicted gap | measured gap |", "|---|---|---|---|"]
    predicted, measured = theorem.predicted_gap or {}, {f"{row.gamma:g}": row.measured.gap for row in result.shown}
    for gamma, ratio in theorem.ratios.items():
        lines.append(f"| {gamma} | {ratio:.3f} | {_number(predicted.get(gamma))} | {_spread(measured.get(gamma))} |")
    return "\n".join(lines)


def _open_page(page: Page) -> list[str]:
    parts = ["# The open row: CIFAR10 at gamma 4.5", page.note("open-row"), page.note("readings")]
    readings = page.found.get("readings")
    if isinstance(readings, Computed) and (found := watched(readings)):
        parts += [
            "## Trajectories",
            page.figure("readings", "Every reading as a path through training and test accuracy"),
            readings_table(found, page.spreads, readings.made[-1].data),
        ]
    decayed = _trained(page, DECAYED)
    if decayed is not None:
        parts += ["## Decay 5e-4, no input noise", _rows(decayed, decayed.shown, page.spreads), _answers(decayed)]
        parts += [_claims(judge_claims(decayed, page.spreads)), _harder_attacks(decayed)]
    parts += [_precision(page)]
    for name in OPEN_IDS[2:]:
        result = _trained(page, name)
        if result is not None:
            parts += [f"## {BY_ID[name].title}", page.note(name), _settings(result)]
            parts += [_fold("Notes", BY_ID[name].notes), _fold("How it was made", _provenance(result.made))]
    listed = ", ".join(page.numbers(name) for name in OPEN_IDS if name in page.found)
    return [*parts, f"Numbers: {listed}. [Summary](../{page.path.parent.name}.md)."]


def _precision(page: Page) -> str:
    """Compare rows that were trained in bfloat16 with the same rows in 32 bits."""
    lines = []
    for result in (each for each in page.found.values() if isinstance(each, Trained)):
        for row in result.rows:
            key = row.key.removesuffix(f"-{BFLOAT16}")
            same = [other for other in result.rows if (other.key, other.preset) == (key, row.preset)]
            if key == row.key or not same or row.preset == "quick":
                continue
            cells = [_named(same[0], same), _length(row)]
            for metric in ("train_accuracy", "test_accuracy"):
                ours, theirs = row.measured.of(metric), same[0].measured.of(metric)
                assert ours is not None
                assert theirs is not None
                reach = page.spreads.reach(metric, theirs.mean, result.data_of(row), row.strategy)
                seen = "unknown" if reach is None else f"{reach:.3f}"
                cells.append(f"{theirs.mean:.3f} / {ours.mean:.3f} (± {seen})")
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return ""
    return (
        "## bfloat16 against 32 bits\n\nForward passes of the readings are in bfloat16, and their noise in 32 bits. "
        "Two rows were trained both ways, once each. A difference above the number in brackets would be seen.\n\n"
        "| row | trained | train, 32 bits / bfloat16 | test, 32 bits / bfloat16 |\n|---|---|---|---|\n"
        + "\n".join(lines)
    )


def _settings(result: Trained) -> str:
    """List rows without a verdict: settings of ours."""
    rows = result.shown
    lines = ["| model | AUC | train | test | trained |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [_value(row, name) for name in ("auc", "train_accuracy", "test_accuracy")]
        lines.append(f"| {' | '.join((_named(row, rows), *cells, _length(row)))} |")
    return "<details markdown><summary>The rows</summary>\n\n" + "\n".join(lines) + "\n\n</details>"


def _answers(result: Trained) -> str:
    """Compare accuracies of one draw, of averaged draws, and without noise."""
    rows = [row for row in result.shown if row.gamma and row.measured.averaged_test_accuracy is not None]
    if not rows:
        return ""
    lines = ["| model | test, one draw | 16 draws averaged | noise off |", "|---|---|---|---|"]
    for row in rows:
        cells = [_value(row, f"{way}test_accuracy") for way in ("", "averaged_", "noiseless_")]
        lines.append(f"| {_named(row, rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _memorised(result: Trained) -> list[str]:
    return [
        f"{row.name}, preset {row.preset}: training accuracy 1.000 after {row.memorised_after} epochs."
        for row in result.shown
        if row.memorised_after is not None
    ]


def _rates(result: Trained) -> list[str]:
    slower = [
        f"{row.name}: {', '.join(f'{rate:g}' for rate in row.attack_learning_rates)}"
        for row in result.shown
        if row.attack_units == "relu" and any(rate != 0.1 for rate in row.attack_learning_rates)
    ]
    if not slower:
        return []
    return [
        "The attack network of these rows had ReLU units. At the published rate of 0.1 all of them died, so smaller "
        f"rates were used: {'; '.join(slower)}. The authors' released code has tanh units or none, which train at "
        "that rate; later rows use tanh."
    ]


def _whys(result: Trained) -> list[str]:
    return sorted(
        {
            f"{row.name}: {why}"
            for row in result.shown
            for why in (*row.why, *([row.audit_why] if row.audit_why else []))
        }
    )


def _provenance(made: Sequence[Made]) -> list[str]:
    lines = []
    for one in made:
        parts = [f"Preset {one.preset}"]
        for data in one.data:
            groups = f", {data.groups} patients kept apart" if data.groups else ""
            parts.append(
                f"{data.shown} (fingerprint {data.fingerprint}): {data.training_images:,} training images, "
                f"{data.a_quarter:,} per quarter, {data.test_images:,} test images{groups}; "
                f"{data.reduced or 'the settings of the paper as we read them'}"
            )
        if one.trainings:
            parts.append(f"{one.trainings} trainings of {one.seconds / 3600:.2f} hours in all")
        used = one.environment
        parts.append(
            f"resperturb {used['resperturb']}, torch {used['torch']}, Python {used['python']}, {used['machine']}, "
            f"{used['made'][:10]}"
        )
        lines.append(". ".join(parts) + ".")
    return lines


def _fold(title: str, items: Sequence[str]) -> str:
    """Write a list that opens on demand, in HTML, which every Markdown reader shows."""
    listed = "".join(f"<li>{_html(item)}</li>" for item in items)
    return f"<details><summary>{title}</summary><ul>{listed}</ul></details>" if items else ""


def _html(text: str) -> str:
    """Write the emphasis and code of a sentence in HTML.

    >>> _html("*Averaged* by `paper` <b>")
    '<em>Averaged</em> by <code>paper</code> &lt;b&gt;'
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text)


def _beside(row: Row, metric: str) -> str:
    printed = getattr(row.paper, metric, None)
    return _value(row, metric) + ("" if printed is None else f" ({printed:.3f})")


def _value(row: Row, metric: str) -> str:
    return _spread(row.measured.of(metric))


def _spread(found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{found.mean:.3f} ± {found.error:.3f}" if len(found.values) > 1 else f"{found.mean:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
