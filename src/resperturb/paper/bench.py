"""What privacy costs in time and memory: every way to train, on one network and one machine, side by side.

The ways take turns, step by step, so that whatever else the machine does falls on all of them alike. A ratio is the
median, over rounds, of the ratio within a round; only ratios mean anything elsewhere. *Plain* is a loop that a person
writes by hand, in the fastest of three ways: as it is, with the channels last, or compiled as well. Memory is
measured in a process of its own for each way.
"""

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.data import ImageSet
from resperturb.errors import ResperturbError, UsageError
from resperturb.models import build
from resperturb.training import DpsgdSteps, Progress, Steps, TrainConfig, build_model, make_config, normalize, predict

CLASSES = 10
PREDICTED = 512
# In a round every way takes about so long: quick ones take many steps, since their percents are soon lost in noise.
SECONDS_A_ROUND = 1.0
FEWEST_STEPS, MOST_STEPS = 2, 12
# What we want to reach; None where the number is only to be known.
TARGETS: dict[str, float | None] = {
    "trainer_over_plain": 1.02,
    "additive_over_plain": 1.10,
    "multiplicative_over_plain": 1.10,
    "en5_over_5_singles": 1.00,
    "dpsgd_over_additive": None,
    "prediction_additive_over_plain": 1.10,
}


@dataclass(frozen=True)
class Setting:
    """What is trained: a network on batches of images. ``compiled`` allows ``torch.compile``."""

    model: str = "resnet8"
    batch_size: int = 128
    image_size: int = 32
    threads: int = 1
    compiled: bool = True


@dataclass(frozen=True)
class Work:
    """One way to do a step; ``model`` and ``optimizer`` are what it keeps in memory between steps."""

    step: Callable[[], object]
    model: nn.Module
    optimizer: torch.optim.Optimizer | None = None


def _config(setting: Setting, **changes: Any) -> TrainConfig:
    # As in a long training: 1000 epochs.
    values = {"model": setting.model, "batch_size": setting.batch_size, "epochs": 1000, **changes}
    return make_config(data={"spec": "random images"}, **values)


