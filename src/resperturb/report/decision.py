"""The decision about a model as every page shows it: status, what was measured, evidence, next step."""

from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.bounds.intervals import Interval as Interval
from resperturb.progress import duration
from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Check, Decision, Outcome, decide
from resperturb.report.policy import EVIDENCE, Policy
from resperturb.report.wording import attacked, counted, several

# Attacks with another aim than membership: no audit makes them.
NOT_TESTED = ("attribute inference", "model inversion", "reconstruction of training records")
RESIDUAL = (
    "stronger attacks, or more shadow models",
    *NOT_TESTED,
    "several releases of one model",
    "the most exposed person",
)


@dataclass(frozen=True)
class State:
    """An outcome in a word, a shape and a colour of the terminal: none depends on the others to be understood."""

    word: str
    shape: str
    colour: str


STATES: dict[Outcome, State] = {
    "failed": State("ABOVE POLICY", "✗", "bold red"),
    "unknown": State("UNDECIDED", "◆", "bold yellow"),
    "met": State("WITHIN POLICY, AS TESTED", "✓", "bold blue"),
}


@dataclass(frozen=True)
class Row:
    """One demand of a policy: its name, what was found, the limit, and whether that is above, within or neither."""

    check: Check

    @property
    def state(self) -> State:
        """The outcome."""
        return STATES[self.check.outcome]

    @property
    def title(self) -> str:
        """The demand in plain words, the technical ones in brackets.

        >>> Row(Check("AUC", "met", "", title="Finding a typical record")).title
        'Finding a typical record (AUC)'
        """
        technical = self.check.demand.split(" on ")[0].split(" per ")[0].split(" at ")[0]
        return f"{self.check.title} ({technical})" if technical in ("AUC", "TPR") else self.check.title

    @property
    def found(self) -> str:
        """The measured value."""
        value = self.check.value
        if value is None:
            return "none" if self.check.demand == "epsilon proven" else "not measured"
        if self.check.demand.startswith("epsilon"):
            return f"{'≥' if 'shown' in self.check.demand else '≤'} {value:.3g}"
        return f"{100 * value:.1f}%" if self.check.demand.startswith("TPR") else f"{value:.3f}"

    @property
    def limit(self) -> str:
        """The limit."""
        limit = self.check.limit or 0.0
        return f"{100 * limit:g}%" if self.check.demand.startswith("TPR") else f"{limit:g}"

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale on which value, interval and limit are drawn."""
        if self.check.demand.startswith("AUC"):
            return 0.5, 1.0
        assert self.check.interval is not None
        most = max(self.check.interval.high, self.check.limit or 0.0)
        return 0.0, next(end for end in (0.05, 0.2, 0.5, 1.0) if most <= end)

    def place(self, value: float) -> float:
        """Place a value on the scale: 0 is its left end, 1 its right."""
        left, right = self.ends
        return min(1.0, max(0.0, (value - left) / (right - left)))

    def drawn(self, width: int = 22) -> str:
        """Draw interval, value and limit as a line of text; empty where nothing was measured.

        >>> Row(Check("AUC", "unknown", "", 0.7, Interval(0.6, 0.8), 0.65)).drawn(20)
        '0.5 ├───[==|●====]───────┤ 1'
        """
        check = self.check
        if check.interval is None or check.value is None or check.limit is None:
            return ""
        cells = ["─"] * width
        low, value, high, limit = (
            min(width - 1, int(self.place(at) * width))
            for at in (check.interval.low, check.value, check.interval.high, check.limit)
        )
        cells[low : high + 1] = "=" * (high - low + 1)
        for place, mark in ((low, "["), (high, "]"), (limit, "|"), (value, "●")):
            cells[place] = mark
        left, right = self.ends
        return f"{left:g} ├{''.join(cells)}┤ {right:g}"

    @property
    def verdict(self) -> str:
        """The interval that decides and how it relates to the limit, in a few words."""
        check = self.check
        if check.demand == "epsilon shown" and check.value is not None:
            return "above the limit" if check.outcome == "failed" else "not exceeded (cannot clear a model)"
        if check.interval is None:
            return {"failed": "above the limit", "unknown": "not known", "met": "within the limit"}[check.outcome]
        ends = [f"{100 * end:.1f}" if check.demand.startswith("TPR") else f"{end:.3f}" for end in check.interval]
        words = f"{ends[0]} to {ends[1]}{'%' if check.demand.startswith('TPR') else ''}"
        how = {"failed": "is above the limit", "unknown": "includes the limit", "met": "is within the limit"}
        return f"{words} {how[check.outcome]}"


@dataclass(frozen=True)
class ModelDecision:
    """The decision about one model, ready to be shown.

    Attributes:
        name: The name of the model.
        decision: What the policy says.
        leaks: Whether a leak was seen; None without an audit.
        attacked: What was attacked: this model, or models of its recipe.
        evidence: What the audit tried, against what the policy asks for.
        next_steps: What to do next: commands first.
    """

    name: str
    decision: Decision
    leaks: bool | None
    attacked: str
    evidence: str
    next_steps: tuple[str, ...]

    @property
    def state(self) -> State:
        """The outcome in a word, a shape and a colour."""
        return STATES[self.decision.outcome]

    @property
    def status(self) -> str:
        """The outcome and what it means for a release."""
        return (
            self.state.word
            + {"failed": ": do not release", "unknown": ": do not release yet", "met": ""}[self.decision.outcome]
        )

    @property
    def meaning(self) -> str:
        """The outcome in a sentence."""
        if self.leaks is None and self.decision.outcome == "unknown":
            return "It was not audited."
        leak = "A leak was found" if self.leaks else "No leak was seen"
        return {
            "failed": "A limit of the policy is exceeded: do not release the weights, nor an interface to them.",
            "unknown": f"{leak}. Whether the policy is exceeded needs a larger audit.",
            "met": f"{leak}, and nothing above the policy. A stronger attack may still find more.",
        }[self.decision.outcome]

    @property
    def rows(self) -> list[Row]:
        """What was measured, one row per limit of the policy."""
        return [Row(check) for check in self.decision.checks if check.title]

    @property
    def deciding(self) -> Row | None:
        """The first row that has the outcome of the decision, or else the first row."""
        rows = self.rows
        return next((row for row in rows if row.check.outcome == self.decision.outcome), rows[0] if rows else None)

    @property
    def enough(self) -> bool:
        """Whether the evidence reaches the policy's minimum."""
        return bool(self.decision.evidence) and not lacking(self.decision)


