"""Write docs/frontier*.md, their pictures, and sentences of other pages from the results of the frontier studies.

python -m tools.frontier_page .
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.frontier_study import STUDIES
from resperturb.frontiers import FrontierResult, SettingResult, read_frontier
from resperturb.frontiers.curve import CANARY_TPR, LABELS_AUC, PRIMARY, WEIGHTS_AUC, tpr_name
from resperturb.frontiers.defence import DEFENCES
from resperturb.frontiers.figure import figure
from resperturb.frontiers.page import Table, comparison_tables, settings_table
from resperturb.report.wording import counted

NOISE = ("additive", "additive-no-input", "additive-decay", "multiplicative", "ensemble")
# The studies with a page, the first of which is the main one, and what their data are called.
PAGES = {"fashion": ("frontier", "Fashion-MNIST"), "cifar10": ("frontier-cifar10", "CIFAR10")}
# Files with sentences between marks, <!-- frontier:claim --> and <!-- end -->, and the path from there to docs/.
SAID_IN = {"README.md": "docs/", "docs/index.md": "", "docs/how-to/compare.md": "../"}
TEXT = """# Defences at equal accuracy{of}

{found.title}. {claim}

![{found.title}](images/{file}.svg)

*Settings that leak less than ordinary regularisation of their accuracy are drawn strongly, with their strengths; so
are those that are more accurate than all of it and leak less than the most accurate of it. All others are pale. One
line per defence runs through its strengths, from no defence. The black line runs through the checkpoints of training
without a defence, which is early stopping. Crosses are 95% intervals over {found.models} models per setting. Ordinary
regularisation dominates the shaded region. Canaries are of the kind that exposes each defence most, or of all kinds
where these are too few for the rate.*
{others}
## At equal accuracy
Each setting is compared with the least leaking comparator of at least its test accuracy, model by model on the same
coins. The comparator is chosen on one half of the models and compared on the other. Checkpoints count as comparators,
and between two of them the leak is interpolated to the accuracy of the setting. A comparator that was not
interpolated has its accuracy in parentheses. A negative difference means that the setting leaks less. *Equivalent*
means that the whole interval lies within {found.margin:g}, and *not comparable* that only models more accurate by
over 0.01 were measured, which leak more. The intervals of a table hold jointly.

{compared}

{unmatched}

## All settings
{members}

The AUC is that of typical records. *With weights* is the same attack by anyone who has the weights, with noise and
prediction-time defences off. Exposed records are named at a false discovery rate of 5%. An epsilon above 20 or so is
not claimed: it rests on tails that no computed noise has.

{settings}

## Canaries
The AUC on each kind of canary. The kind that is made to expose a defence is in bold.

{canaries}

## Early stopping
{checkpoints}

## How it was measured
- **Data**: {recipe[data][limit]} images of `{recipe[data][spec]}`, {size} by {size} pixels. {found.records} of them
  are candidates, and {population} are in no training set.
- **Training**: {recipe[model]}, {recipe[epochs]} epochs, batches of {recipe[batch_size]}, learning rate
  {recipe[lr]:g}, in {precision}. Noisy models are attacked after the last {noisy} checkpoints, others after all.
- **Design**: {found.models} models of each setting, each trained on a random half of the candidates. Coins and seeds
  are the same for every setting. Each model is the target once. The models outside its pair are its shadow models.
- **Attack**: {found.attack}. It was fixed before anything was trained.
- **Intervals**: Student's quantile over pairs of models with twice the naive variance, because targets share models.
  They are about this pool of images under other coins and seeds.
{left_out}
```console
$ python -m benchmarks.frontier_study {name} runs/frontier --models {found.models} --save
$ python -m tools.frontier_page .
```

