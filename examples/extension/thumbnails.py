from torch import nn

from resperturb.features import Extractor, register_extractor


@register_extractor("thumbnails")
class Thumbnails(Extractor):
    """``thumbnails:4`` are images of 4 by 4 pixels."""

    def public(self) -> tuple[str, str, str, str]:
        return f"thumbnails:{self.name}", "Means of pixels, learned from no data.", "", "mean over cells"

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        return channels * int(self.name) ** 2

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(int(self.name)), nn.Flatten())
