"""What the paper shows, one small object for each table and figure. Only here stand numbers that it printed."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from resperturb.errors import UsageError

ExperimentKind = Literal["table", "sweep", "ensemble", "roc", "generalisation", "curve", "computed", "budgets"]
Size = Literal["table", "sweep", "choice"]
AttackName = Literal["paper", "adaptive", "audit"]
Metric = Literal["auc", "train_accuracy", "test_accuracy", "gap"]
Topic = Literal["lower AUC", "AUC below DP-SGD", "beats DP-SGD", "beats non-private", "narrower gap"]
TOPICS: tuple[Topic, ...] = ("lower AUC", "AUC below DP-SGD", "beats DP-SGD", "beats non-private", "narrower gap")
Override = tuple[str, float | bool | str]

DATA_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "idc": "IDC"}
# The training images that the paper's IDC split has; fewer are a subset.
PAPER_IDC_TRAINING_IMAGES = 10_788 + 29_164
THRESHOLDS_NOTE = "The paper's four thresholds are not printed in its text; ours are 0.5, 0.6, 0.7 and 0.8."


@dataclass(frozen=True)
class Variant:
    """A network and how it is trained; ``changes`` are settings of the training that differ from the paper's.

    >>> Variant(networks=5, strategy="additive", gamma=0.75).name
    'En5 ResNet8, gamma 0.75'
    >>> Variant().name, Variant(dpsgd=True).name
    ('ResNet8, non-private', 'ResNet8, DP-SGD')
    >>> Variant(strategy="additive", gamma=1.5, label="no input noise").key
    'gamma-1.5-no-input-noise'
    """

    networks: int = 1
    strategy: Literal["none", "additive", "multiplicative"] = "none"
    gamma: float = 0.0
    skip: bool = True
    dpsgd: bool = False
    noise: tuple[Override, ...] = ()
    changes: tuple[Override, ...] = ()
    label: str = ""
    network: str = "resnet8"

    @property
    def name(self) -> str:
        """What the row is called."""
        if self.dpsgd:
            return "ResNet8, DP-SGD"
        if self.strategy == "none":
            base = "ResNet8, non-private"
        else:
            base = f"En{self.networks} ResNet8, gamma {self.gamma:.4g}"
        return base + ("" if self.skip else ", no skips") + (f", {self.label}" if self.label else "")

    @property
    def key(self) -> str:
        """What the row is called on the command line."""
        ensemble = f"En{self.networks} " if self.networks > 1 else ""
        return re.sub(r"[^a-z0-9.]+", "-", (ensemble + self.name.split(", ", 1)[1]).lower())

    @property
    def model(self) -> str:
        """The network by the name it is built by."""
        return self.network if self.networks == 1 else f"en{self.networks}-{self.network}"


@dataclass(frozen=True)
class Printed:
    """What the paper printed of a row; None where its text does not say."""

    auc: float | None = None
    train_accuracy: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True)
class Cell:
    """One trained model of an experiment: on which data, which network, and what the paper printed of it."""

    data: str
    variant: Variant
    paper: Printed | None = None

    @property
    def name(self) -> str:
        """What the row is called."""
        return self.variant.name

    @property
    def key(self) -> str:
        """What the row is called on the command line."""
        return self.variant.key


@dataclass(frozen=True)
class Claim:
    """A comparison that the paper makes in words: ``metric`` of ``lower`` is below that of ``higher``.

    ``topic`` is its row of the matrix on top of the page, if it has one.
    """

    text: str
    metric: Metric
    lower: Cell
    higher: Cell
    topic: Topic | None = None


PLAIN = Variant()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or something that stands beside them.

    ``size`` is the one of a preset's three sizes that it is trained at; ``attacks`` are made on each of its models:
    the paper's, the same by somebody who knows of the noise, the audit with its many. ``answers`` asks for the
    accuracy with the noise averaged over draws and switched off too. ``standard`` is the network that the paper's
    attacker trains. ``needs`` names data sets that are looked at without training on them.
    """

    id: str
    title: str
    place: str
    kind: ExperimentKind
    size: Size = "sweep"
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    attacks: tuple[AttackName, ...] = ("paper",)
    answers: bool = False
    standard: Variant = PLAIN
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that it needs."""
        return tuple(dict.fromkeys([*(cell.data for cell in self.cells), *self.needs]))


TABLE_ATTACKS: tuple[AttackName, ...] = ("paper", "adaptive", "audit")
DPSGD = Variant(dpsgd=True)
IDC_MULTIPLICATIVE_GAMMA = 1.0

_SDE_NOTE = (
    "Pixels are in [0, 1]; the paper does not say its scale, and gamma 1 is less noise on a larger one. The image is "
    "ours."
)
_BETTER = "It classifies better than the non-private network."
_DPSGD_NOTE = "DP-SGD has GroupNorm in place of BatchNorm, without which its epsilon would not hold."
_IDC_NOTE = (
    "Quarters and test images share no patient. The paper does not say how it treats patients; a cut that ignores "
    "them puts patches of the same slide on both sides."
)


NO_INPUT_NOISE: Override = ("input_std", 0.0)


def _additive(
    gamma: float,
    networks: int = 1,
    skip: bool = True,
    noise: tuple[Override, ...] = (),
    changes: tuple[Override, ...] = (),
    label: str = "",
    network: str = "resnet8",
) -> Variant:
    return Variant(networks, "additive", gamma, skip, False, noise, changes, label, network)


def _without_input_noise(gamma: float, label: str = "no input noise", **more: tuple[Override, ...]) -> Variant:
    return _additive(gamma, noise=(NO_INPUT_NOISE,), label=label, **more)  # type: ignore[arg-type]


def _multiplicative(gamma: float, networks: int = 1) -> Variant:
    return Variant(networks, "multiplicative", gamma)


def _table(
    data: str,
    place: str,
    gamma: float,
    plain: Printed,
    dpsgd: Printed,
    noisy: Printed,
    notes: tuple[str, ...] = (),
    more: tuple[Cell, ...] = (),
) -> Experiment:
    first, second, third = (
        Cell(data, PLAIN, plain),
        Cell(data, DPSGD, dpsgd),
        Cell(data, _additive(gamma), noisy),
    )
    return Experiment(
        id=f"{data}-table",
        title=f"Residual perturbation (Strategy I) and DP-SGD on {DATA_TITLES[data]}",
        place=place,
        kind="table",
        size="table",
        cells=(first, second, third, *more),
        attacks=TABLE_ATTACKS,
        claims=(
            Claim("Residual perturbation lowers the AUC of the attack.", "auc", third, first, "lower AUC"),
            Claim("Its AUC is below that of DP-SGD.", "auc", third, second, "AUC below DP-SGD"),
            Claim("It classifies better than DP-SGD.", "test_accuracy", second, third, "beats DP-SGD"),
            # Printed of all data sets but MNIST, where the perturbed network is the less accurate one.
            *((Claim(_BETTER, "test_accuracy", first, third, "beats non-private"),) if data != "mnist" else ()),
            Claim("It narrows the generalisation gap.", "gap", third, first, "narrower gap"),
        ),
        notes=(_DPSGD_NOTE, *notes),
    )


def _sweep(
    data: str,
    strategy: Literal["additive", "multiplicative"],
    gammas: tuple[float, ...],
    place: str,
    plain: Printed,
    printed: Mapping[float, Printed],
) -> Experiment:
    make = _additive if strategy == "additive" else _multiplicative
    base = Cell(data, PLAIN, plain)
    noisy = tuple(Cell(data, make(gamma, 5), printed.get(gamma)) for gamma in gammas)
    # AUC and accuracy at one gamma: the one of which the paper prints both, or else the one in the middle.
    one = next((cell for cell in noisy if cell.paper), noisy[len(noisy) // 2])
    at = f"At gamma {one.variant.gamma:g}"
    number = "I" if strategy == "additive" else "II"
    others = [f"{gamma:g}" for gamma in gammas if gamma not in printed]
    return Experiment(
        id=f"{data}-sweep" + ("" if strategy == "additive" else "-multiplicative"),
        title=f"En5 ResNet8 (Strategy {number}) over gamma on {DATA_TITLES[data]}",
        place=place,
        kind="sweep",
        cells=(base, *noisy),
        claims=(
            Claim(f"{at} the noise lowers the AUC of the attack.", "auc", one, base),
            Claim(f"{at} it classifies better than the baseline.", "test_accuracy", base, one),
            Claim("More noise lowers the AUC further.", "auc", noisy[-1], noisy[0]),
            Claim("More noise narrows the generalisation gap.", "gap", noisy[-1], noisy[0]),
        ),
        notes=(
            f"The gammas {', '.join(others)} are ours: the paper shows its own only in a picture.",
            THRESHOLDS_NOTE,
            *((_IDC_NOTE,) if data == "idc" else ()),
        ),
    )


_IDC = Printed(0.563, 1.000, 0.847)
_IDC_NOISY = Printed(0.499, 0.882, 0.865)
_MNIST = Printed(0.514, 1.000, 0.988)
_MNIST_NOISY = Printed(0.506, 0.989, 0.978)
_CIFAR10_NOISY = Printed(0.511, 0.760, 0.695)
_CIFAR100_NOISY = Printed(0.515, 0.485, 0.383)
_CIFAR10 = Printed(0.757, 1.000, 0.669)
_CIFAR100 = Printed(0.903, 0.999, 0.305)
_IDC_DPSGD = Printed(0.503, 0.831, 0.828)

IDC_TABLE = _table(
    "idc",
    "Table I",
    0.5,
    _IDC,
    _IDC_DPSGD,
    _IDC_NOISY,
    notes=(
        _IDC_NOTE,
        "The paper's text says En5 of this table, its rows say En1. Ours is En1; En5 at this gamma is in idc-sweep.",
    ),
)
MNIST_TABLE = _table("mnist", "Table II", 2.5, _MNIST, Printed(0.507, 0.977, 0.975), _MNIST_NOISY)
CIFAR10_TABLE = _table(
    "cifar10",
    "Table III",
    4.5,
    _CIFAR10,
    Printed(0.512, 0.718, 0.625),
    _CIFAR10_NOISY,
    notes=("The row without printed values is ours: a third of the printed gamma, see cifar10-hypotheses.",),
    more=(Cell("cifar10", _without_input_noise(1.5)),),
)
CIFAR100_TABLE = _table("cifar100", "Table IV", 3.25, _CIFAR100, Printed(0.516, 0.400, 0.288), _CIFAR100_NOISY)


def _idc_table_multiplicative() -> Experiment:
    dpsgd = Cell("idc", DPSGD, _IDC_DPSGD)
    one = Cell("idc", _multiplicative(IDC_MULTIPLICATIVE_GAMMA), Printed(0.509, 0.880, 0.868))
    five = Cell("idc", _multiplicative(IDC_MULTIPLICATIVE_GAMMA, 5), Printed(0.500, 0.895, 0.872))
    return Experiment(
        id="idc-table-multiplicative",
        title="Residual perturbation (Strategy II) and DP-SGD on IDC",
        place="Table V",
        kind="table",
        size="table",
        cells=(dpsgd, one, five),
        attacks=TABLE_ATTACKS,
        claims=(
            Claim(
                "One perturbed network classifies better than DP-SGD.", "test_accuracy", dpsgd, one, "beats DP-SGD"
            ),
            Claim("Five of them classify better than one.", "test_accuracy", one, five),
        ),
        notes=(
            f"The paper does not print the gamma of this table; ours is {IDC_MULTIPLICATIVE_GAMMA:g}.",
            _DPSGD_NOTE,
            _IDC_NOTE,
        ),
    )


SWEEPS_ADDITIVE = (
    _sweep("idc", "additive", (0.1, 0.2, 0.5), "Fig. 3", _IDC, {0.2: Printed(0.495, None, 0.867)}),
    _sweep("cifar10", "additive", (0.5, 0.75, 1.0), "Fig. 4", _CIFAR10, {0.75: Printed(0.573, None, 0.675)}),
    _sweep("cifar100", "additive", (0.5, 0.75, 1.0), "Fig. 5", _CIFAR100, {}),
)
SWEEPS_MULTIPLICATIVE = (
    _sweep("idc", "multiplicative", (0.5, 1.0, 2.0), "Fig. 9", _IDC, {}),
    _sweep("cifar10", "multiplicative", (0.5, 1.0, 2.0), "Fig. 10", _CIFAR10, {2.0: Printed(0.526, None, 0.712)}),
    _sweep("cifar100", "multiplicative", (0.5, 1.0, 2.0), "Fig. 11", _CIFAR100, {}),
)

ENSEMBLE = Experiment(
    id="cifar10-ensemble",
    title="AUC and accuracies over gamma and the number of networks",
    place="Fig. 6",
    kind="ensemble",
    cells=tuple(Cell("cifar10", _additive(gamma, k)) for k in (1, 2, 5) for gamma in (0.5, 0.75, 1.0)),
    claims=(
        Claim(
            "At gamma 0.75 five networks classify better than one.",
            "test_accuracy",
            Cell("cifar10", _additive(0.75, 1)),
            Cell("cifar10", _additive(0.75, 5)),
        ),
    ),
    notes=("The paper shows its values only in a picture; networks and gammas are ours.",),
)

_WITH_SKIPS = Cell("cifar10", _additive(0.75, 5), Printed(0.573, None, 0.675))
_WITHOUT_SKIPS = Cell("cifar10", _additive(0.75, 5, skip=False), Printed(None, None, 0.653))
NO_SKIP = Experiment(
    id="cifar10-no-skip",
    title="The same noise without skip connections",
    place="Sec. IV-D",
    kind="table",
    cells=(_WITH_SKIPS, _WITHOUT_SKIPS),
    claims=(Claim("Skip connections help against the noise.", "test_accuracy", _WITHOUT_SKIPS, _WITH_SKIPS),),
)


def _roc(strategy: str, sweeps: tuple[Experiment, ...], place: str) -> Experiment:
    cells = tuple(
        cell for data in ("cifar10", "cifar100", "idc") for s in sweeps for cell in s.cells if cell.data == data
    )
    return Experiment(
        id=f"roc-{strategy}",
        title=f"ROC curves of the attack ({strategy} noise)",
        place=place,
        kind="roc",
        cells=cells,
        notes=("The runs are those of the three sweeps.",),
    )


GENERALISATION = Experiment(
    id="generalisation",
    title="Theorem 3 beside the measured generalisation gap",
    place="Theorem 3",
    kind="generalisation",
    cells=(Cell("cifar10", PLAIN), *(Cell("cifar10", _multiplicative(gamma)) for gamma in (0.5, 1.0, 2.0))),
    notes=(
        "Theorem 3 compares function classes of a linear flow, so its factor is shown as a curve to compare shapes "
        "with: the gap without noise times R(G)/R(F).",
    ),
)

# Budgets that the remark of Sec. IV-F prints, and the lower bounds it measured; G = R = 30, delta = 1e-5.
BUDGET_RADIUS = 30.0
BUDGET_DELTA = 1e-5


@dataclass(frozen=True)
class PrintedBudget:
    """What the paper's remark says of one training: its epsilon, and the epsilon that an attack showed."""

    data: str
    variant: Variant
    epsilon: float
    lower: float