def lacking(decision: Decision) -> list[Check]:
    """The demands for evidence that an audit did not reach."""
    return [check for check in decision.checks if check.demand in EVIDENCE.values()]


def decision_of(model: ReportedModel, policy: Policy) -> ModelDecision:
    """Decide about one model by a policy."""
    decision = decide(model.audit, model.guarantee, policy)
    return ModelDecision(
        name=model.name,
        decision=decision,
        leaks=None if model.audit is None else model.leaks,
        attacked=attacked(model.audit),
        evidence=_evidence(model, decision, policy),
        next_steps=tuple(_next_steps(model, decision, policy)),
    )


def worst_first(decisions: Sequence[ModelDecision]) -> list[ModelDecision]:
    """Order decisions: above the policy, undecided, within."""
    return sorted(decisions, key=lambda one: ("failed", "unknown", "met").index(one.decision.outcome))


def _evidence(model: ReportedModel, decision: Decision, policy: Policy) -> str:
    if not decision.evidence:
        return "none"
    least = policy.evidence
    parts = []
    for name, has in decision.evidence.items():
        wanted, what = getattr(least, name), EVIDENCE[name]
        if has or wanted:
            parts.append(f"{has} of {wanted} {several(what)}" if has < wanted else counted(has, what))
            if name == "records" and model.audit is not None and model.audit.groups:
                parts[-1] += f" of {counted(model.audit.groups, model.unit)}"
    return " · ".join(parts)


def _next_steps(model: ReportedModel, decision: Decision, policy: Policy) -> list[str]:
    """Say what to do next: the command that brings the evidence that is lacking, and its time where that is known."""
    if decision.outcome == "met":
        return ["A person who knows the data decides."]
    if decision.outcome == "failed":
        return ["Reduce the leak (fewer epochs, weight decay, more noise, DP-SGD), then audit again."]
    missing = {check.demand: int(check.limit or 0) for check in lacking(decision)}
    has = decision.evidence.get("shadows", 0)
    wanted = max(policy.evidence.shadows, 2 * has if not missing else has)
    steps = []
    if wanted > has or not decision.evidence:
        seconds = model.subject.seconds
        time = "" if seconds is None else f" (about {duration(seconds * (wanted - has))} of training)"
        steps.append(model.subject.audit_command.replace("{shadows}", str(wanted)) + time)
    steps += [
        f"audit at least {counted(missing[what], what)}"
        for what in (EVIDENCE["records"], EVIDENCE["canaries"], EVIDENCE["fixed_attacks"])
        if what in missing
    ]
    return steps or ["audit it with more records: intervals become narrower"]
