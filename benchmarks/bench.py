"""Measure what privacy costs in time and memory, for every way to train, on one network and one machine.

The variants take turns, step by step, so other load on the machine affects all of them alike. A ratio is the
median, over rounds, of the ratio within a round. Processes differ more than rounds within one, so several measure
one after the other. The result is the median over them, with an interval that covers the true median with 95%. Only
ratios carry over to other machines. Wall time and processor time are measured; other programs affect the latter
less. *Plain* is the fastest of three loops written by hand: as written, with the channels last, or compiled as
well. Memory is the peak of the tensors that are alive at once. All variants keep freed memory, in huge pages:
otherwise page faults, which depend on what ran before, change the time of a step by 10%.
"""

import itertools
import logging
import math
import multiprocessing
import os
import platform
import random
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.random_answers import Scoring
from resperturb.data import ImageSet
from resperturb.errors import UsageError
from resperturb.heap import keep_freed_memory, use_huge_pages
from resperturb.models import build
from resperturb.perturbation import Additive, Multiplicative, Strategy, perturb
from resperturb.training import (
    Dpsgd,
    DpsgdSteps,
    Execution,
    Progress,
    Steps,
    TrainConfig,
    build_model,
    make_config,
    normalize,
    predict,
)

CLASSES = 10
# Seconds of a variant in a round, roughly: many short rounds give a narrower interval than few long ones.
SECONDS_A_ROUND = 0.25
FEWEST_STEPS, MOST_STEPS = 1, 4
# Untimed steps at the beginning: they compile, and take memory from the system.
WARM_UP = 2
# Fewer do not give an interval of 95% for a median: of rounds in a single process, or else of processes.
FEWEST_FOR_AN_INTERVAL = 6
# Fewest rounds of each of several processes.
FEWEST_ROUNDS = 2


class Ratio(NamedTuple):
    """A ratio to measure: the cost of ``way`` over ``times`` that of ``base``, with a label and an optional target.

    ``together`` says whether these are in memory at once.

    A name of a family, such as ``plain``, means the fastest of its members: ``plain_eager``,
    ``plain_channels_last`` and ``plain_compiled``.
    """

    label: str
    way: str
    base: str
    target: float | None
    times: int = 1
    together: bool = True


RATIOS: dict[str, Ratio] = {
    "trainer_over_plain": Ratio("the trainer without noise / plain", "trainer", "plain", 1.02),
    "additive_over_plain": Ratio("additive / plain", "additive", "plain", 1.05),
    "multiplicative_over_plain": Ratio("multiplicative / plain", "multiplicative", "plain", 1.05),
    "additive_by_hand_over_plain": Ratio("additive by hand / plain", "additive_by_hand", "plain", 1.05),
    "multiplicative_by_hand_over_plain": Ratio(
        "multiplicative by hand / plain", "multiplicative_by_hand", "plain", 1.05
    ),
    "en5_over_5_singles": Ratio("En5 / five single networks", "en5", "additive", None, times=5),
    "dpsgd_over_plain": Ratio("DP-SGD / plain", "dpsgd", "plain", 2.00),
    "opacus_over_plain": Ratio("DP-SGD by Opacus alone / plain", "opacus", "plain", None),
    "prediction_additive_over_plain": Ratio(
        "prediction, additive / plain", "prediction_additive", "prediction_plain", 1.10
    ),
    "prediction_multiplicative_over_plain": Ratio(
        "prediction, multiplicative / plain", "prediction_multiplicative", "prediction_plain", 1.10
    ),
    # A quarter of the images, sixteen times.
    "additive_draws_over_plain": Ratio(
        "16 draws, additive / 16 plain predictions",
        "prediction_draws_additive",
        "prediction_plain",
        1.10,
        times=4,
        together=False,
    ),
    "multiplicative_draws_over_plain": Ratio(
        "16 draws, multiplicative / 16 plain predictions",
        "prediction_draws_multiplicative",
        "prediction_plain",
        1.10,
        times=4,
        together=False,
    ),
}


@dataclass(frozen=True)
class Workload:
    """A network, its batches and the number of its predictions. ``compiled`` allows ``torch.compile``.

    ``ways`` names the variants to measure; empty means all.
    """

    model: str = "resnet8"
    batch_size: int = 128
    image_size: int = 32
    threads: int = 1
    compiled: bool = True
    predicted: int = 512
    draws: int = 1
    shadows: int = 16
    ways: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """A step, and the objects that it keeps in memory between steps."""

    step: Callable[[], object]
    model: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    batch: Tensor | None = None


