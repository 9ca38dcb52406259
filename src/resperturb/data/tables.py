"""Images in the columns of a table: parquet files and Hugging Face datasets."""

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.data.records import Records, StreamedImages, clean_groups, clean_labels, identity_of
from resperturb.errors import UsageError

IMAGE_COLUMNS = ("image", "img", "images")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")
# Few enough for large images, many enough for small ones.
_ROWS_AT_A_TIME = 64


@dataclass(frozen=True)
class Columns:
    """Which columns hold the images, the labels and the groups; None: guess (no groups).

    >>> Columns(label="diagnosis").image is None
    True
    """

    image: str | None = None
    label: str | None = None
    group: str | None = None


def read_parquet(files: Sequence[Path], columns: Columns) -> Records:
    """Read the records of one or more parquet files that hold encoded images in a column.

    The images themselves are read when they are needed, a few at a time.

    >>> import pyarrow.parquet
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = pyarrow.table({"image": [b"an encoded image"], "label": ["benign"]})
    ...     pyarrow.parquet.write_table(table, f"{folder}/cells.parquet")
    ...     read_parquet([Path(folder, "cells.parquet")], Columns()).labels
    ('benign',)
    """
    # pyarrow reads the file where it is; `datasets` would first copy the private images into its cache.
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parts: list[Any] = []
    where: list[str] = []
    found, declared = Columns(), None
    for file in files:
        with _readable(file):
            schema = parquet.read_schema(file)
            if not parts:
                found = _find_columns(schema.names, columns, str(file))
                declared = _class_names(schema.metadata, found.label)
            else:
                _find_columns(schema.names, found, str(file))
            part = parquet.ParquetFile(file).read(columns=_described(found))
        parts.append(part)
        where += [f"row {i} of {file}" for i in range(part.num_rows)]

    def batches() -> Iterator[Any]:
        for file in files:
            with _readable(file):
                # Mapped, so that the pages of a large row group are not all read to get at its first rows.
                opened = parquet.ParquetFile(file, memory_map=True)
                for batch in opened.iter_batches(_ROWS_AT_A_TIME, columns=[found.image]):
                    yield batch.column(0)

    origin = str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} parquet files)"
    identity = identity_of(files, found.image)
    return _to_records(batches, parts, found, declared, tuple(where), origin, files[0].parent, identity)


def read_hub_split(dataset: Any, columns: Columns, origin: str) -> Records:
    """Take the records of one split of a Hugging Face dataset."""
    found = _find_columns(dataset.column_names, columns, origin)
    names = getattr(dataset.features[found.label], "names", None)
    table = dataset.select_columns(_described(found)).with_format("arrow")[:]
    where = tuple(f"row {i} of {origin}" for i in range(table.num_rows))
    images = dataset.select_columns([found.image]).with_format("arrow")

    def batches() -> Iterator[Any]:
        for part in images.iter(_ROWS_AT_A_TIME):
            yield part.column(0).combine_chunks()

    kept = [Path(file["filename"]) for file in dataset.cache_files]
    identity = identity_of(kept, dataset._fingerprint, found.image)
    return _to_records(batches, [table], found, tuple(names) if names else None, where, origin, Path(), identity)


def _described(columns: Columns) -> list[str]:
    """The columns that are small: labels and groups."""
    return [name for name in (columns.label, columns.group) if name is not None]


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Say in one sentence that a file cannot be read."""
    pa: Any = importlib.import_module("pyarrow")
    try:
        yield
    except pa.ArrowException as error:
        raise UsageError(f"{file} is no parquet file, or a damaged one: {_first_line(error)}.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {_first_line(error)}.") from None


def _to_records(
    batches: Callable[[], Iterator[Any]],
    parts: Sequence[Any],
    columns: Columns,
    names: tuple[str, ...] | None,
    where: tuple[str, ...],
    origin: str,
    folder: Path,
    identity: str,
) -> Records:
    def values(name: str) -> list[Any]:
        return [value for part in parts for value in part.column(name).to_pylist()]

    assert columns.image is not None
    assert columns.label is not None
    image_column = columns.image

    def images_at(rows: np.ndarray[Any, Any]) -> Iterator[bytes | Path]:
        start = 0
        for batch in batches():
            low, high = np.searchsorted(rows, [start, start + len(batch)])
            chosen = batch if high - low == len(batch) else batch.take(rows[low:high] - start)
            for row, value in zip(rows[low:high].tolist(), _cells(chosen), strict=True):
                yield _encoded(value, where[row], image_column, folder)
            start += len(batch)
            if high == len(rows):
                return

    next(images_at(np.arange(min(1, len(where)))), None)  # a column of something else is refused at once
    labels = clean_labels(values(columns.label), where, f"column {columns.label!r}")
    groups = None
    if columns.group is not None:
        groups = clean_groups(values(columns.group), where, f"column {columns.group!r}")
    images = StreamedImages(images_at, np.arange(len(where)))
    return Records(images, labels, groups, names, where, origin, identity)


def _cells(column: Any) -> Iterator[Any]:
    """The values of an image column; of a struct of bytes and path, whichever is there."""
    is_struct = importlib.import_module("pyarrow").types.is_struct
    fields = [field.name for field in column.type] if is_struct(column.type) else []
    if "bytes" not in fields:
        yield from column.to_pylist()
        return
    flat = column.flatten()  # far quicker than a dictionary a row
    paths = flat[fields.index("path")].to_pylist() if "path" in fields else [None] * len(column)
    for value, path in zip(flat[fields.index("bytes")].to_pylist(), paths, strict=True):
        yield value or path


def _encoded(value: Any, where: str, column: str, folder: Path) -> bytes | Path:
    if isinstance(value, bytes) and value:
        return value
    if isinstance(value, str) and value:
        return folder / value
    if not value:
        raise UsageError(f"The image of {where} (column {column!r}) is missing: remove the row.")
    raise UsageError(
        f"Column {column!r} holds {type(value).__name__} values ({where}), not encoded images: name the column of "
        "the images (--image-column)."
    )


def _find_columns(present: Sequence[str], asked: Columns, origin: str) -> Columns:
    return Columns(
        _find(present, asked.image, IMAGE_COLUMNS, "image", origin),
        _find(present, asked.label, LABEL_COLUMNS, "label", origin),
        None if asked.group is None else _find(present, asked.group, (), "group", origin),
    )


def _find(present: Sequence[str], asked: str | None, usual: Sequence[str], kind: str, origin: str) -> str:
    there = ", ".join(repr(name) for name in present) or "none"
    if asked is not None:
        if asked in present:
            return asked
        raise UsageError(f"There is no {kind} column {asked!r} in {origin}; its columns are {there}.")
    for name in usual:
        if name in present:
            return name
    raise UsageError(
        f"Which column of {origin} holds the {kind}s? Its columns are {there}: name one (--{kind}-column)."
    )


def _class_names(metadata: dict[bytes, bytes] | None, label: str | None) -> tuple[str, ...] | None:
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
        if isinstance(names, dict):  # an older way to write them
            names = [names[str(i)] for i in range(len(names))]
        return tuple(str(name) for name in names)
    except (KeyError, TypeError, ValueError):
        return None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
