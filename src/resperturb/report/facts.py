"""How a run was made: what one needs to make it again, and to see in what runs differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.models.names import without_place
from resperturb.perturbation import strategy_to_dict
from resperturb.report.collect import ReportedModel
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run


@dataclass(frozen=True)
class Fact:
    """A line of the table: a setting, its value in every run, and whether these differ."""

    label: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs do not agree, in more than what no two runs share.

        >>> Fact("seeds", ("0", "1")).differs, Fact("time", ("3 s", "4 s")).differs
        (True, False)
        """
        return len(set(self.values)) > 1 and self.label not in ("time", "made", "weights")


# They say which data it was, or let somebody with the data make the model again: for reviewers only. A hash of the
# data, or of a configuration that holds one, leaves the run for nobody: it would confirm a guessed record.
REVIEWERS_ONLY = ("data", "seeds", "made", "weights", "first weights")


def facts_table(runs: Sequence[ReportedModel], for_reviewers: bool = False) -> list[Fact]:
    """Set the settings of the runs side by side; what no run has is left out.

    Args:
        runs: Those that were trained here.
        for_reviewers: Also say which data, seeds and machine it was.

    Returns:
        The lines of the table.
    """
    columns = [_facts(run.run) for run in runs if run.run is not None]
    if not columns:
        return []
    table = [
        Fact(label, tuple(column[label] for column in columns))
        for label in columns[0]
        if for_reviewers or label not in REVIEWERS_ONLY
    ]
    return [fact for fact in table if any(fact.values)]


def _facts(run: Run) -> dict[str, str]:
    config, result = run.config, run.result
    data, made = config.data, result.environment
    height, width = result.image_size
    classes = result.classes
    canaries = {} if data.canaries is None else data.canaries.counts
    return {
        "data": data.spec,
        "trained on": f"{result.records} images ({data.part.replace('_', ' ')})",
        "tested on": f"{result.test_records} images",
        "images": f"{width} × {height}, {'grey' if result.channels == 1 else 'colour'}",
        "classes": f"{len(classes)}: " + ", ".join(_first(classes, 12)),
        "kept together": data.group_column or "",
        "canaries": ", ".join(f"{count} {kind.replace('_', '-')}" for kind, count in canaries.items() if count),
        "network": f"{config.network.public}, {config.norm} normalisation"
        + ("" if config.skip else ", no skip connections"),
        "network arguments": ", ".join(
            f"{key} {without_place(str(value))}" for key, value in config.model_args.items()
        ),
        "first weights": config.weights or "",
        "network changed": " ".join(result.notes),
        "noise": ", ".join(
            f"{key.replace('_', ' ')} {value}" if key != "name" else str(value)
            for key, value in strategy_to_dict(config.perturbation).items()
            if value is not None
        ),
        "method": config.method.describe(),
        "training": f"{config.epochs} epochs, batches of {config.batch_size}, {_optimizer(config)}, learning rate "
        f"{config.lr:g} ({config.schedule}), weight decay {config.weight_decay:g}",
        "precision": "" if config.precision == "32-true" else config.precision,
        "class weights": _class_weights(config),
        "regularisation": ", ".join(
            text
            for text, used in (
                ("crops and flips", config.augment == "crop"),
                ("resized crops and flips", config.augment == "resized-crop"),
                (f"label smoothing {config.label_smoothing:g}", config.label_smoothing),
                (f"dropout {config.dropout:g}", config.dropout),
            )
            if used
        ),
        "training noise": "from the seed" if config.seeded_noise else "from a secret of the operating system",
        "seeds": f"training {config.seed}, split {data.split_seed}, subset {data.subset_seed}",
        "answers averaged": f"over {result.draws} draw{'s' if result.draws > 1 else ''} of the noise",
        "time": f"{result.seconds:.0f} s of training",
        "versions": ", ".join(f"{key} {made[key]}" for key in ("resperturb", "torch", "python") if key in made),
        "made": f"{made.get('made', '')} on {made.get('machine', '')}",
        "weights": f"SHA-256 {run.digests['weights']}",
    }


def _optimizer(config: TrainConfig) -> str:
    return "AdamW" if config.optimizer == "adamw" else f"SGD with momentum {config.momentum:g}"


def _class_weights(config: TrainConfig) -> str:
    weights = config.class_weights
    return "" if weights is None else weights if isinstance(weights, str) else ", ".join(f"{w:g}" for w in weights)


def _first(values: Sequence[str], most: int) -> list[str]:
    return [*values[:most], *(["…"] if len(values) > most else [])]
