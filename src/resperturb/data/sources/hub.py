"""Data sets of the Hugging Face hub, which `datasets` downloads, reads and keeps."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from resperturb.data.paths import one_line
from resperturb.data.records import Columns, Records, identity_of
from resperturb.data.sources import SHORT_FORMS, TEST_NAMES, Parts, Place, data_sources, is_hub_name
from resperturb.data.sources.parquet import ROWS_AT_A_TIME, find_columns, table_records
from resperturb.errors import ResperturbError, UsageError


@data_sources.register("hub")
class Hub:
    """``owner/name`` on the hub, or a short form such as ``cifar10``."""

    def accepts(self, place: Place) -> bool:
        """Say whether this is no mistyped path but a name: the hub is asked only for what cannot be meant as one."""
        name = SHORT_FORMS.get(place.spec, place.spec)
        if place.path is not None or name is None or "/" not in name or not is_hub_name(name):
            return False
        path = Path(place.spec)
        return not (path.suffix.lower() in (".parquet", ".npz") or ("/" in place.spec and path.parent.exists()))

    def read(self, place: Place) -> Parts:
        """Download the data set, or take it from the cache."""
        name = SHORT_FORMS.get(place.spec, place.spec)
        assert name is not None
        try:
            dataset = _download(name)
        except Exception as error:  # the hub raises its own kinds, the network others, a bad repository any
            offline = isinstance(error, ConnectionError)
            kind = ResperturbError if offline else UsageError
            raise kind(
                f"There is no file or folder {place.spec!r}, and {name!r} could not be had from the Hugging Face hub "
                f"({'no connection' if offline else one_line(error)}). To use a local copy, {place.locally()}"
            ) from None
        if "train" not in dataset:
            there = ", ".join(map(repr, dataset))
            raise UsageError(f"{name!r} on the hub has no split 'train'; its splits are {there}.")
        test = next((split for split in TEST_NAMES if split in dataset), None)
        return (
            read_split(dataset["train"], place.columns, f"split 'train' of {name}"),
            None if test is None else read_split(dataset[test], place.columns, f"split {test!r} of {name}"),
        )


def read_split(dataset: Any, columns: Columns, origin: str) -> Records:
    """Take the records of one split of a Hugging Face dataset."""
    import datasets
    import huggingface_hub

    found = find_columns(dataset.column_names, columns, origin)
    names = getattr(dataset.features[found.label], "names", None)
    described = [name for name in (found.label, found.group) if name is not None]
    table = dataset.select_columns(described).with_format("arrow")[:]
    where = tuple(f"row {i} of {origin}" for i in range(table.num_rows))
    images = dataset.select_columns([found.image]).with_format("arrow")

    def batches() -> Iterator[Any]:
        for part in images.iter(ROWS_AT_A_TIME):
            yield part.column(0).combine_chunks()

    kept = [Path(file["filename"]) for file in dataset.cache_files]
    identity = identity_of(kept, dataset._fingerprint, found.image)
    # Data sets of loose files name them where they were downloaded to.
    folders = (Path(huggingface_hub.constants.HF_HUB_CACHE), Path(datasets.config.HF_DATASETS_CACHE))
    return table_records(batches, [table], found, tuple(names) if names else None, where, origin, folders, identity)


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
