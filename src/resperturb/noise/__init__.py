"""Where the Gaussian numbers come from: keys and the generators that expand them."""

from resperturb.noise.kernel import has_compiler
from resperturb.noise.normals import generator_name, keyed_generator, noisy_sum, standard_normal
from resperturb.noise.source import Draw, NoiseSource, derive_key, training_key

__all__ = [
    "Draw",
    "NoiseSource",
    "derive_key",
    "generator_name",
    "has_compiler",
    "keyed_generator",
    "noisy_sum",
    "standard_normal",
    "training_key",
]
