"""How much memory this process may still take, whoever sets the limit."""

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes that can be had without swapping: what is free or could be, within the limits of a container or job.

    None where the system does not say.

    >>> free = available_memory()
    >>> free is None or free > 0
    True
    """
    limits = [*_free_memory(), *_cgroup_room()]
    return max(1, min(limits)) if limits else None


def physical_memory() -> int | None:
    """Bytes of memory that this machine has; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _free_memory() -> Iterator[int]:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
                return
    except (OSError, ValueError, IndexError):
        pass
    if (there := physical_memory()) is not None:  # not Linux: all there is
        yield there


def _cgroup_room() -> Iterator[int]:
    """What each enclosing control group leaves; file pages that can be dropped do not count as used."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = _CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = (
                _CGROUPS / "memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        # Inside a container its own group is the root of what it sees, whatever the path says.
        folder = root / path.lstrip("/")
        for place in {root, folder, *folder.parents}:
            if place == root or root in place.parents:
                yield from _room(place, *names)


def _room(group: Path, limit: str, used: str, droppable: str) -> Iterator[int]:
    try:
        most, now = int((group / limit).read_text()), int((group / used).read_text())
        counted = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        yield most - now + int(counted.get(droppable, 0))
    except (OSError, ValueError):  # no such file, or the limit is "max"
        return
