"""How often training uses one record: what every proof of a training run has to count."""

import math
from dataclasses import dataclass

from resperturb.checks import count, positive
from resperturb.errors import UsageError


@dataclass(frozen=True)
class TrainingLength:
    """How long a training run is.

    ``epochs`` is the mean number of uses of a record (``steps * batch_size / records``), the number the paper's
    Theorem 1 prints. ``passes`` is the largest: a proof about one record must count that one.
    """

    epochs: float
    passes: int
    steps: int | None = None
    batch_size: int | None = None
    records: int | None = None


def training_length(
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    records: int | None = None,
) -> TrainingLength:
    """Count how often a record is used, from epochs, or from steps, batch size and the number of records.

    Records are taken to be shuffled and used once per epoch, and a begun epoch counts whole. Given epochs, a short
    batch at the end of each is a step too, as in training. Given steps, an epoch has ``records // batch_size`` of
    them, as of a loader that drops the short batch, so that ``passes`` is right for either kind of loader.

    Raises:
        UsageError: Epochs and steps are both given or both missing, or a number is not positive.

    >>> training_length(epochs=2.5).passes
    3
    >>> training_length(epochs=100, batch_size=512, records=600).steps
    200
    >>> run = training_length(steps=9700, batch_size=128, records=12500)
    >>> round(run.epochs, 3), run.passes
    (99.328, 100)
    """
    if batch_size is not None:
        batch_size = count("batch size", batch_size)
    if records is not None:
        records = count("records", records)
    if batch_size is not None and records is not None and records < batch_size:
        raise UsageError(f"a batch of {batch_size} cannot be drawn from {records} records; lower the batch size.")
    if epochs is not None and steps is not None:
        raise UsageError("give either the epochs or the steps, not both.")
    if epochs is not None:
        epochs = positive("epochs", epochs)
        if batch_size is not None and records is not None:
            steps = math.ceil(epochs * math.ceil(records / batch_size))
        return TrainingLength(epochs, math.ceil(epochs), steps, batch_size, records)
    if steps is None or batch_size is None or records is None:
        raise UsageError("give the epochs, or the steps, the batch size and the number of records.")
    steps = count("steps", steps)
    passes = -(-steps // (records // batch_size))
    return TrainingLength(steps * batch_size / records, passes, steps, batch_size, records)
