"""The versions and the machine that a result was made with."""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version


def environment() -> dict[str, str]:
    """Describe the time, the versions and the machine of a result.

    Returns:
        What is known, by name; the number of torch's threads only if torch is loaded.

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