## The protocol of Aerni et al.
Aerni, Zhang and Tramèr 2024 ([arXiv:2404.17399](https://arxiv.org/abs/2404.17399)) say what an evaluation of a
defence must do.

{protocol}

## Limits
One small data set, one network, and test accuracies up to {best:.2f}. Stronger attacks may exist, and an attack that
finds less is no proof of less leakage. Averages say nothing about the most exposed person. The numbers are in
[frontier-{name}.json](results/frontier-{name}.json).
"""


def main(root: Path) -> None:
    """Write the pages of the studies that are there and their pictures, and fill in the sentences."""
    found = studies(root)
    for name, study in found.items():
        file, _ = PAGES[name]
        (root / "docs" / f"{file}.md").write_text(page(found, name))
        (root / "docs" / "images" / f"{file}.svg").write_text(figure(study) + "\n")
    for name, docs in SAID_IN.items():
        (root / name).write_text(filled((root / name).read_text(), found, docs))


def studies(root: Path) -> dict[str, FrontierResult]:
    """Read the results that are there."""
    paths = {name: root / "docs" / "results" / f"frontier-{name}.json" for name in PAGES}
    return {name: read_frontier(path) for name, path in paths.items() if path.exists()}


def filled(text: str, found: Mapping[str, FrontierResult], docs: str) -> str:
    """Replace the text between the marks."""
    first = next(iter(found.values()))
    said = {
        "claim": " On CIFAR10: ".join(
            f"{claim(one)} [{link}]({docs}{file}.md)." for link, file, one in _linked(found)
        ),
        "members": members(first),
        "picture": f"![{first.title}]({docs}images/frontier.svg)",
    }
    for mark, words in said.items():
        pattern = rf"(<!-- frontier:{mark} -->\n?).*?(\n?<!-- end -->)"
        text = re.sub(pattern, lambda m, words=words: f"{m[1]}{words}{m[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def _linked(found: Mapping[str, FrontierResult]) -> Iterator[tuple[str, str, FrontierResult]]:
    for name, study in found.items():
        file, data = PAGES[name]
        yield f"The study on {data}" if len(found) > 1 else "The study", file, study


def claim(found: FrontierResult) -> str:
    """Compare residual perturbation with ordinary regularisation of its accuracy, in a sentence."""
    noise = [one for one in found.primary if found[one.setting].defence in NOISE]
    if not noise:
        return "No setting of residual perturbation has an ordinary regulariser of its test accuracy to compare with."
    means = [one.difference.mean for one in noise]
    lows, highs = zip(*(one.difference.interval for one in noise), strict=True)
    better, worse, equal = (
        sum(one.verdict == verdict for one in noise) for verdict in ("leaks less", "leaks more", "equivalent")
    )
    gain = f"A gain over ordinary regularisation was measured in {better} of {len(noise)} settings."
    gain = gain if better else "No gain over ordinary regularisation was measured."
    if len(noise) == 1:
        return (
            f"**{gain}** At equal test accuracy, the attack AUC under {noise[0].setting} differed from that of "
            f"regularised networks by {means[0]:+.3f} (joint 95% interval {lows[0]:+.3f} to {highs[0]:+.3f})."
        )
    return (
        f"**{gain}** At equal test accuracy, the "
        f"attack AUC of {len(noise)} settings of residual perturbation differed from that of regularised networks by "
        f"{min(means):+.3f} to {max(means):+.3f}. The joint 95% intervals lie within {min(lows):+.3f} and "
        f"{max(highs):+.3f}. {worse or 'None'} leaked more, and {equal or 'none'} {'was' if equal < 2 else 'were'} "
        f"equivalent within {found.margin:g}."
    )


def members(found: FrontierResult) -> str:
    """Return the attack AUC under noise and the change without the noise, in a sentence."""
    noisy = [one for one in found.settings if one.defence in NOISE]
    if not noisy:
        return ""
    shown = next((one for one in noisy if one.name == "additive noise 0.5"), noisy[-1])
    leaks = [one.final.leaks for one in noisy]
    most = max(leak[WEIGHTS_AUC].value - leak[PRIMARY].value for leak in leaks)
    of = f"at gamma {shown.strength:g}" if shown.defence == "additive" else f"under {shown.name}"
    return (
        f"**Strong attacks still find members** {of} (AUC {shown.final.leaks[PRIMARY].words()}). Taking the noise "
        f"off added at most {max(0.0, most):.3f} AUC in {counted(len(noisy), 'setting')}: the protection comes from "
        "training with noise."
    )


def page(studied: Mapping[str, FrontierResult], name: str) -> str:
    """Return the page of the study of this name."""
    found, (file, data) = studied[name], PAGES[name]
    recipe, settings = STUDIES[name]
    tables = comparison_tables(found)
    first = name == next(iter(PAGES))
    others = [one for one in _linked(studied) if one[1] != file] if first else []
    return TEXT.format(
        found=found,
        name=name,
        file=file,
        of="" if first else f" on {data}",
        others="".join(f"\n**[{link}]({page}.md)**: {study.title}. {claim(study)}\n" for link, page, study in others),
        recipe=recipe,
        size=recipe["data"].get("image_size", 32),
        precision="bf16" if "precision" in recipe else "32 bits",
        noisy=settings["noisy_checkpoints"],
        population=settings["population"],
        claim=claim(found),
        members=members(found),
        compared="\n\n".join(f"### {title}\n{markdown(table)}" for title, table in tables.items()),
        unmatched=unmatched(found),
        settings=markdown(settings_table(found)),
        canaries=markdown(canaries(found)),
        checkpoints=markdown(checkpoints(found.settings[0])),
        protocol=markdown((["demand", "met", "how"], [list(row) for row in protocol(found)])),
        best=best(found),
        left_out="".join(f"- Left out {one}.\n" for one in found.left_out),
    )


def markdown(table: Table) -> str:
    """Write a table."""
    columns, rows = table
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))


def best(found: FrontierResult) -> float:
    """Return the largest test accuracy."""
    return max(one.final.accuracy.value for one in found.settings)


def unmatched(found: FrontierResult) -> str:
    """Name the settings that no DP-SGD is as accurate as."""
    matched = {one.setting for one in found.comparisons if one.against == "dpsgd"}
    left = [one.name for one in found.settings if not one.formal and one.name not in matched]
    tried = any(one.defence == "dpsgd" for one in found.settings)
    return f"No DP-SGD tested is as accurate as {', '.join(left)}." if left and tried else ""


def canaries(found: FrontierResult) -> Table:
    """Return the AUC on each kind of canary."""
    rows = []
    for setting in found.settings:
        own = DEFENCES[setting.defence].canary
        values = {kind: setting.final.leaks[f"{kind} AUC"].words() for kind in found.canaries}
        rows.append([setting.name, *(f"**{text}**" if kind == own else text for kind, text in values.items())])
    return ["setting", *(kind.replace("_", "-") for kind in found.canaries)], rows


def checkpoints(setting: SettingResult) -> Table:
    """Return the leakage of training without a defence after each checkpoint."""
    shown = [name for name in (PRIMARY, tpr_name(0.01), CANARY_TPR) if name in setting.final.leaks]
    rows = [
        [stage.name.removeprefix("epoch-").lstrip("0"), stage.accuracy.words()]
        + [stage.leaks[name].words() for name in shown]
        for stage in setting.stages
    ]
    return ["epochs", "test accuracy", *shown], rows


def protocol(found: FrontierResult) -> Sequence[tuple[str, str, str]]:
    """Return which of the thirteen demands are met, and how."""
    canaries = sum(found.canaries.values())
    share = canaries / (found.records + canaries)
    by_kind: dict[str, list[str]] = {}
    for setting in found.settings:
        if setting.defence in DEFENCES and not setting.ordinary:
            kind = DEFENCES[setting.defence].canary.replace("_", "-")
            by_kind.setdefault(kind, []).append(re.sub(r" of$|,.*", "", DEFENCES[setting.defence].title))
    kinds = "; ".join(f"{kind} for {', '.join(dict.fromkeys(titles))}" for kind, titles in by_kind.items())
    plain = found.settings[0].final
    against = [one.setting for one in found.comparisons if one.against == "dpsgd"]
    heuristics = sum(not one.formal for one in found.settings)
    rate = "yes" if CANARY_TPR in plain.leaks else "no"
    rare = "0.1% on records" if tpr_name(0.001) in plain.leaks else "0.1% needs 1,000 non-members"
    masked = [one for one in found.settings if one.words != one.name]
    hidden = ", ".join(f"{one.name} {one.final.leaks[LABELS_AUC].value:.3f}" for one in masked) or "none"
    named = [one for one in found.settings if one.exposed is not None]
    exposed = (
        f"{min(one.exposed or 0 for one in named)} to {max(one.exposed or 0 for one in named)}" if named else "no"
    )
    weights = sum(WEIGHTS_AUC in one.final.leaks for one in found.settings)
    augmented = next((one for one in found.settings if one.defence == "augmentation"), None)
    copies = ""
    if augmented is not None and augmented.final.accuracy.value < plain.accuracy.value:
        copies = f", because augmentation costs accuracy at this size (accuracy {augmented.final.accuracy.value:.2f})"
    tricks = "GroupNorm, averaged weights, little noise at a high rate, DP heads; no augmented copies"
    private = any(one.formal for one in found.settings)
    return (
        (
            "fixed data, random canaries",
            "yes",
            f"{canaries} canaries and {found.records} records; coins alone differ",
        ),
        ("most vulnerable records", "yes", f"canaries; {exposed} records per setting are named as exposed"),
        ("a canary per defence", "yes", kinds),
        ("canaries are rare", "yes" if share <= 0.02 else "no", f"{100 * share:.1f}% of the candidates"),
        ("TPR at a low FPR", rate, f"at 1%, on canaries and records; {rare}"),
        ("every model is a target", "yes", f"{found.models} targets per setting"),
        (
            "adaptive attacks",
            "yes",
            f"shadow models have the defence; predictions are averaged; {weights} settings with weights too",
        ),
        ("label-only where confidences are masked", "yes", f"column of the table; AUC of labels alone: {hidden}"),
        ("undefended baseline", "yes", f"test accuracy {plain.accuracy.words()}, AUC {plain.leaks[PRIMARY].words()}"),
        (
            "DP-SGD at equal accuracy",
            "yes" if len(against) == heuristics else "in part" if against else "no",
            f"{len(against)} of {heuristics} heuristic settings; no DP-SGD is as accurate as the others",
        ),
        (
            "state-of-the-art tricks",
            "in part" if private else "no",
            tricks + copies if private else "no private training",
        ),
        ("meaningful accuracy", "in part", f"{best(found):.2f} at most, of ten classes; the data set is small"),
        ("limits are stated", "yes", "below"),
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
