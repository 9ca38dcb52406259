"""How long the audit scores records, once the models have answered: random answers, every attack, no training.

python -m benchmarks.scoring --records 50000 --shadows 64
"""

import argparse
import resource
import time

import numpy as np

from benchmarks.random_answers import random_answers
from resperturb.attacks import Evidence, Query, ShadowStatistics, attacks_on, views


def main() -> None:
    """Print seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--shadows", type=int, default=64)
    parser.add_argument("--draws", type=int, default=16, help="how many times every record was asked")
    given = parser.parse_args()
    query = Query("noise on", tuple(sorted({1, given.draws})))
    seen, rng = views([query]), np.random.default_rng(0)
    statistics = ShadowStatistics.empty(seen, given.records)
    taking_in = 0.0
    for number in range(given.shadows):
        asked = {"noise on": random_answers(rng, given.records, query)}
        members = rng.random(given.records) < 0.5
        began = time.perf_counter()
        statistics.add(asked, members)
        taking_in += time.perf_counter() - began
        if number == 0:
            first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{given.records:,} records, {given.shadows} shadows, {given.draws} draws")
    print(f"taking in the shadows' answers: {taking_in:.1f} s")
    evidence = Evidence({"noise on": random_answers(rng, given.records, query)}, statistics, given.records * 9 // 10)
    for attack in attacks_on(seen, given.shadows):
        began = time.perf_counter()
        attack.published.score(evidence, attack.view)
        print(f"{attack.name} ({attack.view}): {time.perf_counter() - began:.2f} s")
    last = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory: {first / 1024:.0f} MB after one shadow, {last / 1024:.0f} MB in the end")


if __name__ == "__main__":
    main()
