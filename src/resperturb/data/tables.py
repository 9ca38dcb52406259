"""Images in the columns of a table: parquet files and Hugging Face datasets."""

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resperturb.data.records import Records, clean_groups, clean_labels
from resperturb.errors import UsageError

IMAGE_COLUMNS = ("image", "img", "images")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")


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

    >>> import pyarrow.parquet
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = pyarrow.table({"image": [b"an encoded image"], "label": ["benign"]})
    ...     pyarrow.parquet.write_table(table, f"{folder}/cells.parquet")
    ...     read_parquet([Path(folder, "cells.parquet")], Columns()).labels
    ('benign',)
    """
    # pyarrow reads the file where it is; `datasets` would first copy the private images into its cache.
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parts: list[Any] = []
    where: list[str] = []
    found, declared = Columns(), None
    for file in files:
        try:
            schema = parquet.read_schema(file)
            if not parts:
                found = _find_columns(schema.names, columns, str(file))
                declared = _class_names(schema.metadata, found.label)
            else:
                _find_columns(schema.names, found, str(file))
            wanted = [name for name in (found.image, found.label, found.group) if name is not None]
            part = parquet.ParquetFile(file).read(columns=wanted)
        except pa.ArrowException as error:
            raise UsageError(f"{file} is no parquet file, or a damaged one: {_first_line(error)}.") from None
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {_first_line(error)}.") from None
        parts.append(part)
        where += [f"row {i} of {file}" for i in range(part.num_rows)]
    origin = str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} parquet files)"
    return _to_records(parts, found, declared, tuple(where), origin, files[0].parent)


def read_hub_split(dataset: Any, columns: Columns, origin: str) -> Records:
    """Take the records of one split of a Hugging Face dataset."""
    found = _find_columns(dataset.column_names, columns, origin)
    wanted = [name for name in (found.image, found.label, found.group) if name is not None]
    names = getattr(dataset.features[found.label], "names", None)
    table = dataset.select_columns(wanted).with_format("arrow")[:]
    where = tuple(f"row {i} of {origin}" for i in range(table.num_rows))
    return _to_records([table], found, tuple(names) if names else None, where, origin, Path())


def _to_records(
    parts: Sequence[Any],
    columns: Columns,
    names: tuple[str, ...] | None,
    where: tuple[str, ...],
    origin: str,
    folder: Path,
) -> Records:
    def values(name: str) -> list[Any]:
        return [value for part in parts for value in part.column(name).to_pylist()]

    assert columns.image is not None
    assert columns.label is not None
    found = [value for part in parts for value in _cells(part.column(columns.image))]
    images = [_encoded(value, where[i], columns.image, folder) for i, value in enumerate(found)]
    labels = clean_labels(values(columns.label), where, f"column {columns.label!r}")
    groups = None
    if columns.group is not None:
        groups = clean_groups(values(columns.group), where, f"column {columns.group!r}")
    return Records(images, labels, groups, names, where, origin)


def _cells(column: Any) -> Iterator[Any]:
    """The values of an image column; of a struct of bytes and path, whichever is there."""
    is_struct = importlib.import_module("pyarrow").types.is_struct
    for chunk in column.chunks:
        fields = [field.name for field in chunk.type] if is_struct(chunk.type) else []
        if "bytes" not in fields:
            yield from chunk.to_pylist()
            continue
        flat = chunk.flatten()  # far quicker than a dictionary a row
        paths = flat[fields.index("path")].to_pylist() if "path" in fields else [None] * len(chunk)
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
