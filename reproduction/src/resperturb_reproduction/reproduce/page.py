"""The pages of the reproduction: templates, filled with results and with the paragraphs of ``notes.md``.

There is a summary, a page for each table, one for all sweeps, and one for the open row.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, cast

import jinja2

from resperturb.files import write_bytes
from resperturb_reproduction.reproduce.declarations import (
    BFLOAT16,
    BY_ID,
    COMPARED,
    DATA_TITLES,
    EXPERIMENTS,
    TOPICS,
    PageName,
    Topic,
    on_page,
)
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.readings import Look, Watched, judge, watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Row, Trained
from resperturb_reproduction.reproduce.status import missing
from resperturb_reproduction.reproduce.verdicts import (
    DECIDED,
    TOLERANCE,
    WIDEST,
    ClaimFound,
    Spreads,
    Verdict,
    expected_by_chance,
    image_limit,
    judge_claims,
    judge_row,
)

# What the paper claims first: less leakage, and higher test accuracy than DP-SGD and than no noise.
HEADLINE: tuple[Topic, ...] = ("lower AUC", "beats DP-SGD", "beats non-private")
METRICS = ("auc", "train_accuracy", "test_accuracy")
Line = tuple[str, ...]


def write_pages(page: Path, results: Path, found: Mapping[str, AnyResult]) -> list[Path]:
    """Write the summary, and in a folder of its name the other pages."""
    folder = page.with_suffix("")
    notes, spreads = read_notes(results / "notes.md"), Spreads(found.values())
    templates = {
        page: "summary",
        **{folder / f"{name}.md": "table" for name in on_page("table") if name in found},
        **({folder / "sweeps.md": "sweeps"} if found.keys() & set(on_page("sweeps")) else {}),
        **({folder / "open-row.md": "open-row"} if found.keys() & set(on_page("open-row", "settings")) else {}),
    }
    for path, template in templates.items():
        text = _environment().get_template(f"{template}.md").render(page=Page(path, results, found, spreads, notes))
        write_bytes(path, (re.sub(r"\n{3,}", "\n\n", text).strip() + "\n").encode())
    return list(templates)


def read_notes(path: Path) -> dict[str, str]:
    """Read paragraphs, each under the name that it belongs to.

    >>> read_notes(Path("no/such/file"))
    {}
    """
    if not path.exists():
        return {}
    parts = re.split(r"^## +(\S+) *$", path.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb_reproduction.reproduce", "templates"),
        autoescape=False,  # it writes Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(table=_table, fold=_fold, ids=on_page, by_id=BY_ID, titles=DATA_TITLES)
    made.globals.update(tolerance=TOLERANCE, widest=WIDEST)
    return made


@dataclass(frozen=True)
class Page:
    """One page: its place, and everything that its template shows."""

    path: Path
    results: Path
    found: Mapping[str, AnyResult]
    spreads: Spreads
    notes: Mapping[str, str] = field(default_factory=dict)

    def drawn(self, name: str) -> bool:
        """Whether there is a figure."""
        return (self.results / f"{name}.svg").exists()

    def figure(self, name: str, alt: str) -> str:
        """Show a figure that is there."""
        return f"![{alt}]({self._link(f'{name}.svg')})" if self.drawn(name) else ""

    def numbers(self, names: Iterable[str]) -> str:
        """Link the JSON files of experiments, and the summary."""
        links = ", ".join(f"[{name}]({self._link(f'{name}.json')})" for name in names if name in self.found)
        return f"Numbers: {links}. [Summary](../{self.path.parent.name}.md)."

    def note(self, name: str) -> str:
        """Find the paragraphs of a name."""
        return self.notes.get(name, "")

    def has(self, *pages: PageName) -> bool:
        """Whether there is a result for one of these pages."""
        return bool(self.found.keys() & set(on_page(*pages)))

    def trained(self, names: Iterable[str]) -> list[Trained]:
        """Find the results whose rows are trained."""
        return [result for name in names if isinstance(result := self.found.get(name), Trained)]

    def names(self, results: Sequence[Trained]) -> list[str]:
        """Name the data set of each result."""
        return [BY_ID[result.id].data_title for result in results]

    def _link(self, name: str) -> str:
        return Path(os.path.relpath(self.results / name, self.path.parent)).as_posix()

    # The summary

    def headline(self) -> list[Line]:
        """Say per table whether its headline holds, with the noisy row next to the published one."""
        lines: list[Line] = []
        for result in self.trained(on_page("table")):
            experiment = BY_ID[result.id]
            noisy = next((row for row in result.shown if row.gamma), None)
            if noisy is None:
                continue
            claims = [found for found in judge_claims(result, self.spreads) if found.claim.topic in HEADLINE]
            verdicts = [judge_row(noisy, result, self.spreads), *(found.verdict for found in claims)]
            lines.append(
                (
                    f"[{experiment.data_title}]({self.path.stem}/{result.id}.md)",
                    _holds(verdicts),
                    beside(noisy, "test_accuracy"),
                    beside(noisy, "auc"),
                    "–" if noisy.strategy == "multiplicative" else self._decayed(noisy.data),
                )
            )
        return lines

    def _decayed(self, data: str) -> str:
        for result in self.trained(["weight-decay"]):
            for row in result.shown:
                if row.data == data and row.gamma and row.seeds:
                    verdict = judge_row(row, result, self.spreads)
                    return f"{_value(row, 'test_accuracy')}, AUC {_value(row, 'auc')}: published row {verdict}"
        names = {cell.name for cell in BY_ID["weight-decay"].cells if cell.data == data and cell.gamma}
        for one, verdict in self.readings():
            if one.finished and one.data == data and one.name in names:
                look = one.looks[-1]
                return f"{look.test_accuracy:.3f}, AUC of a threshold {look.auc:.3f}: published row {verdict}"
        return "not trained yet"

    def differences_alt(self) -> str:
        """Describe the figure of differences by its verdicts."""
        words = [
            judge_row(row, result, self.spreads).word
            for result in self.trained(on_page("table"))
            for row in result.shown
            if row.paper is not None
        ]
        return f"Measured minus published AUC and test accuracy. Of {len(words)} table rows: {_counts(words)}."

    def audited(self) -> bool:
        """Whether a row of the figure of differences has an audit."""
        return any(row.audit for result in self.trained(COMPARED) for row in result.shown)

    def claims_matrix(self, tables: Sequence[Trained]) -> list[Line]:
        """Give the claims of the tables by data set."""
        judged = [judge_claims(result, self.spreads) for result in tables]
        return [
            (topic, *(next((_with_mark(f) for f in found if f.claim.topic == topic), "–") for found in judged))
            for topic in TOPICS
        ]

    def chance(self) -> str:
        """Count the claims that were tested, and those that chance alone would decide."""
        every = [found for result in self.trained(self.found) for found in judge_claims(result, self.spreads)]
        tested = [found.verdict.seeds for found in every if found.verdict.word in DECIDED]
        seeds = " or ".join(map(str, sorted(set(tested)))) or "no"
        return (
            f"{len(tested)} claims were tested in all, with {seeds} seed{'' if seeds == '1' else 's'} each. "
            f"Chance alone would decide about {expected_by_chance(every):.1f} of them."
        )

    def budgets(self) -> list[Line]:
        """Give the published budgets, and what the formula gives."""
        rows = cast(list[dict[str, Any]], cast(Computed, self.found["budgets"]).numbers["rows"])
        return [
            (
                f"{DATA_TITLES[row['data']]}, {row['name']}",
                f"{row['published']:,g}",
                f"{row['epsilon']:,.{0 if row['epsilon'] > 100 else 2}f}",
            )
            for row in rows
        ]

    def everything(self) -> list[Line]:
        """Sum up every experiment in one line, with a link to its page, or else to its numbers."""
        files = {"table": "{}.md", "sweeps": "sweeps.md", "open-row": "open-row.md", "settings": "open-row.md"}
        lines: list[Line] = []
        for e in EXPERIMENTS:
            if (result := self.found.get(e.id)) is not None:
                shown = f"{self.path.stem}/{files[e.page].format(e.id)}" if e.page else self._link(f"{e.id}.json")
                lines.append((f"[{e.place}]({shown})", e.title, self._outcome(result)))
        return lines

    def _outcome(self, result: AnyResult) -> str:
        if all(made.preset == "quick" for made in result.made):
            return "smoke test, not compared"
        if isinstance(result, Computed):
            return result.verdict.split(":")[0]
        if BY_ID[result.id].page == "settings":
            return "settings of ours for the open row"
        if result.kind == "roc":
            return "the rows of the sweeps; the paper publishes no numbers"
        rows = [judge_row(row, result, self.spreads).word for row in result.shown if row.paper and row.seeds]
        counted = (("rows", _counts(rows)), ("claims", self.tally([result])))
        said = "; ".join(f"{name}: {counts}" for name, counts in counted if counts)
        said = said or "the paper publishes no numbers"
        used = [result.data_of(row) for row in result.shown]
        if used and all(image_limit(row, result) for row in result.shown):
            return f"{said} ({used[0].a_quarter:,} training images)"
        return said + (" (reduced)" if all(data.reduced for data in used) else "")

    def missing(self) -> list[Line]:
        """List what is not measured at full length."""
        return [(what, str(count), f"{seconds / 3600:.1f}") for what, count, seconds in missing(self.found)]

    def missing_hours(self) -> float:
        """Sum the core-hours of what is not measured at full length."""
        return sum(seconds for _, _, seconds in missing(self.found)) / 3600

    # Tables

    def rows(self, result: Trained) -> list[Line]:
        """Compare rows with the published ones."""
        return [
            (
                _named(row, result),
                judge_row(row, result, self.spreads).word if row.paper else "ours",
                *(beside(row, name) for name in METRICS),
                _length(row),
            )
            for row in result.shown
        ]

    def decided(self, result: Trained) -> list[str]:
        """List the numbers that decided the verdicts of rows."""
        verdicts = [(row, judge_row(row, result, self.spreads)) for row in result.shown if row.paper]
        return [f"{_named(row, result)}: {verdict.detail}." for row, verdict in verdicts if verdict.detail]

    def claims(self, results: Sequence[Trained]) -> list[Line]:
        """Give the verdict of each claim, and the smallest difference that would have been detected."""
        return [
            (
                f"{BY_ID[result.id].place}. {found.claim.text}" if len(results) > 1 else found.claim.text,
                f"{found.verdict}{'; both rows differ from the published ones' if found.both_differ else ''}",
                "–" if found.difference is None else f"{found.difference:+.3f}",
                "–" if found.reach is None else f"{found.reach:.3f}",
            )
            for result in results
            for found in judge_claims(result, self.spreads)
        ]

    def tally(self, results: Sequence[Trained]) -> str:
        """Count the verdicts of claims."""
        return _counts([f.verdict.word for result in results for f in judge_claims(result, self.spreads)])

    def harder_attacks(self, result: Trained) -> list[Line]:
        """Show attacks that the paper did not make, which may be of shorter trainings."""
        lines = []
        for row in result.attacked:
            strongest = "–"
            if (audit := row.audit) is not None:
                low, high = audit.auc_interval
                shadows = f"{audit.shadows or 'no'} shadow models"
                strongest = f"{audit.auc:.3f} [{low:.3f}, {high:.3f}] ({audit.strongest}, {shadows})"
            values = (_value(row, name) for name in ("auc", "adaptive_auc"))
            lines.append((_named(row, result), _length(row), *values, strongest))
        return lines

    def rates(self, result: Trained) -> tuple[str, ...]:
        """Name the rows whose attack network had other units or another rate than the paper's."""
        slower = [
            f"{row.name}: {', '.join(f'{rate:g}' for rate in row.attack_learning_rates)}"
            for row in result.shown
            if row.attack_units == "relu" and any(rate != 0.1 for rate in row.attack_learning_rates)
        ]
        about = (
            "The attack network of these rows had ReLU units, which can all die at the published rate of 0.1. It "
            f"learned at these rates: {'; '.join(slower)}. The released code of the attack has tanh units or none, "
            "which train at that rate. Later rows use tanh."
        )
        return (about,) if slower else ()

    def why(self, result: Trained) -> list[str]:
        """Say what could not be measured."""
        return sorted({f"{row.name}: {why}" for row in result.shown for why in row.why})

    def provenance(self, results: Sequence[Trained]) -> list[str]:
        """Say for each preset with which data, versions and trainings results were made."""
        lines = []
        for preset in PRESETS:
            every = [made for result in results for made in result.made if made.preset == preset]
            parts = [f"Preset {preset}"]
            for data in (data for made in every for data in made.data):
                groups = f", {data.groups} patients kept apart" if data.groups else ""
                parts.append(
                    f"{data.shown} (fingerprint {data.fingerprint}): {data.training_images:,} training images, "
                    f"{data.a_quarter:,} per quarter, {data.test_images:,} test images{groups}; "
                    f"{data.reduced or 'the settings of the paper as we read them'}"
                )
            if len(every) == 1 and every[0].trainings:
                parts.append(f"{every[0].trainings} trainings of {every[0].seconds / 3600:.2f} hours in all")
            parts += [
                f"resperturb {used['resperturb']}, torch {used['torch']}, Python {used['python']}, "
                f"{used['machine']}, {used['made'][:10]}"
                for used in (made.environment for made in every)
            ]
            lines += [". ".join(dict.fromkeys(parts)) + "."] if every else []
        return lines

    # Sweeps and the open row

    def theorem(self, result: Trained) -> list[Line]:
        """Compare the gap that Theorem 3's factor predicts with the measured one."""
        assert result.theorem is not None
        predicted = {gamma: f"{gap:.3f}" for gamma, gap in (result.theorem.predicted_gap or {}).items()}
        measured = {f"{row.gamma:g}": _value(row, "gap") for row in result.shown}
        return [
            (gamma, f"{ratio:.3f}", predicted.get(gamma, "–"), measured.get(gamma, "–"))
            for gamma, ratio in result.theorem.ratios.items()
        ]

    def readings(self) -> list[tuple[Watched, Verdict]]:
        """Judge each reading by its last look."""
        result = self.found.get("readings")
        if not isinstance(result, Computed):
            return []
        used = {data.name: data for data in result.made[-1].data}
        return [(one, judge(one, self.spreads, used[one.data])) for one in watched(result)]

    def readings_alt(self) -> str:
        """Describe the figure of readings by where they end."""
        ended = [(one, verdict.word) for one, verdict in self.readings() if one.finished]
        ends = "; ".join(
            f"{one.label} on {DATA_TITLES[one.data]} ends at training accuracy {one.looks[-1].train_accuracy:.3f} "
            f"and test accuracy {one.looks[-1].test_accuracy:.3f}"
            for one, _ in ended
        )
        if len(ended) > 2:
            ends = f"{len(ended)} finished readings of published rows: {_counts([word for _, word in ended])}"
        return f"Paths of training and test accuracy. {ends or 'No reading is finished'}."

    def trajectories(self) -> list[Line]:
        """Say where each reading ends, and where it comes nearest to its published row."""

        def numbers(look: Look) -> str:
            return f"{look.train_accuracy:.3f} / {look.test_accuracy:.3f} / {look.auc:.3f}"

        return [
            (
                f"{DATA_TITLES[one.data]}, {one.label}",
                verdict.word if one.finished else f"at epoch {one.looks[-1].epoch} of {one.epochs}",
                numbers(one.looks[-1]),
                "–" if one.end is None else f"{one.end.answers.averaged_test_accuracy:.3f}",
                f"{numbers(one.nearest)}, {one.nearest.epoch}",
            )
            for one, verdict in self.readings()
        ]

    def precision(self) -> list[Line]:
        """Compare rows that were trained in bfloat16 with the same rows in 32 bits."""
        lines = []
        for result in self.trained(self.found):
            rows = {(row.data, row.key, row.preset): row for row in result.rows if row.preset != "quick"}
            for (data, key, preset), row in rows.items():
                same = rows.get((data, key.removesuffix(f"-{BFLOAT16}"), preset), row)
                cells = []
                for metric in METRICS[1:] if same is not row else ():
                    mean = same.mean(metric)
                    reach = self.spreads.reach(metric, mean, result.data_of(row), row.strategy)
                    seen = "unknown" if reach is None else f"{reach:.3f}"
                    cells.append(f"{mean:.3f} / {row.mean(metric):.3f} (± {seen})")
                lines += [(same.name, _length(row), *cells)] if cells else []
        return lines

    def settings(self, result: Trained) -> list[Line]:
        """List rows without a verdict: settings of ours."""
        return [(_named(row, result), *(_value(row, name) for name in METRICS), _length(row)) for row in result.shown]

    def answers(self, result: Trained) -> list[Line]:
        """Compare accuracies of one draw, of averaged draws, and without noise."""
        rows = [row for row in result.shown if row.gamma and row.of("averaged_test_accuracy") is not None]
        ways = ("test_accuracy", "averaged_test_accuracy", "noiseless_test_accuracy")
        return [(_named(row, result), *(_value(row, way) for way in ways)) for row in rows]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; nothing without rows.

    >>> print(_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


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


def _with_mark(found: ClaimFound) -> str:
    verdict = found.verdict
    if verdict.word not in DECIDED:
        return verdict.word
    seen = f" ({found.reach:.3f})" if verdict.word == "inconclusive" and found.reach is not None else ""
    return f"{'○' if verdict.reduced else '●'} {verdict.word}{seen}{' †' if found.both_differ else ''}"


def _counts(words: Sequence[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in DECIDED if word in words)


def _length(row: Row) -> str:
    seeds = f"{len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"
    return f"{row.epochs} epochs, {seeds}" if row.epochs else f"preset {row.preset}, {seeds}"


def _named(row: Row, result: Trained) -> str:
    several = len(BY_ID[result.id].data) > 1
    return f"{DATA_TITLES[row.data]}, {row.name}" if several else row.name


def beside(row: Row, metric: str) -> str:
    """Write a measured value, and the published one in brackets."""
    published = getattr(row.paper, metric, None)
    return _value(row, metric) + ("" if published is None else f" ({published:.3f})")


def _value(row: Row, metric: str) -> str:
    found = row.of(metric)
    if found is None:
        return "–"
    return f"{found.mean:.3f} ± {found.error:.3f}" if len(found.values) > 1 else f"{found.mean:.3f}"
