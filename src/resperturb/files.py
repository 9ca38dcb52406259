"""Writing files so that a crash, a full disk or a second process never leaves half of one."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from resperturb.errors import ResperturbError


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` whole or not at all; what was there before stays until then.

    >>> folder = Path(tempfile.mkdtemp())
    >>> write_bytes(folder / "a", b"whole")
    >>> [p.name for p in folder.iterdir()], (folder / "a").read_bytes()
    (['a'], b'whole')
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise ResperturbError(
            f"could not write {path}: {error.strerror or error}. What was there before is untouched; make room or "
            "choose another folder, then run the same command again."
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
