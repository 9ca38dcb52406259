"""The pictures of the README and of docs/audit-results.md, from the numbers that the study of audits left.

python tools/study_pictures.py docs/results/audit-study.json docs/images
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from resperturb_reproduction.figures.style import BLUE, GREY, ORANGE, PAGE, VERMILLION, paper_style, save_figure

from benchmarks.audit_study import LEARNED, LIRA, RMIA, best_attack

README = {
    "no noise": "no defence",
    "additive, gamma 0.5": "residual perturbation\n(additive, gamma 0.5)",
    "early stopping 0.6": "early stopping",
    "DP-SGD, noise 1": "DP-SGD, epsilon 18",
    "DP head, epsilon 3": "DP head on scattering,\nepsilon 3",
}


def main(results: Path, folder: Path) -> None:
    rows = json.loads(results.read_text())["rows"]
    chosen = [{**row, "name": README[row["name"]]} for name in README for row in rows if row["name"] == name]
    with paper_style():
        for name, models, height in (("readme", chosen, 2.9), ("audit-study", rows, 4.2)):
            figure, (leak, accuracy) = plt.subplots(
                1, 2, figsize=(PAGE, height), width_ratios=(3, 1), sharey=True, layout="constrained"
            )
            figure.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr]
            draw(leak, accuracy, models)
            handles, labels = leak.get_legend_handles_labels()
            unique = dict(zip(labels, handles, strict=True))
            figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=3)
            save_figure(figure, folder / name)
            plt.close(figure)


def draw(leak: Axes, accuracy: Axes, models: list[dict[str, Any]]) -> None:
    """Draw what attacks found of each model, and its test accuracy beside it; the first model is on top."""
    leak.axvline(0.5, linestyle=":", color=GREY, linewidth=1)
    for height, model in enumerate(models):
        found = best_attack(model, "record", (*LIRA, *RMIA))
        assert found is not None
        leak.plot(found["record"]["auc_interval"], [height] * 2, color=BLUE, alpha=0.6)
        paper = best_attack(model, "record", LEARNED)
        if paper is not None:
            leak.plot(paper["record"]["auc_interval"], [height - 0.16] * 2, color=ORANGE, alpha=0.6)
            leak.plot(paper["record"]["auc"], height - 0.16, "D", color=ORANGE, label="the paper's attack")
        leak.plot(found["record"]["auc"], height, "o", color=BLUE, label="strongest attack")
        exposed = model["exposed"]["metrics"]
        leak.plot(exposed["auc_interval"], [height + 0.16] * 2, color=VERMILLION, alpha=0.6)
        leak.plot(exposed["auc"], height + 0.16, "^", color=VERMILLION, label="on the 20 most exposed candidates")
        accuracy.barh(height, model["test_accuracy"], 0.5, color=GREY, alpha=0.6)
        accuracy.text(
            model["test_accuracy"] + 0.03, height, f"{model['test_accuracy']:.2f}", va="center", fontsize=7.5
        )
    leak.set_yticks(range(len(models)), [model["name"] for model in models])
    leak.set(
        xlim=(0.32, 1.02),
        xlabel="AUC of the attack, with 95% intervals",
        title="Was this record in the training set?",
    )
    leak.invert_yaxis()
    accuracy.set(xlim=(0, 1), xticks=(0, 0.5, 1), title="Test accuracy")
    accuracy.grid(axis="y", visible=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