BUDGETS = (
    PrintedBudget("idc", _additive(0.5), 1.1e3, 3.604e-3),
    PrintedBudget("idc", DPSGD, 15.79, 6.608e-3),
    PrintedBudget("cifar10", _additive(4.5), 3e3, 1.055e-1),
    PrintedBudget("cifar10", DPSGD, 22.33, 1.558e-1),
)

TRIED = Experiment(
    id="cifar10-tried",
    title="What else was tried to meet Table III and Fig. 4",
    place="not in the paper",
    kind="table",
    cells=(
        Cell("cifar10", PLAIN, _CIFAR10),
        *(Cell("cifar10", _additive(gamma)) for gamma in (0.75, 1.5, 3.0)),
        Cell("cifar10", _additive(4.5), _CIFAR10_NOISY),
        Cell("cifar10", _without_input_noise(4.5)),
        Cell("cifar10", _additive(0.5, noise=(("scale", "batch_std"),), label="in units of the activations")),
        Cell("cifar10", _additive(4.5, changes=(("lr", 0.01),), label="learning rate 0.01")),
        Cell("cifar10", _additive(4.5, changes=(("augment", True),), label="augmented")),
        Cell("cifar10", Variant(changes=(("augment", True),), label="augmented")),
        Cell("cifar10", _additive(0.75, 5), Printed(0.573, None, 0.675)),
        Cell("cifar10", _additive(0.75, 5, changes=(("lr", 0.5),), label="learning rate 0.5")),
    ),
    notes=("The rows without a printed value are ours: they ask what setting would give the paper's numbers.",),
)

