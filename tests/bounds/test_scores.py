import numpy as np
import pytest

from resperturb.bounds import check_scores, read_scores
from resperturb.errors import UsageError


def test_scores_become_floats_and_infinities_stay():
    members, nonmembers = check_scores([True, False], np.array([1, -np.inf, np.inf], dtype=np.float32))
    assert members.tolist() == [1.0, 0.0]
    assert nonmembers.tolist() == [1.0, -np.inf, np.inf]


@pytest.mark.parametrize(
    ("members", "nonmembers", "said"),
    [
        ([1.0, np.nan, np.nan], [0.0], "members: 2 of 3 scores are NaN"),
        ([1.0], [np.nan], "nonmembers: 1 of 1 scores are NaN"),
        ([], [0.0], "members: there are no scores"),
        ([1.0], [[0.0, 1.0]], r"nonmembers: .*shape \(1, 2\)"),
        ([1.0], 3.0, r"nonmembers: .*shape \(\)"),
        (["high"], [0.0], "members: scores must be real numbers"),
        ([1j], [0.0], "members: scores must be real numbers"),
    ],
)
def test_unusable_scores_are_refused_by_name(members, nonmembers, said):
    with pytest.raises(UsageError, match=said):
        check_scores(members, nonmembers)


def test_an_array_and_a_text_file_read_the_same(tmp_path):
    values = np.array([0.25, -3.0, np.inf])
    np.save(tmp_path / "scores.npy", values)
    (tmp_path / "scores.txt").write_text("0.25\n\n -3 \ninf\n")
    assert read_scores(tmp_path / "scores.npy").tolist() == values.tolist()
    assert read_scores(tmp_path / "scores.txt").tolist() == values.tolist()


def _write_npz(path):
    np.savez(path, scores=np.ones(2))


def _write_pickle(path):
    np.save(path, np.array([{"a": 1}], dtype=object))


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("missing.npy", lambda path: None, "cannot read .*missing.npy: No such file"),
        ("missing.txt", lambda path: None, "cannot read .*missing.txt: No such file"),
        ("folder", lambda path: path.mkdir(), "cannot read .*folder"),
        ("archive.npz", _write_npz, "holds several arrays"),
        ("pickled.npy", _write_pickle, "no pickled objects"),
        ("broken.npy", lambda path: path.write_bytes(b"not an array"), "not a file of numbers"),
        ("empty.npy", lambda path: path.write_bytes(b""), "not a file of numbers"),
        ("empty.txt", lambda path: path.write_text(""), "there are no scores"),
        ("binary.txt", lambda path: path.write_bytes(b"\xff\xfe\x00"), "not a file of numbers"),
        ("words.txt", lambda path: path.write_text("1\nhigh\n"), "line 2: 'high' is not one number"),
        ("table.csv", lambda path: path.write_text("1,2\n"), "line 1: '1,2' is not one number"),
        ("nan.txt", lambda path: path.write_text("1\nnan\n"), "1 of 2 scores are NaN"),
        ("square.npy", lambda path: np.save(path, np.ones((2, 2))), "shape"),
        ("words.npy", lambda path: np.save(path, np.array(["a"])), "real numbers"),
    ],
)
def test_a_file_that_holds_no_scores_is_refused_with_the_reason(tmp_path, name, write, said):
    write(tmp_path / name)
    with pytest.raises(UsageError, match=said):
        read_scores(tmp_path / name)
