"""Weights on disk: what looks like a pickle is refused, and what only begins like one is not."""

from pathlib import Path

import pytest
import torch
from torch import nn

from resperturb import weights
from resperturb.errors import UsageError


@pytest.mark.parametrize("begins", [b"\x80\x02", b"\x80\x04", b"PK"])
def test_a_pickle_is_refused_unread(tmp_path: Path, begins: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(begins + b"\x95" * 50)
    with pytest.raises(UsageError, match="is a pickle"):
        weights.load(nn.Linear(1, 1), path)


def test_torch_s_own_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(1, 1).state_dict(), path)
    with pytest.raises(UsageError, match="is a pickle"):
        weights.load(nn.Linear(1, 1), path)


def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    weights.save(model, tmp_path / "model.safetensors")
    original = (tmp_path / "model.safetensors").read_bytes()
    # Spaces at the end of the header change nothing but its length: 640 bytes begin as a pickle of protocol 2 does.
    length = int.from_bytes(original[:8], "little")
    header, rest = original[8 : 8 + length], original[8 + length :]
    path = tmp_path / "padded.safetensors"
    path.write_bytes((640).to_bytes(8, "little") + header.ljust(640) + rest)
    assert path.read_bytes().startswith(b"\x80\x02")
    loaded = weights.load(nn.Linear(2, 2), path)
    assert loaded.weight.equal(model.weight)
