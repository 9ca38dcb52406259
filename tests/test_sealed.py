"""Arrays that belong to another run, or are changed or damaged, are refused."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from resperturb.errors import ResperturbError
from resperturb.sealed import read_bound_arrays, write_bound_arrays

OURS, THEIRS = {"config": "a", "weights": "b"}, {"config": "a", "weights": "x"}
ARRAYS = {"members": np.array([0.5, 1.0]), "kinds": np.array(["record", "canary"])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_bound_arrays(tmp_path / "scores.npz", ARRAYS, OURS)
    return tmp_path / "scores.npz"


def test_arrays_come_back(path: Path) -> None:
    found = read_bound_arrays(path, ("members", "kinds"), OURS)
    assert all(np.array_equal(found[name], array) for name, array in ARRAYS.items())


def test_another_run_is_named(path: Path) -> None:
    with pytest.raises(ResperturbError, match=r"scores\.npz belongs to another run \(other weights\); attack"):
        read_bound_arrays(path, ("members", "kinds"), THEIRS, "attack again")


def test_zeroed_arrays_are_noticed(path: Path) -> None:
    with np.load(path) as file:
        binding = file["binding"]
    np.savez(path, members=np.zeros(2), kinds=ARRAYS["kinds"], binding=binding)
    with pytest.raises(ResperturbError, match="was changed"):
        read_bound_arrays(path, ("members", "kinds"), OURS)


def test_arrays_that_do_not_say_whose_they_are_are_refused(path: Path) -> None:
    np.savez(path, members=np.zeros(2))
    with pytest.raises(ResperturbError, match="does not say"):
        read_bound_arrays(path, ["members"], OURS)


def claims_terabytes() -> bytes:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"\x93NUMPY", b"no archive", bytes(1000)])
def test_damage_is_an_error_with_a_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ResperturbError, match=r"scores\.npz"):
        read_bound_arrays(path, ["members"], OURS)


def test_an_archive_that_claims_terabytes_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("members.npy", claims_terabytes())
    with pytest.raises(ResperturbError, match=r"scores\.npz is damaged"):
        read_bound_arrays(path, ["members"], OURS)


def test_every_flipped_bit_is_noticed_or_harmless(path: Path) -> None:
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            found = read_bound_arrays(path, ("members", "kinds"), OURS)
        except ResperturbError:
            continue
        assert all(np.array_equal(found[name], array) for name, array in ARRAYS.items())
