"""The embedded sample of Fashion-MNIST."""

from dataclasses import replace
from importlib.resources import as_file, files

from resperturb.data.sources import SAMPLE, Parts, Place, data_sources
from resperturb.data.sources.npz import read_npz

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@data_sources.register("sample")
class Sample:
    """``fashion-sample``: 4,000 training and 2,000 test images that come with the package."""

    def accepts(self, place: Place) -> bool:
        """Say whether the sample is asked for by its name."""
        return place.spec == SAMPLE and place.path is None

    def read(self, place: Place) -> Parts:
        """Read the archive of the package."""
        with as_file(files("resperturb.data") / "embedded" / f"{SAMPLE}.npz") as file:
            train, test = read_npz(file, place.columns)
        assert test is not None
        return replace(train, names=CLASSES), replace(test, names=CLASSES)
