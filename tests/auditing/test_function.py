"""Any training function on any data can be audited, and its errors end in a sentence."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import resperturb as rp
from resperturb.auditing import audit
from resperturb.auditing.ask import ask
from resperturb.auditing.function import EstimatorTraining, fitted, function_digest
from resperturb.bounds import AuditResult
from resperturb.errors import BusyError, ResperturbError, UsageError
from resperturb.files import held

ROWS, CLASSES = 120, 3
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(ROWS, 8))
LABELS = RNG.integers(0, CLASSES, ROWS)
FEATURES[np.arange(ROWS), LABELS] += 1.5


def nearest(indices: np.ndarray, seed: int, leak: float = 1.0) -> Callable[[np.ndarray], np.ndarray]:
    """A classifier that memorises: a record's own nearest neighbour in the training set decides by ``leak``."""
    known, labels = FEATURES[indices], LABELS[indices]
    means = np.stack([known[labels == label].mean(axis=0) for label in range(CLASSES)])

    def predict(rows: np.ndarray) -> np.ndarray:
        logits = -((FEATURES[rows, None] - means) ** 2).sum(axis=2) / 4
        distance = ((FEATURES[rows, None] - known) ** 2).sum(axis=2)
        logits[np.arange(len(rows)), labels[distance.argmin(axis=1)]] += leak * (distance.min(axis=1) < 1e-9) * 3
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    return predict


def run(train: Any, folder: Path, **more: Any) -> AuditResult:
    settings = {"labels": LABELS, "shadows": 4, "jobs": 1, "quiet": True, **more}
    return audit(train, out=folder, **settings)


