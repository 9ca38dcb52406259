"""Images in folders, one folder a class."""

import csv
from pathlib import Path

from resperturb.data.records import Records, clean_groups, identity_of
from resperturb.errors import UsageError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
METADATA = "metadata.csv"


def is_split(folder: Path) -> bool:
    """Say whether the folder holds ``train/<class>/`` rather than ``<class>/``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "train", "benign").mkdir(parents=True)
    ...     is_split(Path(folder))
    True
    """
    return (folder / "train").is_dir() and not _images(folder / "train")


def read_folder(folder: Path, group_column: str | None = None) -> Records:
    """Read ``<class>/<image>``; the class names are the names of the folders, sorted.

    Groups come from a ``metadata.csv`` in the folder: a column ``file_name`` (``<class>/<image>``) and the group
    column.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "benign").mkdir()
    ...     Path(folder, "benign", "1.png").touch()
    ...     read_folder(Path(folder)).labels
    ('benign',)
    """
    classes = [path for path in _entries(folder) if path.is_dir()]
    if not classes:
        found = "its images must lie in one folder a class" if _images(folder) else "it holds no images"
        raise UsageError(f"{folder} has no class folders ({folder.name}/<class>/<image>): {found}.")
    files, labels = [], []
    for path in classes:
        images = _images(path)
        if not images:
            raise UsageError(
                f"The class folder {path} holds no images ({', '.join(SUFFIXES)}): fill it or remove it."
            )
        files += images
        labels += [path.name] * len(images)
    where = tuple(str(file) for file in files)
    groups = None
    if group_column is not None:
        by_file = _metadata(folder / METADATA, group_column)
        keys = [file.relative_to(folder).as_posix() for file in files]
        groups = clean_groups([by_file.get(key) for key in keys], where, f"{group_column!r} in {METADATA}")
    return Records(files, tuple(labels), groups, None, where, str(folder), identity_of(files))


def _images(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.suffix.lower() in SUFFIXES and path.is_file()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}.") from None


def _metadata(file: Path, column: str) -> dict[str, str]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            present = rows.fieldnames or []
            for name in ("file_name", column):
                if name not in present:
                    raise UsageError(
                        f"There is no column {name!r} in {file}; its columns are "
                        f"{', '.join(map(repr, present)) or 'none'}."
                    )
            return {row["file_name"]: row[column] for row in rows}
    except FileNotFoundError:
        raise UsageError(
            f"The groups of an image folder come from {file}, which is not there: write one with the columns "
            f"'file_name' (<class>/<image>) and {column!r}."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file} cannot be read as a CSV file: {error}.") from None
