"""Published settings of trainings, one YAML file each: ``resperturb train --recipe NAME``.

A file has the settings that all data sets share under ``settings``, and under ``data`` what differs between the data
sets of the publication. The first of these is for images of anyone's own.
"""

from importlib.resources import files
from pathlib import PurePath
from typing import Any

from resperturb.errors import UsageError
from resperturb.files import parse_yaml


def recipes() -> list[str]:
    """Return the names of the recipes.

    >>> recipes()
    ['handcrafted-cnn', 'handcrafted-linear']
    """
    return sorted(
        file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml")
    )


def read_recipe(name: str, data: str = "") -> dict[str, Any]:
    """Return the settings of a recipe, for :func:`resperturb.training.make_config`.

    Args:
        name: The name of the recipe; ``NAME:DATA`` for the settings of one of its data sets.
        data: The images that are trained on. Their name chooses the settings where the recipe's name does not.

    >>> read_recipe("handcrafted-cnn", "cifar10")["batch_size"], read_recipe("handcrafted-cnn:mnist")["batch_size"]
    (8192, 1024)
    """
    name, _, chosen = name.partition(":")
    if name not in recipes():
        raise UsageError(f"there is no recipe {name!r}; known are {', '.join(recipes())}.")
    found = parse_yaml((files(__name__) / f"{name}.yaml").read_text(), name)
    of_data: dict[str, dict[str, Any]] = found["data"]
    if chosen and chosen not in of_data:
        raise UsageError(f"the recipe {name} has settings for {', '.join(of_data)}, not for {chosen!r}.")
    known = [one for one in of_data if one in PurePath(data).name.lower()]
    return {**found["settings"], **of_data[chosen or next(iter([*known, *of_data]))]}
