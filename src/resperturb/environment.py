"""The process that computes a result: how its threads wait, and the versions and the machine to report."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version

# Where a user may have chosen how threads wait; the last two are those of GNU's and Intel's OpenMP.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Checks of a lock before GNU's OpenMP lets a thread sleep, some tens of microseconds: longer than most gaps between
# two kernels of a small network, and little of a time slice. docs/speed.md has the measurement.
SPINS = 5000


def wait_passively() -> None:
    """Let OpenMP's threads sleep after a short wait, in this process and those that it starts.

    OpenMP reads the setting when torch is imported, so call this before. A setting of the user stays as it is.
    """
    if not os.environ.keys() & set(WAITING):
        os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT=str(SPINS))


def environment() -> dict[str, str]:
    """Describe the time, the versions and the machine of a result; torch's threads only if torch is loaded.

    >>> sorted(environment())[:3]
    ['machine', 'made', 'python']
    """
    torch = sys.modules.get("torch")
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "resperturb": version("resperturb"),
        "torch": str(torch.__version__) if torch else version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **({"threads": str(torch.get_num_threads())} if torch else {}),
    }