def noted(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Train, and add a line with the process that did."""
    with (Path(os.environ["NOTES"])).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    return nearest(indices, seed)


def test_many_models_are_trained_in_the_way_that_is_measured_to_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr("resperturb.engine.local.usable_cores", lambda: 2)
    run(noted, tmp_path / "audit", shadows=16, jobs=None)
    processes = (tmp_path / "notes").read_text().split()
    assert len(processes) == 17
    # The first shows that it works; the second is measured alone with all cores, the next two side by side.
    here = str(os.getpid())
    assert processes[:2] == [here, here]
    assert here not in processes[2:4]


def test_it_finds_a_leak_and_nothing_where_there_is_none(tmp_path: Path) -> None:
    loud = run(nearest, tmp_path / "loud")
    assert loud.attacks[0].auc > 0.9
    assert loud.epsilon_lower.epsilon > 1
    assert loud.leaks
    quiet = run(functools.partial(nearest, leak=0.0), tmp_path / "quiet")
    assert quiet.strongest.auc < 0.75
    assert quiet.epsilon_lower.epsilon < loud.epsilon_lower.epsilon


def test_an_audit_has_one_owner_and_writes_nothing_before_the_folder_is_its_own(tmp_path: Path) -> None:
    with held(tmp_path / "audit"), pytest.raises(BusyError, match="another process is at work in"):
        run(nearest, tmp_path / "audit")
    assert [path.name for path in (tmp_path / "audit").iterdir()] == [".lock"]
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    run(nearest, tmp_path / "audit")


def test_coins_alone_decide_the_rows_of_a_model(tmp_path: Path) -> None:
    seen: list[np.ndarray] = []

    def train(indices: np.ndarray, seed: int) -> Any:
        seen.append(indices)
        return nearest(indices, seed)

    found = run(train, tmp_path, population=20)
    assert len(seen) == 5
    everybody = np.concatenate(seen)
    held_out = np.setdiff1d(np.arange(ROWS), everybody)
    assert len(held_out) == found.population == 20
    times = np.bincount(np.concatenate(seen[1:]), minlength=ROWS)
    assert set(np.delete(times, held_out).tolist()) == {2}
    assert found.candidates == {"record": 100}


def test_groups_are_in_or_out_together_and_the_bound_is_for_a_group(tmp_path: Path) -> None:
    groups = np.arange(ROWS) // 4
    seen: list[np.ndarray] = []

    def train(indices: np.ndarray, seed: int) -> Any:
        seen.append(indices)
        return nearest(indices, seed)

    found = run(train, tmp_path, groups=groups)
    for indices in seen:
        assert not set(groups[indices]) & set(np.delete(groups, indices))
    assert found.epsilon_lower.unit == "group"
    assert "group" in found.strongest.metrics
    assert found.strongest.metrics["record"].groups == found.groups
    assert found.epsilon_lower.epsilon > 0.5


def test_canaries_of_the_users_own_are_measured_apart_and_bound_epsilon(tmp_path: Path) -> None:
    kinds = np.where(np.arange(ROWS) < 40, "typo", "record")
    found = run(nearest, tmp_path, kinds=kinds)
    assert found.candidates["typo"] == 40
    assert found.attacks[0].metrics["typo"].auc > 0.9
    assert found.epsilon_lower.candidates == 40


def test_it_resumes_and_notices_changes(tmp_path: Path) -> None:
    calls: list[int] = []

    def train(indices: np.ndarray, seed: int) -> Any:
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return nearest(indices, seed)

    with pytest.raises(KeyboardInterrupt):
        run(train, tmp_path)
    first = run(train, tmp_path)
    assert len(calls) == 6  # two before the interruption, the one that was interrupted, the rest
    assert run(train, tmp_path) == first
    assert len(calls) == 6
    assert run(train, tmp_path, shadows=6).shadows.count == 6
    assert len(calls) == 8  # it grows by a pair
    for change in ({"labels": (LABELS + 1) % CLASSES}, {"seed": 1}, {"groups": np.arange(ROWS) // 2}):
        with pytest.raises(UsageError, match=f"{next(iter(change))}"):
            run(train, tmp_path, **change)
    with pytest.raises(UsageError, match="holds another audit .other train."):
        run(nearest, tmp_path)


def test_a_change_of_train_is_noticed_and_one_of_its_callees_is_not() -> None:
    def using(constant: int) -> Callable[..., Any]:
        return functools.partial(nearest, leak=constant)

    assert function_digest(using(1)) == function_digest(using(1))
    assert function_digest(using(1)) != function_digest(using(2))
    assert function_digest(lambda i, s: nearest(i, s)) != function_digest(lambda i, s: nearest(i, s + 1))


LEAK = 1.0


class Trainer:
    def __init__(self, leak: float) -> None:
        self.leak, self.results = leak, [leak]

    def train(self, indices: np.ndarray, seed: int) -> Any:
        return nearest(indices, seed, leak=self.leak)


def test_a_change_of_the_data_that_train_uses_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise answers of the old data would be kept under the new one's name."""

    def captured(array: Any) -> Callable[..., Any]:
        return lambda indices, seed: array[indices]

    def named(indices: np.ndarray, seed: int) -> Any:
        return nearest(indices, seed, leak=LEAK)

    features = np.arange(6.0).reshape(3, 2)
    for kind in (np.asarray, torch.as_tensor, csr_array):
        assert function_digest(captured(kind(features))) == function_digest(captured(kind(features)))
        assert function_digest(captured(kind(features))) != function_digest(captured(kind(features + 1)))
    assert function_digest(Trainer(1.0).train) == function_digest(Trainer(1.0).train)
    assert function_digest(Trainer(1.0).train) != function_digest(Trainer(2.0).train)
    before = function_digest(named)
    monkeypatch.setitem(globals(), "LEAK", 2.0)
    assert function_digest(named) != before


def test_an_audit_of_an_estimator_on_other_data_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(ROWS, 3))
    tree = DecisionTreeClassifier(min_samples_leaf=2)
    asked: dict[str, Any] = {"shadows": 4, "out": tmp_path, "quiet": True, "jobs": 1}
    audit(tree, features, LABELS, **asked)
    with pytest.raises(UsageError, match="holds another audit .other train."):
        audit(tree, features + LABELS[:, None], LABELS, **asked)
    pipeline = [make_pipeline(FunctionTransformer(np.abs), tree) for _ in range(2)]
    digests = {function_digest(EstimatorTraining(one, features, LABELS)) for one in pipeline}
    assert len(digests) == 1


def answer(value: Any) -> Callable[[np.ndarray, int], Any]:
    return lambda indices, seed: lambda rows: value(rows, indices)


