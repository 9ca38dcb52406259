"""Asking models: any function of row numbers, or any torch module with its batches; and keeping what they said."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from resperturb.attacks.signals import Access, Query, Signals, queries_for, signals_from, signals_of
from resperturb.data.splits import Indices
from resperturb.errors import ResperturbError, UsageError
from resperturb.models.ensemble import Ensemble
from resperturb.perturbation import noise_off, strategy_of, verify_noise
from resperturb.sealed import read_bound_arrays, write_bound_arrays

Predict = Callable[[Indices], Any]
Loader = Callable[[Indices], Iterable[Any]]
Trained = Predict | tuple[nn.Module, Loader]

# Smaller probabilities are no different to an attacker, and their logarithms would be infinite.
LEAST_PROBABILITY = 1e-30
# Rows that are asked about twice, to see whether the same question has the same answer.
ASKED_TWICE = 8
# What single precision and a thousand classes may leave of a sum of 1.
SUM_TOLERANCE = 1e-3
# What another order of the same rows may change in a probability.
ORDER_TOLERANCE = 1e-2
AGAIN = "delete it and rerun the audit"


def ask(
    trained: Trained, rows: Indices, labels: NDArray[np.int64], draws: Sequence[int], classes: int | None = None
) -> dict[Access, Signals]:
    """Ask a trained model about rows in every way that attacks use.

    A perturbed module is asked with its noise, ``max(draws)`` times, and without; an ensemble also network by
    network. A function is asked once, or ``max(draws)`` times if its answers differ from one time to the next.

    Args:
        trained: A function of row numbers to probabilities ``[rows, classes]``, or a module and a function of row
            numbers to batches of inputs.
        rows: The numbers of the rows.
        labels: The label of each of them.
        draws: The numbers of draws that answers are averaged over.
        classes: The number of classes; that of the labels, or more, if None.

    Returns:
        The signals of every way of asking.

    Raises:
        UsageError: The model does not answer with one row of probabilities per row; the message says what it is.
    """
    needed = int(labels.max(initial=0)) + 1 if classes is None else classes
    averages = tuple(sorted(set(draws)))
    if isinstance(trained, tuple):
        model, loader = trained
        strategy, networks = strategy_of(model), len(model.networks) if isinstance(model, Ensemble) else 1
        queries = queries_for(strategy is not None and strategy.is_noisy, averages, networks)

        def without_noise(few: Indices) -> Tensor:
            return torch.cat(list(_module_draws(model, loader, few, Query("weights"), needed))).softmax(dim=1)

        if _differs_and_keeps_order(without_noise, rows, "the batches of a loader") and strategy is None:
            queries = (Query("served", averages),)  # a noise of the user's own
        return {
            query.access: signals_of(
                (one.numpy() for one in _module_draws(model, loader, rows, query, needed)), labels, query.averages
            )
            for query in queries
        }

    def probabilities(some: Indices) -> Tensor:
        return torch.from_numpy(_probabilities(trained, some, needed))

    noisy = _differs_and_keeps_order(probabilities, rows, "the answers of predict")
    query = Query("served", averages if noisy else (1,))
    logs = (np.log(np.maximum(probabilities(rows).numpy(), LEAST_PROBABILITY)) for _ in range(query.draws))
    return {query.access: signals_of(logs, labels, query.averages)}


def _differs_and_keeps_order(answer: Callable[[Indices], Tensor], rows: Indices, what: str) -> bool:
    """Say whether the same question has another answer each time; refuse answers in another order than the rows.

    A loader that shuffles gives every row the answer of another, and the worst leak would look like none.
    """
    few = rows[:ASKED_TWICE]
    first, again = answer(few), answer(few)
    same = torch.equal(first, again)
    # Noise moves each answer; a shuffle deals the same answers out anew.
    other = answer(few[::-1].copy()).flip(0) if same else again
    dealt = torch.allclose(_sorted_rows(first), _sorted_rows(other), rtol=0, atol=ORDER_TOLERANCE)
    if dealt and not torch.allclose(first, other, rtol=0, atol=ORDER_TOLERANCE):
        raise UsageError(
            f"{what} are not in the order of the rows that were asked for: row numbers backwards must give the same "
            "answers backwards. Does a loader shuffle (shuffle=False)?"
        )
    return not same


def _sorted_rows(answers: Tensor) -> Tensor:
    return answers[torch.from_numpy(np.lexsort(answers.numpy().T))]


def _module_draws(model: nn.Module, loader: Loader, rows: Indices, query: Query, classes: int) -> Iterator[Tensor]:
    was_training = model.training
    model.eval()
    try:
        if query.access == "networks":
            assert isinstance(model, Ensemble)
            for network in model.networks:
                with noise_off(model):
                    yield _logits(network, loader, rows, classes)
            return
        if query.access == "served" and strategy_of(model) is not None:
            verify_noise(model, next(_inputs(model, loader, rows[:ASKED_TWICE]))).require()
        with noise_off(model) if query.access == "weights" else nullcontext():
            for _ in range(query.draws):
                yield _logits(model, loader, rows, classes)
    finally:
        model.train(was_training)


def _inputs(model: nn.Module, loader: Loader, rows: Indices) -> Iterator[Any]:
    """What the model is called with, batch by batch, where the model is."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for batch in loader(rows):
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        if isinstance(inputs, Mapping):
            yield {name: value.to(device) for name, value in inputs.items()}
        else:
            yield inputs.to(device)


