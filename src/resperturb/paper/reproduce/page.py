"""The page of the reproduction: paper / measured / preset / verdict, written from the results and nothing else."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resperturb.audits import LEARNING_RATES
from resperturb.files import write_bytes
from resperturb.paper.reproduce.declarations import EXPERIMENTS
from resperturb.paper.reproduce.plan import estimate, needs_of, rounds
from resperturb.paper.reproduce.presets import PRESETS
from resperturb.paper.reproduce.results import NOT_COMPARED, TOLERANCE, WIDEST

NOTES = "notes.md"
_CLAIMS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "open": ("is open", "are open"),
    "not": ("is not measured", "are not measured"),
}

_TOP = f"""# The paper, reproduced

Every table and figure of "Deep Learning with Data Privacy via Residual Perturbation" (arXiv:2408.05723), beside
what this package measures. This page is written by `resperturb reproduce report` from the JSON files in `results/`,
with the paragraphs of `results/{NOTES}`; no measured number is typed by hand, and none is the paper's.

**How to read it.** *Measured* is the mean over seeds ± one standard deviation (each seed has its own quarters of
the data). With one seed the error is the sampling error of that one training, and *one seed* warns that the luck of
a training is not in it, nor, on IDC, which patients happened to be in; between seeds that is several times as much.
A row *agrees* if each printed number differs from the measured mean by at most {TOLERANCE:g} + t e √(1 + 1/n), e
being that error, n the seeds and t Student's 97.5% quantile (1.96 for one seed); where printed AUCs lie within two
hundredths of one half, as many do, that is easily met. Where that bound is above {WIDEST:g} it is *undecided*: seeds
differ too much. The *claims* below a table compare rows with each other: they
*hold* or *fail* if the difference is more than t of its errors, and are *open* otherwise. *At reduced settings* goes
with everything that is not trained as the paper did: neither agreement nor difference then says much about the paper.

**Beware of two things.** At preset `cpu` networks are trained for a fraction of the paper's epochs, and DP-SGD, which
needs the most steps, suffers most: that it classifies badly here says little about it. And noise makes a network
learn its images less well, which by itself narrows the gap and lowers every AUC. Whether noise protects *beyond* that
is a question of equal accuracy, which the paper's tables cannot answer; [the audit](audit-results.md) asks it, and
there early stopping, weight decay and dropout did as well.

