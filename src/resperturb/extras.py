"""Optional parts of this package, and the libraries that each of them installs."""

from importlib.util import find_spec

from resperturb.errors import UsageError

EXTRAS = {
    "train": ("opacus", "dp_accounting", "datasets", "pyarrow", "PIL"),
    "dicom": ("pydicom",),
    "ray": ("ray",),
}


def needed(extra: str, what: str, *libraries: str) -> None:
    """Refuse to go on without ``libraries`` of an extra, or all of them; ``what`` says what needs them.

    Raises:
        UsageError: A library is not installed.
    """
    if missing := [library for library in libraries or EXTRAS[extra] if find_spec(library) is None]:
        raise UsageError(f"{what} needs {', '.join(missing)}: pip install 'resperturb[{extra}]'.")
