"""Curves in accuracy and leak: one setting of a defence, measured on K targets at the checkpoints of a training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from resperturb.attacks.registry import ATTACKS
from resperturb.attacks.signals import View
from resperturb.auditing.assess import evidence_of
from resperturb.auditing.design import Design
from resperturb.auditing.fit import Models
from resperturb.bounds.arrays import Bools, Floats, Ints, Texts
from resperturb.bounds.audit_result import RECORD
from resperturb.bounds.comparison import per_group
from resperturb.bounds.metrics import auc, can_be_seen
from resperturb.errors import UsageError
from resperturb.frontiers.defence import Setting
from resperturb.privacy.guarantee import Guarantee, per_record

# Fixed for every study: the attack, on the model as it is served, by its mean logit over the most draws.
ATTACK = "rmia-online"
# The primary endpoint, fixed for every study, and what is reported besides.
PRIMARY, CANARY_AUC = "AUC", "canary AUC"
RATES = (0.01, 0.001)
# The slope of the ROC curve spans twice the non-members above the threshold, and this number more.
SLOPE_PLACES = 5
# Non-members that a TPR on one kind of canary needs: with fewer, its interval is as wide as its range.
FEWEST_CANARIES = 300


def tpr_name(fpr: float, of: str = "") -> str:
    """Name the endpoint *TPR at a false positive rate*, on records or on canaries.

    >>> tpr_name(0.01), tpr_name(0.01, "canary")
    ('TPR at 1% FPR', 'canary TPR at 1% FPR')
    """
    return f"{of} TPR at {100 * fpr:g}% FPR".strip()


CANARY_TPR = tpr_name(RATES[0], "canary")
# The same attack by someone who has the weights, and by someone who sees labels alone.
WEIGHTS_AUC, LABELS_AUC = "AUC with weights", "AUC of labels alone"


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve(Setting):
    """What one setting costs and leaks at each checkpoint, target by target.

    Attributes:
        targets: The numbers of the K models; models 2j and 2j + 1 are partners. The same number means the same coins
            and seed in every setting.
        stages: Names of the checkpoints, the final model last.
        accuracy: Accuracy on records that the target was not trained on, ``[stages, K]``.
        leaks: Values of each endpoint, ``[stages, K]``.
        epsilon: What the accounting gives for the final model; None if it gives nothing.
        claimed: Whether that is proven. Above 20 or so it rests on tails that no computed noise has.
        per: Of what epsilon is, ``record``, where the audit is about units of several; empty otherwise.
    """

    targets: Ints
    stages: tuple[str, ...]
    accuracy: Floats
    leaks: Mapping[str, Floats]
    epsilon: float | None = None
    claimed: bool = False
    per: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.stages), len(self.targets))
        for name, values in {"accuracy": self.accuracy, **self.leaks}.items():
            if values.shape != shape or not np.isfinite(values).all():
                raise UsageError(f"{self.name}: {name} must hold one finite number per stage and target, {shape}.")

    def on(self, targets: Ints) -> "Curve":
        """Return the curve of some of its targets."""
        kept = np.isin(self.targets, targets)
        leaks = {name: values[:, kept] for name, values in self.leaks.items()}
        return replace(self, targets=self.targets[kept], accuracy=self.accuracy[:, kept], leaks=leaks)

    def own(self, endpoint: str) -> str:
        """Name an endpoint on canaries by the kind of canary of this setting, so that others can be asked for it."""
        name = endpoint.replace("canary", self.canary, 1) if self.canary else endpoint
        return name if name in self.leaks else endpoint


def leaks_of(scores: Floats, members: Bools, kinds: Texts, units: Ints, canary: str = "") -> dict[str, Floats]:
    """Measure what one attack finds on each of K targets.

    Scores and members are ``[K, n]``; targets 2j and 2j + 1 are partners. Scores of records are averaged over units.
    Endpoints on ``canary`` are about that kind; about all kinds if it is empty, or if fewer than 300 of it are
    non-members of all targets together.

    Returns:
        One value per target of each endpoint: the AUC on records, their TPR where there are enough non-members, and
        the same on canaries, of each kind and of the one that is asked for. Each target has few canaries, so theirs
        are pooled over targets: the mean of the values is the pooled statistic, and each has what its target
        contributes.

    >>> members = np.eye(4, dtype=bool)
    >>> found = leaks_of(members + 0.0, members, np.array(["record"] * 4), np.arange(4))
    >>> found["AUC"].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    is_record = kinds == RECORD
    by_unit, member_units = per_group(scores[:, is_record], members[:, is_record], units[is_record])
    sides = [(row[inside], row[~inside]) for row, inside in zip(by_unit, member_units, strict=True)]
    found = {PRIMARY: np.array([auc(*side) for side in sides])}
    fewest = min(len(outs) for _, outs in sides)
    for fpr in RATES:
        if can_be_seen(fpr, fewest):
            found[tpr_name(fpr)] = np.array([tpr(*side, fpr) for side in sides])
    kept = sorted(set(kinds[~is_record].tolist()))
    for kind in kept:
        found.update(_on_canaries(kind, scores[:, kinds == kind], members[:, kinds == kind], FEWEST_CANARIES))
    if kept:
        asked = kinds == canary if tpr_name(RATES[0], canary) in found else ~is_record
        found.update(_on_canaries("canary", scores[:, asked], members[:, asked]))
    return found


