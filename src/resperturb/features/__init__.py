"""Frozen public features of images: what a private head is trained on.

``build`` makes an extractor by name. Extractors and reductions are registered like networks: adding one is one file
in ``extractors`` or ``reductions``, or the entry point group ``resperturb.extractors`` or ``resperturb.reductions``.
"""

from resperturb.features.extractor import (
    Extractor,
    FeatureSource,
    Reduction,
    build,
    extractors,
    reductions,
    register_extractor,
    register_reduction,
)

__all__ = [
    "Extractor",
    "FeatureSource",
    "Reduction",
    "build",
    "extractors",
    "reductions",
    "register_extractor",
    "register_reduction",
]
