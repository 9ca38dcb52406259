"""Augmented queries: the record as the training may have seen it, mirrored and shifted.

A model that was trained with augmentation memorises the augmented images, so LiRA and RMIA ask about several of them
(Carlini et al. 2022, Zarifzadeh et al. 2024). Their answers are the draws of the access ``augmented``: LiRA takes
them as dimensions (the view ``each``), RMIA averages them, label-only counts their votes.
"""

import torch.nn.functional as F
from torch import Tensor

from resperturb.errors import UsageError

# Mirrored or not, and shifted by pixels down and to the right: first the image itself.
VARIANTS = tuple(
    (mirrored, down, right)
    for down, right in ((0, 0), (2, 0), (-2, 0), (0, 2), (0, -2), (2, 2), (-2, -2), (2, -2), (-2, 2))
    for mirrored in (False, True)
)


def augmented(images: Tensor, variant: int) -> Tensor:
    """Return images in one of the variants: 0 is the image, 1 its mirror image, then shifts with black edges.

    Raises:
        UsageError: There is no such variant.

    >>> import torch
    >>> row = torch.tensor([[[[1, 2, 3, 4]]]])
    >>> augmented(row, 1).flatten().tolist(), augmented(row, 6).flatten().tolist()
    ([4, 3, 2, 1], [0, 0, 1, 2])
    """
    if not 0 <= variant < len(VARIANTS):
        raise UsageError(f"there are {len(VARIANTS)} augmented queries per record, so none of number {variant}.")
    mirrored, down, right = VARIANTS[variant]
    found = images.flip(-1) if mirrored else images
    return F.pad(found, (right, -right, down, -down))
