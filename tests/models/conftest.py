"""Third-party networks for the tests."""

from resperturb.models import library


def pytest_configure() -> None:
    library("torchvision", "the tests")
