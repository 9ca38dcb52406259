"""Files that are written whole or not at all, that say when they were changed, and that are checked when read."""

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from resperturb.errors import BusyError, ResperturbError, UsageError

# Stands where a file's own checksum goes, while the checksum is computed.
SEAL = "sha256:" + 64 * "0"


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write ``content`` to ``path`` whole or not at all; what was there before stays until then.

    A link is followed, and a device is written to; neither is replaced, nor is what ``/dev/stdout`` leads to.

    Folders that are missing on the way are made. ``private`` lets only the owner read the file, at any time, and
    follows no link.

    Raises:
        ResperturbError: It could not be written.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_bytes(folder / "a", b"whole")
    >>> [p.name for p in folder.iterdir()], (folder / "a").read_bytes()
    (['a'], b'whole')
    """
    if path.is_dir():
        raise ResperturbError(f"could not write {path}: it is a folder; give the name of a file.")
    if private and path.is_symlink():
        raise ResperturbError(f"could not write {path}: it is a link, and a secret goes into no other folder.")
    try:
        place = path.resolve() if path.is_symlink() else path
        stream = path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")
        if stream or (place.exists() and not place.is_file()):
            _write_to_device(path, content)
        else:
            _replace(place, content, 0o600 if private else 0o666)
    except (OSError, RuntimeError) as error:  # of Python 3.11, a RuntimeError for links that go round in circles
        raise ResperturbError(
            f"could not write {path}: {getattr(error, 'strerror', None) or error}. What was there before is "
            "untouched; make room or choose another folder, then run the same command again."
        ) from error


def _replace(path: Path, content: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "wb") as file:
            with suppress(OSError):  # shows that its writer is alive; not every file system has locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _write_to_device(path: Path, content: bytes) -> None:
    # A pipe without a reader is an error, not a wait without end.
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:
        file.write(content)


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Find the temporary files in a folder whose writer was killed, of the file of this name or of any."""
    known = re.escape(name) if name is not None else ".+"
    found = (path for path in folder.iterdir() if re.fullmatch(rf"\.{known}\.[0-9a-f]{{8}}\.tmp", path.name))
    return [path for path in found if _is_abandoned(path)]


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what :func:`leftovers` finds, as far as this user may."""
    with suppress(OSError):
        for path in leftovers(folder, name):
            path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    """Whether no process holds the lock that the writer of a temporary file keeps."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read a regular file of at most ``most`` bytes, and nothing else: a pipe would be waited for without end.

    Raises:
        ResperturbError: It cannot be read, or is larger.

    >>> read_bytes(Path("/dev/zero"))
    Traceback (most recent call last):
    ...
    resperturb.errors.ResperturbError: cannot read /dev/zero: it is not a regular file.
    """
    with _regular(path) as file:
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise ResperturbError(f"cannot read {path}: it has more than {most:,} bytes.")
        return file.read()


@contextmanager
def _regular(path: Path) -> Iterator[BufferedReader]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ResperturbError(f"cannot read {path}: it is not a regular file.")
            yield file
    except (OSError, MemoryError) as error:
        raise ResperturbError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder that only its owner may enter, or find it, and hold it for this process.

    The lock is the kernel's, so a killed process leaves none behind. Temporary files of killed processes are removed,
    in the folders directly below too.

    Raises:
        BusyError: Another process holds it.
        ResperturbError: It cannot be written in, or its file system has no locks.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise ResperturbError(f"cannot write in {folder}: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another process is at work in {folder}; wait for it or stop it.") from None
        except OSError as error:
            raise ResperturbError(
                f"cannot lock {folder}: {error.strerror}; choose a folder on a file system with locks."
            ) from error
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
            remove_leftovers(place)
        yield
    finally:
        os.close(handle)


def sync(folder: Path) -> None:
    """Make sure that what was removed from a folder, or renamed in it, stays so after a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    """Give the SHA-256 of a file, in hexadecimal digits, without reading it whole into memory.

    Raises:
        ResperturbError: It cannot be read.
    """
    with _regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(content: bytes) -> bytes:
    """Put its own checksum into a file: the SHA-256 of its bytes with :data:`SEAL`, which they must hold, in place.

    >>> content = sealed(b'{"checksum": "' + SEAL.encode() + b'"}')
    >>> seal = content[14:-2].decode()
    >>> seal_holds(content, seal), seal_holds(content.replace(b"checksum", b"Checksum"), seal)
    (True, False)
    """
    return content.replace(SEAL.encode(), b"sha256:" + hashlib.sha256(content).hexdigest().encode(), 1)


