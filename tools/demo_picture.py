"""The picture in the README, from the runs of `resperturb demo`.

python tools/demo_picture.py RUNS_FOLDER OUT
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from resperturb.auditing.metrics import roc_points
from resperturb.paper.figures.style import GREY, PAGE, PALETTE, paper_style, save_figure
from resperturb.report.collect import ReportedModel
from resperturb.report.demo import run_demo


def main(folder: Path, out: Path) -> None:
    runs = [ReportedModel(name, run.path, run) for name, run in run_demo(folder)]
    with paper_style():
        figure, (roc, accuracy) = plt.subplots(1, 2, figsize=(PAGE, 3.3))
        roc.plot([0, 1], [0, 1], ":", color=GREY, linewidth=1)
        for number, run in enumerate(runs):
            attack = run.worst
            assert attack is not None
            low, high = attack.interval
            color = PALETTE[number]
            label = f"{run.name}: AUC {attack.auc:.2f} ({low:.2f} to {high:.2f})"
            roc.plot(*roc_points(attack.scores.members, attack.scores.nonmembers), color=color, label=label)
            for position, key in ((number - 0.18, "train_accuracy"), (number + 0.18, "test_accuracy")):
                value = getattr(run, key)
                accuracy.bar(position, value, 0.34, color=color, alpha=0.45 if key == "train_accuracy" else 1)
                accuracy.text(position, value + 0.015, f"{value:.2f}", ha="center", fontsize=7)
        roc.set(
            xlabel="false positive rate",
            ylabel="true positive rate",
            title="Who was in the training set? (the paper's attack)",
        )
        roc.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
        accuracy.set(ylim=(0, 1.12), ylabel="accuracy", title="Training accuracy (pale) and test accuracy")
        accuracy.set_xticks(range(len(runs)), [run.name for run in runs])
        accuracy.grid(axis="x", visible=False)
        save_figure(figure, out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
