"""A finished run as a report shows it, and how its folder is opened for one."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.auditing.store import AUDIT_FILE, OTHER_VERSION, SCHEMA_FILE, SCORES, read_audit
from resperturb.auditing.trainee import Trainee
from resperturb.bounds.arrays import Array, Ints
from resperturb.bounds.audit_result import AuditResult
from resperturb.errors import ResperturbError
from resperturb.models.names import without_place
from resperturb.models.source import source_of
from resperturb.perturbation import strategy_to_dict
from resperturb.report.collect import ReportedModel
from resperturb.report.folders import register_folder
from resperturb.report.subject import Epoch, Fact, Picture, Subject
from resperturb.training.config import TrainConfig
from resperturb.training.run import AUDIT, CONFIG, Run, open_run

PIXELS = 96


@dataclass(frozen=True, eq=False)
class OpenedRun(ReportedModel):
    """The folder of a finished run."""

    run: Run

    @classmethod
    def of(cls, run: Run, name: str | None = None) -> "OpenedRun":
        """Describe a run, by the name of its folder if None, and read its audit, if it was audited."""
        return cls(subject_of_run(run, name), audit_of(run), run)

    def trainee(self) -> Trainee:
        """Return the recipe of the run."""
        from resperturb.training.audited import RunTrainee

        return RunTrainee(self.run.config, name=self.subject.name)


@register_folder("run")
def open_run_folder(path: Path) -> ReportedModel | None:
    """Open the folder of a finished run; None if it is something else."""
    return OpenedRun.of(open_run(path)) if (path / CONFIG).is_file() else None


def audit_of(run: Run) -> AuditResult | None:
    """Read the audit of a run; None if it was not audited."""
    folder = run.path / AUDIT
    if (folder / AUDIT_FILE).exists():
        return read_audit(folder, run.digests)
    if (folder / SCORES / SCHEMA_FILE).exists():
        raise ResperturbError(f"{folder} has scores of attacks and no {AUDIT_FILE}; run the audit again.")
    if (run.path / AUDIT_FILE).exists():
        raise ResperturbError(f"{run.path / AUDIT_FILE} {OTHER_VERSION.removesuffix(' in another folder')}.")
    return None


def describe(config: TrainConfig) -> str:
    """Say in a few words what a configuration trains: the network, and what keeps it from leaking.

    >>> from resperturb.training.config import make_config
    >>> describe(make_config(data={"spec": "x"}, perturbation={"name": "additive", "gamma": 0.5}))
    'resnet8, additive, gamma=0.5, input_std=0.25, scale=constant'
    """
    strategy = config.perturbation
    parts = [] if strategy is None else [strategy.describe()]
    if config.method.label:
        parts.append(config.method.label)
    return ", ".join([config.network.public, *(parts or ["no noise"])])


def subject_of_run(run: Run, name: str | None = None) -> Subject:
    """Describe a finished run; ``name`` is that of its folder if None."""
    config, result = run.config, run.result
    # Without any hash of the data: it would confirm a guessed record.
    values = {name: value for name, value in result.to_dict().items() if name != "digests"}
    folder = "RUN" if run.path.resolve().name == config.digest else run.path.resolve().name
    return Subject(
        name=_name(run) if name is None else name,
        defence=_defence(config),
        level=0.0 if config.perturbation is None else float(getattr(config.perturbation, "gamma", 0.0)),
        network=config.network.public,
        train_accuracy=result.train_accuracy,
        test_accuracy=result.test_accuracy,
        seconds=result.seconds,
        guarantee=run.guarantee,
        facts=tuple(_facts(run)),
        curves=tuple(Epoch(one.epoch, one.train_accuracy, one.test_accuracy) for one in run.metrics()),
        raw={"config": config.model_dump(mode="json", exclude={"data": {"fingerprint": True}}), "result": values},
        pictures=lambda rows, members: _pictures(config, rows, members),
        audit_command=lambda option, count: (
            f"resperturb audit {folder} --{option} {count}" + " --design leave-one-out" * (option == "models")
        ),
    )


def _name(run: Run) -> str:
    """Call a run by its folder, or by what it is where the folder is only named by its hash.

    No digit of the hash is shown: it is a hash of the images and the seeds, so it would confirm a guess about either.
    """
    folder = run.path.resolve().name
    if folder != run.config.digest:
        return folder
    defence = _defence(run.config)
    return f"{'plain' if defence == 'none' else defence}, {run.config.network.public}"


def _defence(config: TrainConfig) -> str:
    parts = (config.perturbation, config.method, config.loss)
    labels = ["" if part is None else part.label for part in parts]
    return " + ".join(filter(None, labels)) or "none"


def _facts(run: Run) -> list[Fact]:
    config, result = run.config, run.result
    data, made = config.data, result.environment
    height, width = result.image_size
    classes = result.classes
    canaries = {} if data.canaries is None else data.canaries.counts
    noise, weights = strategy_to_dict(config.perturbation), config.class_weights
    optimizer = "AdamW" if config.optimizer == "adamw" else f"SGD with momentum {config.momentum:g}"
    layers = f", {config.norm} normalisation" + ("" if config.skip else ", no skip connections")
    return [
        Fact("data", data.spec, reviewers_only=True),
        Fact("trained on", f"{result.records} images ({data.part.replace('_', ' ')})"),
        Fact("tested on", f"{result.test_records} images"),
        Fact("images", f"{width} × {height}, {'grey' if result.channels == 1 else 'colour'}"),
        Fact("classes", f"{len(classes)}: {', '.join(classes[:12])}{', …' if len(classes) > 12 else ''}"),
        Fact("kept together", data.group_column or data.group_pattern or ""),
        Fact("canaries", _listed(f"{count} {kind.replace('_', '-')}" for kind, count in canaries.items() if count)),
        Fact("network", f"{config.network.public}{'' if source_of(config.network).frozen else layers}"),
        Fact("network arguments", _listed(f"{k} {without_place(str(v))}" for k, v in config.model_args.items())),
        Fact("first weights", config.weights or "", reviewers_only=True),
        Fact("notes", " ".join(result.notes)),
        Fact(
            "noise",
            _listed(
                f"{key.replace('_', ' ')} {value}" if key != "name" else str(value)
                for key, value in noise.items()
                if value is not None
            ),
        ),
        Fact("method", config.method.describe()),
        Fact(
            "training",
            f"{config.epochs} epochs, batches of {config.batch_size}, {optimizer}, learning rate "
            f"{config.lr:g} ({config.schedule}), weight decay {config.weight_decay:g}",
        ),
        Fact("precision", "" if config.precision == "32-true" else config.precision),
        Fact("class weights", weights if isinstance(weights, str) else _listed(f"{w:g}" for w in weights or ())),
        Fact("regularisation", _regularisation(config)),
        Fact("training noise", f"from {'the seed' if config.seeded_noise else 'a secret of the operating system'}"),
        Fact(
            "seeds",
            f"training {config.seed}, split {data.split_seed}, subset {data.subset_seed}",
            reviewers_only=True,
        ),
        Fact("predictions averaged", f"over {result.draws} draw{'s' if result.draws > 1 else ''} of the noise"),
        Fact("time", f"{result.seconds:.0f} s of training", compared=False),
        Fact("versions", _listed(f"{key} {made[key]}" for key in ("resperturb", "torch", "python") if key in made)),
        Fact("made", f"{made.get('made', '')} on {made.get('machine', '')}", compared=False, reviewers_only=True),
        Fact("weights", f"SHA-256 {run.digests['weights']}", compared=False, reviewers_only=True),
    ]


def _listed(parts: Any) -> str:
    return ", ".join(parts)


def _regularisation(config: TrainConfig) -> str:
    used = {
        "crops and flips": config.augment == "crop",
        "resized crops and flips": config.augment == "resized-crop",
        f"label smoothing {config.label_smoothing:g}": config.label_smoothing,
        f"dropout {config.dropout:g}": config.dropout,
    }
    return _listed(text for text, is_used in used.items() if is_used)


def _pictures(config: TrainConfig, rows: Ints, count: int) -> Sequence[Picture]:
    """Show training images, given by their places among ``count`` members; none if it has another number of them."""
    from resperturb.training.inputs import load_inputs

    inputs = load_inputs(config.data)
    members = np.sort(inputs.member_indices)
    if len(members) != count:  # of something else: better none than the wrong pictures
        return ()
    images = inputs.train.select(members[rows])
    return [
        Picture(int(members[row]), images.classes[int(images.labels[place])], _png(images.images[place].numpy()))
        for place, row in enumerate(rows)
    ]


def _png(pixels: Array) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1))
    image.thumbnail((PIXELS, PIXELS))
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return content.getvalue()
