"""A training method is one class: the loop, the command line and the report find it without further edits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from resperturb.errors import UsageError
from resperturb.privacy.guarantee import Guarantee, nothing_proven
from resperturb.training.config import make_config
from resperturb.training.loop import train
from resperturb.training.method import Method, method_of, methods, register_method
from resperturb.training.run import open_run
from resperturb.training.steps import Steps
from tests.conftest import tiny_config


@pytest.fixture
def halved() -> Iterator[type[Method]]:
    @register_method("halved-for-test")
    class Halved(Method):
        """SGD at half of the learning rate."""

        title: ClassVar[str] = "halved SGD"
        private: ClassVar[bool] = True
        defaults: ClassVar[dict[str, Any]] = {"schedule": "constant"}
        factor: float = 0.5

        def steps(self, config: Any, members: Any, execution: Any) -> Steps:
            return Steps(config.model_copy(update={"lr": config.lr * self.factor}), members, execution)

        def guarantee(self, config: Any, records: int, steps: int, delta: float | None = None) -> Guarantee:
            return nothing_proven("It is an example.")

    yield Halved
    methods._found.pop("halved-for-test")


def test_a_new_method_trains_and_is_kept(halved: type[Method], tmp_path: Path) -> None:
    config = tiny_config(epochs=1, method={"name": "halved-for-test", "factor": 0.25})
    assert config.schedule == "constant"
    run = train(config, runs=tmp_path)
    assert open_run(run.path).config.method == halved(factor=0.25)  # type: ignore[call-arg]
    assert run.guarantee().setting == "It is an example."


def test_methods_are_part_of_the_hash(halved: type[Method]) -> None:
    digests = {
        make_config(data={"spec": "x"}, method=method).digest
        for method in ("sgd", "dpsgd", "halved-for-test", {"name": "halved-for-test", "factor": 0.1})
    }
    assert len(digests) == 4


@pytest.mark.parametrize("value", ["adagrad", {"clip": 1.0}, 3, {"name": "sgd", "clip": 1.0}])
def test_an_unknown_method_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        make_config(data={"spec": "x"}, method=value)


def test_a_name_is_enough() -> None:
    assert method_of("sgd") == method_of({"name": "sgd"})
