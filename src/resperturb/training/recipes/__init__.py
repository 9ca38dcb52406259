"""Published settings of trainings, one YAML file each: ``resperturb train --recipe NAME``."""

from importlib.resources import files
from typing import Any

from resperturb.errors import UsageError
from resperturb.files import parse_yaml


def recipes() -> list[str]:
    """Return the names of the recipes.

    >>> recipes()
    ['handcrafted-cnn']
    """
    return sorted(
        file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml")
    )


def read_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe, for :func:`resperturb.training.make_config`.

    Args:
        name: The name of the recipe.

    Raises:
        UsageError: There is no such recipe.

    >>> read_recipe("handcrafted-cnn")["batch_size"]
    8192
    """
    if name not in recipes():
        raise UsageError(f"there is no recipe {name!r}; known are {', '.join(recipes())}.")
    found: dict[str, Any] = parse_yaml((files(__name__) / f"{name}.yaml").read_text(), name)
    return found
