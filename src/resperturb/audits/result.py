"""Audits on disk: ``audit.json``, and the scores of the attacks that were fixed beforehand."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import SCHEMA, AttackResult, AttackScores, AuditResult
from resperturb.errors import ResperturbError
from resperturb.files import read_json
from resperturb.sealed import read_bound_arrays, read_bound_json, write_bound_arrays, write_bound_json

_logger = logging.getLogger(__name__)

AUDIT_FILE = "audit.json"
SCORES_FOLDER = "attacks"
_ATTACK, _AGAIN = "attack", "run the attack again"


def save_audit(result: AuditResult, folder: Path) -> None:
    """Write the result to ``folder`` as ``audit.json``, bound to what was audited.

    It replaces an earlier audit there, whose attacks are deleted: a page must not mix the two.
    """
    for attack in _replaced(folder, result):
        for path in _attack_files(folder, attack):
            path.unlink(missing_ok=True)
    write_bound_json(folder / AUDIT_FILE, result, result.digests)


def _replaced(folder: Path, new: AuditResult) -> list[AttackResult]:
    """The attacks of the audit that ``new`` replaces and that it did not make itself; warn if it tried less."""
    if not (folder / AUDIT_FILE).exists():
        return []
    try:
        old = read_audit(folder)
    except ResperturbError:  # it cannot be read, so nothing is known of its attacks
        return []
    if old.shadows.count > new.shadows.count:
        _logger.warning(
            "This audit replaces one with %d shadow models (AUC %.3f) in %s, and tried less. Rerun that one to have "
            "it back: its shadow models are kept.",
            old.shadows.count,
            old.strongest.auc,
            folder,
        )
    made = {attack.key for attack in new.attacks}
    return [attack for attack in old.fixed if attack.key not in made]


def read_audit(folder: Path, digests: Mapping[str, str] | None = None) -> AuditResult:
    """Read the audit that is kept in ``folder``.

    Args:
        folder: The folder of a run, or of an audit of somebody's own training.
        digests: Of the run that the audit must be about; any will do if None.

    Returns:
        The audit.

    Raises:
        ResperturbError: It is damaged, was changed, another version wrote it, or it is the audit of another run.
    """

    path = folder / AUDIT_FILE
    found = read_json(_Version, path, "run the audit again")
    if found.schema != SCHEMA:
        raise ResperturbError(f"{path} was written by another version of resperturb; run the audit again.")
    return replace(read_bound_json(AuditResult, path, digests, "run the audit again"), folder=folder)


@dataclass(frozen=True)
class _Version:
    schema: int


@dataclass(frozen=True, eq=False)
class KeptAttack:
    """An attack whose scores were kept beside its result, on the kind of candidate that it is judged by."""

    result: AttackResult
    scores: AttackScores

    @property
    def name(self) -> str:
        """What the attack is called, with the answers it saw."""
        return self.result.full_name

    @property
    def metrics(self) -> AttackMetrics:
        """What it found."""
        return self.result.metrics[self.candidates]

    @property
    def auc(self) -> float:
        """The area under its ROC curve."""
        return self.result.auc

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the area."""
        return self.result.auc_interval

    @property
    def candidates(self) -> str:
        """The kind of its candidates: ``record`` or a kind of canary."""
        return self.result.kind

    def tpr(self, fpr: float) -> TruePositiveRate | None:
        """What it finds at a false positive rate, if so small a rate can be seen among so many non-members."""
        return self.metrics.at_fpr(fpr)


@dataclass(frozen=True)
class _KeptResult:
    result: AttackResult
    digests: dict[str, str]


def keep_attack(folder: Path, result: AttackResult, scores: AttackScores, digests: Mapping[str, str]) -> None:
    """Keep an attack and its scores among those in ``folder``, bound to what ``digests`` say it was an attack on."""
    described, scored = _attack_files(folder, result)
    arrays = {"members": scores.members, "nonmembers": scores.nonmembers}
    write_bound_arrays(scored, arrays, {**digests, _ATTACK: result.key})
    write_bound_json(described, {"result": result}, digests)


def _attack_files(folder: Path, attack: AttackResult) -> tuple[Path, Path]:
    """Where an attack is kept: its result, and its scores."""
    described = folder / SCORES_FOLDER / f"{attack.key}.json"
    return described, described.with_suffix(".npz")


def kept_attacks(folder: Path, digests: Mapping[str, str] | None = None) -> list[KeptAttack]:
    """Read the attacks that are kept in ``folder``, the strongest first.

    Args:
        folder: The folder of a run or of an audit.
        digests: Of the run that they must be attacks on; any will do if None.

    Returns:
        The attacks with their scores.

    Raises:
        ResperturbError: An attack is damaged, was changed, or is one on another run.
    """
    paths = sorted((folder / SCORES_FOLDER).glob("*.json"))
    return sorted((read_attack(path, digests) for path in paths), key=lambda kept: -kept.result.auc)


def read_attack(path: Path, digests: Mapping[str, str] | None = None) -> KeptAttack:
    """Read the attack whose result is in ``path``, and whose scores are beside it; see :func:`kept_attacks`."""
    kept = read_bound_json(_KeptResult, path, digests, _AGAIN)
    if kept.result.key != path.stem:
        raise ResperturbError(f"{path} is another attack ({kept.result.full_name}); {_AGAIN}.")
    if not kept.result.metrics:
        raise ResperturbError(f"{path} measured nothing; {_AGAIN}.")
    scores = path.with_suffix(".npz")
    arrays = read_bound_arrays(scores, ("members", "nonmembers"), {**kept.digests, _ATTACK: kept.result.key}, _AGAIN)
    sides = arrays["members"], arrays["nonmembers"]
    for side in sides:
        if side.ndim != 1 or not side.size or side.dtype.kind != "f" or np.isnan(side).any():
            raise ResperturbError(f"{scores} does not hold one score per record; {_AGAIN}.")
    return KeptAttack(kept.result, AttackScores(*sides))
