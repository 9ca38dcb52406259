"""Accuracy and leakage over the level of additive noise, from finished runs: docs/gamma-curve.md's table and figure.

    python tools/gamma_curve.py RUNS_FOLDER OUT [SHADOW_RUN]

RUNS_FOLDER holds target runs that differ in gamma and input_std alone; the shadow is trained or reused beside them,
unless one is given.
"""

import sys
from pathlib import Path

from resperturb.audits.outcome import measures
from resperturb.audits.shadow import check_shadow, run_shadow_attack, shadow_attack
from resperturb.files import write_json
from resperturb.report.figures import BLUE, COLUMN, VERMILLION, paper_style, save_figure
from resperturb.training.run import Run, open_run


def line(run: Run, shadow: Run | None) -> dict[str, object]:
    if shadow is None:
        attack = run_shadow_attack(run)
    else:
        check_shadow(run, shadow)
        attack = measures(shadow_attack(run, shadow))
    noise = run.config.perturbation
    return {
        "gamma": noise.get("gamma", 0.0),
        "input_std": noise.get("input_std", 0.0),
        "train_accuracy": run.result.train_accuracy,
        "test_accuracy": run.result.test_accuracy,
        "auc": attack["auc"],
        "auc_interval": attack["auc_interval"],
        "epochs": run.config.epochs,
        "records": run.result.records,
        "seed": run.config.seed,
        "environment": run.result.environment,
    }


def draw(lines: list[dict[str, object]], out: Path) -> None:
    import matplotlib.pyplot as plt

    with paper_style():
        figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 2.4))
        for with_input, color, label in (
            (True, BLUE, "input noise $\\gamma/2$"),
            (False, VERMILLION, "no input noise"),
        ):
            chosen = [row for row in lines if not row["gamma"] or bool(row["input_std"]) == with_input]
            gammas = [row["gamma"] for row in chosen]
            axes[0].plot(gammas, [row["test_accuracy"] for row in chosen], "o-", color=color, label=f"test, {label}")
            axes[0].plot(
                gammas, [row["train_accuracy"] for row in chosen], "s:", color=color, label=f"training, {label}"
            )
            axes[1].plot(gammas, [row["auc"] for row in chosen], "o-", color=color, label=label)
            low, high = ([row["auc_interval"][side] for row in chosen] for side in (0, 1))  # type: ignore[index]
            axes[1].fill_between(gammas, low, high, color=color, alpha=0.2, linewidth=0)
        axes[0].set(xlabel="$\\gamma$", ylabel="accuracy", title="Accuracy")
        axes[1].set(xlabel="$\\gamma$", ylabel="attack AUC", title="The paper's attack")
        axes[1].axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axes[0].legend()
        axes[1].legend()
        save_figure(figure, out)


def main(runs: Path, out: Path, shadow: Run | None) -> None:
    found = [open_run(path.parent) for path in sorted(runs.glob("*/result.json"))]
    targets = [run for run in found if run.config.data.part == "target_train"]
    lines = sorted((line(run, shadow) for run in targets), key=lambda row: (row["gamma"], row["input_std"]))  # type: ignore[no-any-return]
    write_json(out.with_suffix(".json"), {"data": targets[0].config.data.spec, "runs": lines})
    draw(lines, out)
    for row in lines:
        print(
            f"| {row['gamma']} | {row['input_std']} | {row['train_accuracy']:.3f} | {row['test_accuracy']:.3f} | "
            f"{row['train_accuracy'] - row['test_accuracy']:.3f} | {row['auc']:.3f} "
            f"({row['auc_interval'][0]:.3f} to {row['auc_interval'][1]:.3f}) |"
        )


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), open_run(Path(sys.argv[3])) if len(sys.argv) == 4 else None)
