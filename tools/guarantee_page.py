"""Write the tables and the picture of docs/guarantee.md and docs/dp-sgd.md from results of benchmarks/guarantee.py.

python -m tools.guarantee_page docs/results/guarantee.json docs docs/images/guarantee
"""

import json
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import Any

# Smallest distance of two labels of the picture, in test scores.
LINE = 0.02
EPSILONS = ("1.0", "3.0", "8.0", "inf")
SHOWN = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "idc": "IDC subset",
}
EXTRACTORS = {"scattering": "scattering", "efficientnet-lite0": "EfficientNet-Lite0"}

Found = dict[str, Any]


PAGES = ("guarantee.md", "dp-sgd.md")


def main(results: Path, docs: Path, picture: Path) -> None:
    found = read(results)
    for page in PAGES:
        (docs / page).write_text(filled((docs / page).read_text(), found))
    draw(found, picture)


def read(results: Path) -> Found:
    """Read the results, and those of the case study and of fewer records in the same folder."""
    case, records = results.with_name("case-study.json"), results.with_name("fewer-records.json")
    found: Found = json.loads(results.read_text())
    if records.exists():
        found["fewer_records"] = json.loads(records.read_text())["fewer_records"]
    return {**found, "case": json.loads(case.read_text())["models"] if case.exists() else []}


