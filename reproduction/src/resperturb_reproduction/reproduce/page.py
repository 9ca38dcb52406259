"""The pages of the reproduction, written from the results and the paragraphs in ``notes.md`` of their folder.

A summary, a page for each table, one for all sweeps, one for the open row.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, cast

from resperturb.files import write_bytes
from resperturb_reproduction.reproduce.declarations import (
    BFLOAT16,
    BY_ID,
    COMPARED,
    DATA_TITLES,
    EXPERIMENTS,
    TABLES,
    TOPICS,
    Topic,
)
from resperturb_reproduction.reproduce.readings import Look, Watched, judge, watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Made, Row, Spread, Trained, trained
from resperturb_reproduction.reproduce.status import missing
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

SWEEP_IDS = (
    *(e.id for e in EXPERIMENTS if e.kind in ("sweep", "ensemble", "roc")),
    "cifar10-no-skip",
    "generalisation",
)
SETTINGS = ("cifar10-hypotheses", "gamma-times-dt", "gamma-curve", "cifar10-tried")
OPEN_IDS = ("readings", "weight-decay", *SETTINGS)
# What the paper claims first: less leakage, and higher test accuracy than DP-SGD and than no noise.
HEADLINE: tuple[Topic, ...] = ("lower AUC", "beats DP-SGD", "beats non-private")
METRICS = ("auc", "train_accuracy", "test_accuracy")

_TOP = """# Reproduction of the paper

This page compares "Deep Learning with Data Privacy via Residual Perturbation" (arXiv:2408.05723) with our
measurements. `resperturb reproduce report` writes it from the JSON files in `results/`.

## Does the headline hold?

The headline: noise brings the attack's AUC near 0.5. Test accuracy is higher than with DP-SGD and, except on MNIST,
than without noise. It holds where these claims are supported and the published row is met. Published values are in
brackets."""

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
than other regularisers at equal accuracy is the question of [the frontier study](frontier.md)."""


@dataclass(frozen=True)
class Page:
    """One page: its place, and what it is written from."""

    path: Path
    results: Path
    found: Mapping[str, AnyResult]
    spreads: Spreads
    notes: Mapping[str, str]

    def figure(self, name: str, alt: str) -> str:
        """Show a figure that is there."""
        there = (self.results / f"{name}.svg").exists()
        return f"![{alt}]({self._link(f'{name}.svg')})" if there else ""

    def numbers(self, names: Iterable[str]) -> str:
        """Link the JSON files of experiments, and the summary."""
        links = ", ".join(f"[{name}]({self._link(f'{name}.json')})" for name in names if name in self.found)
        return f"Numbers: {links}. [Summary](../{self.path.parent.name}.md)."

    def trained(self, name: str) -> Trained | None:
        """Find a result whose rows are trained."""
        result = self.found.get(name)
        return result if isinstance(result, Trained) else None

    def note(self, name: str) -> str:
        """Find the paragraphs of a name."""
        return self.notes.get(name, "")

    def _link(self, name: str) -> str:
        return Path(os.path.relpath(self.results / name, self.path.parent)).as_posix()