def _on_canaries(name: str, scores: Floats, members: Bools, fewest: int = 1) -> dict[str, Floats]:
    count = int((~members).sum())
    rates = [fpr for fpr in RATES if count >= fewest and can_be_seen(fpr, count)]
    return {
        f"{name} AUC": _pooled_auc(scores, members),
        **{tpr_name(fpr, name): _pooled_tpr(scores, members, fpr) for fpr in rates},
    }


def tpr(members: Floats, nonmembers: Floats, fpr: float) -> float:
    """Return the share of members above a threshold that at most a share ``fpr`` of non-members reaches.

    >>> tpr(np.array([1.0, 3.0]), np.array([0.0, 2.0]), fpr=0.0)
    0.5
    """
    allowed = int(np.floor(fpr * nonmembers.size + 1e-9))
    threshold = np.sort(nonmembers)[::-1][allowed] if allowed < nonmembers.size else -np.inf
    return float((members > threshold).mean())


def _pooled_auc(scores: Floats, members: Bools) -> Floats:
    """Pool all targets, and give each the share that its pair contributes (delete-a-pair jackknife)."""

    def over(chosen: Bools) -> float:
        return auc(scores[chosen][members[chosen]], scores[chosen][~members[chosen]])

    pairs = np.arange(len(scores)) // 2
    whole = over(np.ones(len(scores), dtype=bool))
    without = np.array([over(pairs != pair) for pair in np.unique(pairs)]) if len(scores) > 2 else np.array([whole])
    # The pseudo-value of a pair, once for each of its targets: the rule for means over targets then gives the
    # standard error of the jackknife.
    values: Floats = (whole + (len(without) - 1) * (without.mean() - without))[pairs]
    return values


def _pooled_tpr(scores: Floats, members: Bools, fpr: float) -> Floats:
    """Pool all targets, and give each its share of the members above the threshold, linearised in the threshold.

    A target with more false alarms than its share moves the threshold, and the rate by the slope of the ROC curve
    there. The jackknife does not hold for a quantile: single pairs move it by much.
    """
    ins, outs = scores[members], np.sort(scores[~members])[::-1]
    allowed = int(np.floor(fpr * outs.size + 1e-9))
    first, last = 0, min(outs.size - 1, 2 * allowed + SLOPE_PLACES)
    rise = float((ins > outs[last]).mean() - (ins > outs[first]).mean())
    slope = rise * outs.size / max(1, last - first)
    above = scores > outs[allowed] if allowed < outs.size else np.ones_like(members)
    hits, alarms = (len(scores) * (above & some).sum(axis=1) / some.sum() for some in (members, ~members))
    values: Floats = hits - slope * (alarms - alarms.mean())
    return values


def curve_of(setting: Setting, models: Models, design: Design, guarantee: Guarantee) -> tuple[Curve, Floats]:
    """Measure accuracy and leaks of a setting at every checkpoint, and score every candidate under the final models.

    ``design`` is a leave-one-out design without models that did not learn, ``guarantee`` that of a final model.
    """
    stages = models.stages() or [""]
    found = [_measured(models, design, stage, setting.canary) for stage in stages]
    accuracy, leaks, scores = zip(*found, strict=True)
    claimed = bool(np.isfinite(guarantee.claimed_epsilon))
    common = [name for name in leaks[-1] if all(name in one for one in leaks)]
    curve = Curve(
        **setting.values,
        targets=design.targets,
        stages=tuple(stage or "final" for stage in stages),
        accuracy=np.array(accuracy),
        leaks={name: np.array([one[name] for one in leaks]) for name in common},
        epsilon=guarantee.epsilon if np.isfinite(guarantee.epsilon) and (setting.formal or claimed) else None,
        claimed=claimed,
        per=RECORD if per_record(guarantee) and models.candidates.patients else "",
    )
    return curve, scores[-1]


def _measured(models: Models, design: Design, stage: str, canary: str) -> tuple[Floats, dict[str, Floats], Floats]:
    """Measure one checkpoint: accuracy of every target on records outside of it, its leaks, and all scores."""
    candidates, targets = models.candidates, design.targets
    first = models.answers(int(targets[0]), stage)
    served = View("served", first["served"].averages[-1])
    weights = View("weights", 1) if "weights" in first else served
    labels = View("served", served.draws, "votes")
    attacks = {PRIMARY: (ATTACK, served), WEIGHTS_AUC: (ATTACK, weights), LABELS_AUC: ("label-only", labels)}
    scores = {name: np.zeros((len(targets), len(candidates))) for name in attacks}
    accuracy = np.zeros(len(targets))
    is_record = candidates.kinds == RECORD
    for row, (target, evidence) in enumerate(
        evidence_of(models, design, tuple(dict.fromkeys((served, weights))), stage)
    ):
        for name, (attack, view) in attacks.items():
            scores[name][row] = ATTACKS[attack].score(evidence, view)
        # The population is outside of every model.
        outside = np.pad(~design.members[target] & is_record, (0, candidates.population), constant_values=True)
        accuracy[row] = evidence.answers["served"].correct[outside].mean()
    members = design.members[targets]
    leaks = leaks_of(scores[PRIMARY], members, candidates.kinds, candidates.units, canary)
    for name in (WEIGHTS_AUC, LABELS_AUC):
        records = scores[name][:, is_record], members[:, is_record]
        leaks[name] = leaks_of(*records, candidates.kinds[is_record], candidates.units[is_record])[PRIMARY]
    return accuracy, leaks, scores[PRIMARY]
