"""Images in folders: the folder below the top one is the class, and whatever lies in it, at any depth, belongs to it.

The image folders of Hugging Face `datasets` take the innermost folder for the class (``ill/patient7/1.png`` would be
of the class ``patient7``), and leave out files that they do not know without a word; tests/data/test_datasets.py
shows it.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from resperturb.data.dicom import dicom_value, is_dicom
from resperturb.data.paths import one_line, open_regular, printable
from resperturb.data.records import Records, clean_groups, clean_labels, identity_of
from resperturb.data.sources import TEST_NAMES, Parts, Place, data_sources
from resperturb.errors import UsageError

SUFFIXES = (".png", ".jpg", ".jpeg", ".jp2", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
DICOM_SUFFIXES = (".dcm", ".dicom")
METADATA = "metadata.csv"
# As a group column: the folder below that of the class, and the name of the file.
FOLDER, FILE = "folder", "file"


@data_sources.register("folder")
class ImageFolder:
    """``<class>/**/<image>``, or ``train/<class>/**/<image>`` and perhaps ``test/<class>/**/<image>``."""

    def accepts(self, place: Place) -> bool:
        """Say whether it is a folder, and not one of parquet files."""
        from resperturb.data.sources.parquet import Parquet

        return place.path is not None and place.path.is_dir() and not Parquet().accepts(place)

    def read(self, place: Place) -> Parts:
        """Find the images and their groups."""
        folder, columns = place.path, place.columns
        assert folder is not None
        if columns.image or columns.label:
            raise UsageError(
                f"{printable(folder)} is an image folder, which has no columns: its labels are the names of the "
                "class folders."
            )
        group = columns.group or (FILE if columns.pattern else None)
        if not is_split(folder):
            return read_folder(folder, group), None
        test = next((folder / name for name in TEST_NAMES if (folder / name).is_dir()), None)
        return read_folder(folder / "train", group), read_folder(test, group) if test else None


def is_split(folder: Path) -> bool:
    """Say whether the folder holds ``train/<class>/`` rather than ``<class>/``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "train", "benign").mkdir(parents=True)
    ...     is_split(Path(folder))
    True
    """
    train = folder / "train"
    return train.is_dir() and not any(_why_not(entry) is None for entry in _entries(train) if not entry.is_dir())


def read_folder(folder: Path, group_column: str | None = None) -> Records:
    """Read ``<class>/**/<image>``; the class names are the names of the folders, sorted.

    Groups come from a ``metadata.csv`` in the folder, with a column ``file_name`` (``<class>/.../<image>``) and the
    group column; ``file`` means the name of the file. Without a metadata file, ``folder`` means the folder below
    that of the class (one of the same name below another class is the same group), and any other name an entry of
    the header of DICOM files, such as ``PatientID``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "benign", "patient7").mkdir(parents=True)
    ...     Path(folder, "benign", "patient7", "1.png").touch()
    ...     Path(folder, "benign", "notes.txt").touch()
    ...     found = read_folder(Path(folder), "folder")
    >>> found.labels, found.groups.tolist(), found.skipped
    (('benign',), ['patient7'], (('.txt files', 1),))
    """
    files: list[Path] = []
    labels: list[str] = []
    skipped = Counter[str]()
    top = [entry for entry in _entries(folder) if entry.name != METADATA]
    classes = [entry for entry in top if _is_open_folder(entry)]
    loose = [entry for entry in top if not _is_open_folder(entry)]
    if not classes:
        images = any(_why_not(entry) is None for entry in loose)
        found = "its images must lie in one folder per class" if images else "it holds no images"
        raise UsageError(f"{printable(folder)} has no class folders (<class>/<image>): {found}.")
    skipped.update(_why_not(entry) or "images outside the class folders" for entry in loose)
    root, outside = folder.resolve(), 0
    for path in classes:
        before = len(files)
        for place, file in _walk(path, root, set(), skipped):
            if (reason := _why_not(file)) is None:
                files.append(file)
                real = file.resolve() if file.is_symlink() else place
                outside += not real.is_relative_to(root)
            else:
                skipped[reason] += 1
        if len(files) == before:
            raise UsageError(
                f"The class folder {printable(path)} holds no images ({', '.join(SUFFIXES + DICOM_SUFFIXES)}): fill "
                "it or remove it."
            )
        labels += [path.name] * (len(files) - before)
    where = tuple(map(printable, files))
    groups = None
    if group_column is not None:
        groups = clean_groups(_groups(folder, files, group_column), where, f"group column {group_column!r}")
    return Records(
        files,
        clean_labels(labels, where, "the name of its class folder"),
        groups,
        None,
        where,
        printable(folder),
        identity_of(files),
        tuple(sorted(skipped.items())),
        (("behind links out of the folder", outside),) if outside else (),
    )


def _walk(folder: Path, root: Path, seen: set[Path], skipped: Counter[str]) -> Iterator[tuple[Path, Path]]:
    """Give all files under a folder, its own first, each with the real place of its folder.

    Hidden folders count as files. Links are followed, but no folder is read twice, and none with ``root`` in it: the
    images of all classes, and of the test, would be taken for those of one.
    """
    place = folder.resolve()
    if root.is_relative_to(place):
        skipped["links to folders that hold this one"] += 1
        return
    if place in seen:
        skipped["links to folders that were read already"] += 1
        return
    seen.add(place)
    entries = _entries(folder)
    yield from ((place, entry) for entry in entries if not _is_open_folder(entry))
    for entry in entries:
        if _is_open_folder(entry):
            yield from _walk(entry, root, seen, skipped)


def _is_open_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _why_not(file: Path) -> str | None:
    """Why a file is no image that can be read, or None if it is one."""
    if file.name.startswith("."):
        return "hidden files or folders"
    if not file.is_file():
        return "pipes, devices or broken links"
    suffix = file.suffix.lower()
    if suffix in SUFFIXES + DICOM_SUFFIXES or _has_dicom_header(file, suffix):
        return None
    return f"{printable(suffix)} files" if suffix else "files without a suffix"


def _has_dicom_header(file: Path, suffix: str) -> bool:
    # Scanners often name files by number alone, or by a dotted identifier.
    if suffix and not suffix[1:].isdigit():
        return False
    try:
        with open_regular(file) as opened:
            return is_dicom(opened)
    except OSError as error:
        raise UsageError(f"{printable(file)} cannot be read: {one_line(error)}.") from None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry) for entry in os.scandir(folder))
    except OSError as error:
        raise UsageError(f"The folder {printable(folder)} cannot be read: {one_line(error)}.") from None


def _groups(folder: Path, files: list[Path], column: str) -> list[str | None]:
    if column == FILE:
        return [file.name for file in files]
    metadata = folder / METADATA
    keys = [file.relative_to(folder) for file in files]
    if metadata.exists():
        by_file = _metadata(metadata, column)
        return [by_file.get(key.as_posix()) for key in keys]
    if column == FOLDER:
        if loose := next((file for file, key in zip(files, keys, strict=True) if len(key.parts) < 3), None):
            raise UsageError(
                f"{printable(loose)} lies in the folder of its class, {printable(loose.parent.name)}, and in none of "
                f"a group: --group-column {FOLDER} needs <class>/<group>/<image>."
            )
        return [key.parts[1] for key in keys]
    if all(file.suffix.lower() not in SUFFIXES for file in files):
        return [dicom_value(file, column) for file in files]
    raise UsageError(
        f"The groups of an image folder come from {printable(metadata)}, which is not there: write one with the "
        f"columns 'file_name' (<class>/<image>) and {column!r}, or pass --group-column {FOLDER} if each group has a "
        "folder of its own in that of the class."
    )


def _metadata(file: Path, column: str) -> dict[str, str]:
    groups: dict[str, str] = {}
    try:
        with open_regular(file) as opened:
            rows = csv.DictReader(io.StringIO(opened.read().decode("utf-8-sig"), newline=""))
        present = rows.fieldnames or []
        for name in ("file_name", column):
            if present.count(name) != 1:
                raise UsageError(
                    f"There is no column {name!r} in {printable(file)}, or more than one; its columns are "
                    f"{', '.join(map(repr, present)) or 'none'}."
                )
        for row in rows:
            name, group = row["file_name"], row[column]
            if groups.setdefault(name, group) != group:
                raise UsageError(
                    f"{printable(file)} names the image {name!r} for two groups, {groups[name]!r} and {group!r}: an "
                    "image belongs to one."
                )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{printable(file)} cannot be read as a CSV file: {one_line(error)}.") from None
    return groups
