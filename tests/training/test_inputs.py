"""Images on disk give the same training and predictions as images in memory, and take no memory."""

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from resperturb.auditing.ask import ask
from resperturb.data.rows import Rows
from resperturb.training.audited import AskedRun, table_of, target_candidates
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import train
from tests.conftest import tiny_config


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation": {"name": "additive", "gamma": 0.5, "clip_radius": 20}, "augment": True},
        {"data": {"part": "all", "limit": 80, "canaries": {"mislabelled": 10, "blank": 4}}},
        {"method": "dpsgd"},
    ],
)
def test_weights_and_predictions_are_the_same_bit_for_bit(changes, tmp_path, monkeypatch):
    found = []
    for place in ("memory", "disk"):
        monkeypatch.setenv("RESPERTURB_DATA_IN", place)
        run = train(tiny_config(**{"epochs": 1, **changes}), runs=tmp_path / place)
        assert isinstance(load_inputs(run.config.data).train.images, Rows) == (place == "disk")
        measured = run.result.train_accuracy, run.result.test_accuracy, run.result.records
        weights = hashlib.sha256(run.model_path.read_bytes()).hexdigest()
        table_of.cache_clear()
        candidates, *_ = target_candidates(run.config.data)
        answers = ask(AskedRun(run, run.config.data, 0), candidates.rows, candidates.labels, draws=(1, 2))
        said = {access: signals.confidence.tolist() for access, signals in answers.items()}
        found.append((run.config.digest, weights, measured, candidates.rows.tolist(), said))
    assert found[0] == found[1]


# What a training and an attack do with images, with a network that costs nothing: with few images, then with many.
WORK = """
import json, sys, threading, time
import torch
from resperturb.training.config import make_config
from resperturb.training.inputs import load_inputs
from resperturb.training.predict import predict
from resperturb.training.steps import epoch_order

def resident():  # what is this process's own, and the pages of mapped files
    with open("/proc/self/status") as lines:
        found = dict(line.split(":") for line in lines)
    return [int(found[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile")]

def watch():
    while True:
        peak[:] = map(max, peak, resident())
        time.sleep(0.01)

def work(spec):
    torch.manual_seed(0)
    inputs = load_inputs(make_config(data={"spec": spec, "part": "all", "canaries": {"blank": 4}}).data)
    members = inputs.members()
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    answers = predict(network, members.images, mean=0.5, std=0.25, batch_size=16)
    seen = [int(members.images[batch].sum()) for batch in torch.split(epoch_order(len(members), 0, 0), 16)]
    return {
        "pixels": len(members) * members.images[0].nelement(), "fingerprint": inputs.fingerprint,
        "answers": answers.double().sum().item(), "seen": seen,
    }

work(sys.argv[1])
before = resident()
peak = list(before)
threading.Thread(target=watch, daemon=True).start()
found = work(sys.argv[2])
print(json.dumps({**found, "own": peak[0] - before[0], "mapped": peak[1] - before[1]}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured through /proc")
def test_a_set_larger_than_the_memory_it_may_take_is_used_from_disk(tmp_path):
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(40):
        file = io.BytesIO()
        small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        small.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG")
        # Long files, so that holding the table in memory would show as well as holding the pixels.
        encoded.append(file.getvalue() + rng.bytes(50_000))
    for name, count in (("few", 60), ("many", 1600)):
        rows = [encoded[i % 40] for i in range(count)]
        table = pa.table({"image": rows, "label": [i % 2 for i in range(count)]})
        # One row group, as most programs write a table, and every row stored by itself.
        pq.write_table(table, tmp_path / f"{name}.parquet", use_dictionary=False, write_batch_size=32)
    found = {}
    for place in ("memory", "disk"):
        environment = {**os.environ, "RESPERTURB_DATA_IN": place}
        command = [sys.executable, "-c", WORK, str(tmp_path / "few.parquet"), str(tmp_path / "many.parquet")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found[place] = json.loads(done.stdout)
    own, mapped = ({place: found[place].pop(kind) for place in found} for kind in ("own", "mapped"))
    assert found["memory"] == found["disk"]
    pixels = found["disk"]["pixels"]  # 240 MiB
    assert own["memory"] > pixels
    assert own["disk"] < pixels / 2
    assert mapped["disk"] < pixels / 2
