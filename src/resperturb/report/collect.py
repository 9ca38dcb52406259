"""Everything a report needs to know of a run, read from its folder."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from resperturb.auditing.metrics import can_be_seen
from resperturb.audits.outcome import MembershipScores, load_scores
from resperturb.errors import ResperturbError
from resperturb.training.run import Run

AUDIT_SCHEMA = 1
# A leak is called one if chance alone would look like it at most this often.
SIGNIFICANCE = 0.05


@dataclass(frozen=True, eq=False)
class Attack:
    """One attack on a run whose scores were kept."""

    summary: dict[str, Any]
    scores: MembershipScores

    @property
    def name(self) -> str:
        """What the attack is called."""
        return str(self.summary["attack"])

    @property
    def auc(self) -> float:
        """The area under its ROC curve."""
        return float(self.summary["auc"])

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the area."""
        low, high = self.summary["auc_interval"]
        return float(low), float(high)

    @property
    def candidates(self) -> str:
        """Whom it was asked about: ``record`` or a kind of canary."""
        return str(self.summary.get("candidates", "record"))

    def tpr(self, fpr: str) -> dict[str, Any] | None:
        """What it finds at a false positive rate, if so small a rate can be seen among so many non-members."""
        found: dict[str, Any] | None = self.summary["tpr_at_fpr"].get(fpr)
        return found if can_be_seen(float(fpr), self.scores.nonmembers.size) else None

    @cached_property
    def p_value(self) -> float:
        """How often a model that knows nothing of its members would be attacked so well: a rank test."""
        import numpy as np
        from scipy.stats import mannwhitneyu

        ins, outs = self.scores.members, self.scores.nonmembers
        if np.ptp(np.nan_to_num(np.concatenate([ins, outs]))) == 0:
            return 1.0
        return float(mannwhitneyu(ins, outs, alternative="greater").pvalue)


@dataclass(frozen=True)
class Tried:
    """A line of the list of all that was tried: an attack, whether it was fixed beforehand, and what it found."""

    name: str
    reference: str
    candidates: str
    fixed: bool
    measures: dict[str, Any]
    epsilon: float | None


@dataclass(frozen=True)
class Asked:
    """The strongest attack among those that ask the model in one way."""

    way: str
    attack: str
    auc: float
    interval: tuple[float, float]


