"""Results as they could be, for tests."""

from resperturb_reproduction.reproduce.declarations import BY_ID
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.results import (
    AuditSummary,
    DataUsed,
    Made,
    Roc,
    Row,
    Spread,
    Threshold,
    Trained,
    made_now,
)

AUDIT = AuditSummary(13, 4, (1, 4), "rmia", 0.61, (0.58, 0.64), 0.03, 0.0, 0.95, 1e-5, float("inf"), "")


def made(preset: str, reduced: str = "20 epochs instead of 200", *names: str) -> Made:
    """With what rows were made."""
    used = tuple(
        DataUsed(name, name.upper(), name, "f" * 16, 50_000, 12_500, 10_000, 10, None, 20, 20, 128, 128, reduced)
        for name in names or ("cifar10",)
    )
    return made_now(PRESETS[preset], used, 1, 60.0)


def row(name: str, key: str, preset: str = "cpu", auc: float = 0.61, seeds: int = 1, data: str = "cifar10") -> Row:
    """A measured row of an experiment, which declares it."""
    cell = next(cell for cell in BY_ID[name].cells if (cell.data, cell.key) == (data, key))

    def spread(mean: float) -> Spread:
        return Spread(mean, 0.01, tuple(mean + 0.001 * seed for seed in range(seeds)), tuple(range(seeds)))

    means = {"auc": auc, "adaptive_auc": auc + 0.02, "train_accuracy": 0.9, "test_accuracy": 0.6, "gap": 0.3}
    return Row(
        key=key,
        name=cell.name,
        data=data,
        preset=preset,
        strategy=cell.strategy,
        gamma=cell.gamma,
        paper=cell.paper,
        measured={metric: spread(mean) for metric, mean in means.items()},
        seeds=tuple(range(seeds)),
        runs=(f"{preset}-{data}-{key}",),
        thresholds=tuple(Threshold(t, None if t > 0.7 else 0.6, 0.4) for t in (0.5, 0.6, 0.8)),
        roc=Roc((0.0, 0.4, 1.0), (0.0, 0.6, 1.0)),
        trained={f"{preset}-{data}-{key}": 60.0},
    )


def result(name: str, *rows: Row) -> Trained:
    """A result of these rows."""
    presets = dict.fromkeys(row.preset for row in rows)
    names = list(dict.fromkeys(row.data for row in rows))
    each = tuple(made(p, "" if p == "paper" else "20 epochs instead of 200", *names) for p in presets)
    return Trained(name, BY_ID[name].kind, each, rows)


def table(preset: str = "cpu", auc: float = 0.61, seeds: int = 1) -> Trained:
    """A table of one row."""
    return result("cifar10-table", row("cifar10-table", "non-private", preset, auc, seeds))