def _images(setting: Setting, records: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    size = (records, 3, setting.image_size, setting.image_size)
    return ImageSet(
        images=torch.randint(0, 256, size, dtype=torch.uint8, generator=generator),
        labels=torch.randint(0, CLASSES, (records,), generator=generator),
        classes=tuple(map(str, range(CLASSES))),
        groups=None,
        name="random images",
    )


def _by_hand(setting: Setting, kind: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network and its data as a person would write it: floats, normalised beforehand."""
    torch.manual_seed(0)
    model = build(setting.model, num_classes=CLASSES)
    images = _images(setting, 4 * setting.batch_size)
    floats = normalize(images.images[:], 0.5, 0.25)
    if kind != "eager":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        floats = floats.to(memory_format=torch.channels_last)
    if kind == "compiled":
        model.compile(dynamic=False)
    return model, floats, images.labels


def _plain(setting: Setting, kind: str) -> Work:
    model, images, labels = _by_hand(setting, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        chosen = torch.randperm(len(images))[: setting.batch_size]
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Work(step, model, optimizer)


def _plain_prediction(setting: Setting, kind: str) -> Work:
    model, images, _ = _by_hand(replace(setting, batch_size=PREDICTED), kind)
    model.eval()
    batches = torch.split(images[:PREDICTED], setting.batch_size)

    def step() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(batch)

    return Work(step, model)


def _trainer(setting: Setting, **changes: Any) -> Work:
    config = _config(setting, **changes)
    return _taking(Steps(config, _images(setting, 4 * setting.batch_size), "cpu", setting.compiled))


def _dpsgd(setting: Setting) -> Work:
    # As many records as in a batch: the Poisson samples are then all of them, and all of the same size.
    return _taking(DpsgdSteps(_config(setting, method="dpsgd"), _images(setting, setting.batch_size), "cpu"))


def _taking(steps: Steps) -> Work:
    steps.model.train()
    progress = Progress()

    def step() -> None:
        steps.take(progress)
        progress.step %= steps.per_epoch

    return Work(step, steps.model, steps.optimizer)


def _ghost(setting: Setting) -> Work:
    """Opacus's ghost clipping, which needs a second backward pass in place of every record's gradient."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    torch.manual_seed(0)
    model = build(setting.model, num_classes=CLASSES, norm="group")
    hooked = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    private = DPOptimizerFastGradientClipping(
        optimizer, noise_multiplier=1.1, max_grad_norm=1.0, expected_batch_size=setting.batch_size
    )
    criterion = DPLossFastGradientClipping(hooked, private, nn.CrossEntropyLoss())
    images = _images(setting, setting.batch_size)
    floats = normalize(images.images[:], 0.5, 0.25)

    def step() -> None:
        private.zero_grad()
        criterion(hooked(floats), images.labels).backward()
        private.step()

    return Work(step, model, optimizer)


def _prediction(setting: Setting, **changes: Any) -> Work:
    config = _config(setting, **changes)
    images = _images(setting, PREDICTED)
    model = build_model(config, images)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as a trained one is loaded
    options: Any = {"mean": config.mean, "std": config.std, "batch_size": setting.batch_size}
    return Work(lambda: predict(model, images.images, **options, compiled=setting.compiled), model)


_ADDITIVE = {"perturbation": {"name": "additive", "gamma": 0.5}}
_MULTIPLICATIVE = {"perturbation": {"name": "multiplicative", "gamma": 0.5}}

# Each way by the name it has in the results, with a label for people.
WAYS: dict[str, tuple[str, Callable[[Setting], Work]]] = {
    "plain_eager": ("by hand", lambda s: _plain(s, "eager")),
    "plain_channels_last": ("by hand, channels last", lambda s: _plain(s, "channels_last")),
    "plain_compiled": ("by hand, and compiled", lambda s: _plain(s, "compiled")),
    "trainer": ("resperturb, no noise", lambda s: _trainer(s)),
    "additive": ("resperturb, additive", lambda s: _trainer(s, **_ADDITIVE)),
    "multiplicative": ("resperturb, multiplicative", lambda s: _trainer(s, **_MULTIPLICATIVE)),
    "en5": ("resperturb, En5 additive", lambda s: _trainer(s, **_ADDITIVE, model=f"en5-{s.model}")),
    "dpsgd": ("DP-SGD (hooks)", _dpsgd),
    "dpsgd_ghost": ("DP-SGD (ghost)", _ghost),
    "prediction_plain_eager": ("prediction by hand", lambda s: _plain_prediction(s, "eager")),
    "prediction_plain_channels_last": (
        "prediction by hand, channels last",
        lambda s: _plain_prediction(s, "channels_last"),
    ),
    "prediction_plain_compiled": (
        "prediction by hand, and compiled",
        lambda s: _plain_prediction(s, "compiled"),
    ),
    "prediction_trainer": ("prediction, no noise", lambda s: _prediction(s)),
    "prediction_additive": ("prediction, additive", lambda s: _prediction(s, **_ADDITIVE)),
}


def ways_of(setting: Setting) -> list[str]:
    """Name the ways that a setting allows.

    >>> "plain_compiled" in ways_of(Setting()), "plain_compiled" in ways_of(Setting(compiled=False))
    (True, False)
    """
    return [name for name in WAYS if setting.compiled or not name.endswith("_compiled")]


def run_bench(
    settings: Sequence[Setting],
    *,
    rounds: int = 20,
    memory: bool = True,
    on_update: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Measure every way on every setting; the ratios of the first stand at the top of the result."""
    if not settings or rounds < 1:
        raise UsageError("a benchmark needs a network and at least one round.")
    load_before = os.getloadavg()[0]
    networks = [_measure_network(setting, rounds, memory, on_update) for setting in settings]
    return {
        "ratios": networks[0]["ratios"],
        "memory_ratios": networks[0]["memory_ratios"],
        "targets": {name: target for name, target in TARGETS.items() if target is not None},
        "networks": networks,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
        },
    }


def _measure_network(setting: Setting, rounds: int, memory: bool, on_update: Callable[[str], None]) -> dict[str, Any]:
    times = measure_times(setting, rounds, on_update)
    medians = {name: statistics.median(values) for name, values in times.items()}
    megabytes = {}
    if memory:
        for name in times:
            on_update(f"{setting.model}: the memory of {WAYS[name][0]}")
            megabytes[name] = memory_in_own_process(name, setting)
    plain, prediction = fastest(medians, "plain_"), fastest(medians, "prediction_plain_")
    turns = [{name: values[turn] for name, values in times.items()} for turn in range(rounds)]
    per_turn = [ratios(turn, plain, prediction) for turn in turns]
    return {
        **asdict(setting),
        "rounds": rounds,
        "plain": plain,
        "prediction_plain": prediction,
        "milliseconds": {name: 1000 * value for name, value in medians.items()},
        "megabytes": megabytes,
        "ratios": {name: statistics.median(turn[name] for turn in per_turn) for name in TARGETS},
        "quartiles": {name: _quartiles([turn[name] for turn in per_turn]) for name in TARGETS},
        "memory_ratios": ratios(megabytes, plain, prediction) if megabytes else {},
    }


def measure_times(setting: Setting, rounds: int, on_update: Callable[[str], None]) -> dict[str, list[float]]:
    """Time the ways in turns, in another order every round; returns the median seconds a step of every round."""
    with _threads(setting.threads), _room_for_compiled_networks(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        works = {}
        for name in ways_of(setting):
            on_update(f"{setting.model}: preparing {WAYS[name][0]}")
            works[name] = WAYS[name][1](setting)
            works[name].step()
            works[name].step()
        turns = [name for name, work in works.items() for _ in range(steps_a_round(_seconds(work)))]
        times: dict[str, list[float]] = {name: [] for name in works}
        shuffle = random.Random(0)
        for turn in range(rounds):
            on_update(f"{setting.model}: round {turn + 1} of {rounds}")
            taken: dict[str, list[float]] = {name: [] for name in works}
            for name in shuffle.sample(turns, len(turns)):
                taken[name].append(_seconds(works[name]))
            for name, seconds in taken.items():
                times[name].append(statistics.median(seconds))
    return times


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work.step()
    return time.perf_counter() - start


def steps_a_round(seconds: float) -> int:
    """How many steps of so many seconds a way takes in a round.

    >>> steps_a_round(0.01), steps_a_round(0.25), steps_a_round(5.0)
    (12, 4, 2)
    """
    return max(FEWEST_STEPS, min(MOST_STEPS, round(SECONDS_A_ROUND / seconds)))


def ratios(costs: Mapping[str, float], plain: str | None = None, prediction: str | None = None) -> dict[str, float]:
    """Put the costs in relation; ``plain`` and ``prediction`` name the loops by hand, otherwise the cheapest.

    DP-SGD is the cheaper of Opacus's two ways.

    >>> costs = dict.fromkeys(WAYS, 1.0) | {"additive": 1.2, "dpsgd": 3.6, "dpsgd_ghost": 4.0, "en5": 6.0}
    >>> {name: round(value, 3) for name, value in ratios(costs).items()}
    {'trainer_over_plain': 1.0, 'additive_over_plain': 1.2, 'multiplicative_over_plain': 1.0,
     'en5_over_5_singles': 1.0, 'dpsgd_over_additive': 3.0, 'prediction_additive_over_plain': 1.0}
    """
    base = costs[plain or fastest(costs, "plain_")]
    answer = costs[prediction or fastest(costs, "prediction_plain_")]
    return {
        "trainer_over_plain": costs["trainer"] / base,
        "additive_over_plain": costs["additive"] / base,
        "multiplicative_over_plain": costs["multiplicative"] / base,
        "en5_over_5_singles": costs["en5"] / (5 * costs["additive"]),
        "dpsgd_over_additive": min(costs["dpsgd"], costs["dpsgd_ghost"]) / costs["additive"],
        "prediction_additive_over_plain": costs["prediction_additive"] / answer,
    }


def fastest(costs: Mapping[str, float], prefix: str) -> str:
    """Name the cheapest of those that begin with ``prefix``.

    >>> fastest({"plain_eager": 2.0, "plain_compiled": 1.0, "trainer": 0.5}, "plain_")
    'plain_compiled'
    """
    return min((name for name in costs if name.startswith(prefix)), key=lambda name: costs[name])


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def memory_in_own_process(name: str, setting: Setting) -> float:
    """Measure the peak memory of a step, in megabytes, where nothing else has been allocated before."""
    code = "import sys; from resperturb.paper.bench import report_memory; report_memory(*sys.argv[1:])"
    # Every tensor gets its own pages, so that the peak is what is in use, not what the allocator keeps.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", code, name, json.dumps(asdict(setting))],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise ResperturbError(f"measuring the memory of {name} failed: {done.stderr.strip()[-500:]}")
    return float(done.stdout.splitlines()[-1])


def report_memory(name: str, setting: str) -> None:
    """Print the peak memory of a step: weights, optimizer, and whatever is alive at once while it runs."""
    values = Setting(**json.loads(setting))
    with _threads(values.threads):
        work = WAYS[name][1](values)
        for _ in range(2):
            work.step()
        kept = _tensors_kept(work)
        for parameter in work.model.parameters():
            parameter.grad = None
            for attribute in ("grad_sample", "summed_grad"):
                if hasattr(parameter, attribute):
                    setattr(parameter, attribute, None)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = _process_memory("VmRSS")
        for _ in range(2):
            work.step()
    print((_process_memory("VmHWM") - before + kept) / 1e6)


def _tensors_kept(work: Work) -> int:
    tensors = [*work.model.parameters(), *work.model.buffers()]
    if work.optimizer is not None:
        for state in work.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _process_memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ResperturbError(f"this system does not say {field}; measure without memory.")


def can_measure_memory() -> bool:
    """Whether the system says how much memory a process used at most, and can start counting again."""
    return os.access("/proc/self/clear_refs", os.W_OK)


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
    """Let many networks be compiled in one process; beyond its limit torch would silently run them uncompiled."""
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=100, fail_on_recompile_limit_hit=True):
        yield


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
