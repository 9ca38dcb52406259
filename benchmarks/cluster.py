"""Check an audit and a frontier by Ray, and a training by torchrun, on three nodes of which one is killed.

    python -m benchmarks.cluster        # as root, on Linux, with iproute2 and ray

The nodes are network namespaces of this machine, joined by a bridge: they share neither an address nor a port. The
audit (leave-one-out) and the frontier train their models on nodes 2 and 3. All processes of node 3 are killed in the
middle, and every result must be the same as on one machine. The training runs on nodes 1 and 2. Node 2 is killed in
the middle, the same commands run again, and the weights must be those of an uninterrupted training.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import resperturb as rp
from resperturb.auditing import open_scores
from resperturb.engine import local_engine
from resperturb.files import digest_of

ROWS, MODELS = 200, 8
NODES = {f"resperturb-{number}": f"10.211.77.{number}" for number in (1, 2, 3)}
BRIDGE, PORT = "resperturb-br", 6399
SECONDS_PER_MODEL = 3.0
ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32),
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
}


def train(indices: np.ndarray, seed: int, memory: float = 1.0) -> object:
    """Fit nearest means that also remember their rows, slowly enough to be killed in the middle."""
    time.sleep(SECONDS_PER_MODEL)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, ROWS)
    features = rng.normal(size=(ROWS, 4)) + labels[:, None]
    means = np.stack([features[indices][labels[indices] == label].mean(axis=0) for label in (0, 1)])
    known = np.isin(np.arange(ROWS), indices)

    def predict(rows: np.ndarray) -> np.ndarray:
        logits = -((features[rows, None] - means) ** 2).sum(axis=2)
        logits[np.arange(len(rows)), labels[rows]] += memory * known[rows]
        p: np.ndarray = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    return predict


def study(what: str, out: Path, address: str | None) -> None:
    """Run the audit or the frontier on the cluster or, without an address, on this machine alone."""
    labels = np.random.default_rng(0).integers(0, 2, ROWS)
    engine = local_engine if address is None else rp.engine.RayEngine(address)
    jobs = None if address else 1
    if what == "audit":
        print(rp.audit(train, labels=labels, models=MODELS, out=out, jobs=jobs, engine=engine).sentence)
    else:
        settings = {"none": {}, "less memory": {"memory": 0.5}}
        print(rp.frontier(train, settings, labels, models=MODELS, out=out, jobs=jobs, engine=engine).title)


def same_results(what: str, one: Path, other: Path) -> bool:
    """Return whether two audits have the same scores, or two frontiers the same numbers."""
    if what == "audit":
        ours, theirs = open_scores(one), open_scores(other)
        same = all((ours.attacks[key] == theirs.attacks[key]).all() for key in ours.attacks)
        return same and bool((ours.members == theirs.members).all())
    found = [json.loads((out / "frontier.json").read_text()) for out in (one, other)]
    return bool(found[0]["settings"] == found[1]["settings"] and found[0]["comparisons"] == found[1]["comparisons"])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[None]:
    """Make the namespaces and the bridge between them, and remove them."""
    remove()
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number, (name, address) in enumerate(NODES.items()):
            ip("netns", "add", name)
            ip("link", "add", f"rpv{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"rpv{number}", "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        remove()


def remove() -> None:
    for name in NODES:
        kill(name)
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", name)
    for link in (BRIDGE, *(f"rpv{number}" for number in range(len(NODES)))):
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", link)


def kill(name: str) -> int:
    """Kill all processes of a node, and count them."""
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(int(process), 9)
    return len(found)


def inside(name: str, *words: str, wait: bool = True) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(["ip", "netns", "exec", name, *words], env=ENVIRONMENT)
    if wait and started.wait():
        raise SystemExit(f"{' '.join(words)} failed in {name}")
    return started


def study_on_a_cluster(what: str, folder: Path) -> bool:
    """Run an audit or a frontier on one machine and on the cluster, and compare."""
    alone, together = folder / f"{what}-alone", folder / f"{what}-together"
    study(what, alone, None)
    with network():
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--disable-usage-stats"]
        head, *workers = NODES.items()
        store = ["--object-store-memory", "100000000"]
        own = ["--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard", "false", *store]
        inside(head[0], *ray, *own, "--node-ip-address", head[1])
        for name, address in workers:
            joined = ["--address", f"{head[1]}:{PORT}", "--num-cpus", "1", *store]
            inside(name, *ray, *joined, "--node-ip-address", address)
        arguments = ["--part", what, "--out", str(together), "--address", f"{head[1]}:{PORT}"]
        working = inside(head[0], sys.executable, "-m", "benchmarks.cluster", *arguments, wait=False)
        wait_for(lambda: len(list(together.rglob("*.npz"))) > 2, [working])
        print(f"killed {kill(workers[-1][0])} processes of node 3", flush=True)
        if working.wait():
            raise SystemExit(f"the {what} on the cluster failed")
    same = same_results(what, alone, together)
    print(f"the {what} on three nodes has the results of one machine: {same}")
    return same


def train_on_two_nodes(folder: Path) -> bool:
    """Train once without interruption and once with a node killed in the middle, and compare the weights."""
    names = list(NODES.items())[:2]
    digests = []
    with network():
        for out in (folder / "whole", folder / "killed"):
            ranks = [start_rank(number, name, names[0][1], out) for number, (name, _) in enumerate(names)]
            if out.name == "killed":
                wait_for(lambda out=out: (out / "checkpoint.safetensors").exists(), ranks)  # type: ignore[misc]
                print(f"killed {kill(names[1][0])} processes of node 2", flush=True)
                for rank in ranks:
                    rank.wait()
                kill(names[0][0])
                ranks = [start_rank(number, name, names[0][1], out) for number, (name, _) in enumerate(names)]
            codes = [rank.wait() for rank in ranks]
            if any(codes):
                raise SystemExit("the training on two nodes failed")
            digests.append(digest_of(out / "model.safetensors"))
    print(f"weights are the same: {digests[0] == digests[1]}")
    return digests[0] == digests[1]


def start_rank(number: int, name: str, master: str, out: Path) -> subprocess.Popen[bytes]:
    """Start a node's part of a training."""
    rendezvous = ["--nnodes", "2", "--node-rank", str(number), "--master-addr", master, "--master-port", "29533"]
    training = ["train", "--data", "fashion-sample", "--epochs", "8", "--out", str(out)]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *rendezvous,
        "--nproc-per-node",
        "1",
        "-m",
        "resperturb",
    ]
    return inside(name, *command, *training, wait=False)


def wait_for(condition: Callable[[], bool], running: list[subprocess.Popen[bytes]]) -> None:
    while not condition():
        if any(one.poll() is not None for one in running):
            raise SystemExit("it ended before anything was killed")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["audit", "frontier", "training"], help="one of the three")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.out is not None:
        study(chosen.part, chosen.out, chosen.address)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        same = [
            train_on_two_nodes(folder) if part == "training" else study_on_a_cluster(part, folder)
            for part in ("audit", "frontier", "training")
            if chosen.part in (None, part)
        ]
    if not all(same):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
