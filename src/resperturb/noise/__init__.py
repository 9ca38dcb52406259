"""Where the Gaussian numbers come from: keys and the generators that expand them."""

from resperturb.noise.source import NoiseSource, derive_key, keyed_generator, standard_normal, training_key
from resperturb.noise.threefry import has_compiler

__all__ = ["NoiseSource", "derive_key", "has_compiler", "keyed_generator", "standard_normal", "training_key"]
