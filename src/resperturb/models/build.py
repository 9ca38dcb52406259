"""Networks by name: ``resnet8``, ``timm:resnet26d``, ``my_package.nets:make``, and ensembles of any of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from resperturb.errors import ResperturbError, UsageError
from resperturb.models.adapt import load_weights, without_batch_norm
from resperturb.models.names import NetworkName, parse_name
from resperturb.models.source import Argument, NetworkSource, Norm, Request, source_of


class Ensemble(nn.Module):
    """En_k (arXiv:1811.10745): the mean of the logits of k networks, each noised by itself and trained as one.

    >>> ensemble = Ensemble([nn.Linear(3, 2) for _ in range(5)])
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([7, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the averaged logits."""
        return torch.stack([network(x) for network in self.networks]).mean(dim=0)


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    norm: Norm = "batch",
    skip: bool = True,
    dropout: float = 0.0,
    image_size: tuple[int, int] | None = None,
    args: Mapping[str, Argument] | None = None,
    pretrained: bool = False,
) -> nn.Module:
    """Build a network, with fresh weights from torch's global generator unless trained ones are asked for.

    Args:
        name: ``resnet8``, ``timm:resnet26d``, ``torchvision:resnet18``, ``transformers:vit``,
            ``my_package.nets:make``, or an ensemble of any of them: ``en5-resnet8``.
        norm: ``"batch"`` for the network's own normalisation, ``"group"`` for GroupNorm in place of BatchNorm.
        skip: False for the ablation without skip connections (built-in networks).
        dropout: Dropout between the convolutions of a block (built-in networks).
        image_size: Height and width of the images, which some networks must know.
        args: Further arguments of the network's own constructor.
        pretrained: Start from the weights that the network's library offers.

    >>> type(build("en2-resnet8", num_classes=10)).__name__
    'Ensemble'
    """
    if norm not in ("batch", "group"):
        raise UsageError(f"norm must be 'batch' or 'group', not {norm!r}.")
    if num_classes < 2 or in_channels < 1:
        raise UsageError(
            f"a model needs at least 2 classes and 1 channel, not num_classes={num_classes}, "
            f"in_channels={in_channels}."
        )
    request = Request(num_classes, in_channels, image_size, norm, skip, dropout, dict(args or {}), pretrained)
    return build_with_notes(name, request)[0]


def build_with_notes(name: str, request: Request, weights: Path | None = None) -> tuple[nn.Module, list[str]]:
    """Build a network, starting from the weights of a file if there is one."""
    parsed = parse_name(name)
    source = source_of(parsed)
    source.check(parsed.single, request)
    notes: list[str] = []

    def single() -> nn.Module:
        network = _one(source, parsed.single, request)
        if weights is not None and (kept := load_weights(network, weights)):
            notes.append(f"The last layer ({', '.join(kept)}) is new: {weights} has it for other classes.")
        if request.norm == "group":  # after the weights, which may be those of the network as it was
            notes.extend(without_batch_norm(network))
        return network

    model = single() if parsed.ensemble is None else Ensemble([single() for _ in range(parsed.ensemble)])
    return model, list(dict.fromkeys(notes))


def _one(source: NetworkSource, name: NetworkName, request: Request) -> nn.Module:
    """Build one network, or say in a sentence why its library did not."""
    try:
        return source.build(name, request)
    except ResperturbError:
        raise
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"{name} cannot be built with {dict(request.args)}: {error}.") from error
    except (OSError, RuntimeError) as error:
        if not request.pretrained:
            raise
        raise ResperturbError(
            f"the pretrained weights of {name} could not be fetched ({type(error).__name__}). Fetch them where there "
            "is a network, and give the file (--weights FILE)."
        ) from error
