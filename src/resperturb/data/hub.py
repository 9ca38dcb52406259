"""Data sets of the Hugging Face hub."""

import os
import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from resperturb.data.records import Records
from resperturb.data.tables import Columns, read_hub_split
from resperturb.errors import ResperturbError, UsageError

# What a test part may be called, the best first.
TEST_NAMES = ("test", "validation", "valid", "val")


def load_hub(name: str, columns: Columns, spec: str, locally: str) -> tuple[Records, Records | None]:
    """Download (or take from the cache) the data set ``name``; ``locally`` says how to do without the hub."""
    try:
        dataset = _download(name)
    except Exception as error:  # the hub raises its own kinds, the network others, a bad repository any
        offline = isinstance(error, ConnectionError)
        kind = ResperturbError if offline else UsageError
        raise kind(
            f"There is no file or folder {spec!r}, and {name!r} could not be had from the Hugging Face hub "
            f"({'no connection' if offline else _first_line(error)}). To use a local copy, {locally}"
        ) from None
    if "train" not in dataset:
        raise UsageError(f"{name!r} on the hub has no split 'train'; its splits are {', '.join(map(repr, dataset))}.")
    test = next((split for split in TEST_NAMES if split in dataset), None)
    return (
        read_hub_split(dataset["train"], columns, f"split 'train' of {name}"),
        None if test is None else read_hub_split(dataset[test], columns, f"split {test!r} of {name}"),
    )


def _download(name: str) -> Any:
    # Without a network the hub's client retries for half a minute; offline it looks in its cache and answers at once.
    # It reads this variable when it is imported.
    before = os.environ.get("HF_HUB_OFFLINE")
    if before is None and not _reachable():
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from datasets import load_dataset

        return load_dataset(name)
    finally:
        if before is None:
            os.environ.pop("HF_HUB_OFFLINE", None)


def _reachable() -> bool:
    if getproxies():
        return True  # the proxy resolves names, not we
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or ""
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