BFLOAT16 = "bfloat16"  # in the name of a row that is trained in 32 bits too
BF16: tuple[Override, ...] = (("precision", "bf16-mixed"),)
BLOCKS = 3  # residual blocks of a ResNet8: a step of Euler's method is dt = 1/3
_PRINTED_GAMMA = 4.5
_DT, _SQRT_DT = _PRINTED_GAMMA / BLOCKS, _PRINTED_GAMMA / math.sqrt(BLOCKS)
_INSIDE = "resperturb_reproduction.networks:inside_resnet8"
_POST_ACTIVATION = "resperturb_reproduction.networks:post_activation_resnet8"
_STEM_NOISE = "resperturb_reproduction.networks:stem_noise_resnet8"
HYPOTHESES = Experiment(
    id="cifar10-hypotheses",
    title="What gives the printed row of gamma 4.5?",
    place="Table III",
    kind="table",
    size="choice",
    answers=True,
    cells=(
        Cell("cifar10", PLAIN, _CIFAR10),
        *(
            Cell("cifar10", variant, _CIFAR10_NOISY)
            for variant in (
                _additive(_PRINTED_GAMMA),
                _without_input_noise(_PRINTED_GAMMA),
                *(
                    _additive(_PRINTED_GAMMA, noise=(("input_std", std),), label=f"input noise {std:g}")
                    for std in (0.25, 0.5, 1.0)
                ),
                _additive(_DT, label="gamma times dt"),
                _without_input_noise(_DT),
                _additive(_SQRT_DT, label="gamma times sqrt dt"),
                _without_input_noise(_SQRT_DT, "gamma times sqrt dt, no input noise"),
                _additive(_PRINTED_GAMMA, network=_INSIDE, label="inside the branch"),
                _additive(
                    _PRINTED_GAMMA,
                    network=_INSIDE,
                    noise=(NO_INPUT_NOISE,),
                    label="inside the branch, no input noise",
                ),
                _additive(_PRINTED_GAMMA, network=_POST_ACTIVATION, label="post-activation"),
                _additive(
                    _PRINTED_GAMMA,
                    network=_POST_ACTIVATION,
                    noise=(NO_INPUT_NOISE,),
                    label="post-activation, no input noise",
                ),
                _additive(
                    _PRINTED_GAMMA, noise=(("scale", "batch_std"),), label="in standard deviations of the batch"
                ),
                _additive(_PRINTED_GAMMA, changes=(("augment", True),), label="augmented"),
                _without_input_noise(_DT, "no input noise, augmented", changes=(("augment", True),)),
                _without_input_noise(_PRINTED_GAMMA, f"no input noise, {BFLOAT16}", changes=BF16),
            )
        ),
        Cell("cifar10", Variant(changes=BF16, label=BFLOAT16), _CIFAR10),
    ),
    notes=(
        "Rows of 30 epochs are a first choice; the best are trained for 200 epochs.",
        "Input noise is in units in which pixels have a standard deviation of about 1; as printed it is gamma / 2 = "
        "2.25. The smaller ones are not readings of the paper.",
        "Inside the branch: the noise is added after the first convolution, before the batch normalisation that "
        "follows it. Post-activation: the block of He et al. 2015, noise on the sum before its last ReLU.",
    ),
)

