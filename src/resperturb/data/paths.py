"""Names and files that a user or a table gave: nothing is waited for, and nothing odd reaches a terminal."""

import os
import stat
import unicodedata
from pathlib import Path
from typing import BinaryIO

from resperturb.errors import UsageError


def printable(name: object) -> str:
    """Show a name with control characters and bytes that are no text escaped.

    >>> printable("scan\\x1b[31m.png")
    'scan\\\\x1b[31m.png'
    """
    return "".join(c.encode("unicode_escape").decode() if _is_odd(c) else c for c in str(name))


def _is_odd(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def one_line(error: Exception) -> str:
    """Give the first line of what an error says, without its full stop."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return printable(lines[0]).rstrip(".") if lines else type(error).__name__


def expanded(path: str) -> Path:
    """Make a path of text that may begin with ``~`` or ``~user``."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"The home folder in {path!r} is unknown: write out the path.") from None


def exists(path: Path) -> bool:
    """Say whether something is at ``path``; what cannot be a path is not there."""
    try:
        return path.exists()
    except PermissionError:
        raise UsageError(f"{printable(path)} may not be looked at: check the permissions of its folders.") from None
    except (OSError, ValueError):  # too long, a null byte
        return False


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe, a device or a folder is refused at once and never waited for."""
    if not path.is_dir():
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        os.close(handle)
    raise UsageError(f"{printable(path)} is no regular file (a pipe, a device or a folder): give a file.")
