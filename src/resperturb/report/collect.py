"""Everything a report needs to know of a model: a finished run, or an audit of somebody's own training."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from resperturb.audits import KeptAttack, kept_attacks, read_audit
from resperturb.audits.result import AUDIT_FILE, SCORES_FOLDER
from resperturb.bounds.attack_metrics import TruePositiveRate
from resperturb.bounds.audit_result import AttackResult, AuditResult
from resperturb.bounds.result import LowerBound
from resperturb.errors import ResperturbError, UsageError
from resperturb.privacy import Guarantee
from resperturb.training.run import Run, open_run


@dataclass(frozen=True)
class Strongest:
    """The strongest attack among those that query the model in one way."""

    way: str
    attack: str
    auc: float
    interval: tuple[float, float]


def run_name(run: Run) -> str:
    """Call a run by its folder, or by what it is where the folder is only named by its hash.

    No digit of the hash is told: it is one of the images and the seeds, so it would confirm a guess about either.
    """
    folder = run.path.resolve().name
    if folder != run.config.digest:
        return folder
    noise = ReportedModel(folder, run.path, run).noise
    kind = "not private" if noise == "none" else noise
    return f"{kind}, {run.config.network.public}"


@dataclass(frozen=True, eq=False)
class ReportedModel:
    """A model under the name that the report gives it: a finished run, or an audit in ``folder`` without one."""

    name: str
    folder: Path
    run: Run | None = None

    @property
    def strategy(self) -> str:
        """The name of its strategy of noise, or ``none``."""
        noise = None if self.run is None else self.run.config.perturbation
        return "none" if noise is None else noise.name

    @property
    def gamma(self) -> float:
        """The level of the noise; 0 without any."""
        return 0.0 if self.run is None else float(getattr(self.run.config.perturbation, "gamma", 0.0))

    @property
    def noise(self) -> str:
        """What keeps it from leaking, in a word or two: ``additive 0.5``, ``DP-SGD 1.1``, ``none``."""
        if self.run is None:
            return "" if self.audit is None else self.audit.model.description
        config = self.run.config
        labels = ["" if config.perturbation is None else config.perturbation.label, config.method.label]
        return " + ".join(filter(None, labels)) or "none"

    @property
    def train_accuracy(self) -> float:
        """The accuracy on members."""
        return self.run.result.train_accuracy if self.run is not None else self._audited.model.train_accuracy

    @property
    def test_accuracy(self) -> float:
        """The accuracy on records that it was not trained on."""
        return self.run.result.test_accuracy if self.run is not None else self._audited.model.test_accuracy

    @property
    def gap(self) -> float:
        """How much better it is on members."""
        return self.train_accuracy - self.test_accuracy

    @cached_property
    def attacks(self) -> list[KeptAttack]:
        """The attacks whose scores were kept, the strongest first.

        Raises:
            ResperturbError: The audit made an attack that is not there any more: without it the model looks better.
        """
        found = kept_attacks(self.folder, self._digests)
        made = () if self.audit is None else self.audit.fixed
        if missing := {attack.key for attack in made} - {attack.result.key for attack in found}:
            path = self.folder / SCORES_FOLDER / f"{min(missing)}.json"
            raise ResperturbError(f"{path} is missing, and {AUDIT_FILE} was made with it; run the audit again.")
        return found

    @property
    def worst(self) -> KeptAttack | None:
        """The attack that found most."""
        return self.attacks[0] if self.attacks else None

    @cached_property
    def audit(self) -> AuditResult | None:
        """The audit of the model, if it was audited."""
        digests = None if self.run is None else self.run.digests
        return read_audit(self.folder, digests) if (self.folder / AUDIT_FILE).exists() else None

    @property
    def _digests(self) -> dict[str, str]:
        return dict(self._audited.digests if self.run is None else self.run.digests)

    @property
    def _audited(self) -> AuditResult:
        if self.audit is None:
            raise UsageError(f"{self.folder} holds neither a finished run nor an audit.")
        return self.audit

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is proven about it, computed from its configuration."""
        if self.run is None:
            return self._audited.guarantee
        return self.run.guarantee(None if self.audit is None else self.audit.delta)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantee and, where the audit tests it for other neighbours, what it is for those.

        The last is the one that :attr:`lower` may be compared with.
        """
        tested = None if self.audit is None else self.audit.tested_guarantee
        one = self.guarantee
        if tested is None or (tested.neighbours, tested.claimed_epsilon) == (one.neighbours, one.claimed_epsilon):
            return (one,)
        return one, tested

    @property
    def lower(self) -> LowerBound | None:
        """The lower bound on epsilon that its audit showed."""
        return None if self.audit is None else self.audit.epsilon_lower

    @property
    def refuted(self) -> bool:
        """Whether the audit showed more than was proven possible."""
        return self.audit is not None and self.audit.verdict == "refuted"

    @cached_property
    def leaks(self) -> bool:
        """Whether a leak was seen: by the audit, or by attacks that it does not know, corrected for all of them."""
        if self.audit is not None and self.audit.leaks:
            return True
        known = {attack.full_name for attack in self.audit.fixed} if self.audit is not None else set()
        others = [attack.metrics for attack in self.attacks if attack.name not in known]
        return any(metrics.at(1 - 0.05 / len(others)).shows_leak for metrics in others)

    @property
    def leak(self) -> str:
        """Whether a leak was seen, and by what where the AUC of the strongest attack does not show it."""
        if not self.leaks:
            return "not seen"
        if self.worst is not None and self.worst.interval[0] > 0.5:
            return "yes"
        by_bound = self.lower is not None and self.lower.epsilon > 0
        return "yes, by the bound on epsilon" if by_bound else "yes, on other candidates or by another attack"

    @cached_property
    def kind(self) -> str:
        """The candidates that its attacks are compared on: the records, or canaries where nothing else is known."""
        return "record" if self.worst is None else self.worst.candidates

    def most_found(self, fpr: float) -> KeptAttack | None:
        """The attack with the largest true positive rate at a false positive rate; with a tie only if all tie."""
        found = [(attack, point) for attack in self.attacks if (point := attack.tpr(fpr)) is not None]
        best = max(found, key=lambda one: (not one[1].tied, one[1].tpr, one[0].auc), default=None)
        return None if best is None else best[0]

    def tpr(self, fpr: float) -> TruePositiveRate | None:
        """The largest true positive rate at a false positive rate: the one number that tables and sentences show."""
        best = self.most_found(fpr)
        return None if best is None else best.tpr(fpr)

    @cached_property
    def tried(self) -> list[AttackResult]:
        """All attacks, the strongest first: those that were kept and, of an audit, all others."""
        kept = {attack.name: attack.result for attack in self.attacks}
        others = [] if self.audit is None else [a for a in self.audit.attacks if a.full_name not in kept]
        return sorted([*kept.values(), *others], key=lambda attack: -attack.auc)

    @cached_property
    def ways(self) -> list[Strongest]:
        """What the strongest attack finds by each way to ask: over so many draws of the noise, and without it."""
        best: dict[tuple[int, int], Strongest] = {}
        for attack in () if self.audit is None else self.audit.attacks:
            metrics = attack.metrics.get(self.kind)
            if metrics is None:
                continue
            draws = attack.draws
            way = f"{draws} draws" if attack.access == "served" and draws > 1 else attack.access
            order = ({"served": 0, "weights": 1}.get(attack.access, 2), draws)
            asked = Strongest(way, attack.full_name, metrics.auc, metrics.auc_interval)
            if order not in best or asked.auc > best[order].auc:
                best[order] = asked
        return [best[order] for order in sorted(best)]

    def to_dict(self) -> dict[str, object]:
        """Give the model's line of a comparison as plain data."""
        line: dict[str, object] = {
            "name": self.name,
            "folder": str(self.folder),
            "strategy": self.strategy,
            "gamma": self.gamma,
            "noise": self.noise,
            "model": None if self.run is None else self.run.config.network.public,
            "train_accuracy": self.train_accuracy,
            "test_accuracy": self.test_accuracy,
            "gap": self.gap,
            "guarantee": self.guarantee.to_dict(),
            "epsilon_lower": None if self.lower is None else self.lower.to_dict(),
            "verdict": None if self.audit is None else self.audit.verdict,
        }
        if self.worst is not None:
            point = self.tpr(0.01)
            line["attack"] = {
                "name": self.worst.name,
                "candidates": self.worst.candidates,
                "of": len(self.attacks),
                "auc": self.worst.auc,
                "auc_interval": list(self.worst.interval),
                "tpr_at_1_percent_fpr": None if point is None or point.tied else point.tpr,
                "leaks": self.leaks,
            }
        return line


def open_models(paths: list[Path]) -> list[ReportedModel]:
    """Open folders of finished runs, and of audits of somebody's own training, under names that differ.

    Raises:
        UsageError: A folder holds neither.
    """
    found: list[tuple[str, Path, Run | None]] = []
    for path in paths:
        if not (path / "config.json").is_file() and (path / AUDIT_FILE).is_file():
            found.append((path.resolve().name, path, None))
            continue
        run = open_run(path)
        _ = run.result  # an unfinished run is an error here, not in the middle of a page
        found.append((run_name(run), path, run))
    names = [name for name, _, _ in found]
    # Numbers and not paths: a report says nothing of the machine that it was made on.
    unlike = [f"{n} ({names[: i + 1].count(n)})" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [ReportedModel(name, path, run) for name, (_, path, run) in zip(unlike, found, strict=True)]