DECAY: tuple[Override, ...] = (("weight_decay", 5e-4), ("epochs", 160), *BF16)
_PLAIN_DECAYED = Variant(changes=DECAY, label="decay 5e-4")
_ROWS: tuple[tuple[str, float, Printed, Printed], ...] = (
    ("cifar10", 4.5, _CIFAR10, _CIFAR10_NOISY),
    ("cifar100", 3.25, _CIFAR100, _CIFAR100_NOISY),
    ("mnist", 2.5, _MNIST, _MNIST_NOISY),
    ("idc", 0.5, _IDC, _IDC_NOISY),
)


def _decayed(gamma: float) -> Variant:
    return _without_input_noise(gamma, "decay 5e-4", changes=DECAY)


WEIGHT_DECAY = Experiment(
    id="weight-decay",
    title="Noise in the blocks alone, at weight decay 5e-4",
    place="Tables I to IV",
    kind="table",
    size="table",
    cells=tuple(
        cell
        for data, gamma, plain, noisy in _ROWS
        for cell in (
            Cell(data, _PLAIN_DECAYED, plain),
            Cell(data, _decayed(gamma), noisy),
        )
    ),
    claims=tuple(
        claim
        for data, gamma, _, _ in _ROWS
        for plain, noisy in [(Cell(data, _PLAIN_DECAYED), Cell(data, _decayed(gamma)))]
        for claim in (
            Claim(f"On {DATA_TITLES[data]}, noise lowers the AUC.", "auc", noisy, plain, "lower AUC"),
            Claim(
                f"On {DATA_TITLES[data]}, it raises test accuracy.",
                "test_accuracy",
                plain,
                noisy,
                "beats non-private",
            ),
        )
        if data != "mnist" or claim.metric == "auc"
    ),
    attacks=TABLE_ATTACKS,
    answers=True,
    standard=_PLAIN_DECAYED,
    notes=(
        "Weight decay is 5e-4 instead of 1e-4, as in the authors' code of EnResNet. There is no noise on the input. "
        "Training takes 160 epochs, and the rate is divided by 10 after 80 and 120 (IDC: the paper's 100 epochs and "
        "rates). Forward passes are in bfloat16, noise in 32 bits.",
        _IDC_NOTE,
    ),
)