def _config(setting: Workload, **changes: Any) -> TrainConfig:
    # A long training of 1000 epochs, with the optimizer of the loops by hand instead of the network's own.
    values = {"model": setting.model, "batch_size": setting.batch_size, "epochs": 1000, "optimizer": "sgd", **changes}
    return make_config(data={"spec": "random images"}, **values)


def _images(setting: Workload, records: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    size = (records, 3, setting.image_size, setting.image_size)
    return ImageSet(
        images=torch.randint(0, 256, size, dtype=torch.uint8, generator=generator),
        labels=torch.randint(0, CLASSES, (records,), generator=generator),
        classes=tuple(map(str, range(CLASSES))),
        groups=None,
        name="random images",
    )


def _by_hand(setting: Workload, kind: str, noise: Strategy | None = None) -> tuple[nn.Module, Tensor, Tensor]:
    """A network and its data as a user would write it: floats, normalised beforehand."""
    torch.manual_seed(0)
    model = build(setting.model, num_classes=CLASSES)
    if noise is not None:
        perturb(model, noise)
    images = _images(setting, 4 * setting.batch_size)
    floats = normalize(images.images[:], 0.5, 0.25)
    if kind != "eager":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        floats = floats.to(memory_format=torch.channels_last)
    if kind == "compiled":
        model.compile(dynamic=False)
    return model, floats, images.labels


def _plain(setting: Workload, kind: str, noise: Strategy | None = None) -> Work:
    model, images, labels = _by_hand(setting, kind, noise)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        chosen = torch.randperm(len(images))[: setting.batch_size]
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Work(step, model, optimizer)


def _plain_prediction(setting: Workload, kind: str) -> Work:
    model, images, _ = _by_hand(replace(setting, batch_size=setting.predicted), kind)
    model.eval()
    batches = torch.split(images[: setting.predicted], setting.batch_size)

    def step() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(batch)

    return Work(step, model, batch=batches[0].clone())


def _trainer(setting: Workload, **changes: Any) -> Work:
    config = _config(setting, **changes)
    return _taking(Steps(config, _images(setting, 4 * setting.batch_size), Execution("cpu")))


def _dpsgd(setting: Workload) -> Work:
    # As many records as in a batch: the Poisson samples are then all of them, and all of the same size.
    return _taking(
        DpsgdSteps(_config(setting, method="dpsgd"), _images(setting, setting.batch_size), Execution("cpu"))
    )


def _taking(steps: Steps) -> Work:
    steps.model.train()
    progress = Progress()

    def step() -> None:
        steps.take(progress)
        progress.step %= steps.per_epoch

    return Work(step, steps.model, steps.optimizer)


def _opacus(setting: Workload) -> Work:
    """DP-SGD by Opacus alone, on batches of the size that ours has in memory at once."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(0)
    model = build(setting.model, num_classes=CLASSES, norm="group")
    hooked = GradSampleModule(model, loss_reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    private = DPOptimizer(
        optimizer, noise_multiplier=1.1, max_grad_norm=1.0, expected_batch_size=setting.batch_size, secure_mode=True
    )
    images = _images(setting, setting.batch_size)
    floats = normalize(images.images[:], 0.5, 0.25)
    at_once = Dpsgd().max_physical_batch

    def step() -> None:
        private.zero_grad()
        for start in range(0, setting.batch_size, at_once):
            chosen = slice(start, start + at_once)
            F.cross_entropy(hooked(floats[chosen]), images.labels[chosen], reduction="sum").backward()  # type: ignore[no-untyped-call]
            if start + at_once < setting.batch_size:
                private.signal_skip_step(True)
                private.step()
                private.zero_grad()
        private.step()

    return Work(step, model, optimizer)


def _prediction(setting: Workload, **changes: Any) -> Work:
    config = _config(setting, **changes)
    images = _images(setting, setting.predicted)
    model = build_model(config, images)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as a trained one is loaded
    options: Any = {"mean": config.mean, "std": config.std, "batch_size": setting.batch_size, "draws": setting.draws}
    return Work(lambda: predict(model, images.images, **options), model)


def _many_draws(setting: Workload) -> Workload:
    return replace(setting, predicted=setting.predicted // 4, draws=16)


_ADDITIVE = {"perturbation": Additive(0.5)}
_MULTIPLICATIVE = {"perturbation": Multiplicative(0.5)}

# Each variant by its name in the results, with a label for readers.
WAYS: dict[str, tuple[str, Callable[[Workload], Work]]] = {
    "plain_eager": ("by hand", lambda s: _plain(s, "eager")),
    "plain_channels_last": ("by hand, channels last", lambda s: _plain(s, "channels_last")),
    "plain_compiled": ("by hand, compiled", lambda s: _plain(s, "compiled")),
    "additive_by_hand_channels_last": (
        "additive by hand",
        lambda s: _plain(s, "channels_last", Additive(0.5)),
    ),
    "additive_by_hand_compiled": (
        "additive by hand, compiled",
        lambda s: _plain(s, "compiled", Additive(0.5)),
    ),
    "multiplicative_by_hand_channels_last": (
        "multiplicative by hand",
        lambda s: _plain(s, "channels_last", Multiplicative(0.5)),
    ),
    "multiplicative_by_hand_compiled": (
        "multiplicative by hand, compiled",
        lambda s: _plain(s, "compiled", Multiplicative(0.5)),
    ),
    "trainer": ("resperturb, no noise", lambda s: _trainer(s)),
    "additive": ("resperturb, additive", lambda s: _trainer(s, **_ADDITIVE)),
    "multiplicative": ("resperturb, multiplicative", lambda s: _trainer(s, **_MULTIPLICATIVE)),
    "en5": ("resperturb, En5 additive", lambda s: _trainer(s, **_ADDITIVE, model=f"en5-{s.model}")),
    "dpsgd": ("DP-SGD", _dpsgd),
    "opacus": ("DP-SGD, Opacus alone", _opacus),
    "prediction_plain_eager": ("prediction by hand", lambda s: _plain_prediction(s, "eager")),
    "prediction_plain_channels_last": (
        "prediction by hand, channels last",
        lambda s: _plain_prediction(s, "channels_last"),
    ),
    "prediction_plain_compiled": (
        "prediction by hand, compiled",
        lambda s: _plain_prediction(s, "compiled"),
    ),
    "prediction_trainer": ("prediction, no noise", lambda s: _prediction(s)),
    "prediction_additive": ("prediction, additive", lambda s: _prediction(s, **_ADDITIVE)),
    "prediction_multiplicative": ("prediction, multiplicative", lambda s: _prediction(s, **_MULTIPLICATIVE)),
    "prediction_draws_additive": (
        "16 draws for a quarter, additive",
        lambda s: _prediction(_many_draws(s), **_ADDITIVE),
    ),
    "prediction_draws_multiplicative": (
        "16 draws for a quarter, multiplicative",
        lambda s: _prediction(_many_draws(s), **_MULTIPLICATIVE),
    ),
}


def ways_of(setting: Workload) -> list[str]:
    """Name the variants that a setting allows.

    >>> "plain_compiled" in ways_of(Workload()), "plain_compiled" in ways_of(Workload(compiled=False))
    (True, False)
    """
    wanted = setting.ways or tuple(WAYS)
    return [name for name in WAYS if name in wanted and (setting.compiled or not name.endswith("_compiled"))]


def run_bench(
    settings: Sequence[Workload],
    *,
    processes: int = 1,
    rounds: int = 60,
    minutes: float = 10.0,
    memory: bool = True,
    growth: bool = True,
    on_update: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Measure every variant on every setting; the ratios of the first come first in the result.

    Args:
        settings: The networks, with their batches.
        processes: Number of processes per network, one after the other; with 1 it is this process itself.
        rounds: Largest number of rounds per process.
        minutes: Time limit; rounds are left out to keep it, down to :data:`FEWEST_ROUNDS` in each of several
            processes, :data:`FEWEST_FOR_AN_INTERVAL` in a single one.
        memory: Whether to measure the memory too.
        growth: Whether to measure how time and memory grow.
        on_update: Called with a description of the current work.

    Raises:
        UsageError: There is nothing to measure.
    """
    if not settings or rounds < 1 or processes < 1:
        raise UsageError("a benchmark needs a network, a process and at least one round.")
    use_huge_pages()
    keep_freed_memory()
    load_before, start = os.getloadavg()[0], time.perf_counter()
    grown = growth_tables(settings[0], on_update) if growth else {}
    networks = []
    for number, setting in enumerate(settings):
        left = 60 * minutes - (time.perf_counter() - start)
        networks.append(
            _measure_network(setting, processes, rounds, left / (len(settings) - number), memory, on_update)
        )
    return {
        "ratios": networks[0]["ratios"],
        "memory_ratios": networks[0]["memory_ratios"],
        "targets": {name: ratio.target for name, ratio in RATIOS.items() if ratio.target is not None},
        "networks": networks,
        "growth": grown,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "minutes": (time.perf_counter() - start) / 60,
        },
    }


