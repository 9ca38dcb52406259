"""The whole of ``rp.audit`` on models that know nothing of their rows: how often does it raise a false alarm?

Hypothesis chooses designs, groups, canaries, sizes and scores; each setting is audited several times.
`make nightly`; 1,800 audits take about six minutes of the processor.
"""

import zlib
from collections import Counter
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import resperturb as rp
from resperturb.bounds.arrays import Floats, Ints

pytestmark = pytest.mark.nightly

AUDITS, SETTINGS = 12, 150
# Nominal rates of an audit at 95% confidence.
RATES = {"leak": 0.025, "epsilon": 0.05}
# The probability that a night fails by chance alone, over all tests of it.
BY_CHANCE = 1e-3
SCORES = ("normal", "heavy tails", "ties", "nearly constant", "saturated")


@dataclass(frozen=True)
class Setting:
    """What is audited."""

    design: tuple[str, int]
    units: int
    sizes: str
    canaries: int
    classes: int
    scores: str
    shared: float
    draws: int
    population: bool
    seed: int

    @property
    def noisy(self) -> bool:
        """Return whether predictions differ from call to call, in more than a few rows."""
        return self.draws > 1 and self.scores in ("normal", "heavy tails")

    @property
    def features(self) -> list[str]:
        """The group in which alarms are counted."""
        told = [f"{self.design[0]} {self.design[1]}", f"sizes {self.sizes}", f"scores {self.scores}"]
        told += ["canaries"] if self.canaries else []
        told += ["canaries in groups"] if self.canaries and self.sizes != "one" else []
        return told + (["noisy"] if self.noisy else [])


SETTING = st.builds(
    Setting,
    design=st.sampled_from([("shadows", 0), ("shadows", 4), ("shadows", 8), ("models", 6), ("models", 10)]),
    units=st.integers(12, 100),
    sizes=st.sampled_from(["one", "equal", "log-normal", "one large"]),
    canaries=st.sampled_from([0, 0, 20, 60]),
    classes=st.integers(2, 4),
    scores=st.sampled_from(SCORES),
    shared=st.sampled_from([0.0, 1.0, 4.0]),
    draws=st.sampled_from([1, 4]),
    population=st.booleans(),
    seed=st.integers(0, 2**20),
)


def sizes_of(setting: Setting, rng: np.random.Generator) -> Ints:
    """Draw how many rows each unit has."""
    if setting.sizes == "log-normal":
        return np.minimum(60, 1 + rng.lognormal(1.0, 1.0, setting.units).astype(np.int64))
    sizes = np.full(setting.units, 1 if setting.sizes == "one" else 6)
    if setting.sizes == "one large":
        sizes[0] = 2 * setting.units
    return sizes


def answers(setting: Setting, rng: np.random.Generator, groups: Ints, labels: Ints, base: Floats) -> Floats:
    """Draw what a model answers: it never looks at who was a member."""
    noise = rng.standard_t(1.5, len(labels)) if setting.scores == "heavy tails" else rng.normal(size=len(labels))
    # Right answers are frequent, or the audit would find that the models had not learned.
    known = 2 + 2 * setting.shared + base + setting.shared * rng.normal(size=groups.max() + 1)[groups] + noise
    known = np.round(known) if setting.scores == "ties" else 40 * known if setting.scores == "saturated" else known
    if setting.scores == "nearly constant":
        known = np.where(rng.random(len(labels)) < 0.02, known, 2.0)
    right = 1 / (1 + np.exp(-np.clip(known, -700, 700)))
    others = ((1 - right) / (setting.classes - 1))[:, None]
    return np.where(np.arange(setting.classes) == labels[:, None], right[:, None], others)


def alarms(setting: Setting, seed: int) -> Counter[str]:
    """Audit once and count the claims."""
    rng = np.random.default_rng([setting.seed, seed])
    groups = np.repeat(np.arange(setting.units), sizes_of(setting, rng))
    chosen = rng.choice(len(groups), min(setting.canaries, len(groups) // 2), replace=False)
    kinds = np.full(len(groups), "record")
    kinds[chosen] = rng.choice(["mislabelled", "blank"], len(chosen))
    labels = rng.integers(0, setting.classes, len(groups))
    base = rng.normal(size=len(groups))

    def train(rows: Ints, model: int) -> object:
        own = np.random.default_rng([setting.seed, seed, model, zlib.crc32(rows.tobytes())])
        fixed = answers(setting, own, groups, labels, base)

        def predict(some: Ints) -> Floats:
            again = answers(setting, own, groups, labels, base) if setting.noisy else fixed
            return ((fixed + again) / 2)[some]

        return predict

    with TemporaryDirectory() as folder:
        found = rp.audit(
            train,
            labels=labels,
            groups=None if setting.sizes == "one" else groups,
            kinds=kinds,
            **{setting.design[0]: setting.design[1]},
            draws=(1, setting.draws),
            population=None if setting.population else 0,
            out=f"{folder}/audit",
            seed=seed,
            jobs=1,
            quiet=True,
        )
    return Counter(audits=1, leak=int(found.leaks), epsilon=int(found.epsilon_lower.epsilon > 0))


def is_too_often(counted: Counter[str], what: str, level: float) -> bool:
    """Return whether alarms exceed their nominal rate."""
    told = binomtest(counted[what], counted["audits"], RATES[what], alternative="greater")
    return bool(told.pvalue < level)


def test_no_setting_and_no_feature_raises_false_alarms_more_often_than_stated() -> None:
    counts: dict[str, Counter[str]] = {}

    @settings(max_examples=SETTINGS, phases=[Phase.generate], database=None, print_blob=True)
    @given(SETTING)
    def audited(setting: Setting) -> None:
        here = sum((alarms(setting, seed) for seed in range(AUDITS)), Counter[str]())
        for feature in ["all", *setting.features]:
            counts.setdefault(feature, Counter()).update(here)
        for what in RATES:
            level = BY_CHANCE / (4 * SETTINGS)
            assert not is_too_often(here, what, level), f"{what}: {here[what]} of {AUDITS} audits"

    audited()
    print(*(f"{feature}: {dict(found)}" for feature, found in sorted(counts.items())), sep="\n")
    level = BY_CHANCE / (4 * len(counts))
    wrong = {
        f"{what}, {feature}": f"{found[what]} of {found['audits']} audits"
        for feature, found in counts.items()
        for what in RATES
        if is_too_often(found, what, level)
    }
    assert not wrong, f"false alarms are more frequent than stated: {wrong}"
