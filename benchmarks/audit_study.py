"""An audit of everything side by side: no noise, residual perturbation, DP-SGD, and ordinary regularisation.

``python -m benchmarks.audit_study OUT`` trains what is missing and resumes where it was stopped. It needs
no download: it uses 1,600 images of the built-in sample of Fashion-MNIST, and every model is trained on 400 of them
and on the canaries whose coins say so: few enough to be memorised in half a minute.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.controls import CONTROLS, at_equal_accuracy
from resperturb.bounds import AuditResult
from resperturb.engine import Engine, RayEngine, local_engine
from resperturb.files import plain, write_bytes, write_json
from resperturb.perturbation import Additive, Multiplicative, Strategy
from resperturb.training import CanaryConfig, DataConfig, Dpsgd, Run, TrainConfig, audit_run
from resperturb.training.config import make_config
from resperturb.training.many import train_many

IMAGES = 1600
EPOCHS = 25
SHADOWS = 16
CANARIES = CanaryConfig(clean=40, mislabelled=60, out_of_distribution=40, blank=20, near_duplicate=40)
# The run whose accuracy the controls have to match.
MATCHED = "additive, gamma 0.5"


@dataclass(frozen=True)
class StudiedModel:
    """A name, how it is trained, and how often its noise is drawn in attacks."""

    name: str
    config: TrainConfig
    draws: tuple[int, ...] = (1,)


def config(strategy: Strategy | None = None, **changes: Any) -> TrainConfig:
    """Say how a model of the study is trained: all alike but for what they are named after."""
    return TrainConfig(
        **{
            "data": DataConfig(spec="fashion-sample", limit=IMAGES, part="target_train", canaries=CANARIES),
            "perturbation": strategy,
            "epochs": EPOCHS,
            "batch_size": 32,
            "lr": 0.05,
            "seeded_noise": True,
            **changes,
        }
    )


def _dpsgd_config() -> TrainConfig:
    """DP-SGD, with noise that nobody can draw again: otherwise its guarantee would be void."""
    return config(method=Dpsgd(noise_multiplier=1.0), seeded_noise=False, batch_size=100, lr=0.5)


def variants() -> list[StudiedModel]:
    """The models that are compared, controls aside."""
    return [
        StudiedModel("no noise", config()),
        StudiedModel(MATCHED, config(Additive(0.5)), (1, 4, 16, 64)),
        StudiedModel("additive, gamma 1", config(Additive(1.0)), (1, 16)),
        StudiedModel("multiplicative, gamma 1", config(Multiplicative(1.0)), (1, 16)),
        StudiedModel("DP-SGD, noise 1", _dpsgd_config()),
        StudiedModel("DP head, epsilon 3", make_config(data=config().data, method="dp-head")),
    ]


def run_study(
    folder: Path,
    jobs: int | None = None,
    shadows: int = SHADOWS,
    say: Callable[[str], None] = lambda line: None,
    engine: Engine = local_engine,
    only: str = "",
) -> dict[str, Any]:
    """Train, choose the controls, audit everything; keep the table as study.json and study.md in ``folder``.

    ``only`` is a part of the names of the models to audit; then no controls are chosen.
    """
    chosen = [variant for variant in variants() if only in variant.name]
    say(f"training {len(chosen)} models")
    runs = train_many([variant.config for variant in chosen], folder, jobs, engine=engine)
    accuracy = 0.0 if only else runs[[variant.name for variant in chosen].index(MATCHED)].result.test_accuracy
    for control in () if only else CONTROLS:
        say(f"choosing a strength: {control.name}, for a test accuracy of {accuracy:.3f}")
        candidates = train_many(control.configs(config()), folder, jobs, engine=engine)
        best = at_equal_accuracy(candidates, accuracy)
        strength = control.strengths[candidates.index(best)]
        chosen.append(StudiedModel(f"{control.name} {strength:g}", best.config))
        runs.append(best)
    rows = []
    for variant, run in zip(chosen, runs, strict=True):
        say(f"auditing {variant.name}: {run.path}")
        found = audit_run(run, shadows=shadows, jobs=jobs, draws=variant.draws, engine=engine)
        rows.append(_row(variant, run, found))
        write_json(folder / "study.json", {"shadows": shadows, "matched": MATCHED, "rows": rows})
    if not only:
        write_bytes(folder / "study.md", markdown(rows).encode())
    return {"rows": rows}


def _row(variant: StudiedModel, run: Run, found: AuditResult) -> dict[str, Any]:
    """What the study keeps of an audit: the attacks that were fixed beforehand, and the axes of the noise."""
    attacks = [
        {
            "attack": attack.name,
            "view": attack.view,
            **{
                kind: {
                    "auc": metrics.auc,
                    "auc_interval": list(metrics.auc_interval),
                    "balanced_accuracy": metrics.balanced_accuracy,
                    "tpr_at_fpr": {f"{point.fpr:g}": point.tpr for point in metrics.tpr_at_fpr},
                }
                for kind, metrics in attack.metrics.items()
            },
        }
        for attack in found.attacks
    ]
    row: dict[str, Any] = plain(
        {
            "name": variant.name,
            "run": run.path.name,
            **run.result.accuracies(),
            "records": run.result.records,
            "epsilon_lower": found.epsilon_lower,
            "epsilon_upper": found.tested_guarantee.claimed_epsilon,
            "verdict": found.verdict,
            "exposed": found.exposed,
            "attacks": attacks,
        }
    )
    return row


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Write the study as tables: leakage of records, of canaries, and over the axes of the noise."""
    return "\n".join([*_overview(rows), "", *_canaries(rows), "", *_axes(rows), ""])


