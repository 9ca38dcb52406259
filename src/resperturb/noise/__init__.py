"""Where the Gaussian numbers come from: keys and the generators that expand them."""

from resperturb.noise.kernel import has_compiler
from resperturb.noise.normals import TAIL_PROBABILITY, generator_name, keyed_generator, standard_normal, tail_delta
from resperturb.noise.source import Draw, NoiseSource, derive_key, training_key

__all__ = [
    "TAIL_PROBABILITY",
    "Draw",
    "NoiseSource",
    "derive_key",
    "generator_name",
    "has_compiler",
    "keyed_generator",
    "standard_normal",
    "tail_delta",
    "training_key",
]
