"""The name of a network, read in one place: ``resnet8``, ``timm:resnet26d``, ``en5-torchvision:resnet18``."""

import re
from dataclasses import dataclass, replace
from pathlib import PurePath

from resperturb.errors import UsageError

LARGEST_ENSEMBLE = 99
# The name of an extractor follows, which may have a colon too.
ON_FEATURES = "features:"


@dataclass(frozen=True)
class NetworkName:
    """A network's name, taken apart.

    >>> parse_name("en5-timm:resnet18")
    NetworkName(source='timm', name='resnet18', ensemble=5)
    >>> parse_name("wide-resnet28").single
    NetworkName(source='', name='wide-resnet28', ensemble=None)
    """

    source: str
    name: str
    ensemble: int | None = None

    @property
    def networks(self) -> int:
        """How many networks answer: those of the ensemble, or one."""
        return self.ensemble or 1

    @property
    def single(self) -> "NetworkName":
        """One network of the ensemble."""
        return replace(self, ensemble=None)

    def ensemble_of(self, networks: int) -> "NetworkName":
        """Name an ensemble of these networks.

        >>> str(parse_name("en2-resnet8").ensemble_of(3))
        'en3-resnet8'
        """
        return replace(self, ensemble=networks)

    @property
    def public(self) -> str:
        """The name without the place of a network that lies in a folder of this machine.

        >>> parse_name("en2-transformers:/home/me/net").public, parse_name("timm:hf-hub/owner/net").public
        ('en2-transformers:net', 'timm:hf-hub/owner/net')
        """
        kind, colon, name = self.name.rpartition(":")  # file:/home/me/features.npz
        return str(replace(self, name=kind + colon + without_place(name)))

    def __str__(self) -> str:
        prefix = "" if self.ensemble is None else f"en{self.ensemble}-"
        return prefix + (f"{self.source}:{self.name}" if self.source else self.name)


def without_place(name: str) -> str:
    """Leave the name of a file or folder, where the whole would say where it lies on this machine.

    >>> without_place("/home/me/net"), without_place("resnet8")
    ('net', 'resnet8')
    """
    return PurePath(name).name if name.startswith(("/", "~", ".")) else name


def parse_name(name: object) -> NetworkName:
    """Take a network's name apart; whether such a network exists is for its source to say."""
    if not isinstance(name, str):
        raise UsageError(f"a network is named by a text such as resnet8, not by {name!r}.")
    if name.startswith(ON_FEATURES) and len(name) > len(ON_FEATURES):
        return NetworkName("features", name.removeprefix(ON_FEATURES))
    found = re.fullmatch(r"(?:en(\d+)-)?(?:([^:\s]+):)?([^:\s]+)", name)
    if found is None:
        raise UsageError(f"{name!r} is not the name of a network, such as resnet8, timm:resnet26d or en5-resnet8.")
    ensemble = None if found[1] is None else int(found[1])
    if ensemble is not None and not 1 <= ensemble <= LARGEST_ENSEMBLE:
        raise UsageError(f"{name!r}: an ensemble has 1 to {LARGEST_ENSEMBLE} networks, not {ensemble}.")
    return NetworkName(found[2] or "", found[3], ensemble)