def _reading(
    label: str, gamma: float = _PRINTED_GAMMA, network: str = "resnet8", pi: float = 0.0, **changes: Any
) -> Cell:
    settings = tuple({"precision": "bf16-mixed", **changes}.items())
    variant = _additive(gamma, network=network, noise=(("input_std", pi),), changes=settings, label=label)
    return Cell("cifar10", variant, _CIFAR10_NOISY)


def _without_noise(label: str, **changes: Any) -> Cell:
    settings = tuple({"precision": "bf16-mixed", **changes}.items())
    return Cell("cifar10", Variant(changes=settings, label=label), _CIFAR10)


_ENRESNET: dict[str, Any] = {"weight_decay": 5e-4, "epochs": 160}
_NESTEROV = {**_ENRESNET, "method": "nesterov"}
READINGS: tuple[Cell, ...] = (
    *WEIGHT_DECAY.cells,
    *(
        cell
        for decay in (2e-4, 1e-3)
        for cell in (
            _reading(f"decay {decay:.0e}".replace("e-0", "e-"), weight_decay=decay, epochs=160),
            _without_noise(f"decay {decay:.0e}".replace("e-0", "e-"), weight_decay=decay, epochs=160),
        )
    ),
    _reading("decay 1e-4"),
    _reading("decay 1e-4, pi on the input", pi=_PRINTED_GAMMA / 2),
    _reading("Nesterov", **_NESTEROV),
    _reading("pi on the stem's output", network=_STEM_NOISE, **_NESTEROV),
    _reading("pi on the stem's output, pixels in [0, 1]", network=_STEM_NOISE, mean=0.0, std=1.0, **_NESTEROV),
    _reading("80 epochs", epochs=80),
    _reading("100 epochs", epochs=100),
    _reading("100 epochs, rates of IDC", epochs=100, schedule="quarter"),
    _reading("gamma times sqrt dt", gamma=_SQRT_DT, **_ENRESNET),
    _reading("gamma as a variance", gamma=math.sqrt(_PRINTED_GAMMA), **_ENRESNET),
    _reading("post-activation", network=_POST_ACTIVATION),
    _reading("inside the branch", network=_INSIDE),
    *(_reading(f"input noise {pi:g}", pi=pi) for pi in (0.25, 0.5)),
    _reading("pi on pixels from 0 to 255", pi=_PRINTED_GAMMA / 2, mean=0.0, std=1 / 255),
)