def write_pages(page: Path, results: Path, found: Mapping[str, AnyResult]) -> list[Path]:
    """Write the summary, and in a folder of its name the other pages."""
    notes, spreads, folder = read_notes(results / "notes.md"), Spreads(found.values()), page.with_suffix("")
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
    differences = page.figure("differences", _differences_alt(page))
    return [
        _TOP,
        _headline(page),
        differences,
        _differences_caption(page) if differences else "",
        page.note("conclusion"),
        "## The open row" if page.note("open-row") else "",
        page.note("open-row"),
        page.figure("readings", _readings_alt(page)),
        f"[All readings and settings that were tried]({page.path.stem}/open-row.md)."
        if page.found.keys() & set(OPEN_IDS)
        else "",
        _METHOD,
        *_claims_matrix(page),
        *_budgets(page),
        *_everything(page),
        *_missing(page),
    ]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; nothing without rows.

    >>> print(_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


def _headline(page: Page) -> str:
    """Say per table whether its headline holds, with the noisy row next to the published one."""
    rows = []
    for name in TABLES:
        result = page.trained(name)
        noisy = [row for row in result.shown if row.gamma] if result else []
        if result is None or not noisy:
            continue
        claims = [found for found in judge_claims(result, page.spreads) if found.claim.topic in HEADLINE]
        verdicts = [judge_row(noisy[0], result, page.spreads), *(found.verdict for found in claims)]
        strategy = _strategy(name)
        rows.append(
            (
                f"[{DATA_TITLES[noisy[0].data]}{strategy}]({page.path.stem}/{name}.md)",
                _holds(verdicts),
                beside(noisy[0], "test_accuracy"),
                beside(noisy[0], "auc"),
                "–" if strategy else _decayed(page, noisy[0].data),
            )
        )
    return _table(("data", "as published", "test accuracy", "AUC", "with decay 5e-4, no input noise"), rows)


def _strategy(name: str) -> str:
    return " (II)" if name.endswith("multiplicative") else ""


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
    result = page.trained("weight-decay")
    rows = [row for row in result.shown if row.data == data and row.gamma and row.seeds] if result else []
    if result is not None and rows:
        verdict = judge_row(rows[0], result, page.spreads)
        return f"{_value(rows[0], 'test_accuracy')}, AUC {_value(rows[0], 'auc')}: published row {verdict}"
    names = {cell.name for cell in BY_ID["weight-decay"].cells if cell.data == data and cell.gamma}
    for one, verdict in _readings(page):
        if one.finished and one.data == data and one.name in names:
            look = one.looks[-1]
            return f"{look.test_accuracy:.3f}, AUC of a threshold {look.auc:.3f}: published row {verdict}"
    return "not trained yet"


def _differences_alt(page: Page) -> str:
    rows = [
        judge_row(row, result, page.spreads).word
        for name in TABLES
        if (result := page.trained(name)) is not None
        for row in result.shown
        if row.paper is not None
    ]
    return f"Measured minus published AUC and test accuracy. Of {len(rows)} table rows: {_counts(rows)}."


def _differences_caption(page: Page) -> str:
    shown = [row for name in COMPARED if (result := page.trained(name)) is not None for row in result.shown]
    diamonds = (
        " Diamonds: the strongest attack of the audit on the same training." if any(r.audit for r in shown) else ""
    )
    return (
        f"Measured minus published values. Grey bars: the range in which a published value counts as met.{diamonds}"
    )


def _readings(page: Page) -> list[tuple[Watched, Verdict]]:
    """Judge each reading by its last look."""
    result = page.found.get("readings")
    if not isinstance(result, Computed):
        return []
    used = {data.name: data for data in result.made[-1].data}
    return [(one, judge(one, page.spreads, used[one.data])) for one in watched(result)]


def _readings_alt(page: Page) -> str:
    ended = [(one, verdict.word) for one, verdict in _readings(page) if one.finished]
    ends = [
        f"{one.name.split('ResNet8, ', 1)[-1]} on {DATA_TITLES[one.data]} ends at training accuracy "
        f"{one.looks[-1].train_accuracy:.3f} and test accuracy {one.looks[-1].test_accuracy:.3f}"
        for one, _ in ended
    ]
    if len(ends) > 2:
        ends = [f"{len(ended)} finished readings of published rows: {_counts([word for _, word in ended])}"]
    return f"Paths of training and test accuracy. {'; '.join(ends) or 'No reading is finished'}."


def _counts(words: Sequence[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in DECIDED if word in words)


def _claims_matrix(page: Page) -> list[str]:
    """Give the claims of the tables by data set, and count all that were tested."""
    tables = {name: result for name in TABLES if (result := page.trained(name)) is not None and result.rows}
    if not tables:
        return []
    judged = {name: judge_claims(result, page.spreads) for name, result in tables.items()}
    rows = []
    for topic in TOPICS:
        of_topic = [next((f for f in found if f.claim.topic == topic), None) for found in judged.values()]
        rows.append((topic, *("–" if found is None else _with_mark(found) for found in of_topic)))
    heads = [
        f"{DATA_TITLES[r.rows[0].data]}{' (II)' if n.endswith('multiplicative') else ''}" for n, r in tables.items()
    ]
    every = [found for result in trained(page.found.values()) for found in judge_claims(result, page.spreads)]
    seeds = sorted({f.verdict.seeds for f in every if f.verdict.word in DECIDED})
    legend = (
        "● full length, ○ reduced, † both rows differ from the published ones. In brackets: the smallest difference "
        f"that would have been seen. {sum(f.verdict.word in DECIDED for f in every)} claims were tested in all, with "
        f"{' or '.join(map(str, seeds)) or 'no'} seed{'' if seeds == [1] else 's'} each. Chance alone would decide "
        f"about {expected_by_chance(every):.1f} of them."
    )
    return ["## Claims", _table(("claim", *heads), rows), legend]


def _with_mark(found: ClaimFound) -> str:
    verdict = found.verdict
    if verdict.word not in DECIDED:
        return verdict.word
    seen = f" ({found.reach:.3f})" if verdict.word == "inconclusive" and found.reach is not None else ""
    return f"{'○' if verdict.reduced else '●'} {verdict.word}{seen}{' †' if found.both_differ else ''}"


def _budgets(page: Page) -> list[str]:
    result = page.found.get("budgets")
    if not isinstance(result, Computed):
        return []
    rows = [
        (f"{DATA_TITLES[row['data']]}, {row['name']}", f"{row['published']:,g}", f"{row['epsilon']:,.2f}")
        for row in cast(list[dict[str, Any]], result.numbers["rows"])
    ]
    table = _table(("training", "published epsilon", "the formula gives"), rows)
    return ["## Published budgets", table, page.note("budgets")]


def _everything(page: Page) -> list[str]:
    rows = [
        (experiment.place, _outcome(page, result), f"[{experiment.id}]({page._link(f'{experiment.id}.json')})")
        for experiment in EXPERIMENTS
        if (result := page.found.get(experiment.id)) is not None
    ]
    sweeps = f"The sweeps share [one page]({page.path.stem}/sweeps.md)." if page.found.keys() & set(SWEEP_IDS) else ""
    return ["## Every table and figure", _table(("in the paper", "result", "numbers"), rows), sweeps]


def _outcome(page: Page, result: AnyResult) -> str:
    """Sum up an experiment in one line."""
    if all(made.preset == "quick" for made in result.made):
        return "smoke test, not compared"
    if isinstance(result, Computed):
        return result.verdict.split(":")[0]
    if result.id in SETTINGS:
        return "settings of ours for the open row"
    if result.kind == "roc":
        return "the rows of the sweeps; the paper publishes no numbers"
    rows = [judge_row(row, result, page.spreads).word for row in result.shown if row.paper is not None and row.seeds]
    claims = [found.verdict.word for found in judge_claims(result, page.spreads)]
    parts = [f"{name}: {_counts(words)}" for name, words in (("rows", rows), ("claims", claims)) if _counts(words)]
    reduced = all(bool(result.data_of(row).reduced) for row in result.shown)
    return ("; ".join(parts) or "the paper publishes no numbers") + (" (reduced)" if reduced else "")


def _missing(page: Page) -> list[str]:
    """List what is not measured at full length, with the core-hours that it takes."""
    lines = list(missing(page.found, TABLES))
    total = sum(seconds for _, _, seconds in lines) / 3600
    return [
        "## What is missing",
        f"About {total:.0f} core-hours, by times measured on two cores without a GPU. Shadow models are included.",
        _table(
            ("not measured at full length", "trainings", "core-hours"),
            [(what, str(trainings), f"{seconds / 3600:.1f}") for what, trainings, seconds in lines],
        ),
    ]


def _table_page(page: Page) -> list[str]:
    name = page.path.stem
    experiment, result = BY_ID[name], page.found[name]
    assert isinstance(result, Trained)
    return [
        f"# {DATA_TITLES[experiment.cells[0].data]}: {experiment.place}",
        page.note(name),
        _rows(result, page.spreads),
        _claims([result], page.spreads),
        *_harder_attacks(result),
        _fold("Notes", (*experiment.notes, *_rates(result))),
        _fold("Not measured", sorted({f"{row.name}: {why}" for row in result.shown for why in row.why})),
        _fold("How it was made", _provenance(result.made)),
        page.numbers([name]),
    ]


def _rows(result: Trained, spreads: Spreads) -> str:
    """Compare rows with the published ones; the numbers that decided follow the table."""
    lines, details = [], []
    for row in result.shown:
        verdict = judge_row(row, result, spreads) if row.paper is not None else None
        if verdict is not None and verdict.detail:
            details.append(f"{_named(row, result.shown)}: {verdict.detail}.")
        word = "ours" if verdict is None else verdict.word
        lines.append((_named(row, result.shown), word, *(beside(row, name) for name in METRICS), _length(row)))
    table = _table(("model", "published row", "AUC", "train", "test", "trained"), lines)
    return table + ("\n\n" + _fold("What decided", details) if details else "")


def _length(row: Row) -> str:
    seeds = f"{len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"
    return f"{row.epochs} epochs, {seeds}" if row.epochs else f"preset {row.preset}, {seeds}"


def _named(row: Row, among: Sequence[Row]) -> str:
    several = len({row.data for row in among}) > 1
    return f"{DATA_TITLES[row.data]}, {row.name}" if several else row.name


def _claims(results: Sequence[Trained], spreads: Spreads) -> str:
    """Give the verdict of each claim, and the smallest difference that would have been seen."""
    lines = [
        (
            f"{BY_ID[result.id].place}. {found.claim.text}" if len(results) > 1 else found.claim.text,
            f"{found.verdict}{'; both rows differ from the published ones' if found.both_differ else ''}",
            "–" if found.difference is None else f"{found.difference:+.3f}",
            "–" if found.reach is None else f"{found.reach:.3f}",
        )
        for result in results
        for found in judge_claims(result, spreads)
    ]
    return _table(("claim", "verdict", "difference, as claimed", "smallest seen"), lines)


def _harder_attacks(result: Trained) -> list[str]:
    """Show attacks that the paper did not make, which may be of shorter trainings."""
    lines = []
    for row in result.attacked:
        audit = row.audit
        strongest = "–" if audit is None else (
            f"{audit.auc:.3f} [{audit.auc_interval[0]:.3f}, {audit.auc_interval[1]:.3f}] ({audit.strongest}, "
            f"{audit.shadows or 'no'} shadow models)"
        )  # fmt: skip
        values = (_value(row, name) for name in ("auc", "adaptive_auc"))
        lines.append((_named(row, result.attacked), _length(row), *values, strongest))
    heads = ("model", "trained", "AUC, paper's attack", "adaptive", "strongest of the audit")
    about = "Each line is about one training, which may be shorter than those above. The audit uses the first seed."
    return ["## Attacks not in the paper", about, _table(heads, lines)] if lines else []


def _sweeps_page(page: Page) -> list[str]:
    sweeps = [result for name in SWEEP_IDS if (result := page.trained(name)) is not None]
    claims = _claims(sweeps, page.spreads)
    words = [found.verdict.word for result in sweeps for found in judge_claims(result, page.spreads)]
    theorem = page.trained("generalisation")
    return [
        "# Sweeps over gamma",
        page.note("sweeps"),
        page.figure("sweeps", f"AUC and test accuracy over gamma. Claims about them: {_counts(words)}."),
        "## Claims" if claims else "",
        claims,
        *([] if theorem is None else ["## Theorem 3", page.note("generalisation"), _theorem(theorem)]),
        _fold("What the figures show", [f"{BY_ID[result.id].place}: {BY_ID[result.id].title}" for result in sweeps]),
        _fold("How they were made", sorted({line for result in sweeps for line in _provenance(result.made)})),
        page.numbers(SWEEP_IDS),
    ]


def _theorem(result: Trained) -> str:
    if result.theorem is None:
        return ""
    predicted = {gamma: f"{gap:.3f}" for gamma, gap in (result.theorem.predicted_gap or {}).items()}
    measured = {f"{row.gamma:g}": row.of("gap") for row in result.shown}
    rows = [
        (
            gamma,
            f"{ratio:.3f}",
            predicted.get(gamma, "–"),
            _spread(measured.get(gamma)),
        )
        for gamma, ratio in result.theorem.ratios.items()
    ]
    return _table(("gamma", "R(G)/R(F)", "predicted gap", "measured gap"), rows)


def _open_page(page: Page) -> list[str]:
    parts = ["# The open row: CIFAR10 at gamma 4.5", page.note("open-row"), *_trajectories(page)]
    decayed = page.trained("weight-decay")
    if decayed is not None:
        parts += ["## Decay 5e-4, no input noise", _rows(decayed, page.spreads), _answers(decayed)]
        parts += [_claims([decayed], page.spreads), *_harder_attacks(decayed)]
    parts += _precision(page)
    for name in SETTINGS:
        result = page.trained(name)
        if result is not None:
            parts += [f"## {BY_ID[name].title}", page.note(name), _settings(result)]
            parts += [_fold("Notes", BY_ID[name].notes), _fold("How it was made", _provenance(result.made))]
    return [*parts, page.numbers(OPEN_IDS)]


def _trajectories(page: Page) -> list[str]:
    """Say where each reading ends, and where it comes nearest to its published row."""
    found = _readings(page)
    if not found:
        return []

    def numbers(look: Look) -> str:
        return f"{look.train_accuracy:.3f} / {look.test_accuracy:.3f} / {look.auc:.3f}"

    lines = [
        (
            f"{DATA_TITLES[one.data]}, {one.name.split('ResNet8, ', 1)[-1]}",
            verdict.word if one.finished else f"at epoch {one.looks[-1].epoch} of {one.epochs}",
            numbers(one.looks[-1]),
            "–" if one.end is None else f"{one.end.answers.averaged_test_accuracy:.3f}",
            f"{numbers(one.nearest)}, {one.nearest.epoch}",
        )
        for one, verdict in found
    ]
    heads = ("reading", "published row", "train / test / AUC", "16 draws", "nearest, epoch")
    figure = page.figure("readings", _readings_alt(page))
    return ["## Trajectories", page.note("readings"), figure, _table(heads, lines)]


def _precision(page: Page) -> list[str]:
    """Compare rows that were trained in bfloat16 with the same rows in 32 bits."""
    lines = []
    for result in trained(page.found.values()):
        rows = {(row.data, row.key, row.preset): row for row in result.rows if row.preset != "quick"}
        for (data, key, preset), row in rows.items():
            same = rows.get((data, key.removesuffix(f"-{BFLOAT16}"), preset))
            if same is None or same is row:
                continue
            cells = []
            for metric in METRICS[1:]:
                ours, theirs = row.of(metric), same.of(metric)
                assert ours is not None
                assert theirs is not None
                reach = page.spreads.reach(metric, theirs.mean, result.data_of(row), row.strategy)
                seen = "unknown" if reach is None else f"{reach:.3f}"
                cells.append(f"{theirs.mean:.3f} / {ours.mean:.3f} (± {seen})")
            lines.append((same.name, _length(row), *cells))
    about = (
        "Forward passes of the readings are in bfloat16, and their noise in 32 bits. These rows were trained both "
        "ways. A difference above the number in brackets would be seen."
    )
    heads = ("row", "trained", "train, 32 bits / bfloat16", "test, 32 bits / bfloat16")
    return ["## bfloat16 against 32 bits", about, _table(heads, lines)] if lines else []


def _settings(result: Trained) -> str:
    """List rows without a verdict: settings of ours."""
    rows = result.shown
    lines = [(_named(row, rows), *(_value(row, name) for name in METRICS), _length(row)) for row in rows]
    table = _table(("model", "AUC", "train", "test", "trained"), lines)
    return f"<details markdown><summary>The rows</summary>\n\n{table}\n\n</details>"


def _answers(result: Trained) -> str:
    """Compare accuracies of one draw, of averaged draws, and without noise."""
    rows = [row for row in result.shown if row.gamma and row.of("averaged_test_accuracy") is not None]
    ways = [f"{way}test_accuracy" for way in ("", "averaged_", "noiseless_")]
    lines = [(_named(row, result.shown), *(_value(row, way) for way in ways)) for row in rows]
    return _table(("model", "test, one draw", "16 draws averaged", "noise off"), lines)


def _rates(result: Trained) -> list[str]:
    slower = [
        f"{row.name}: {', '.join(f'{rate:g}' for rate in row.attack_learning_rates)}"
        for row in result.shown
        if row.attack_units == "relu" and any(rate != 0.1 for rate in row.attack_learning_rates)
    ]
    about = (
        "The attack network of these rows had ReLU units, which can all die at the published rate of 0.1. It learned "
        "at these rates: {}. The released code of the attack has tanh units or none, which train at that rate. Later "
        "rows use tanh."
    )
    return [about.format("; ".join(slower))] if slower else []


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


def beside(row: Row, metric: str) -> str:
    """Write a measured value, and the published one in brackets."""
    published = getattr(row.paper, metric, None)
    return _value(row, metric) + ("" if published is None else f" ({published:.3f})")


def _value(row: Row, metric: str) -> str:
    return _spread(row.of(metric))


def _spread(found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{found.mean:.3f} ± {found.error:.3f}" if len(found.values) > 1 else f"{found.mean:.3f}"
