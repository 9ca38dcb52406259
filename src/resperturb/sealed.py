"""Files that belong to a run: each holds the digests of that run and a checksum of its own.

So the scores of one run cannot pass for those of another, and no file can be changed by accident. Neither withstands
someone who computes them anew to deceive: against that, sign the files (docs/how-to/release.md).
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from resperturb.errors import ResperturbError
from resperturb.files import SEAL, parse_json, plain, read_bytes, read_json, seal_holds, write_bytes, write_json

T = TypeVar("T")
Array = NDArray[Any]
# By what a run is told from others: the digests of its configuration, data, weights and metrics, by name.
Digests = dict[str, str]

# What numpy and zipfile raise at archives that are damaged, encrypted, or claim more than there is.
DAMAGED_ARCHIVE = (
    OSError,
    KeyError,
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)
_BINDING = "binding"


@dataclass(frozen=True)
class Binding:
    """What a file says of itself: to which run it belongs, and its checksum; nothing in files of older versions."""

    digests: Digests | None = None
    checksum: str | None = None


def differing(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Say in what two runs differ.

    >>> differing({"config": "a", "weights": "b"}, {"config": "a", "weights": "c"})
    ['weights']
    """
    return [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]


def write_bound_json(path: Path, value: Any, digests: Mapping[str, str]) -> None:
    """Write an object as JSON, with the digests of the run that it belongs to and a checksum."""
    write_json(path, {**plain(value), "digests": digests, "checksum": SEAL}, seal=True)


def read_bound_json(
    kind: type[T],
    path: Path,
    digests: Mapping[str, str] | None,
    remedy: str = "make it again",
) -> T:
    """Read what :func:`write_bound_json` wrote, for the run of these digests, or for any if they are None.

    Raises:
        ResperturbError: It is damaged, was changed, or belongs to another run.
    """
    content = read_bytes(path)
    found = parse_json(Binding, content, path, remedy)
    if found.checksum is not None and not seal_holds(content, found.checksum):
        raise _changed(path, remedy)
    _check_digests(path, found, digests, remedy)
    return parse_json(kind, content, path, remedy)


def write_array(path: Path, array: Array, *, private: bool = False) -> None:
    """Write an array to a ``.npy`` file, whole or not at all; ``private`` lets only the owner read it."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_bytes(path, buffer.getvalue(), private=private)


def write_bound_arrays(path: Path, arrays: Mapping[str, Array], digests: Mapping[str, str]) -> None:
    """Write arrays as an npz file, with the digests of the run that they belong to and a checksum."""
    binding = json.dumps({"digests": dict(digests), "checksum": _arrays_digest(arrays, digests)})
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, _BINDING: np.array(binding)})  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_bound_arrays(
    path: Path,
    names: Sequence[str],
    digests: Mapping[str, str] | None,
    remedy: str = "make it again",
) -> dict[str, Array]:
    """Read all arrays that :func:`write_bound_arrays` wrote; ``names`` must be among them.

    The arguments and what is refused are those of :func:`read_bound_json`.
    """
    arrays, binding = _read_arrays(path, remedy)
    if binding.checksum is not None and binding.checksum != _arrays_digest(arrays, binding.digests or {}):
        raise _changed(path, remedy)
    _check_digests(path, binding, digests, remedy)
    if missing := [name for name in names if name not in arrays]:
        raise ResperturbError(f"{path} lacks {', '.join(missing)}; {remedy}.")
    return arrays


def read_binding(path: Path) -> Binding:
    """Read what a JSON or npz file says about the run that it belongs to, without a check of it."""
    if path.suffix == ".npz":
        return _read_arrays(path, "make it again")[1]
    return read_json(Binding, path)


def _read_arrays(path: Path, remedy: str) -> tuple[dict[str, Array], Binding]:
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except DAMAGED_ARCHIVE as error:
        raise ResperturbError(f"{path} is damaged ({str(error)[:200]}); {remedy}.") from error
    except (TypeError, AttributeError) as error:  # a file of one array is no archive
        raise ResperturbError(f"{path} is no npz archive; {remedy}.") from error
    said = arrays.pop(_BINDING, np.array("{}"))
    return arrays, parse_json(Binding, str(said).encode(errors="replace"), path, remedy)


def _check_digests(path: Path, found: Binding, wanted: Mapping[str, str] | None, remedy: str) -> None:
    if found.digests is None or found.checksum is None:
        raise ResperturbError(f"{path} does not say to which run it belongs; {remedy}.")
    if wanted is not None and (names := differing(found.digests, wanted)):
        raise ResperturbError(f"{path} belongs to another run (other {', '.join(names)}); {remedy}.")


def _changed(path: Path, remedy: str) -> ResperturbError:
    return ResperturbError(f"{path} was changed after it was written: its checksum does not fit; {remedy}.")


def _arrays_digest(arrays: Mapping[str, Array], digests: Mapping[str, str]) -> str:
    hashed = hashlib.sha256(json.dumps(dict(digests), sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hashed.update(repr((name, array.dtype.str, array.shape)).encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()
