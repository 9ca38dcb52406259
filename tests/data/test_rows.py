"""Rows on disk are indexed as a tensor is."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resperturb.data.rows import Rows, as_rows, in_chunks

PARTS = [np.random.default_rng(i).integers(0, 256, (n, 3, 2, 4), dtype=np.uint8) for i, n in enumerate((7, 5))]
WHOLE = torch.from_numpy(np.concatenate(PARTS))


@given(st.lists(st.integers(-12, 11), max_size=20))
def test_an_index_gives_the_same_as_of_a_tensor(places):
    as_tensor = torch.tensor(places, dtype=torch.int64)
    for index in (as_tensor, as_tensor.numpy(), *([places] if places else [])):
        assert Rows(PARTS)[index].equal(WHOLE[as_tensor])


@pytest.mark.parametrize("index", [0, -1, 11, np.int64(3), torch.tensor(8), slice(2, 9), slice(None), slice(5, 5)])
def test_a_number_or_a_slice_gives_the_same_as_of_a_tensor(index):
    found = Rows(PARTS)[index]
    assert found.equal(WHOLE[index])
    assert found.shape == WHOLE[index].shape


def test_a_mask_gives_the_same_as_of_a_tensor():
    mask = torch.arange(12) % 3 == 0
    assert Rows(PARTS)[mask].equal(WHOLE[mask])


@given(st.lists(st.integers(0, 11), min_size=1), st.lists(st.integers(0, 11), min_size=1), st.data())
def test_selecting_and_joining_do_as_with_tensors(one, other, data):
    rows, tensor = (
        Rows(PARTS).select(one).concatenated(Rows(PARTS).select(other)),
        torch.cat([WHOLE[one], WHOLE[other]]),
    )
    assert (len(rows), rows.shape) == (len(tensor), tensor.shape)
    again = data.draw(st.lists(st.integers(0, len(tensor) - 1), min_size=1))
    assert rows.select(again)[:].equal(tensor[again])


def test_grey_rows_become_colour_where_others_are_in_colour():
    grey = PARTS[1][:, :1]
    concatenated = Rows([PARTS[0]]).concatenated(Rows([grey]))
    assert concatenated.shape == (12, 3, 2, 4)
    assert concatenated[:].equal(torch.cat([torch.from_numpy(PARTS[0]), torch.from_numpy(grey).repeat(1, 3, 1, 1)]))
    assert Rows([grey], channels=3).select([1])[0].equal(torch.from_numpy(grey[1]).repeat(3, 1, 1))


def test_returned_arrays_are_copies():
    rows = Rows([PARTS[0].copy()])
    for index in (0, slice(0, 2), [0, 1]):
        rows[index].zero_()
    assert rows[:].equal(torch.from_numpy(PARTS[0]))


@pytest.mark.parametrize("images", [WHOLE, as_rows(WHOLE), WHOLE[:0], as_rows(WHOLE).select([])])
@pytest.mark.parametrize("size", [1, 5, 12, 100])
def test_chunks_are_those_of_torch(images, size):
    assert all(
        one.equal(other) for one, other in zip(in_chunks(images, size), torch.split(images[:], size), strict=True)
    )


def test_pages_that_were_let_go_are_read_again(tmp_path, monkeypatch):
    from resperturb.data import rows as module

    released = []
    monkeypatch.setattr(module, "RESIDENT_BYTES", 1)
    np.save(tmp_path / "a.npy", PARTS[0])
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    rows = Rows([mapped])
    original = module.release_pages
    monkeypatch.setattr(
        module, "release_pages", lambda part, touched: released.append(touched) or original(part, touched)
    )
    for _ in range(3):
        assert rows[:].equal(torch.from_numpy(PARTS[0]))
    assert len(released) == 3