TIMES_DT = Experiment(
    id="gamma-times-dt",
    title="A third of the printed gamma, without input noise",
    place="Tables I to IV",
    kind="table",
    size="choice",
    cells=tuple(
        cell
        for data, gamma, plain, noisy in _ROWS
        for cell in (Cell(data, PLAIN, plain), Cell(data, _without_input_noise(gamma / BLOCKS), noisy))
    ),
    notes=(
        "ResNet8 has three blocks. If the noise of a block were gamma times dt = 1/3, these rows would be those that "
        "the paper printed.",
    ),
)

GAMMA_CURVE = Experiment(
    id="gamma-curve",
    title="Accuracy and leakage over gamma, with and without noise on the input",
    place="not in the paper",
    kind="curve",
    size="choice",
    cells=(
        Cell("cifar10", PLAIN, _CIFAR10),
        *(
            Cell("cifar10", variant, _CIFAR10_NOISY if variant == _additive(_PRINTED_GAMMA) else None)
            for gamma in (0.25, 0.75, 1.5, 3.0, 4.5)
            for variant in (_additive(gamma), _without_input_noise(gamma))
        ),
    ),
    notes=("One network (En1), the paper's attack, whose shadow is a standard ResNet8.",),
)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "sde-additive",
        "An image through the ODE and the additive SDE, and back",
        "Fig. 1",
        "computed",
        notes=(_SDE_NOTE,),
    ),
    Experiment("sde-multiplicative", "The same with multiplicative noise", "Fig. 8", "computed", notes=(_SDE_NOTE,)),
    Experiment("idc-examples", "Labelled patches of the IDC set", "Fig. 2", "computed", needs=("idc",)),
    IDC_TABLE,
    CIFAR10_TABLE,
    CIFAR100_TABLE,
    MNIST_TABLE,
    _idc_table_multiplicative(),
    Experiment(
        "budgets",
        "The remark on the privacy budget",
        "Sec. IV-F",
        "budgets",
        notes=(
            "The remark names G, R and delta. The gammas (of Tables I and III), the epochs, and for DP-SGD the "
            "sampling in batches of 128 (the paper prints 128 micro-batches) are our reading.",
            "*Exact* is the tight conversion of the same Gaussian mechanism, under the same assumptions.",
        ),
    ),
    *SWEEPS_ADDITIVE,
    *SWEEPS_MULTIPLICATIVE,
    ENSEMBLE,
    NO_SKIP,
    _roc("additive", SWEEPS_ADDITIVE, "Fig. 7"),
    _roc("multiplicative", SWEEPS_MULTIPLICATIVE, "Fig. 12"),
    GENERALISATION,
    WEIGHT_DECAY,
    Experiment(
        "readings",
        "Readings of the printed rows, from the first epoch to the last",
        "Tables I to IV",
        "computed",
        needs=("cifar10", "cifar100", "mnist", "idc"),
        notes=(
            "One training each, in bfloat16 with noise in 32 bits, measured every five epochs on 5,000 training, "
            "held-out and test images. *AUC* is that of a threshold on the largest probability.",
            "*16 draws* is the test accuracy of the mean of 16 draws, on all test images. *Strongest attack* is the "
            "largest AUC, in hindsight, of the attacks that need no shadow model, with one draw and 16.",
        ),
    ),
    HYPOTHESES,
    TIMES_DT,
    GAMMA_CURVE,
    TRIED,
)
BY_ID = {experiment.id: experiment for experiment in EXPERIMENTS}


