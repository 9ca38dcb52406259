"""Writing files so that a crash, a full disk or a second process never leaves half of one."""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
