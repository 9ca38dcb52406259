"""The records of a run that its strongest attack recognises first: private data, shown only when asked for."""

import base64
import io
from dataclasses import dataclass

import numpy as np

from resperturb.audits import KeptAttack
from resperturb.report.collect import ReportedModel

MOST = 12


@dataclass(frozen=True)
class ExposedRecord:
    """A member with what it takes to recognise it: how many non-members look at least as much like members."""

    place: int
    label: str
    nonmembers_above: int
    nonmembers: int
    picture: str

    @property
    def words(self) -> str:
        """How sure one can be of it.

        >>> ExposedRecord(3, "boot", 0, 200, "").words
        'image 3, “boot”: ahead of all 200 nonmembers'
        """
        above = f"{self.nonmembers_above} of {self.nonmembers} nonmembers score as high"
        if not self.nonmembers_above:
            above = f"ahead of all {self.nonmembers} nonmembers"
        return f"image {self.place}, “{self.label}”: {above}"


def exposed_records(run: ReportedModel, most: int = MOST) -> list[ExposedRecord]:
    """Find the members that the strongest attack on records names first, with their pictures."""
    from resperturb.training.inputs import load_inputs

    attack = next((attack for attack in run.attacks if attack.candidates == "record"), None)
    if attack is None or run.run is None:
        return []
    data = run.run.config.data
    inputs = load_inputs(data)
    members = np.sort(inputs.member_indices(data.part))
    if len(members) != attack.scores.members.size:  # scores of something else: better none than the wrong pictures
        return []
    named_first = np.argsort(-attack.scores.members, kind="stable")[:most]
    images = inputs.train.select(members[named_first])
    return [
        ExposedRecord(
            int(members[place]),
            images.classes[int(images.labels[number])],
            _nonmembers_above(attack, int(place)),
            int(attack.scores.nonmembers.size),
            _picture(images.images[number].numpy()),
        )
        for number, place in enumerate(named_first)
    ]


def _nonmembers_above(attack: KeptAttack, place: int) -> int:
    return int(np.sum(attack.scores.nonmembers >= attack.scores.members[place]))


def _picture(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    """Write an image as a small PNG that a page can hold."""
    from PIL import Image

    image = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1))
    image.thumbnail((96, 96))
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
