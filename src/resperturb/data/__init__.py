"""Images in memory, where they come from, and which of them a model may see."""

from resperturb.extras import needed

needed("train", "reading images")

from resperturb.data.images import ImageSet, LoadSummary
from resperturb.data.loading import load_pair
from resperturb.data.rows import in_chunks
from resperturb.data.sources import DATA_VARIABLE, SAMPLE, SHORT_FORMS, data_sources
from resperturb.data.splits import Quarters, four_quarters, held_out

__all__ = [
    "DATA_VARIABLE",
    "SAMPLE",
    "SHORT_FORMS",
    "ImageSet",
    "LoadSummary",
    "Quarters",
    "data_sources",
    "four_quarters",
    "held_out",
    "in_chunks",
    "load_pair",
]
