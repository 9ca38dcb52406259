"""Images in the columns of parquet files.

pyarrow reads the files where they are. Hugging Face `datasets` would first copy the private images into its cache,
where others may read them; tests/data/test_datasets.py shows it.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.data.paths import one_line, open_regular, printable
from resperturb.data.records import Columns, Records, StreamedImages, clean_groups, clean_labels, identity_of
from resperturb.data.sources import TEST_NAMES, Parts, Place, data_sources
from resperturb.errors import UsageError

IMAGE_COLUMNS = ("image", "img", "images")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")
# Few enough for large images, many enough for small ones.
ROWS_AT_A_TIME = 64
_BUFFER_BYTES = 1 << 20


@data_sources.register("parquet")
class Parquet:
    """A ``.parquet`` file, or a folder of ``train*.parquet`` and perhaps ``test*.parquet``."""

    def accepts(self, place: Place) -> bool:
        """Say whether there is such a file, or such files in a folder."""
        return place.path is not None and bool(_files(place.path, "*") or place.path.suffix.lower() == ".parquet")

    def read(self, place: Place) -> Parts:
        """Read the tables; the images are read when they are needed, a few at a time."""
        assert place.path is not None
        if not place.path.is_dir():
            return read_parquet([place.path], place.columns), None
        train = _files(place.path, "train*")
        if not train:
            raise UsageError(
                f"The parquet files of {printable(place.path)} must be named train*.parquet and test*.parquet."
            )
        test = next((files for name in TEST_NAMES if (files := _files(train[0].parent, f"{name}*"))), None)
        return read_parquet(train, place.columns), read_parquet(test, place.columns) if test else None


def _files(folder: Path, name: str) -> list[Path]:
    """Find the parquet files of that name in a folder, or in its ``data``, where a clone from the hub has them."""
    there = (sorted(place.glob(f"{name}.parquet")) for place in (folder, folder / "data"))
    return next((files for files in there if files), [])


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
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parts: list[Any] = []
    where: list[str] = []
    found, declared = columns, None
    for file in files:
        with _readable(file):
            open_regular(file).close()  # a pipe would be waited for
            schema = parquet.read_schema(file)
            found = find_columns(schema.names, found, printable(file))
            declared = _class_names(schema.metadata, found.label) if not parts else declared
            described = [name for name in (found.label, found.group) if name is not None]
            part = parquet.ParquetFile(file).read(columns=described)
        parts.append(part)
        where += [f"row {i} of {printable(file)}" for i in range(part.num_rows)]

    def batches() -> Iterator[Any]:
        for file in files:
            with _readable(file):
                # Buffered, so that the pages of a large row group are not all read to get at its first rows.
                opened = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
                for batch in opened.iter_batches(ROWS_AT_A_TIME, columns=[found.image]):
                    yield batch.column(0)

    origin = printable(files[0] if len(files) == 1 else f"{files[0].parent} ({len(files)} parquet files)")
    folders = (files[0].parent,)
    return table_records(
        batches, parts, found, declared, tuple(where), origin, folders, identity_of(files, found.image)
    )


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Say in one sentence that a file cannot be read."""
    pa: Any = importlib.import_module("pyarrow")
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(f"{printable(file)} is no parquet file, or a damaged one: {one_line(error)}.") from None
    except OSError as error:
        raise UsageError(f"{printable(file)} cannot be read: {one_line(error)}.") from None


