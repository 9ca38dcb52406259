"""Which floating-point precision is faster here: measured on steps of the training itself, not guessed."""

import json
import logging
import math
import statistics
import time
from pathlib import Path

import torch

from resperturb.data.images import ImageSet
from resperturb.noise.rounding import NoiseLostError
from resperturb.progress import duration
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import Execution
from resperturb.training.inputs import Inputs
from resperturb.training.run import CONFIG, open_run

WHOLE, HALF = "32-true", "bf16-mixed"
# Bf16 is chosen where it takes at most this share of the time of 32 bits.
WORTH_IT = 0.9
# The first steps compile and ask for memory; of the others the median counts, and slow ones are not waited for.
WARM_UP, ROUNDS, LONGEST_SECONDS = 2, 5, 20.0
# A training that takes longer hears what bf16 would save.
LONG_SECONDS = 600.0

_log = logging.getLogger(__name__)
_known: dict[str, float] = {}


def settle_precision(
    config: TrainConfig, inputs: Inputs, out: Path | None, runs: Path, accelerator: str = "auto"
) -> TrainConfig:
    """Choose the precision where it is left open: bf16 where it is faster and the method proves nothing.

    A run of this training that exists, finished or not, has chosen already.
    """
    if config.precision != "auto":
        return config
    if config.method.private:
        return _in_precision(config, WHOLE)
    for precision in (HALF, WHOLE):
        wanted = _in_precision(config, precision)
        path = runs / wanted.digest if out is None else out
        if (path / CONFIG).is_file() and open_run(path).config == wanted:
            return wanted
    share = measured_share(config, inputs.members(), accelerator)
    chosen = HALF if share <= WORTH_IT else WHOLE
    _log.info("A step in bf16 takes %.2f of one in 32 bits here: training in %s.", share, chosen)
    return _in_precision(config, chosen)


def _in_precision(config: TrainConfig, precision: str) -> TrainConfig:
    return config.model_copy(update={"precision": precision})


def measured_share(config: TrainConfig, members: ImageSet, accelerator: str = "auto") -> float:
    """Give the time of a step in bf16 as a share of one in 32 bits; infinite where bf16 cannot train the network.

    Steps are timed in turns, on networks that are thrown away. On the processor it is processor time that counts,
    which neighbours on its cores disturb less. What was measured once holds for other seeds and lengths too.
    """
    unimportant = {"data", "seed", "epochs", "lr", "schedule", "warmup_epochs", "precision", "seeded_noise"}
    matters = config.model_dump(mode="json", exclude=unimportant)
    key = json.dumps([accelerator, members.channels, members.size, members.num_classes, matters])
    if key not in _known:
        with torch.random.fork_rng():
            _known[key] = _timed(config, members.select(range(min(len(members), 2 * config.batch_size))), accelerator)
    return _known[key]


def _timed(config: TrainConfig, few: ImageSet, accelerator: str) -> float:
    times: dict[str, list[float]] = {WHOLE: [], HALF: []}
    steps = {
        precision: config.method.steps(_in_precision(config, precision), few, Execution(accelerator))
        for precision in times
    }
    clock = time.process_time if steps[WHOLE].device.type == "cpu" else time.perf_counter
    begun = time.monotonic()
    for number in range(WARM_UP + ROUNDS):
        for precision, of_precision in steps.items():
            start = clock()
            try:
                of_precision.take(Progress(step=number % of_precision.per_epoch))
            except (NoiseLostError, RuntimeError) as error:
                if precision == WHOLE:
                    raise
                _log.info("bf16 cannot train this network: %s", error)
                return math.inf
            times[precision].append(clock() - start)
        if number >= 1 and time.monotonic() - begun > LONGEST_SECONDS:
            break
    whole, half = (statistics.median(times[precision][min(WARM_UP, number) :]) for precision in (WHOLE, HALF))
    return float(half / whole)


def advice(config: TrainConfig, members: ImageSet, seconds_left: float) -> str | None:
    """Say what bf16 would save in the seconds that are left of a long training in 32 bits; None if nothing."""
    if seconds_left < LONG_SECONDS or config.precision != WHOLE or config.method.private:
        return None
    try:
        share = measured_share(config, members)
    except (MemoryError, RuntimeError):  # the training itself goes on, where there is no room for two more networks
        return None
    if share > WORTH_IT:
        return None
    return (
        f"This takes about {duration(seconds_left)} in 32 bits, and in bf16 about "
        f"{duration(seconds_left * share)} here: to use it, stop and add --precision auto."
    )