WRONG = {
    "logits": (lambda rows, _: RNG.normal(size=(len(rows), 3)) * 5, "logits: apply a softmax"),
    "a sigmoid": (lambda rows, _: np.full(len(rows), 0.5), r"one number per row.*stack\(\[1 - p, p\]"),
    "one column": (lambda rows, _: np.full((len(rows), 1), 0.5), "one number per row"),
    "sums": (lambda rows, _: np.full((len(rows), 3), 0.5), "sum to 1; one sums to 1.5"),
    "nan": (lambda rows, _: np.full((len(rows), 3), np.nan), "NaN for 16 of 16 rows"),
    "rows": (lambda rows, _: np.full((3, 3), 1 / 3), "one row for each of the 16 rows"),
    "classes": (
        lambda rows, _: np.full((len(rows), 2), 0.5),
        "answers for 2 classes, and a label is 2: .* from 0 to 2",
    ),
    "order": (lambda rows, indices: nearest(indices, 0)(np.sort(rows)[::-1]), "not in the order of the rows"),
    "words": (lambda rows, _: ["yes"] * len(rows), "array of probabilities, not list"),
    "ignored indices": (lambda rows, _: nearest(np.arange(60), 0)(rows), "does train use its indices"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_of_a_wrong_train_says_what_it_did(tmp_path: Path, name: str) -> None:
    value, reason = WRONG[name]
    with pytest.raises(UsageError, match=reason):
        run(answer(value), tmp_path)


def test_a_train_that_uses_its_seed_but_not_its_rows_is_found_out_by_the_first_pair(tmp_path: Path) -> None:
    seeds: list[int] = []

    def train(indices: np.ndarray, seed: int) -> Any:
        seeds.append(seed)
        return nearest(np.random.default_rng(seed).permutation(ROWS)[:60], seed)

    for _ in range(2):  # the second time from what was kept
        with pytest.raises(UsageError, match=r"models 1 and 2\).*does train use its indices"):
            run(train, tmp_path)
    target, *pair = seeds
    assert pair == [pair[0]] * 2 != [target] * 2


def test_other_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it returned NoneType"):
        run(lambda indices, seed: None, tmp_path / "a")
    with pytest.raises(UsageError, match="whole numbers from 0"):
        run(nearest, tmp_path / "b", labels=LABELS.astype(float))
    with pytest.raises(UsageError, match="one value for each of the 120 rows"):
        run(nearest, tmp_path / "c", groups=[1, 2])
    with pytest.raises(UsageError, match="3 of 120 rows have no group"):
        run(nearest, tmp_path / "c", groups=[None, float("nan"), pd.NA, *map(str, range(ROWS - 3))])
    for kinds, message in (([None] * ROWS, "missing values"), (["group a"] * ROWS, "'group a', which results use")):
        with pytest.raises(UsageError, match=message):
            run(nearest, tmp_path / "c", kinds=kinds)
    with pytest.raises(UsageError, match="two groups at least"):
        run(nearest, tmp_path / "c", groups=np.zeros(ROWS))
    with pytest.raises(UsageError, match="must take row numbers and a seed"):
        run(lambda indices: None, tmp_path / "c")
    with pytest.raises(UsageError, match="it returned Linear alone"):
        run(lambda indices, seed: torch.nn.Linear(8, 3), tmp_path / "e")
    for name, value, message in (
        ("shadows", "4", "at least 4 shadow models.*not '4'"),
        ("shadows", 4.0, "at least 4 shadow models.*not 4.0"),
        ("models", 6.0, "at least 6 models, not 6.0"),
    ):
        with pytest.raises(UsageError, match=message):
            run(nearest, tmp_path / "c", **{"shadows": None, name: value})
    for name, value in {"seed": -1, "jobs": 0, "engine": "ray", "guarantee": 3.0}.items():
        with pytest.raises(UsageError, match=f"{name} must be"):
            run(nearest, tmp_path / "c", **{name: value})
    assert not (tmp_path / "c").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        run(nearest, tmp_path / "file")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no audit"):
        run(nearest, tmp_path / "d")


def test_shadows_that_did_not_learn_are_refused_with_the_numbers(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Any:
        if seed == 0:
            return nearest(indices, seed)
        return lambda rows: np.random.default_rng(indices).dirichlet(np.ones(3), ROWS)[rows]

    with pytest.raises(ResperturbError, match=r"did not learn: its accuracy is 0\.\d+, that of the targets 0\.\d+"):
        run(train, tmp_path)


class Tiny(torch.nn.Module):
    """A residual network of a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        hidden = hidden + self.branch(hidden).relu()
        return self.head(hidden)


def fit(indices: np.ndarray, seed: int) -> Any:
    torch.manual_seed(seed)
    model = rp.perturb(Tiny(), rp.Multiplicative(gamma=0.2))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    x, y = torch.tensor(FEATURES[indices]).float(), torch.tensor(LABELS[indices])
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, lambda rows: torch.tensor(FEATURES[rows]).float().split(50)


def test_a_perturbed_module_is_queried_with_many_draws_and_without_its_noise(tmp_path: Path) -> None:
    found = run(fit, tmp_path, draws=(1, 4))
    assert {(one.access, one.draws) for one in found.attacks} >= {("served", 1), ("served", 4), ("weights", 1)}
    assert found.model.train_accuracy > found.model.test_accuracy


def shuffled(rows: np.ndarray) -> Any:
    return torch.tensor(FEATURES[RNG.permutation(rows)]).float().split(50)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model, loader: (model, shuffled), "not in the order of the rows.*shuffle=False"),
        (lambda model, loader: (torch.nn.Linear(8, 3), shuffled), "not in the order of the rows"),
        (lambda model, loader: (torch.nn.Sequential(model, torch.nn.Linear(3, 1)), loader), "a logit for each class"),
        (lambda model, loader: (model, lambda rows: [batch * np.nan for batch in loader(rows)]), "NaN for"),
    ],
    ids=["shuffled", "shuffled without noise", "sigmoid", "nan"],
)
def test_the_error_of_a_wrong_module_says_what_it_did(change: Any, reason: str) -> None:
    model, loader = fit(np.arange(60), 0)
    with pytest.raises(UsageError, match=reason):
        ask(fitted(change(model, loader), CLASSES), np.arange(ROWS), LABELS, (1, 4))


def test_a_softmax_at_the_end_of_a_module_changes_no_answer() -> None:
    model, loader = fit(np.arange(60), 0)
    ended = torch.nn.Sequential(model, torch.nn.Softmax(dim=1))
    plain, same = (
        ask(fitted((one, loader), CLASSES), np.arange(ROWS), LABELS, (1,))["weights"] for one in (model, ended)
    )
    np.testing.assert_allclose(plain.confidence, same.confidence, rtol=1e-3, atol=1e-3)


def test_a_module_with_noise_of_its_own_is_queried_many_times() -> None:
    class Noisy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3] + torch.randn(len(x), 3)

    noisy = fitted((Noisy(), lambda rows: [torch.tensor(FEATURES[rows]).float()]), CLASSES)
    answers = ask(noisy, np.arange(ROWS), LABELS, (1, 4))
    assert {access: signals.averages for access, signals in answers.items()} == {"served": (1, 4)}


def test_a_function_with_random_predictions_is_queried_many_times(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Any:
        predict, rng = nearest(indices, seed), np.random.default_rng(seed)
        return lambda rows: 0.5 * predict(rows) + 0.5 * rng.dirichlet(np.ones(3), len(rows))

    found = run(train, tmp_path, draws=(1, 4))
    assert {one.draws for one in found.attacks} == {1, 4}


SCRIPT = """
import sys, time
import numpy as np
import resperturb as rp

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 60)
x = rng.normal(size=(60, 2)) + y[:, None] * 2

def train(indices, seed):
    time.sleep(float(sys.argv[2]))
    means = np.stack([x[indices][y[indices] == c].mean(axis=0) for c in (0, 1)])
    def predict(rows):
        logits = -((x[rows, None] - means) ** 2).sum(axis=2)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)
    return predict

found = rp.audit(train, labels=y, shadows=4, jobs=2, out=sys.argv[1], population=6)
print(found.attacks[0].name, found.epsilon_lower.epsilon >= 0, found.report(sys.argv[1] + "/report.html"))
"""


def test_an_unguarded_script_is_audited_in_processes_killed_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = [sys.executable, str(path), str(tmp_path / "out")]
    begun = subprocess.Popen([*command, "1"], stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 240
    while not list((tmp_path / "out").glob("models/*.npz")):
        assert time.monotonic() < until
        time.sleep(0.1)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    finished = {answers.name for answers in (tmp_path / "out").glob("models/*.npz")}
    assert finished
    assert len(finished) < 5
    times = {name: (tmp_path / "out" / "models" / name).stat().st_mtime_ns for name in finished}
    done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout
    assert f"training {5 - len(finished)} of 5 models" in done.stderr
    assert {n: (tmp_path / "out" / "models" / n).stat().st_mtime_ns for n in finished} == times
    page = (tmp_path / "out" / "report.html").read_text()
    assert "models of this recipe" in page