class Seconds(NamedTuple):
    """Wall seconds and processor seconds of a step."""

    wall: float
    cpu: float


# The times of all variants in one process, round by round.
Times = dict[str, list[Seconds]]


def _measure_network(
    setting: Workload,
    processes: int,
    rounds: int,
    seconds: float,
    memory: bool,
    on_update: Callable[[str], None],
) -> dict[str, Any]:
    measured: list[Times] = []
    peaks: dict[str, int] = {}
    end = time.perf_counter() + seconds
    for number in range(processes):
        share = (end - time.perf_counter()) / (processes - number)
        if processes == 1:
            times, peaks = measure(setting, rounds, FEWEST_FOR_AN_INTERVAL, share, memory, on_update)
        else:
            on_update(f"{setting.model}: process {number + 1} of {processes}")
            times, found = _in_a_new_process(setting, rounds, share, memory and number == 0)
            peaks = peaks or found
        measured.append(times)
    found_ratios, bases = _summary(measured)
    in_relation = ratios(peaks, bases) if peaks else {}
    return {
        **asdict(setting),
        "processes": processes,
        "rounds": sum(len(next(iter(times.values()))) for times in measured),
        **found_ratios,
        "megabytes": {name: value / 1e6 for name, value in peaks.items()},
        "memory_ratios": {
            name: value if RATIOS[name].together else RATIOS[name].times * value
            for name, value in in_relation.items()
        },
        **bases,
    }