def table_records(
    batches: Callable[[], Iterator[Any]],
    parts: Sequence[Any],
    columns: Columns,
    names: tuple[str, ...] | None,
    where: tuple[str, ...],
    origin: str,
    folders: Sequence[Path],
    identity: str,
) -> Records:
    """Make records of tables: ``parts`` hold labels and groups, ``batches`` gives the images in order.

    Files that the table names are read only if they lie in one of the ``folders``.
    """
    image_column = str(columns.image)

    def values(name: str) -> list[Any]:
        try:
            return [value for part in parts for value in part.column(name).to_pylist()]
        except UnicodeDecodeError:
            raise UsageError(f"Column {name!r} of {origin} holds text that is not UTF-8: write it anew.") from None

    labels = clean_labels(values(str(columns.label)), where, f"column {columns.label!r}")
    groups = None
    if columns.group is not None:
        groups = clean_groups(values(columns.group), where, f"column {columns.group!r}")
    roots = [folder.resolve() for folder in folders]
    group_of: dict[Path, str] = {}

    def named(path: str, row: int) -> Path:
        file = (folders[0] / path).resolve() if "\0" not in path else None
        if file is None or not any(file.is_relative_to(root) for root in roots):
            raise UsageError(
                f"The image of {where[row]} is said to be {path!r}, which is not under {printable(folders[0])}: only "
                "files next to the table are read."
            )
        if groups is not None and (first := group_of.setdefault(file, str(groups[row]))) != groups[row]:
            raise UsageError(
                f"The image {path!r} is named for two groups, {first!r} and {str(groups[row])!r} "
                f"({where[row]}): an image belongs to one."
            )
        return file

    def images_at(rows: np.ndarray[Any, Any]) -> Iterator[bytes | Path]:
        start = 0
        for batch in batches():
            low, high = np.searchsorted(rows, [start, start + len(batch)])
            chosen = batch if high - low == len(batch) else batch.take(rows[low:high] - start)
            for row, value in zip(rows[low:high].tolist(), _cells(chosen), strict=True):
                image = _encoded(value, where[row], image_column)
                yield image if isinstance(image, bytes) else named(image, row)
            start += len(batch)
            if high == len(rows):
                return

    next(images_at(np.arange(min(1, len(where)))), None)  # a column of something else is refused at once
    return Records(StreamedImages(images_at, np.arange(len(where))), labels, groups, names, where, origin, identity)


def _cells(column: Any) -> Iterator[Any]:
    """The values of an image column; of a struct of bytes and path, whichever is there."""
    is_struct = importlib.import_module("pyarrow").types.is_struct
    fields = [field.name for field in column.type] if is_struct(column.type) else []
    if "bytes" not in fields:
        yield from column.to_pylist()
        return
    flat = column.flatten()  # far quicker than a dictionary per row
    paths = flat[fields.index("path")].to_pylist() if "path" in fields else [None] * len(column)
    for value, path in zip(flat[fields.index("bytes")].to_pylist(), paths, strict=True):
        yield value or path


def _encoded(value: Any, where: str, column: str) -> bytes | str:
    if isinstance(value, bytes | str) and value:
        return value
    if not value:
        raise UsageError(f"The image of {where} (column {column!r}) is missing: remove the row.")
    raise UsageError(
        f"Column {column!r} holds {type(value).__name__} values ({where}), not encoded images: name the column of "
        "the images (--image-column)."
    )


def find_columns(present: Sequence[str], asked: Columns, origin: str) -> Columns:
    """Choose among the columns that are ``present``: those asked for, or those of the usual names."""
    return Columns(
        _find(present, asked.image, IMAGE_COLUMNS, "image", origin),
        _find(present, asked.label, LABEL_COLUMNS, "label", origin),
        None if asked.group is None else _find(present, asked.group, (), "group", origin),
    )


def _find(present: Sequence[str], asked: str | None, usual: Sequence[str], kind: str, origin: str) -> str:
    there = ", ".join(repr(name) for name in present) or "none"
    found = next((name for name in (usual if asked is None else (asked,)) if name in present), None)
    if found is None and asked is not None:
        raise UsageError(f"There is no {kind} column {asked!r} in {origin}; its columns are {there}.")
    if found is None:
        raise UsageError(
            f"Which column of {origin} holds the {kind}s? Its columns are {there}: name one (--{kind}-column)."
        )
    if list(present).count(found) > 1:
        raise UsageError(f"There are two columns {found!r} in {origin}: rename one of them.")
    return found


def _class_names(metadata: dict[bytes, bytes] | None, label: str | None) -> tuple[str, ...] | None:
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
        if isinstance(names, dict):  # an older way to write them
            names = [names[str(i)] for i in range(len(names))]
        return tuple(str(name) for name in names)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