def seal_holds(content: bytes, seal: str) -> bool:
    """Whether a file that :func:`sealed` wrote, and whose checksum reads ``seal``, is as it was written."""
    before = content.replace(seal.encode(errors="replace"), SEAL.encode(), 1)
    return seal == "sha256:" + hashlib.sha256(before).hexdigest()


T = TypeVar("T")


def plain(value: Any) -> Any:
    """Turn dataclasses, tuples, arrays and paths into what JSON has; a number that is not finite becomes its name.

    A dataclass with a ``to_dict`` of its own decides by itself.

    >>> plain({"epsilon": math.inf, "sizes": (1, 2)})
    {'epsilon': 'inf', 'sizes': [1, 2]}
    """
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def write_json(path: Path, value: Any, *, seal: bool = False, private: bool = False) -> None:
    """Write ``value`` as indented JSON, whole or not at all; see :func:`plain` for what it may hold.

    With ``seal`` it must hold :data:`SEAL`, in the place of which its checksum is written; ``private`` is that of
    :func:`write_bytes`.
    """
    content = (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode()
    write_bytes(path, sealed(content) if seal else content, private=private)


def read_json(kind: type[T], path: Path, remedy: str = "make it again") -> T:
    """Read a JSON file into a dataclass, or another type that pydantic can check, and check every field of it.

    Fields that ``kind`` does not have are ignored. ``remedy`` says what to do if the file is damaged.

    Raises:
        ResperturbError: The file cannot be read, is no JSON, or does not hold a ``kind``.
    """
    return parse_json(kind, read_bytes(path), path, remedy)


def parse_json(kind: type[T], content: bytes, path: Path, remedy: str = "make it again") -> T:
    """Check what was read from ``path`` as :func:`read_json` does.

    >>> parse_json(dict[str, int], b'{"a": "b"}', Path("x.json"))
    Traceback (most recent call last):
    ...
    resperturb.errors.ResperturbError: x.json is damaged or incomplete (a: Input should be a valid integer, unable to
    parse string as an integer); make it again.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:100] or "the whole"
        raise ResperturbError(f"{path} is damaged or incomplete ({where}: {first['msg']}); {remedy}.") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML file that the user named.

    Raises:
        UsageError: It cannot be read, or is no YAML.
    """
    try:
        content = read_bytes(path)
    except ResperturbError as error:
        raise UsageError(str(error)) from error
    return parse_yaml(content, path)


def parse_yaml(content: bytes | str, where: object) -> Any:
    """Read YAML of plain values: numbers in decimals, true and false, text, lists and mappings without repeated keys.

    Raises:
        UsageError: It is no YAML.

    >>> parse_yaml("epochs: 20", "run.yaml")
    {'epochs': 20}
    """
    import yaml

    try:
        return yaml.load(content.decode() if isinstance(content, bytes) else content, _yaml_loader())
    except RecursionError as error:
        raise UsageError(f"{where} is nested too deeply.") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())[:300]}.") from error


@cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Values as YAML 1.2 and JSON have them: ``yes``, ``010`` and ``1:30`` are text, and no key comes twice."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            counts = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            if twice := [key for key, count in counts.items() if count > 1]:
                raise ValueError(f"the key {twice[0]!r} is given twice")
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    number = r"[-+]?(0|[1-9][0-9]*)"
    real = (
        rf"{number}(\.[0-9]*)?([eE][-+]?[0-9]+)?|[-+]?\.[0-9]+([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    )
    for kind, pattern, first in (
        ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", "~|null|Null|NULL|", "~nN\0"),
        ("int", number, "-+0123456789"),
        ("float", real, "-+.0123456789"),
        ("merge", "<<", "<"),
    ):
        firsts = ["" if letter == "\0" else letter for letter in first]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), firsts)
    return Loader
