"""A checkpoint that was changed is never resumed from."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn

from resperturb.errors import ResperturbError
from resperturb.training.checkpoint import EpochMetrics, Progress, read_checkpoint, save_checkpoint

HISTORY = [EpochMetrics(epoch, lr=0.1) for epoch in (1, 2, 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save_checkpoint(
        tmp_path / "checkpoint", model, optimizer, Progress(epoch=3, history=HISTORY, processes=[1]), "digest"
    )
    return tmp_path / "checkpoint"


def test_it_comes_back_and_is_for_its_owner_only(path: Path) -> None:
    found = read_checkpoint(path, "digest")
    assert found is not None
    assert (found.progress.epoch, found.progress.processes) == (3, [1])
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    positions = [*range(header), *range(header, len(content), 97)]
    for position in positions:
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(ResperturbError, match="checkpoint"):
            read_checkpoint(path, "digest")


def test_that_of_another_configuration_is_refused(path: Path) -> None:
    with pytest.raises(ResperturbError, match=r"another configuration \(digest, not other\)"):
        read_checkpoint(path, "other")


def test_one_without_a_checksum_is_refused(path: Path) -> None:
    metadata = {"progress": json.dumps(asdict(Progress(epoch=2, history=HISTORY[:2]))), "digest": "digest"}
    path.write_bytes(save({"model.weight": torch.ones(1)}, metadata))
    with pytest.raises(ResperturbError, match="is damaged .* delete it to train this run from the start"):
        read_checkpoint(path, "digest")


def test_a_secret_does_not_follow_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    model = nn.Linear(2, 1)
    with pytest.raises(ResperturbError, match="it is a link"):
        save_checkpoint(link, model, torch.optim.SGD(model.parameters(), lr=0.1), Progress(), "digest")