Our reading where the paper is silent: 200 epochs (IDC: 100, as printed), batches of 128 (the attack network's too),
no augmentation, and pixels normalised by constants, not by statistics of the images.

The first AUC is the paper's attack, whose shadow model is a standard ResNet8. *Adaptive* is the same attack by
somebody who knows of the noise and trains the shadow with it (or by DP-SGD). *Audit* is the strongest of so many
attacks of `resperturb audit` (LiRA, RMIA, thresholds; averaged and noiseless queries) on the first seed's training,
with the 95% interval of that one attack. It was found in hindsight: the best of more attacks is a little larger by
luck alone, and without shadow models the strong ones cannot be made.
"""


def write_page(page: Path, results: Path, found: Mapping[str, dict[str, Any]]) -> None:
    """Write the page from the results and the paragraphs beside them."""
    notes = read_notes(results / NOTES)
    link = _relative(results, page.parent)
    parts = [_TOP, _overview(found)]
    for experiment in EXPERIMENTS:
        result = found.get(experiment.id)
        parts.append(f"## {experiment.id}\n\n{experiment.title} ({experiment.place}).")
        if result is None:
            command = f"resperturb reproduce run {experiment.id} --preset cpu --results {results.as_posix()}"
            parts.append(f"Not measured yet: `{command}`.")
        else:
            parts.append(_section(result, link, results))
        if experiment.id in notes:
            parts.append(notes[experiment.id])
    parts.append(_costs())
    write_bytes(page, ("\n\n".join(part.strip() for part in parts) + "\n").encode())


def read_notes(path: Path) -> dict[str, str]:
    """Read hand-written paragraphs, each under the ID of its experiment.

    >>> read_notes(Path("no/such/file"))
    {}
    """
    if not path.exists():
        return {}
    parts = re.split(r"^## +(\S+) *$", path.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}


def _overview(found: Mapping[str, dict[str, Any]]) -> str:
    lines = ["## At a glance", "", "| ID | paper | measured | preset | verdict |", "|---|---|---|---|---|"]
    for experiment in EXPERIMENTS:
        result = found.get(experiment.id)
        if result is None:
            lines.append(f"| [{experiment.id}](#{experiment.id}) | {experiment.place} | | | not measured yet |")
            continue
        # The rows of the ROC curves are those of the sweeps.
        rows = [row for row in result.get("rows", ()) if row.get("paper") and result["kind"] != "roc"]
        if not rows or result.get("claims"):
            lines.append(
                f"| [{experiment.id}](#{experiment.id}) | {experiment.place} | see below | "
                f"{result['preset']} | {_summary(result)} |"
            )
        for row in rows:
            lines.append(
                f"| [{experiment.id}](#{experiment.id}): {_name(row)} | {_printed(row)} | {_measured(row)} | "
                f"{result['preset']} | {row['verdict']} |"
            )
    lines += ["", "Numbers are AUC of the paper's attack / training accuracy / test accuracy; of `budgets`, epsilon."]
    return "\n".join(lines)


def _summary(result: dict[str, Any]) -> str:
    """Say in one sentence what came out of an experiment as a whole."""
    if "verdict" in result:
        return str(result["verdict"])
    if result["preset"] == "quick":
        return NOT_COMPARED
    if result.get("claims"):
        verdicts = [str(claim["verdict"]).split()[0] for claim in result["claims"]]
        if result["claims"][0]["verdict"] == NOT_COMPARED:
            return NOT_COMPARED
        counts = [(verdicts.count(word), forms) for word, forms in _CLAIMS.items() if word in verdicts]
        counted = ", ".join(f"{count} {forms[count > 1]}" for count, forms in counts)
        return f"of {len(verdicts)} claims {counted}" if len(verdicts) > 1 else f"its claim {_CLAIMS[verdicts[0]][0]}"
    rows = [row for row in result.get("rows", ()) if "auc" in row["measured"]]
    if "theorem" in result and rows and result["theorem"]["predicted_gap"]:
        first, last = (f"{row['measured']['gap']['mean']:.3f}" for row in (rows[0], rows[-1]))
        predicted = list(result["theorem"]["predicted_gap"].values())[-1]
        return f"the gap is {first} without noise, {last} with the most; by the theorem's factor {predicted:.3f}"
    if not rows:
        return "see below"
    low, high = (choose(rows, key=lambda row: row["measured"]["auc"]["mean"]) for choose in (min, max))
    return " to ".join(f"AUC {r['measured']['auc']['mean']:.3f} ({r['data']}, {r['name']})" for r in (low, high))


def _name(row: dict[str, Any]) -> str:
    return str(row["name"]) if "measured" in row else f"{row['data']}, {row['name']}"


def _printed(row: dict[str, Any]) -> str:
    paper = row["paper"]
    if "lower" in paper:
        return f"{paper['epsilon']:.4g}"
    return " / ".join(_number(paper[key]) for key in ("auc", "train_accuracy", "test_accuracy"))


def _measured(row: dict[str, Any]) -> str:
    if "measured" not in row:
        return f"{row['epsilon']:.4g}"
    values = (row["measured"].get(key) for key in ("auc", "train_accuracy", "test_accuracy"))
    return " / ".join("–" if value is None else _number(value["mean"]) for value in values)


def _section(result: dict[str, Any], link: str, results: Path) -> str:
    parts = [f"![{result['title']}]({link}/{result['id']}.png)"]
    parts += [
        f"![{result['title']}]({link}/{path.stem}.png)"
        for path in sorted(results.glob(f"{result['id']}-*.png"))
        if result["kind"] == "function"
    ]
    rows = result.get("rows", [])
    if result["id"] == "budgets":
        parts.append(_budgets(rows))
    elif rows and result["kind"] != "roc":
        parts.append(_rows(rows, with_audit=any(row.get("audit") for row in rows)))
    if "bench" in result:
        parts.append(_steps(result["bench"]["networks"][0]))
    if "theorem" in result:
        parts.append(_theorem(result["theorem"], rows))
    if result.get("claims"):
        parts.append("\n".join(f"- *{claim['verdict']}*: {claim['text']}" for claim in result["claims"]))
    if "verdict" in result:
        parts.append(f"Verdict: {result['verdict']}.")
    notes = [*result["notes"], *_rates(rows)]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    whys = sorted({why for row in rows for why in _whys(row)})
    if whys:
        parts.append("Not measured:\n" + "\n".join(f"- {why}" for why in whys))
    parts.append(_provenance(result))
    return "\n\n".join(parts)


def _whys(row: dict[str, Any]) -> list[str]:
    whys = [*row.get("why", ()), *((row.get(key) or {}).get("why") for key in ("audit", "lower"))]
    return [f"{row['data']}, {row['name']}: {why}" for why in whys if why]


def _rates(rows: list[dict[str, Any]]) -> list[str]:
    """Say where the attack network had to learn more slowly than the paper's."""
    slower = [
        f"{', '.join(f'{rate:g}' for rate in row['attack_learning_rates'])} ({row['data']}, {row['name']})"
        for row in rows
        if any(rate != LEARNING_RATES[0] for rate in row.get("attack_learning_rates", ()))
    ]
    if not slower:
        return []
    return [
        f"At the paper's learning rate of {LEARNING_RATES[0]:g} the attack network ended with the same answer for "
        f"everybody, or knew less than a threshold, in every start. Its rate is instead {'; '.join(slower)}."
    ]


def _rows(rows: list[dict[str, Any]], with_audit: bool) -> str:
    heads = ["model", "AUC, paper", "AUC, measured"]
    heads += ["AUC, adaptive", "AUC, audit (strongest)"] if with_audit else []
    heads += ["train, paper", "train, measured", "test, paper", "test, measured", "seeds", "verdict"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        paper, measured = row["paper"] or {}, row["measured"]
        cells = [row["name"], _number(paper.get("auc")), _spread(measured.get("auc"))]
        if with_audit:
            audit = row.get("audit") or {}
            strongest = (
                f"{audit['auc']:.3f} [{audit['auc_interval'][0]:.3f}, {audit['auc_interval'][1]:.3f}] "
                f"({audit['strongest']}; best of {audit['attacks']} attacks, {audit['shadows'] or 'no'} shadows)"
                if "auc" in audit
                else "–"
            )
            cells += [_spread(measured.get("adaptive_auc")), strongest]
        for key in ("train_accuracy", "test_accuracy"):
            cells += [_number(paper.get(key)), _spread(measured.get(key))]
        cells += [f"{len(row['seeds'])} of {max(len(row['seeds']), row['seeds_wanted'])}", row["verdict"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _budgets(rows: list[dict[str, Any]]) -> str:
    heads = ["training", "printed", "the formula gives", "exact", "lower bound, printed", "by the paper's attack",
             "by our audit", "verdict"]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        lower = row["lower"]
        attack, audit = lower.get("paper_attack"), lower.get("audit")
        cells = [
            f"{row['data']}: {row['name']}",
            f"{row['paper']['epsilon']:.4g}",
            f"{row['epsilon']:.4g}",
            f"{row['epsilon_exact']:.4g}" if "epsilon_exact" in row else "–",
            f"{row['paper']['lower']:.4g}",
            f"{attack['epsilon']:.3g}" if attack else "–",
            "–" if audit is None else (f"{audit['epsilon']:.3g}" if not audit.get("refusal") else "refused"),
            row["verdict"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    more = [
        f"- {row['data']}, {row['name']}: Theorem 1 gives the printed epsilon if R were at most "
        f"{row['bound_for_the_printed_epsilon']['radius']:.3g} and G at most "
        f"{row['bound_for_the_printed_epsilon']['blocks']:.3g}, not 30. {row['setting']}"
        for row in rows
        if "bound_for_the_printed_epsilon" in row
    ]
    more += [f"- {row['data']}, {row['name']}: {row['setting']}" for row in rows if "epsilon_exact" not in row]
    assumed: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = (f"It protects {row['protects']}", *row["assumptions"])
        assumed.setdefault(key, []).append(f"{row['data']}, {row['name']}")
    for statements, names in assumed.items():
        more.append(f"- What the epsilon of {' and '.join(names)} assumes. {' '.join(statements)}")
    return "\n".join([*lines, "", *more])


def _theorem(theorem: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    lines = ["| gamma | R(G)/R(F) | predicted gap | measured gap |", "|---|---|---|---|"]
    predicted = theorem["predicted_gap"] or {}
    measured = {f"{row['gamma'] or 0:g}": row["measured"].get("gap") for row in rows}
    for gamma, ratio in theorem["ratios"].items():
        lines.append(f"| {gamma} | {ratio:.3f} | {_number(predicted.get(gamma))} | {_spread(measured.get(gamma))} |")
    return "\n".join(lines) + f"\n\nThe bound itself is {theorem['verdict']}"


def _steps(network: dict[str, Any]) -> str:
    """Time and memory of a training step in every way."""
    plain = network["milliseconds"][network["plain"]]
    lines = ["| training | a step, ms | over the fastest plain loop | memory, MB |", "|---|---|---|---|"]
    for way, time in network["milliseconds"].items():
        if not way.startswith("prediction"):
            memory = network.get("megabytes", {}).get(way)
            megabytes = "–" if memory is None else f"{memory:.0f}"
            lines.append(f"| {way.replace('_', ' ')} | {time:.0f} | {time / plain:.2f} | {megabytes} |")
    size = network["image_size"]
    return "\n".join(lines) + (
        f"\n\nMedians of {network['rounds']} rounds, {network['model']}, batches of {network['batch_size']} images "
        f"of {size}x{size}, {network['threads']} threads; [speed](speed.md) has more."
    )


def _provenance(result: dict[str, Any]) -> str:
    made = result["environment"]
    computed = result["kind"] == "function" and result["preset"] != "quick"
    parts = [f"Preset {result['preset']}: " + ("nothing is trained" if computed else result["preset_means"])]
    for data in result.get("data", ()):
        groups = f", {data['groups']} patients kept apart" if data["groups"] else ""
        reduced = f"; {data['reduced']}" if data["reduced"] and not computed else ""
        parts.append(
            f"{data['shown']} (fingerprint {data['fingerprint']}): {data['training_images']:,} training images, "
            f"{data['a_quarter']:,} to a quarter, {data['test_images']:,} test images{groups}{reduced}"
        )
    if "trainings" in result:
        parts.append(f"{result['trainings']} trainings of {result['seconds'] / 3600:.2f} hours in all")
    elif "seconds" in result:
        parts.append(f"{result['seconds']:.0f} seconds")
    parts.append(
        f"resperturb {made['resperturb']}, torch {made['torch']}, Python {made['python']}, {made['machine']}, "
        f"{made['made'][:10]}"
    )
    return "<sub>" + ". ".join(parts) + ".</sub>"


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


def _spread(spread: dict[str, Any] | None) -> str:
    return "–" if spread is None else f"{spread['mean']:.3f} ± {spread['error']:.3f}"


def _relative(folder: Path, start: Path) -> str:
    return Path(os.path.relpath(folder, start)).as_posix()