def filled(text: str, found: Found) -> str:
    """Replace the text between the marks of each table."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, t=table: f"{m[1]}{t(found)}\n{m[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def reached(found: Found) -> str:
    """Return the table of scores at every epsilon."""
    lines = [
        "| data | features | protected | measure | epsilon 1 | epsilon 3 | epsilon 8 | same head, no noise |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        if row["results"]:
            protected = f"{row['units']:,} {'patients' if row['group'] else 'images'}"
            measure = "AUROC" if row["metric"] == "auroc" else "accuracy"
            cells = [_score(row, epsilon) for epsilon in EPSILONS]
            lines.append("| " + " | ".join([_data(row), _features(row), protected, measure, *cells]) + " |")
    return "\n".join(lines)


def networks(found: Found) -> str:
    """Return the table of whole networks on the same data."""
    lines = [
        "| data | ResNet8, no privacy | residual perturbation | DP-SGD on ResNet8 | best head at epsilon 3 |",
        "|---|---|---|---|---|",
    ]
    for data in dict.fromkeys(network["data"] for network in found["networks"]):
        own = {network["key"].partition("-")[0]: network for network in found["networks"] if network["data"] == data}
        heads = [(_result(row, "3.0"), row) for row in found["rows"] if row["data"] == data and _result(row, "3.0")]
        if heads:
            best, row = max(heads, key=lambda one: float(one[0]["accuracy"]))
            unit = f"patients, {row['training_images']:,}" if row["group"] else f"{row['training_images']:,}"
            head = f"{best['accuracy']:.3f} ({_features(row)}; {unit} images)"
        else:
            head = ""
        plain, noisy, private = own.get("non"), own.get("gamma"), own.get("dp")
        cells = [
            _network(plain, "{training_images:,} images"),
            _network(noisy, "{key}, nothing useful is proven"),
            _network(private, "epsilon {epsilon:.1f}"),
            head,
        ]
        lines.append(f"| {SHOWN[data]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def attacks(found: Found) -> str:
    """Return what each epsilon means for an attacker."""
    lines = [
        "| epsilon | delta | mu | largest possible AUC of any attack | largest TPR at 1% FPR |",
        "|---|---|---|---|---|",
    ]
    mus = {str(result["epsilon"]): result["mu"] for row in found["rows"] for result in row["results"]}
    for epsilon in EPSILONS[:-1]:
        if epsilon in mus:
            mu, normal = float(mus[epsilon]), NormalDist()
            auc, rate = normal.cdf(mu / math.sqrt(2)), normal.cdf(normal.inv_cdf(0.01) + mu)
            lines.append(f"| {float(epsilon):g} | {found['delta']:g} | {mu:.3f} | {auc:.3f} | {rate:.3f} |")
    return "\n".join(lines)


def worst_cases(found: Found) -> str:
    """Return the table of heads trained with and without a crafted record."""
    lines = [
        "| head | proven epsilon | trainings | shown, as a test of mu-GDP | shown, without a curve | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["worst_cases"]:
        numbers = f"{row['gaussian']:.2f} | {row['any_curve']:.2f} | {row['seconds']:.0f}"
        lines.append(f"| {row['head']} | {row['epsilon']:g} | {row['trainings']:,} | {numbers} |")
    return "\n".join(lines)


def left_out(found: Found) -> str:
    """Return the table of heads on X-rays, each attacked by all others."""
    lines = [
        "| head | heads trained | test AUROC | attack AUC per patient | largest possible | |",
        "|---|---|---|---|---|---|",
    ]
    for model in found["case"]:
        if model["name"].startswith("head"):
            auc, (low, high) = model["strongest"]["auc"], model["strongest"]["interval"]
            bound = model["largest_auc"] or 1.0
            name = "no noise" if model["epsilon"] is None else f"epsilon {model['epsilon']:.0f}"
            words = "" if model["epsilon"] is None else "below the proof" if high < bound else "not below the proof"
            lines.append(
                f"| {name} | {model['models']} | {model['auroc']:.3f} | {auc:.3f} ({low:.3f} to {high:.3f}) | "
                f"{bound:.3f} | {words} |"
            )
    return "\n".join(lines)


def fewer(found: Found, unit: str) -> str:
    """Return the table of test scores by the number of patients or records."""
    lines = [f"| {unit} | epsilon 1 | epsilon 3 | epsilon 8 | no noise |", "|---|---|---|---|---|"]
    for row in found.get(f"fewer_{unit}", {"rows": []})["rows"]:
        cells = [f"{mean(row['values'][e]):.3f} ± {stdev(row['values'][e]):.3f}" for e in EPSILONS]
        lines.append(f"| {row[unit]:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[Found], str]] = {
    "reached": reached,
    "networks": networks,
    "attacks": attacks,
    "worst": worst_cases,
    "left-out": left_out,
    "fewer-patients": partial(fewer, unit="patients"),
    "fewer-records": partial(fewer, unit="records"),
}


def _data(row: Found) -> str:
    return SHOWN[row["data"]]


def _features(row: Found) -> str:
    return EXTRACTORS[row["extractor"]]


def _result(row: Found, epsilon: str) -> Found | None:
    return next((result for result in row["results"] if str(result["epsilon"]) == epsilon), None)


def _score(row: Found, epsilon: str) -> str:
    result = _result(row, epsilon)
    if result is None:
        return "not run"
    spread = "" if result["sd"] is None else f" ± {result['sd']:.3f}"
    short = "" if len(result["values"]) in (1, 5) else f" ({len(result['values'])} seeds)"
    return f"{result['mean']:.3f}{spread}{short}"


def _network(network: Found | None, words: str) -> str:
    return (
        ""
        if network is None
        else f"{network['test_accuracy']:.3f} ({words.format(**network).replace('gamma-', 'gamma ')})"
    )


def draw(found: Found, picture: Path) -> None:
    """Draw the score against epsilon, a line per data set and extractor."""
    import matplotlib.pyplot as plt
    from resperturb_reproduction.figures.style import PAGE, PALETTE, paper_style, save_figure

    with paper_style():
        figure, axes = plt.subplots(figsize=(PAGE, 3.0), layout="constrained")
        shown = [row for row in found["rows"] if row["results"]]
        ends: list[tuple[float, int, str]] = []
        for row, colour, marker in zip(shown, PALETTE, "os^Dvpd*", strict=False):
            results = {str(result["epsilon"]): result for result in row["results"]}
            places = [at for at, epsilon in enumerate(EPSILONS) if epsilon in results]
            values = [results[EPSILONS[at]]["mean"] for at in places]
            spread = [results[EPSILONS[at]]["sd"] or 0 for at in places]
            measure = "AUROC, per patient" if row["group"] else "accuracy"
            axes.errorbar(places, values, spread, marker=marker, color=colour)
            label = f"{_data(row)}, {_features(row)} ({measure})"
            ends.append((values[-1], places[-1], label))
        height = 0.0
        for value, place, label in sorted(ends):
            height = max(value, height + LINE)
            axes.annotate(label, (place, value), (place + 0.08, height), va="center", fontsize=7)
        axes.set_xticks(range(4), ["1", "3", "8", "no noise"])
        axes.set(xlabel="epsilon (delta 1e-5)", title="Test score of a head on public features", xlim=(-0.2, 5.4))
        save_figure(figure, picture)
        plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
