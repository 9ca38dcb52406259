"""The errors a user can cause. The command line prints their message and nothing else."""


class ResperturbError(Exception):
    """Something failed; the message says what, where, and what to do."""

    exit_code = 1


class BusyError(ResperturbError):
    """Another process is at it; later this may work."""


class StoppedError(ResperturbError):
    """It was asked to stop; what it had is saved."""


class UsageError(ResperturbError, ValueError):
    """The request itself is wrong: a bad parameter, a missing file, an unknown name.

    >>> issubclass(UsageError, ValueError)
    True
    """

    exit_code = 2