@torch.no_grad()
def _logits(model: nn.Module, loader: Loader, rows: Indices, classes: int) -> Tensor:
    found = []
    for inputs in _inputs(model, loader, rows):
        answer = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        logits = getattr(answer, "logits", answer)
        if not isinstance(logits, Tensor):
            raise UsageError(f"the module answers with {type(logits).__name__}; it must return logits as a tensor.")
        found.append(logits.float().cpu())
    every = torch.cat(found) if found else torch.zeros(0, classes)
    if every.ndim == 1 or (every.ndim == 2 and every.shape[1] == 1 and len(every) == len(rows)):
        raise UsageError(
            "the module returned one number per row; it must return a logit for each class: of the logit z of a "
            "sigmoid these are torch.cat([torch.zeros_like(z), z], dim=1)."
        )
    _check_shape("the module", every.shape, len(rows), classes)
    if every.isnan().any():
        raise UsageError(f"the module returned NaN for {int(every.isnan().any(dim=1).sum())} of {len(rows)} rows.")
    # A module that ends in a softmax: another one on top would flatten its answers, and what they give away.
    ended = (every >= 0).all() and ((every.sum(dim=1) - 1).abs() <= SUM_TOLERANCE).all()
    return every.clamp(min=LEAST_PROBABILITY).log() if ended else every


def _probabilities(predict: Predict, rows: Indices, classes: int) -> NDArray[np.float64]:
    answer = predict(rows)
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu()
    try:
        found = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"predict must return an array of probabilities, not {type(answer).__name__}.") from error
    return check_probabilities(found, len(rows), classes)


def check_probabilities(found: NDArray[np.float64], rows: int, classes: int) -> NDArray[np.float64]:
    """Return ``found`` if it is one row of class probabilities per record, or say what it is instead.

    >>> check_probabilities(np.array([[2.5, -1.0]]), rows=1, classes=2)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: predict returned numbers outside of 0 to 1, which look like logits: apply a...
    """
    if found.ndim == 1 or (found.ndim == 2 and found.shape[1] == 1 and len(found) == rows):
        raise UsageError(
            "predict returned one number per row; return a probability for each class: of a sigmoid p that is "
            "numpy.stack([1 - p, p], axis=1)."
        )
    _check_shape("predict", found.shape, rows, classes)
    if np.isnan(found).any():
        raise UsageError(f"predict returned NaN for {int(np.isnan(found).any(axis=1).sum())} of {rows} rows.")
    if (found < -SUM_TOLERANCE).any() or (found > 1 + SUM_TOLERANCE).any():
        raise UsageError(
            "predict returned numbers outside of 0 to 1, which look like logits: apply a softmax before returning "
            "them, or return the module itself with a loader."
        )
    sums = found.sum(axis=1)
    if (np.abs(sums - 1) > SUM_TOLERANCE).any():
        worst = float(sums[np.argmax(np.abs(sums - 1))])
        raise UsageError(f"predict must return rows that sum to 1; one sums to {worst:.4g}. Are they normalised?")
    return np.clip(found, 0.0, 1.0)


def _check_shape(who: str, shape: Sequence[int], rows: int, classes: int) -> None:
    if len(shape) != 2 or shape[0] != rows:
        raise UsageError(f"{who} must return one row for each of the {rows} rows asked about, not {tuple(shape)}.")
    if shape[1] < classes:
        raise UsageError(
            f"{who} answers for {shape[1]} classes, and a label is {classes - 1}: there must be a column for each "
            f"class from 0 to {classes - 1}, also for one that is missing among the rows of a training."
        )


def save_answers(path: Path, answers: Mapping[Access, Signals], digests: Mapping[str, str]) -> None:
    """Keep answers in a file, bound to what ``digests`` say."""
    arrays = {
        f"{access}/{name}": np.asarray(getattr(signals, name))
        for access, signals in answers.items()
        for name in Signals.__annotations__
    }
    write_bound_arrays(path, arrays, digests)


def read_answers(path: Path, rows: int, digests: Mapping[str, str]) -> dict[Access, Signals]:
    """Read answers back.

    Raises:
        ResperturbError: The file is damaged, is of another model, or about another number of rows.
    """
    found: dict[Any, dict[str, Any]] = {}
    for key, array in read_bound_arrays(path, (), digests, AGAIN).items():
        access, _, name = key.partition("/")
        found.setdefault(access, {})[name] = array
    if not found or found.keys() - set(get_args(Access)):
        raise ResperturbError(f"{path} does not hold the answers of a model; {AGAIN}.")
    try:
        return {access: signals_from(arrays, rows) for access, arrays in found.items()}
    except ResperturbError as error:
        raise ResperturbError(f"{path} does not hold the answers of a model ({error}); {AGAIN}.") from error
