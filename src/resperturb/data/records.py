"""What a source gives before anything is decoded: encoded images, raw labels, groups, and where each is."""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from resperturb.data.paths import printable
from resperturb.errors import UsageError

Label: TypeAlias = int | str


@dataclass(frozen=True)
class Columns:
    """Which columns hold the images, the labels and the groups; None: guess (no groups).

    ``pattern`` is a regular expression: what it matches in the group column is the group.

    >>> Columns(label="diagnosis").image is None
    True
    """

    image: str | None = None
    label: str | None = None
    group: str | None = None
    pattern: str | None = None


@dataclass(eq=False)
class StreamedImages:
    """Encoded images that are read from a table as they are iterated over, in order, and not kept.

    ``read`` gives the images at ascending row numbers. ``outside`` tells, once all were read, whether some were files
    that the table only names.
    """

    read: Callable[[np.ndarray[Any, Any]], Iterator[bytes | Path]]
    rows: np.ndarray[Any, Any]
    outside: bool = field(default=False, init=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes | Path]:
        for image in self.read(self.rows):
            self.outside |= isinstance(image, Path)
            yield image


@dataclass(frozen=True, eq=False)
class Records:
    """Images not yet decoded, with their labels; ``where[i]`` names record i in an error.

    ``names`` are the class names the source declares for labels 0, 1, ...; None if it declares none. ``identity``
    changes whenever the files may have changed that the images come from. ``skipped`` says how many files were left
    out, by reason; ``noted`` how many were used, and how they are special.
    """

    images: Sequence[bytes | Path] | StreamedImages | np.ndarray[Any, Any]
    labels: tuple[Label, ...]
    groups: np.ndarray[Any, Any] | None
    names: tuple[str, ...] | None
    where: tuple[str, ...]
    origin: str
    identity: str
    skipped: tuple[tuple[str, int], ...] = ()
    noted: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.images) == 0:
            raise UsageError(f"There are no images in {self.origin}.")
        for name in self.names or ():
            _check_text(name, f"A class name that {self.origin} declares")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: np.ndarray[Any, Any]) -> "Records":
        """Return the records at ``indices``, which ascend."""
        chosen = indices.tolist()
        images: Any
        if isinstance(self.images, np.ndarray):
            images = self.images[indices]
        elif isinstance(self.images, StreamedImages):
            images = StreamedImages(self.images.read, self.images.rows[indices])
        else:
            images = [self.images[i] for i in chosen]
        return replace(
            self,
            images=images,
            identity=hashlib.sha256(self.identity.encode() + indices.astype("<i8").tobytes()).hexdigest(),
            labels=tuple(self.labels[i] for i in chosen),
            groups=None if self.groups is None else self.groups[indices],
            where=tuple(self.where[i] for i in chosen),
        )


def identity_of(files: Iterable[Path], *more: object) -> str:
    """Hash the places, sizes and times of files, and whatever else decides what is read from them.

    The time of the last change of a file's status counts too: no program can set it back.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     before, file = identity_of([]), Path(folder, "a.png")
    ...     _ = file.write_text("a")
    ...     identity_of([file]) == identity_of([file]) != before
    True
    """
    digest = hashlib.sha256(repr(more).encode())
    for file in files:
        try:
            found = file.stat()
            stamp: object = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        except OSError:  # reading it gives the error
            stamp = None
        digest.update(repr((os.path.abspath(file), stamp)).encode())
    return digest.hexdigest()


def clean_labels(values: Sequence[Any], where: Sequence[str], what: str) -> tuple[Label, ...]:
    """Turn raw label values into whole numbers or text; refuse those that are missing or fractional.

    >>> clean_labels([1.0, 0.0, True], ["row 0", "row 1", "row 2"], "column 'label'")
    (1, 0, 1)
    >>> clean_labels(["cat", None], ["row 0", "row 1"], "column 'label'")
    Traceback (most recent call last):
    resperturb.errors.UsageError: The label of row 1 (column 'label') is missing: fill it in or remove the image.
    """
    labels: list[Label] = []
    for value, place in zip(values, where, strict=True):
        label = _clean(value, f"The label of {place} ({what})")
        if not isinstance(label, str):
            if not isinstance(label, int | float) or not float(label).is_integer():
                raise UsageError(f"The label of {place} ({what}) is {label!r}; labels are whole numbers or text.")
            label = int(label)
        labels.append(label)
    return tuple(labels)


def clean_groups(values: Sequence[Any], where: Sequence[str], what: str) -> np.ndarray[Any, Any]:
    """Turn raw group values into an array of text; refuse those that are missing.

    >>> clean_groups([7, 8], ["row 0", "row 1"], "column 'patient'").tolist()
    ['7', '8']
    """
    groups = [str(_clean(value, f"The group of {where[i]} ({what})")) for i, value in enumerate(values)]
    return np.array(groups, dtype=str)


def _clean(value: Any, what: str) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)) or value in ("", b""):
        raise UsageError(f"{what} is missing: fill it in or remove the image.")
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        _check_text(value, what)
    return value


def _check_text(text: str, what: str) -> None:
    if printable(text) != text:
        raise UsageError(f"{what} is {text!r}, with control characters or bytes that are not UTF-8: rename it.")