def run_name(run: Run) -> str:
    """Call a run by its folder, or by what it is where the folder is only named by its hash."""
    folder = run.path.resolve().name
    if folder != run.config.digest:
        return folder
    noise = ReportedRun(folder, run).noise
    kind = "not private" if noise == "none" else noise
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

    @property
    def noise(self) -> str:
        """What makes it private, in a word or two: ``additive 0.5``, ``DP-SGD 1.1``, ``none``."""
        kinds = [] if self.strategy == "none" else [f"{self.strategy} {self.gamma:g}"]
        if self.run.config.method.label:
            kinds.append(self.run.config.method.label)
        return " + ".join(kinds) or "none"

    @cached_property
    def attacks(self) -> list[Attack]:
        """The attacks whose scores were kept, the strongest first."""
        paths = sorted((self.run.path / "attacks").glob("*.json"))
        found = [
            Attack(
                _read(path, ("attack", "auc", "auc_interval", "tpr_at_fpr")), load_scores(self.run.path, path.stem)
            )
            for path in paths
        ]
        return sorted(found, key=lambda attack: -attack.auc)

    @property
    def worst(self) -> Attack | None:
        """The attack that found most."""
        return self.attacks[0] if self.attacks else None

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        """The audit of the run, if it was audited."""
        path = self.run.path / "audit.json"
        if not path.exists():
            return None
        audit = _read(path, ("schema", "attacks", "candidates", "epsilon_lower", "epsilon_upper", "verdict"))
        if audit["schema"] != AUDIT_SCHEMA:
            raise ResperturbError(f"{path} was written by another version; run `resperturb audit` again.")
        return audit

    @cached_property
    def leaks(self) -> bool:
        """Whether it leaks beyond what the luck of the best of so many attacks explains."""
        if self.audit is not None and float(self.audit["epsilon_lower"]["epsilon"]) > 0:
            return True
        return min((attack.p_value for attack in self.attacks), default=1.0) * len(self.attacks) < SIGNIFICANCE

    @cached_property
    def kind(self) -> str:
        """The candidates that its attacks are compared on: the records, or canaries where nothing else is known."""
        return "record" if self.worst is None else self.worst.candidates

    def most_found(self, fpr: str) -> Attack | None:
        """The attack that recognises most members at a false positive rate."""
        able = [attack for attack in self.attacks if attack.tpr(fpr) is not None]
        return max(
            able, key=lambda attack: (float(attack.summary["tpr_at_fpr"][fpr]["tpr"]), attack.auc), default=None
        )

    @cached_property
    def tried(self) -> list[Tried]:
        """All attacks, the strongest first: those that were fixed beforehand and, of an audit, all others."""
        entries = [] if self.audit is None else self.audit["attacks"]
        bounds = {f"{entry['attack']}, {entry['view']}": entry["epsilon_lower"] for entry in entries}
        lines = [
            Tried(
                attack.name,
                str(attack.summary.get("reference", "")),
                attack.candidates,
                True,
                attack.summary,
                _epsilon(bounds.get(attack.name)),
            )
            for attack in self.attacks
        ]
        lines += [
            Tried(
                f"{entry['attack']}, {entry['view']}",
                entry["reference"],
                self.kind,
                False,
                entry["by_kind"][self.kind],
                _epsilon(entry["epsilon_lower"]),
            )
            for entry in entries
            if not entry["headline"] and self.kind in entry["by_kind"]
        ]
        return sorted(lines, key=lambda line: -float(line.measures["auc"]))

    @cached_property
    def ways(self) -> list[Asked]:
        """What the strongest attack finds by each way to ask: over so many draws of the noise, and without it."""
        best: dict[tuple[int, int], Asked] = {}
        for entry in [] if self.audit is None else self.audit["attacks"]:
            measures = entry["by_kind"].get(self.kind)
            if measures is None:
                continue
            draws = int(entry["draws"])
            way = f"{draws} draw{'s' if draws > 1 else ''}" if entry["access"] == "noise on" else str(entry["access"])
            order = ({"noise on": 0, "noise off": 1}.get(entry["access"], 2), draws)
            low, high = measures["auc_interval"]
            asked = Asked(way, f"{entry['attack']}, {entry['view']}", float(measures["auc"]), (low, high))
            if order not in best or asked.auc > best[order].auc:
                best[order] = asked
        return [best[order] for order in sorted(best)]

    def to_dict(self) -> dict[str, Any]:
        """Give the run's line of a comparison as plain data."""
        from resperturb.report.claims import claim

        line: dict[str, Any] = {
            "name": self.name,
            "run": str(self.run.path),
            "strategy": self.strategy,
            "gamma": self.gamma,
            "noise": self.noise,
            "model": self.run.config.model,
            **self.run.result.accuracies(),
            **claim(self).to_dict(),
        }
        if self.worst is not None:
            summary = self.worst.summary
            line["attack"] = {
                "name": summary["attack"],
                "candidates": self.worst.candidates,
                "of": len(self.attacks),
                "auc": summary["auc"],
                "auc_interval": summary["auc_interval"],
                "tpr_at_1_percent_fpr": (self.worst.tpr("0.01") or {}).get("tpr"),
                "leaks": self.leaks,
            }
        return line


def _epsilon(bound: dict[str, Any] | None) -> float | None:
    return None if bound is None else float(bound["epsilon"])


def _read(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResperturbError(f"{path} cannot be read ({error}); make it again.") from error
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise ResperturbError(f"{path} is not complete ({', '.join(missing)} missing); make it again.")
    return dict(content)
