"""Image classifiers of transformers: ``transformers:resnet``, or the folder of one: ``transformers:./my-model``."""

from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from resperturb.errors import ResperturbError, UsageError
from resperturb.models.adapt import library
from resperturb.models.names import NetworkName
from resperturb.models.source import NetworkSource, Request, register_network


@register_network("transformers")
class Transformers(NetworkSource):
    """What ``AutoModelForImageClassification`` builds, from a model type or from a folder with a config.json."""

    examples: ClassVar = "transformers:vit and other model types, or a folder that save_pretrained wrote"

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse model types that transformers does not know."""
        super().check(name, request)
        transformers = library("transformers", name)
        if not _is_folder(name) and name.name not in transformers.CONFIG_MAPPING:
            raise UsageError(
                f"transformers has no model type {name.name!r}, and no folder {name.name} has a config.json."
            )

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Build a classifier that returns its logits as a tensor."""
        transformers = library("transformers", name)
        options: dict[str, Any] = {"num_labels": request.num_classes, "num_channels": request.in_channels}
        if request.image_size is not None:
            options["image_size"] = request.image_size[0]
        options.update(request.args)
        kind = transformers.AutoModelForImageClassification
        try:
            if _is_folder(name):
                config = transformers.AutoConfig.from_pretrained(name.name, local_files_only=True, **options)
            else:
                config = transformers.AutoConfig.for_model(name.name, **options)
            model: nn.Module
            if request.pretrained:
                if not _is_folder(name):
                    raise UsageError(f"a model type has no weights; give a folder in place of {name.name!r}.")
                model = kind.from_pretrained(
                    name.name, config=config, local_files_only=True, ignore_mismatched_sizes=True
                )
            else:
                model = kind.from_config(config)
        except OSError as error:
            raise ResperturbError(f"{name.name} could not be read by transformers: {error}") from error
        # It answers with an object; everything here, and most losses, expect a tensor.
        model.register_forward_hook(_only_logits)
        return model


def _is_folder(name: NetworkName) -> bool:
    return (Path(name.name) / "config.json").is_file()


def _only_logits(module: nn.Module, inputs: Any, output: Any) -> Tensor:
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits
