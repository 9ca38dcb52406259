"""Querying torch modules: with the noise of their strategy, without it, and network by network."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from resperturb.attacks.signals import LEAST_PROBABILITY, Query, queries_for
from resperturb.auditing.ask import SUM_TOLERANCE, check_answers, repeats
from resperturb.bounds.arrays import Floats, Ints
from resperturb.errors import UsageError
from resperturb.perturbation import noise_off, strategy_of, verify_noise
from resperturb.perturbation.presence import networks_of

Loader = Callable[[Ints], Iterable[Any]]
FEW = 8
SIGMOID = (
    "it must return a logit for each class: of the logit z of a sigmoid these are "
    "torch.cat([torch.zeros_like(z), z], dim=1)."
)


@dataclass(frozen=True, eq=False)
class FittedModule:
    """A torch module and a function of row numbers to batches of its inputs."""

    model: nn.Module
    loader: Loader
    classes: int
    stage: str = ""
    digest: str = ""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """With and without the noise of a strategy; many times with a noise of the user's own."""
        strategy = strategy_of(self.model)
        with noise_off(self.model):
            noisy = not repeats(lambda: self._logits(self.model, some).numpy())
        if strategy is None and noisy:
            return (Query("served", draws),)
        return queries_for(strategy is not None and strategy.is_noisy, draws, len(networks_of(self.model)))

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield log-probabilities of every draw."""
        was_training = self.model.training
        self.model.eval()
        try:
            for logits in self._draws(rows, query):
                yield logits.double().log_softmax(dim=1).numpy()
        finally:
            self.model.train(was_training)

    def _draws(self, rows: Ints, query: Query) -> Iterator[Tensor]:
        if query.access == "networks":
            for network in networks_of(self.model):
                with noise_off(self.model):
                    yield self._logits(network, rows)
            return
        if query.access == "served" and strategy_of(self.model) is not None:
            verify_noise(self.model, next(self._inputs(rows[:FEW]))).require()
        with noise_off(self.model) if query.access == "weights" else nullcontext():
            for _ in range(query.draws):
                yield self._logits(self.model, rows)

    def _inputs(self, rows: Ints) -> Iterator[Any]:
        """What the model is called with, batch by batch, where the model is."""
        device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        for batch in self.loader(rows):
            inputs = batch[0] if isinstance(batch, tuple | list) else batch
            if isinstance(inputs, Mapping):
                yield {name: value.to(device) for name, value in inputs.items()}
            else:
                yield inputs.to(device)

    @torch.no_grad()
    def _logits(self, model: nn.Module, rows: Ints) -> Tensor:
        was_training = model.training
        model.eval()
        found = []
        for inputs in self._inputs(rows):
            answer = model(**inputs) if isinstance(inputs, dict) else model(inputs)
            logits = getattr(answer, "logits", answer)
            if not isinstance(logits, Tensor):
                raise UsageError(
                    f"the module answers with {type(logits).__name__}; it must return logits as a tensor."
                )
            found.append(logits.float().cpu())
        model.train(was_training)
        every = torch.cat(found) if found else torch.zeros(0, self.classes)
        check_answers("the module", every.numpy(), len(rows), self.classes, SIGMOID)
        # A module that ends in a softmax: another one on top would flatten its answers, and what they give away.
        ended = (every >= 0).all() and ((every.sum(dim=1) - 1).abs() <= SUM_TOLERANCE).all()
        return every.clamp(min=LEAST_PROBABILITY).log() if ended else every
