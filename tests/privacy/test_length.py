import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resperturb.errors import UsageError
from resperturb.privacy.length import training_length
from resperturb.training.config import make_config
from resperturb.training.steps import steps_per_epoch


@given(st.integers(1, 8), st.integers(0, 20), st.integers(1, 40), st.booleans(), st.integers(0, 2**32))
def test_no_record_is_used_more_often_than_counted(batch_size, extra, steps, drop_last, seed):
    random, records = Random(seed), batch_size + extra
    per_epoch = records // batch_size if drop_last else math.ceil(records / batch_size)
    uses = [0] * records
    order: list[int] = []
    for step in range(steps):
        if step % per_epoch == 0:
            order = random.sample(range(records), records)
        start = (step % per_epoch) * batch_size
        for record in order[start : start + batch_size]:
            uses[record] += 1
    assert max(uses) <= training_length(steps=steps, batch_size=batch_size, records=records).passes


def test_a_begun_epoch_counts_whole():
    assert training_length(epochs=1).passes == 1
    assert training_length(epochs=1.001).passes == 2
    assert training_length(epochs=0.01).passes == 1


def test_epochs_and_steps_describe_the_same_run():
    by_steps = training_length(steps=1000, batch_size=100, records=1000)
    by_epochs = training_length(epochs=100, batch_size=100, records=1000)
    assert by_steps == by_epochs


@given(epochs=st.integers(1, 50), batch_size=st.integers(1, 600), extra=st.integers(0, 2000))
def test_planned_steps_are_those_that_training_takes(epochs, batch_size, extra):
    records = batch_size + extra
    config = make_config(data={"spec": "x"}, batch_size=batch_size, epochs=epochs)
    planned = training_length(epochs=epochs, batch_size=batch_size, records=records)
    assert planned.steps == epochs * steps_per_epoch(config, range(records))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give the epochs"),
        ({"steps": 10}, "give the epochs"),
        ({"epochs": 1, "steps": 10}, "not both"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": math.inf}, "epochs"),
        ({"steps": 0, "batch_size": 1, "records": 1}, "steps"),
        ({"steps": 10, "batch_size": 128, "records": 100}, "128 cannot be drawn from 100"),
        ({"epochs": 1, "records": 0}, "records"),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(arguments, message):
    with pytest.raises(UsageError, match=message) as caught:
        training_length(**arguments)
    assert "\n" not in str(caught.value)