def chosen(ids: Sequence[str], rows: Sequence[str] = ()) -> list[Experiment]:
    """Find experiments by their IDs, in the order in which they are best run; ``all`` is all of them.

    With ``rows`` they are cut down to these rows.

    >>> [experiment.id for experiment in chosen(["budgets", "mnist-table"])]
    ['mnist-table', 'budgets']
    >>> [cell.name for cell in chosen(["cifar10-table"], ["non-private", "gamma-4.5"])[0].cells]
    ['ResNet8, non-private', 'En1 ResNet8, gamma 4.5']
    >>> chosen(["mnist-tabel"])
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: there is no experiment 'mnist-tabel'; did you mean mnist-table? ...
    """
    from difflib import get_close_matches

    for name in ids:
        if name not in BY_ID and name != "all":
            near = get_close_matches(name, BY_ID, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no experiment {name!r}; {hint}`resperturb reproduce list` shows them all.")
    found = [experiment for experiment in EXPERIMENTS if experiment.id in ids or "all" in ids]
    if not rows:
        return found
    known = list(dict.fromkeys(cell.key for experiment in found for cell in experiment.cells))
    for name in rows:
        if name not in known:
            raise UsageError(f"there is no row {name!r} in {', '.join(ids)}; its rows are {', '.join(known)}.")
    cut = [replace(e, cells=tuple(cell for cell in e.cells if cell.key in rows)) for e in found]
    return [experiment for experiment in cut if experiment.cells]


def with_attacks(experiments: Sequence[Experiment], attacks: Sequence[str]) -> list[Experiment]:
    """Leave out the attacks that are not asked for; without any asked for, none.

    >>> with_attacks([CIFAR10_TABLE], ["paper"])[0].attacks
    ('paper',)
    """
    for name in attacks:
        if name not in TABLE_ATTACKS:
            raise UsageError(f"there is no attack {name!r}; choose {', '.join(TABLE_ATTACKS)}.")
    if not attacks:
        return list(experiments)
    return [replace(e, attacks=tuple(name for name in e.attacks if name in attacks)) for e in experiments]
