import numpy as np

from resperturb.data.records import Records
from resperturb.data.sources import Parts, Place, data_sources


@data_sources.register("stripes")
class Stripes:
    """``stripes:200`` are 200 images of noisy stripes, level or upright."""

    def accepts(self, place: Place) -> bool:
        return place.spec.startswith("stripes:")

    def read(self, place: Place) -> Parts:
        count, rng = int(place.spec.partition(":")[2]), np.random.default_rng(0)
        images = rng.integers(0, 200, (count, 8, 8)).astype(np.uint8)
        images[::2, ::2] += 40
        images[1::2, :, ::2] += 40
        return Records(
            images,
            labels=tuple(("level", "upright")[i % 2] for i in range(count)),
            groups=None if place.columns.group is None else np.array([f"patient {i // 4}" for i in range(count)]),
            names=None,
            where=tuple(f"stripe {i}" for i in range(count)),
            origin="stripes",
            identity=f"stripes {count}",
        ), None
