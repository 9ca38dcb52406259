"""Writing files so that a crash, a full disk or a second process never leaves half of one."""

import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from resperturb.errors import ResperturbError


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` whole or not at all; what was there before stays until then.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_bytes(folder / "a", b"whole")
    >>> [p.name for p in folder.iterdir()], (folder / "a").read_bytes()
    (['a'], b'whole')
    """
    if path.is_dir():
        raise ResperturbError(f"could not write {path}: it is a folder; give the name of a file.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ResperturbError(
            f"could not write {path}: {error.strerror or error}. What was there before is untouched; make room or "
            "choose another folder, then run the same command again."
        ) from error


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


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all; see :func:`plain` for what it may hold."""
    write_bytes(path, (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode())


def read_json(kind: type[T], path: Path, remedy: str = "make it again") -> T:
    """Read a JSON file into a dataclass and check every field of it.

    Args:
        kind: The dataclass (or other type that pydantic can check) that the file holds.
        path: The file.
        remedy: What the user is to do if the file is damaged.

    Returns:
        The object. Fields that ``kind`` does not have are ignored.

    Raises:
        ResperturbError: The file cannot be read, is no JSON, or does not hold a ``kind``.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ResperturbError(f"cannot read {path}: {error.strerror or error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ResperturbError(f"{path} is damaged or incomplete ({where}: {first['msg']}); {remedy}.") from error
    except (ValueError, RecursionError) as error:
        raise ResperturbError(f"{path} is not JSON ({error}); {remedy}.") from error
