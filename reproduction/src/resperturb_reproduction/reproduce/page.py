"""The pages of the reproduction: templates, filled with results and with the paragraphs of ``notes.md``.

There is a summary, a page for each table, one for all sweeps, and one for the open row.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import jinja2

from resperturb.files import write_bytes
from resperturb_reproduction.reproduce.declarations import (
    BFLOAT16,
    BY_ID,
    COMPARED,
    DATA_TITLES,
    EXPERIMENTS,
    TOPICS,
    Experiment,
    PageName,
    Topic,
    on_page,
)
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.readings import Watched, judge, watched
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
    made.filters["html"] = _html
    made.globals.update(by_id=BY_ID, experiments=EXPERIMENTS, ids=on_page, titles=DATA_TITLES, topics=TOPICS)
    made.globals.update(tolerance=TOLERANCE, widest=WIDEST)
    made.globals.update(beside=beside, length=_length, named=_named, value=_value)
    return made


@dataclass(frozen=True)
class Page:
    """One page: its place, and everything that its template shows."""

    path: Path
    results: Path
    found: Mapping[str, AnyResult]
    spreads: Spreads
    notes: Mapping[str, str]

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

    def place(self, experiment: Experiment) -> str:
        """Link the page of an experiment from the summary, or else its numbers."""
        if experiment.page is None:
            return self._link(f"{experiment.id}.json")
        names = {"table": experiment.id, "sweeps": "sweeps"}
        return f"{self.path.stem}/{names.get(experiment.page, 'open-row')}.md"

    def _link(self, name: str) -> str:
        return Path(os.path.relpath(self.results / name, self.path.parent)).as_posix()

    def judge(self, row: Row, result: Trained) -> Verdict:
        """Compare a row with the published one."""
        return judge_row(row, result, self.spreads)

    def claims(self, result: Trained) -> tuple[ClaimFound, ...]:
        """Judge the claims of an experiment."""
        return judge_claims(result, self.spreads)

    def tally(self, results: Sequence[Trained]) -> str:
        """Count the verdicts of claims."""
        return _counts([found.verdict.word for result in results for found in self.claims(result)])

    # The summary

    def headline(self) -> Iterator[tuple[Trained, Row, str]]:
        """Say for each table, by its first noisy row, whether its headline holds."""
        for result in self.trained(on_page("table")):
            noisy = next((row for row in result.shown if row.gamma), None)
            if noisy is not None:
                claims = [found.verdict for found in self.claims(result) if found.claim.topic in HEADLINE]
                yield result, noisy, _holds([self.judge(noisy, result), *claims])

    def decayed(self, data: str) -> str:
        """Say what the noisy row of a data set gives with decay 5e-4 and no input noise."""
        for result in self.trained(["weight-decay"]):
            for row in result.shown:
                if row.data == data and row.gamma and row.seeds:
                    verdict = self.judge(row, result)
                    return f"{_value(row, 'test_accuracy')}, AUC {_value(row, 'auc')}: published row {verdict}"
        names = {cell.name for cell in BY_ID["weight-decay"].cells if cell.data == data and cell.gamma}
        for one, verdict in self.readings():
            if one.finished and one.data == data and one.name in names:
                look = one.looks[-1]
                return f"{look.test_accuracy:.3f}, AUC of a threshold {look.auc:.3f}: published row {verdict}"
        return "not trained yet" if names else "–"

    def differences_alt(self) -> str:
        """Describe the figure of differences by its verdicts."""
        words = [
            self.judge(row, result).word
            for result in self.trained(on_page("table"))
            for row in result.shown
            if row.paper is not None
        ]
        return f"Measured minus published AUC and test accuracy. Of {len(words)} table rows: {_counts(words)}."

    def audited(self) -> bool:
        """Whether a row of the figure of differences has an audit."""
        return any(row.audit for result in self.trained(COMPARED) for row in result.shown)

    def marked(self, result: Trained, topic: Topic) -> str:
        """Give the verdict of a table's claim with its marks."""
        found = next((found for found in self.claims(result) if found.claim.topic == topic), None)
        if found is None:
            return "–"
        verdict = found.verdict
        if verdict.word not in DECIDED:
            return verdict.word
        seen = f" ({found.reach:.3f})" if verdict.word == "inconclusive" and found.reach is not None else ""
        return f"{'○' if verdict.reduced else '●'} {verdict.word}{seen}{' †' if found.both_differ else ''}"

    def chance(self) -> str:
        """Count the claims that were tested, and those that chance alone would decide."""
        every = [found for result in self.trained(self.found) for found in self.claims(result)]
        tested = [found.verdict.seeds for found in every if found.verdict.word in DECIDED]
        seeds = " or ".join(map(str, sorted(set(tested)))) or "no"
        return (
            f"{len(tested)} claims were tested in all, with {seeds} seed{'' if seeds == '1' else 's'} each. "
            f"Chance alone would decide about {expected_by_chance(every):.1f} of them."
        )

    def outcome(self, result: AnyResult) -> str:
        """Sum up an experiment in one line."""
        if all(made.preset == "quick" for made in result.made):
            return "smoke test, not compared"
        if isinstance(result, Computed):
            return result.verdict.split(":")[0]
        if BY_ID[result.id].page == "settings":
            return "settings of ours for the open row"
        if result.kind == "roc":
            return "the rows of the sweeps; the paper publishes no numbers"
        rows = [self.judge(row, result).word for row in result.shown if row.paper and row.seeds]
        counted = (("rows", _counts(rows)), ("claims", self.tally([result])))
        said = "; ".join(f"{name}: {counts}" for name, counts in counted if counts)
        said = said or "the paper publishes no numbers"
        used = [result.data_of(row) for row in result.shown]
        if used and all(image_limit(row, result) for row in result.shown):
            return f"{said} ({used[0].a_quarter:,} training images)"
        return said + (" (reduced)" if all(data.reduced for data in used) else "")

    def missing(self) -> list[tuple[str, int, float]]:
        """List what is not measured at full length."""
        return list(missing(self.found))

    # The other pages

    def decided(self, result: Trained) -> list[str]:
        """List the numbers that decided the verdicts of rows."""
        verdicts = [(row, self.judge(row, result)) for row in result.shown if row.paper]
        return [f"{_named(row, result)}: {verdict.detail}." for row, verdict in verdicts if verdict.detail]

    def shared_notes(self, results: Sequence[Trained]) -> list[str]:
        """List the notes of several experiments, each once with the places that it is about."""
        places: dict[str, list[str]] = {}
        for result in results:
            for note in BY_ID[result.id].notes:
                places.setdefault(note, []).append(BY_ID[result.id].place)
        return [f"{', '.join(those)}: {note}" for note, those in places.items()]

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
                    f"{data.reduced or 'nothing reduced'}"
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

    def precision(self) -> list[tuple[str, ...]]:
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
