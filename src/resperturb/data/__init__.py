"""Images in memory, where they come from, and which of them a model may see."""

from resperturb.data.images import ImageSet, channel_statistics, normalize
from resperturb.data.sources import load, load_pair
from resperturb.data.splits import Quarters, four_quarters, held_out

__all__ = [
    "ImageSet",
    "Quarters",
    "channel_statistics",
    "four_quarters",
    "held_out",
    "load",
    "load_pair",
    "normalize",
]
