"""Everything a report needs to know of a run, read from its folder."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from resperturb.attacks.outcome import load_scores, roc_points
from resperturb.errors import ResperturbError
from resperturb.training.run import Run


@dataclass(frozen=True)
class Attack:
    """One attack on a run: its summary and its ROC curve."""

    summary: dict[str, Any]
    fpr: list[float]
    tpr: list[float]

    @property
    def name(self) -> str:
        """What the attack is called."""
        return str(self.summary["attack"])


def run_name(run: Run) -> str:
    """Call a run by its folder, or by what it is where the folder is only named by its hash."""
    folder = run.path.resolve().name
    if folder != run.config.digest:
        return folder
    noise = run.config.perturbation
    kind = "not private" if noise["name"] == "none" else f"{noise['name']} {noise['gamma']:g}"
    return f"{kind}, {run.config.model} ({folder[:4]})"


@dataclass(frozen=True)
class ReportedRun:
    """A finished run under the name that the report gives it."""

    name: str
    run: Run

    @property
    def strategy(self) -> str:
        """``none``, ``additive`` or ``multiplicative``."""
        return str(self.run.config.perturbation["name"])

    @property
    def gamma(self) -> float:
        """The level of the noise; 0 without any."""
        return float(self.run.config.perturbation.get("gamma", 0.0))

    @cached_property
    def attacks(self) -> list[Attack]:
        """The attacks that were run on it, weakest adversary first."""
        found = []
        for path in sorted((self.run.path / "attacks").glob("*.json")):
            try:
                summary = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise ResperturbError(f"{path} cannot be read ({error}); run the attack again.") from error
            found.append(Attack(summary, *roc_points(load_scores(self.run.path, path.stem))))
        return found

    @property
    def worst(self) -> Attack | None:
        """The attack that found most."""
        return max(self.attacks, key=lambda attack: float(attack.summary["auc"]), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Give the run's line of a comparison as plain data."""
        result = self.run.result
        line: dict[str, Any] = {
            "name": self.name,
            "run": str(self.run.path),
            "strategy": self.strategy,
            "gamma": self.gamma,
            "model": self.run.config.model,
            "train_accuracy": result["train_accuracy"],
            "test_accuracy": result["test_accuracy"],
            "gap": result["gap"],
        }
        if self.worst is not None:
            summary = self.worst.summary
            line["attack"] = {
                "name": summary["attack"],
                "auc": summary["auc"],
                "auc_interval": summary["auc_interval"],
                "tpr_at_1_percent_fpr": summary["tpr_at_fpr"]["0.01"]["tpr"],
            }
        return line
