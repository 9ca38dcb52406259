"""Measure power and false alarms of the lower bounds, and of those of jax_privacy on the same scores.

    pip install jax-privacy
    python benchmarks/lower_bounds.py --draws 20 --audits 200

jax_privacy is no dependency of this package; without it only our own columns are printed.
"""

import argparse
from collections.abc import Callable

import numpy as np

from resperturb.bounds import clopper_pearson, gdp, one_run
from resperturb.privacy.gaussian import epsilon_for_delta

DELTA, ALPHA = 1e-5, 0.05
Scores = np.ndarray
Bound = Callable[[Scores, Scores], float]

OURS: dict[str, Bound] = {
    "clopper_pearson": lambda m, n: clopper_pearson(m, n).epsilon,
    "gdp": lambda m, n: gdp(m, n).epsilon,
    "one_run": lambda m, n: one_run(m, n).epsilon,
}


def theirs() -> dict[str, Bound]:
    """Return the bounds of jax_privacy at default arguments, if it is installed."""
    try:
        from jax_privacy.auditing import CanaryScoreAuditor
    except ImportError:
        return {}
    return {
        "jax clopper_pearson": lambda m, n: CanaryScoreAuditor(m, n).epsilon_clopper_pearson(ALPHA, DELTA),
        "jax gdp": lambda m, n: CanaryScoreAuditor(m, n).epsilon_from_gdp(ALPHA, DELTA),
        "jax one_run": lambda m, n: CanaryScoreAuditor(m, n).epsilon_one_run(ALPHA, DELTA),
        "jax one_run_fdp": lambda m, n: CanaryScoreAuditor(m, n).epsilon_one_run_fdp(ALPHA, DELTA),
    }


def by_coins(rng: np.random.Generator, size: int, mu: float) -> tuple[Scores, Scores]:
    """Draw scores of a Gaussian mechanism, each canary in by a fair coin."""
    member = rng.random(size) < 0.5
    scores = rng.normal(mu * member, 1)
    return scores[member], scores[~member]


NULL: dict[str, Callable[[np.random.Generator, int], Scores]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "nine in ten are one": lambda rng, size: (rng.random(size) < 0.9).astype(float),
    "one in twenty is one": lambda rng, size: (rng.random(size) < 0.05).astype(float),
    "heavy tails": lambda rng, size: rng.standard_cauchy(size),
    "equal in groups of ten": lambda rng, size: np.repeat(rng.normal(size=size // 10), 10),
    "all equal": lambda rng, size: np.ones(size),
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--audits", type=int, default=200)
    chosen = parser.parse_args()
    bounds = {**OURS, **theirs()}
    print("| canaries | mu | true | " + " | ".join(bounds) + " |", flush=True)
    for size in (200, 400, 2000):
        for mu in (1.0, 2.0):
            rng, truth = np.random.default_rng(0), epsilon_for_delta(DELTA, mu)
            audits = [by_coins(rng, size, mu) for _ in range(chosen.draws)]
            cells = []
            for bound in bounds.values():
                found = np.array([bound(*audit) for audit in audits])
                above = np.mean(found > truth)
                cells.append(f"{found.mean():.2f}" + (f" (above the truth in {above:.0%})" if above else ""))
            print(f"| {size} | {mu:g} | {truth:.2f} | " + " | ".join(cells) + " |", flush=True)
    print("| canaries, scores without signal | " + " | ".join(bounds) + " |")
    for size in (50, 200, 1000):
        for name, scores in NULL.items():
            rng, claims = np.random.default_rng([12345, size]), dict.fromkeys(bounds, 0)
            for _ in range(chosen.audits):
                drawn, member = scores(rng, size), rng.random(size) < 0.5
                for key, bound in bounds.items():
                    claims[key] += bound(drawn[member], drawn[~member]) > 0
            cells = [f"{count / chosen.audits:.1%}" for count in claims.values()]
            print(f"| {size}, {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