def best_attack(row: dict[str, Any], kind: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Of the attacks of these names, the one with the largest AUC on a kind of candidate; None if none was made."""
    found = [attack for attack in row["attacks"] if attack["attack"] in names and kind in attack]
    return max(found, key=lambda attack: float(attack[kind]["auc"]), default=None)


LIRA = ("lira-online", "lira-online-global", "lira-offline", "lira-offline-global", "lira-offline-density")
RMIA = ("rmia-online", "rmia-offline")
THRESHOLDS = ("loss", "confidence", "entropy", "modified-entropy", "label-only")
LEARNED = ("shadow", "shadow-adaptive")


def _way(row: dict[str, Any]) -> tuple[str, str]:
    """How a row's lower bound was measured: bounds that differ in this may not be compared."""
    return row["epsilon_lower"]["neighbours"], row["epsilon_lower"]["correction"]


def _overview(rows: Sequence[dict[str, Any]]) -> list[str]:
    ways = list(dict.fromkeys(map(_way, rows)))
    shown = [f"epsilon shown ({neighbours.replace('_', ' or ')}, {correction})" for neighbours, correction in ways]
    headings = ["model", "train acc.", "test acc.", "paper's attack", "thresholds", "LiRA", "RMIA", "TPR at 1% FPR"]
    headings += [*shown, "proven"]
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for row in rows:
        groups = [best_attack(row, "record", names) for names in (LEARNED, THRESHOLDS, LIRA, RMIA)]
        cells = ["" if best is None else f"{best['record']['auc']:.3f}" for best in groups]
        strongest = best_attack(row, "record", [*LIRA, *RMIA])
        rate = "" if strongest is None else f"{strongest['record']['tpr_at_fpr']['0.01']:.3f}"
        upper = row["epsilon_upper"]
        bounds = [f"{row['epsilon_lower']['epsilon']:.2f}" if way == _way(row) else "" for way in ways]
        lines.append(
            f"| {row['name']} | {row['train_accuracy']:.3f} | {row['test_accuracy']:.3f} | {' | '.join(cells)} | "
            f"{rate} | {' | '.join(bounds)} | {'nothing' if upper == 'inf' else f'{upper:,.3g}'} |"
        )
    return lines


def _canaries(rows: Sequence[dict[str, Any]]) -> list[str]:
    kinds = [kind for kind, number in CANARIES.counts.items() if number]
    lines = [
        f"| model | {' | '.join(kind.replace('_', '-') for kind in kinds)} | most exposed |",
        "|" + "---|" * (len(kinds) + 2),
    ]
    for row in rows:
        best = [best_attack(row, kind, [*THRESHOLDS, *LIRA, *RMIA]) for kind in kinds]
        cells = [
            "" if found is None else f"{found[kind]['auc']:.3f}" for kind, found in zip(kinds, best, strict=True)
        ]
        exposed = row["exposed"]["metrics"] if row["exposed"] else None
        lines.append(f"| {row['name']} | {' | '.join(cells)} | {exposed['auc'] if exposed else float('nan'):.3f} |")
    return lines


# Of the attacks that differ little from each other, one.
_SHOWN = ("loss", "label-only", "lira-online-global", "lira-offline-global", "rmia-online", *LEARNED)


def _axes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Leakage over what the attacker sees: how often he asks, how he combines the answers, and the noise off."""
    [row] = [row for row in rows if row["name"] == MATCHED]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for attack in row["attacks"]:
        if attack["attack"] in _SHOWN:
            sight, _, combination = attack["view"].removeprefix("noise on, ").removeprefix("served, ").partition(", ")
            combination = combination or ("votes" if attack["attack"] == "label-only" else "mean logit")
            cells.setdefault((attack["attack"], combination), {})[sight] = f"{attack['record']['auc']:.3f}"
    sights = list(dict.fromkeys(sight for found in cells.values() for sight in found))
    lines = [f"| {row['name']} | answers combined by | {' | '.join(sights)} |", "|" + "---|" * (len(sights) + 2)]
    for (name, combination), found in cells.items():
        lines.append(f"| `{name}` | {combination} | {' | '.join(found.get(sight, '') for sight in sights)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_study", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the runs and the table")
    parser.add_argument("--jobs", type=int, default=None, help="trainings at a time (what there is room for)")
    parser.add_argument("--shadows", type=int, default=SHADOWS)
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where the trainings run")
    parser.add_argument("--ray-address", default=None, help="the Ray cluster to join")
    parser.add_argument("--only", default="", help="a part of the names of the models to audit, without controls")
    chosen = parser.parse_args(arguments)
    engine = RayEngine(chosen.ray_address) if chosen.engine == "ray" else local_engine
    say = partial(print, file=sys.stderr, flush=True)
    found = run_study(chosen.out, chosen.jobs, chosen.shadows, say, engine, chosen.only)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
