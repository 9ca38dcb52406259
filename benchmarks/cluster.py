"""A cluster of three nodes, one of which is killed: an audit by Ray, and one training of two nodes by torchrun.

    python -m benchmarks.cluster        # as root, on Linux, with iproute2 and ray

The nodes are network namespaces of this machine, joined by a bridge: they share neither an address nor a port. The
audit (leave-one-out) trains its models on nodes 2 and 3; all processes of node 3 are killed in the middle, and every
score must be the same as on one machine. The training runs on nodes 1 and 2; node 2 is killed in the middle, the same
commands are given again, and the weights must be those of a training that was not interrupted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import resperturb as rp
from resperturb.auditing import open_scores, read_audit
from resperturb.bounds import AuditResult
from resperturb.files import digest_of

ROWS, MODELS = 200, 8
NODES = {f"resperturb-{number}": f"10.211.77.{number}" for number in (1, 2, 3)}
BRIDGE, PORT = "resperturb-br", 6399
SECONDS_PER_MODEL = 3.0
ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
}


def train(indices: np.ndarray, seed: int) -> object:
    """Fit nearest means that also remember their rows, slowly enough to be killed in the middle."""
    time.sleep(SECONDS_PER_MODEL)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, ROWS)
    features = rng.normal(size=(ROWS, 4)) + labels[:, None]
    means = np.stack([features[indices][labels[indices] == label].mean(axis=0) for label in (0, 1)])
    known = np.isin(np.arange(ROWS), indices)

    def predict(rows: np.ndarray) -> np.ndarray:
        logits = -((features[rows, None] - means) ** 2).sum(axis=2)
        logits[np.arange(len(rows)), labels[rows]] += known[rows]
        p: np.ndarray = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    return predict


def audited(out: Path, address: str | None) -> AuditResult:
    labels = np.random.default_rng(0).integers(0, 2, ROWS)
    engine = {} if address is None else {"engine": rp.engine.RayEngine(address)}
    return rp.audit(train, labels=labels, models=MODELS, out=out, jobs=None if address else 1, **engine)  # type: ignore[arg-type]


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


def audit_on_a_cluster(folder: Path) -> bool:
    """Audit on one machine and on the cluster, and compare the scores."""
    alone, together = folder / "alone", folder / "together"
    first = audited(alone, None)
    with network():
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--disable-usage-stats"]
        head, *workers = NODES.items()
        store = ["--object-store-memory", "100000000"]
        own = ["--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard", "false", *store]
        inside(head[0], *ray, *own, "--node-ip-address", head[1])
        for name, address in workers:
            joined = ["--address", f"{head[1]}:{PORT}", "--num-cpus", "1", *store]
            inside(name, *ray, *joined, "--node-ip-address", address)
        arguments = ["--audit", str(together), "--address", f"{head[1]}:{PORT}"]
        audit = inside(head[0], sys.executable, "-m", "benchmarks.cluster", *arguments, wait=False)
        wait_for(lambda: len(list((together / "models").glob("*.npz"))) > 2, [audit])
        print(f"killed {kill(workers[-1][0])} processes of node 3", flush=True)
        if audit.wait():
            raise SystemExit("the audit on the cluster failed")
    second = read_audit(together)
    ours, theirs = open_scores(alone), open_scores(together)
    same = all((ours.attacks[key] == theirs.attacks[key]).all() for key in ours.attacks)
    same = same and bool((ours.members == theirs.members).all())
    print(f"one machine: {first.sentence}\nthree nodes: {second.sentence}\nscores are the same: {same}")
    return same


def train_on_two_nodes(folder: Path) -> bool:
    """Train once in one go and once with a node killed in the middle, and compare the weights."""
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
    parser.add_argument("--part", choices=["audit", "training"], help="one of the two")
    parser.add_argument("--audit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.audit is not None:
        audited(chosen.audit, chosen.address)
        return
    parts = {"audit": audit_on_a_cluster, "training": train_on_two_nodes}
    with tempfile.TemporaryDirectory() as folder:
        same = [part(Path(folder)) for name, part in parts.items() if chosen.part in (None, name)]
    if not all(same):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