def _in_a_new_process(setting: Workload, rounds: int, seconds: float, memory: bool) -> tuple[Times, dict[str, int]]:
    start = time.perf_counter()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _quietly) as pool:
        pool.submit(keep_freed_memory).result()  # to start takes some of its time
        left = seconds - (time.perf_counter() - start)
        return pool.submit(measure, setting, rounds, FEWEST_ROUNDS, left, memory).result()


def _quietly() -> None:
    logging.getLogger("resperturb").setLevel(logging.WARNING)


def _summary(measured: Sequence[Times]) -> tuple[dict[str, Any], dict[str, str]]:
    """Compute the ratios of several processes, and name the fastest member of every family.

    >>> one, other = ({"plain_eager": [Seconds(1.0, 1.0)], "additive": [Seconds(t, t)]} for t in (1.02, 1.04))
    >>> summary, fastest = _summary([one, other])
    >>> summary["ratios"], summary["ratios_by_process"], fastest["plain"]
    ({'additive_over_plain': 1.03}, {'additive_over_plain': [1.02, 1.04]}, 'plain_eager')
    """
    summary: dict[str, Any] = {}
    bases: dict[str, str] = {}
    for clock, prefix in (("wall", ""), ("cpu", "cpu_")):
        taken = [{name: [getattr(one, clock) for one in times[name]] for name in times} for times in measured]
        medians = {name: statistics.median(statistics.median(times[name]) for times in taken) for name in measured[0]}
        bases = bases or fastest_ways(medians)
        per_round = [
            [ratios(dict(zip(times, turn, strict=True)), bases) for turn in zip(*times.values(), strict=True)]
            for times in taken
        ]
        names = per_round[0][0]
        by_process = {
            name: [statistics.median(turn[name] for turn in turns) for turns in per_round] for name in names
        }
        # The unit of the interval: processes, or the rounds of a single one.
        values = by_process if len(measured) > 1 else {name: [turn[name] for turn in per_round[0]] for name in names}
        summary[f"{prefix}milliseconds"] = {name: 1000 * value for name, value in medians.items()}
        summary[f"{prefix}ratios"] = {name: statistics.median(by_process[name]) for name in names}
        summary[f"{prefix}ratios_of_medians"] = ratios(medians, bases)
        summary[f"{prefix}intervals"] = {name: median_interval(values[name]) for name in names}
        summary[f"{prefix}ratios_by_process"] = by_process
    return summary, bases


