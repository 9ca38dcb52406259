"""The shadow models of an audit: trained as the target is, noise and all, on subsets that coins decide."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resperturb.audits.shadow import check_shadow, shadow_config, shadow_folder
from resperturb.engine import Engine, train_many
from resperturb.engine.local import local
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run


def shadow_configs(target: TrainConfig, count: int) -> list[TrainConfig]:
    """Say how shadows are trained: like the target, every candidate in half of them.

    >>> from resperturb.training.config import DataConfig
    >>> target = TrainConfig(data=DataConfig(spec="x", part="target_train"))
    >>> [(config.data.part, config.data.subset_seed) for config in shadow_configs(target, 2)]
    [('audit', 2), ('audit', 3)]
    """
    # Neither the coins of the target nor their opposite.
    first = 2 * (target.data.subset_seed // 2 + 1)
    part = "all" if target.data.part == "all" else "audit"
    return [
        target.model_copy(
            update={
                "data": target.data.model_copy(update={"part": part, "subset_seed": first + number}),
                "seed": target.seed + 1 + number,
            }
        )
        for number in range(count)
    ]


def learned_shadow_configs(target: TrainConfig) -> list[TrainConfig]:
    """Say how the shadows of the paper's attack are trained: not adaptive and adaptive, if that differs."""
    if target.data.part == "all":
        return []
    both = (shadow_config(target, adaptive) for adaptive in (False, True))
    return list({config.digest: config for config in both}.values())


def train_shadows(
    target: Run, count: int, jobs: int | None, on_done: Callable[[int, int], None], engine: Engine = local
) -> list[Run]:
    """Train the shadows that are missing beside the target; refuse them if one has not learned.

    Those of the paper's attack are trained along, so that all cores have work.
    """
    configs = [*shadow_configs(target.config, count), *learned_shadow_configs(target.config)]
    done = 0
    on_done(done, len(configs))

    def tell(run: Run) -> None:
        nonlocal done
        done += 1
        on_done(done, len(configs))

    shadows = train_many(configs, shadow_folder(target), jobs, tell, engine=engine)[:count]
    for shadow in shadows:
        check_shadow(target, shadow)
    return shadows


def described(shadows: Sequence[Run]) -> dict[str, Any]:
    """Say which shadows were used and how well they learned.

    >>> described([])
    {'count': 0, 'hashes': [], 'test_accuracy': None}
    """
    found = np.array([shadow.result.test_accuracy for shadow in shadows])
    spread = None
    if shadows:
        spread = {"lowest": float(found.min()), "mean": float(found.mean()), "highest": float(found.max())}
    return {
        "count": len(shadows),
        "hashes": [shadow.config.digest for shadow in shadows],
        "test_accuracy": spread,
    }
