"""Configurations that older versions wrote, brought to the schema of today."""

from collections.abc import Mapping
from typing import Any

from resperturb.errors import ResperturbError, UsageError
from resperturb.training.config import SCHEMA, TrainConfig, make_config


def to_file(config: TrainConfig, version: str) -> dict[str, Any]:
    """Give what ``config.json`` holds: the schema, the version that wrote it, and the configuration."""
    return {"schema": SCHEMA, "resperturb": version, **config.model_dump(mode="json")}


def from_file(content: Mapping[str, Any], where: str, version: str = "") -> TrainConfig:
    """Read the content of a ``config.json`` of this or an older schema.

    Args:
        content: What the file holds; files of schema 1 do not name their schema.
        where: The file, for the message.
        version: The version of resperturb that made the run, if another file says so.

    Returns:
        The configuration; that of an old file has the hash that it had then.

    Raises:
        ResperturbError: If it cannot be brought to today's schema; the message says which version made it.

    >>> from_file({"data": {"spec": "x", "part": "all"}, "dpsgd": None}, "config.json").seeded_noise
    True
    """
    values = dict(content)
    schema = values.pop("schema", 1)
    made_by = values.pop("resperturb", None) or version or "an unknown version"
    try:
        if schema == 1:
            values = _from_schema_1(values)
        elif schema != SCHEMA:
            raise UsageError(f"its schema is {schema!r}, and this resperturb reads schemas 1 to {SCHEMA}.")
        return make_config(**values)
    except UsageError as error:
        raise ResperturbError(f"{where} was written by resperturb {made_by} and cannot be read: {error}") from error


def _from_schema_1(values: dict[str, Any]) -> dict[str, Any]:
    """``dpsgd`` was null or an object with ``seeded``; the noise of plain training always followed the seed.

    >>> _from_schema_1({"dpsgd": {"clip": 1.0, "seeded": False}})
    {'method': {'name': 'dpsgd', 'clip': 1.0}, 'seeded_noise': False}
    """
    values = dict(values)
    dpsgd = values.pop("dpsgd", None)
    if dpsgd is None:
        return {**values, "method": {"name": "sgd"}, "seeded_noise": True}
    parameters = dict(dpsgd)
    seeded = parameters.pop("seeded", False)
    return {**values, "method": {"name": "dpsgd", **parameters}, "seeded_noise": seeded}