def measure(
    setting: Workload,
    rounds: int,
    fewest: int,
    seconds: float,
    memory: bool,
    on_update: Callable[[str], None] = lambda message: None,
) -> tuple[Times, dict[str, int]]:
    """Time the variants in turns, in another order every round.

    Args:
        setting: The network and its batches.
        rounds: Largest number of rounds.
        fewest: Smallest number of rounds, at most ``rounds``.
        seconds: Seconds after which no further round begins, preparations included.
        memory: Whether to measure the memory too.
        on_update: Called with a description of the current work.

    Returns:
        The median times of a step in every round, and the peak memory of a step in bytes.
    """
    end = time.perf_counter() + seconds
    with _threads(setting.threads), _room_for_compiled_networks(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        works = {}
        for name in ways_of(setting):
            on_update(f"{setting.model}: preparing {WAYS[name][0]}")
            works[name] = WAYS[name][1](setting)
            for _ in range(WARM_UP):
                works[name].step()
        peaks = {name: peak_memory(work) for name, work in works.items()} if memory else {}
        turns = [name for name, work in works.items() for _ in range(steps_a_round(_seconds(work).wall))]
        times: Times = {name: [] for name in works}
        shuffle = random.Random(0)
        for turn in range(rounds):
            if turn >= fewest and time.perf_counter() > end:
                break
            on_update(f"{setting.model}: round {turn + 1} of at most {rounds}")
            taken: Times = {name: [] for name in works}
            for name in shuffle.sample(turns, len(turns)):
                taken[name].append(_seconds(works[name]))
            for name, steps in taken.items():
                times[name].append(Seconds(*(statistics.median(values) for values in zip(*steps, strict=True))))
    return times, peaks


def _seconds(work: Work) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    work.step()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval that covers the true median of any distribution with 95%; None of too few values.

    It lies between two order statistics: the number of values below the median is binomial.

    >>> median_interval([1.0, 2.0, 3.0]) is None, median_interval(list(map(float, range(1, 22))))
    (True, (6.0, 16.0))
    """
    from scipy.stats import binom

    ordered = sorted(values)
    below = int(binom.ppf(0.025, len(ordered), 0.5))
    if below and binom.cdf(below, len(ordered), 0.5) > 0.025:
        below -= 1
    if binom.cdf(below, len(ordered), 0.5) > 0.025:
        return None
    return ordered[below], ordered[len(ordered) - 1 - below]


def verdict(interval: tuple[float, float] | None, target: float) -> str:
    """Return whether a ratio reaches its target, or that the measurement is inconclusive.

    >>> verdict((0.9, 1.0), 1.05), verdict((1.06, 1.1), 1.05), verdict((1.0, 1.1), 1.05), verdict(None, 1.05)
    ('reached', 'missed', 'inconclusive', 'inconclusive')
    """
    if interval is None or interval[0] <= target < interval[1]:
        return "inconclusive"
    return "reached" if interval[1] <= target else "missed"


def steps_a_round(seconds: float) -> int:
    """Return the number of steps in a round, by the seconds of a step.

    >>> steps_a_round(0.01), steps_a_round(0.12), steps_a_round(5.0)
    (4, 2, 1)
    """
    return max(FEWEST_STEPS, min(MOST_STEPS, round(SECONDS_A_ROUND / seconds)))


def ratios(costs: Mapping[str, float], bases: Mapping[str, str] | None = None) -> dict[str, float]:
    """Compute the ratios of costs; those of variants that were not measured are left out.

    Args:
        costs: Cost of each variant.
        bases: Member that represents each family; the cheapest by default.

    Returns:
        The ratios by their names.

    >>> costs = dict.fromkeys(WAYS, 1.0) | {"additive": 1.2, "dpsgd": 1.5, "opacus": 2.5, "en5": 6.0}
    >>> {name: round(value, 3) for name, value in ratios(costs).items() if value > 1}
    {'additive_over_plain': 1.2, 'dpsgd_over_plain': 1.5, 'opacus_over_plain': 2.5}
    >>> ratios({"plain_eager": 2.0, "additive": 3.0})
    {'additive_over_plain': 1.5}
    """
    names = bases or fastest_ways(costs)
    return {
        name: costs[names.get(ratio.way, ratio.way)] / (ratio.times * costs[names.get(ratio.base, ratio.base)])
        for name, ratio in RATIOS.items()
        if names.get(ratio.way, ratio.way) in costs
    }


def fastest_ways(costs: Mapping[str, float]) -> dict[str, str]:
    """Name the cheapest member of every family that was measured.

    >>> fastest_ways({"plain_eager": 2.0, "plain_compiled": 1.0, "trainer": 0.5})
    {'plain': 'plain_compiled'}
    """
    families = {name for ratio in RATIOS.values() for name in (ratio.way, ratio.base)} - WAYS.keys()
    found = {family: [way for way in costs if way.startswith(f"{family}_")] for family in sorted(families)}
    return {family: min(ways, key=lambda way: costs[way]) for family, ways in found.items() if ways}


def peak_memory(work: Work) -> int:
    """Measure the peak memory of a step in bytes: weights, optimizer, and the tensors that are alive at once.

    Of work without a network, the arrays of numpy that are alive at once.
    """
    from torch.profiler import ProfilerActivity, profile

    if work.model is None:
        return _peak_of_arrays(work)
    for parameter in work.model.parameters():
        parameter.grad = None
        for attribute in ("grad_sample", "summed_grad"):
            if hasattr(parameter, attribute):
                setattr(parameter, attribute, None)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work.step()
    results: Any = profiled.profiler.kineto_results
    changes = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]")
    return _bytes_kept(work) + max(itertools.accumulate(change for _, change in changes), default=0)


def _peak_of_arrays(work: Work) -> int:
    tracemalloc.start()
    try:
        work.step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _bytes_kept(work: Work) -> int:
    tensors = [] if work.batch is None else [work.batch]
    if work.model is not None:
        tensors += [*work.model.parameters(), *work.model.buffers()]
    if work.optimizer is not None:
        for state in work.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# The dimensions that grow, how, and through which values.
GROWTH: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "batch": ("additive", "batch_size", (32, 64, 128, 256)),
    "image size": ("additive", "image_size", (16, 32, 64)),
    "depth": ("additive", "model", (8, 14, 20, 32)),
    "records": ("prediction_additive", "predicted", (256, 512, 1024)),
    "draws": ("prediction_additive", "draws", (1, 4, 16)),
    "shadows": ("scoring", "shadows", (4, 16, 64)),
}


def _scoring(setting: Workload) -> Work:
    """Every attack of an audit on 1,000 records, by the number of shadow models."""
    return Work(Scoring(1000, setting.shadows, draws=16).run)


# With work that has no plain loop to compare with, and is only measured as it grows.
GROWING = {**WAYS, "scoring": ("all attacks of an audit", _scoring)}


def growth_tables(setting: Workload, on_update: Callable[[str], None]) -> dict[str, Any]:
    """Measure how time and memory of a step grow with each dimension, without compiling.

    Returns:
        For everything in :data:`GROWTH` its values, processor seconds and megabytes, and the slopes of both: what is
        proportional to it has the slope 1, what does not depend on it the slope 0.
    """
    tables = {}
    with _threads(setting.threads), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for what, (way, field, values) in GROWTH.items():
            seconds, megabytes = [], []
            for value in values:
                on_update(f"growth with {what}: {value}")
                changed: Any = {field: f"resnet{value}" if field == "model" else value}
                work = GROWING[way][1](replace(setting, compiled=False, **changed))
                work.step()
                seconds.append(min(_seconds(work).cpu for _ in range(3)))
                megabytes.append(peak_memory(work) / 1e6)
            tables[what] = {
                "way": way,
                "values": list(values),
                "cpu_seconds": seconds,
                "megabytes": megabytes,
                "time_slope": _slope(values, seconds),
                "memory_slope": _slope(values, megabytes),
            }
    return tables


def _slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of the power law that fits best."""
    logs = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(*logs).slope


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _room_for_compiled_networks() -> Iterator[None]:
    """Raise torch's limit of compiled networks per process, beyond which it silently runs them uncompiled."""
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=100, fail_on_recompile_limit_hit=True):
        yield


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
