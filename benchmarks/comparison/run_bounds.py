"""Bound the scores of every tool by jax-privacy, or by Privacy Meter's repository, and scores without signal.

Without signal, coins are independent of the scores, and a bound above 0 is a false claim.

    python run_bounds.py jax-privacy|privacy-meter folder out.json nulls
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DELTA, ALPHA, ROWS = 1e-5, 0.05, 1600
Bounds = dict[str, Callable[[NDArray[Any], NDArray[Any]], float]]


def jax_privacy() -> Bounds:
    """Return the one-run bounds of jax-privacy at its default thresholds."""
    from jax_privacy.auditing import CanaryScoreAuditor

    return {
        "one_run": lambda ins, outs: CanaryScoreAuditor(ins, outs).epsilon_one_run(ALPHA, DELTA),
        "one_run_fdp": lambda ins, outs: CanaryScoreAuditor(ins, outs).epsilon_one_run_fdp(ALPHA, DELTA),
    }


def privacy_meter() -> Bounds:
    """Return the one-run bound of Privacy Meter's repository, at its delta of 0."""
    from audit import compute_abstain_attack_results

    def best(ins: NDArray[Any], outs: NDArray[Any]) -> float:
        scores, truth = np.concatenate([ins, outs]), np.repeat([1, 0], [len(ins), len(outs)])
        order = np.random.default_rng(0).permutation(len(scores))  # it breaks ties by position
        return float(compute_abstain_attack_results(scores[order], truth[order], p_value=ALPHA)["eps_opt"])

    return {"one run, delta 0, best of all guesses": best}


def resperturb() -> Bounds:
    """Return the bound of this library on one attack."""
    from resperturb.bounds import one_run

    return {"one_run": lambda ins, outs: one_run(ins, outs, delta=DELTA, confidence=1 - ALPHA).epsilon}


TOOLS = {"jax-privacy": jax_privacy, "privacy-meter": privacy_meter, "resperturb": resperturb}


def main() -> None:
    """Bound and write."""
    tool, folder, out, nulls = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    bounds = TOOLS[tool]()
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as kept:
            scores, members = kept["scores"], kept["members"]
        found[path.stem] = {name: float(bound(scores[members], scores[~members])) for name, bound in bounds.items()}
    claims = dict.fromkeys(bounds, 0)
    for seed in range(nulls):
        rng = np.random.default_rng(seed)
        scores, members = rng.normal(size=ROWS), rng.random(ROWS) < 0.5
        for name, bound in bounds.items():
            claims[name] += bool(bound(scores[members], scores[~members]) > 0)
    out.write_text(json.dumps({"scores": found, "false_claims": claims, "nulls": nulls}) + "\n")


if __name__ == "__main__":
    main()
