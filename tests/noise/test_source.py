"""The source of the noise, and that no tool around a model loses, repeats or fixes it."""

import copy
import math
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise.kernel import has_compiler
from resperturb.noise.normals import standard_normal
from resperturb.noise.rounding import NoiseLostError
from resperturb.noise.source import NoiseSource, derive_key, training_key


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out += x
        return torch.tanh(out)


def tiny(strategy: rp.Additive | rp.Multiplicative, width: int = 4, **options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return rp.perturb(nn.Sequential(Block(width), Block(width)), strategy, **options)


STRATEGIES = [rp.Additive(gamma=0.5), rp.Multiplicative(gamma=0.5)]


def differ(call: Callable[[], Tensor]) -> bool:
    """Whether two calls have no element in common."""
    with torch.no_grad():
        return not torch.isclose(call(), call(), rtol=1e-6, atol=0).any()


def test_keys_are_not_reused() -> None:
    source = NoiseSource()
    keys = [source.next_key(training) for training in (True, False) for _ in range(500)]
    seeded = NoiseSource(seed=1)
    keys += [seeded.next_key(training=False) for _ in range(500)]
    assert len(set(keys)) == 1500


def test_different_parts_never_make_the_same_key() -> None:
    assert derive_key(b"ab", b"c") != derive_key(b"a", b"bc")
    assert derive_key(1) != derive_key(-1)


def test_a_draw_is_a_function_of_its_key_and_layout_only() -> None:
    key = bytes(range(16))
    like = torch.empty(3, 4, 5, 6)
    assert standard_normal(like, key).equal(standard_normal(torch.ones_like(like), key))
    assert not standard_normal(like, key).equal(standard_normal(like, bytes(16)))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        drawn = standard_normal(like.to(dtype), key)
        assert drawn.dtype == dtype
        assert drawn.shape == like.shape
    last = like.to(memory_format=torch.channels_last)
    assert standard_normal(last, key).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_threads_draw_the_same_numbers_in_every_mode(mode: Callable[[], Any]) -> None:
    like = torch.empty(3, 400_000)
    expected = standard_normal(like, bytes(16))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with mode():
            assert standard_normal(torch.empty_like(like), bytes(16)).equal(expected)
    finally:
        torch.set_num_threads(threads)


def test_every_bit_of_a_key_matters() -> None:
    like = torch.empty(4)
    base = standard_normal(like, bytes(16))
    for bit in range(128):
        key = (1 << bit).to_bytes(16, "little")
        assert not standard_normal(like, key).equal(base), bit


def test_drawing_prediction_noise_leaves_torchs_generator_alone() -> None:
    model = tiny(STRATEGIES[0]).eval()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model(torch.zeros(2, 4))
    assert torch.rand(3).equal(expected)


def test_training_noise_is_saved_and_restored_with_torchs_state() -> None:
    model = tiny(STRATEGIES[0]).train()
    x = torch.zeros(2, 4)
    state = torch.get_rng_state()
    first = [model(x), model(x)]
    torch.set_rng_state(state)
    assert torch.stack(first).equal(torch.stack([model(x), model(x)]))


# Sums


def test_sums_have_fresh_noise_of_the_right_size_and_leave_their_input_alone() -> None:
    source = NoiseSource()
    x, factor = torch.full((500, 40), 2.0), torch.full((500, 40), 3.0)
    for call, std in (
        (lambda: source.add(x, 0.5, training=False), 0.5),
        (lambda: source.add(x, 0.5, training=False, factor=factor), 1.5),
    ):
        one, other = call() - 2, call() - 2
        assert (x == 2.0).all()
        assert float(one.std()) == pytest.approx(std, rel=0.04)  # six standard errors of 20,000 numbers
        assert abs(float((one * other).mean())) < 5 * std**2 / math.sqrt(x.numel())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_other_side_of_a_sum_is_added_on_the_way(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, plus = (torch.randn(2, 3, 4, 4, dtype=dtype) for _ in range(2))
    layouts = (plus, plus.to(memory_format=torch.channels_last))
    one, other = NoiseSource(seed=1), NoiseSource(seed=1)
    for laid_out in layouts:
        torch.testing.assert_close(one.add(x, 0.5, False, laid_out), other.add(x + plus, 0.5, False), rtol=0, atol=0)
        found = one.add(x, 0.5, False, laid_out, factor=laid_out)
        torch.testing.assert_close(found, other.add(x + plus, 0.5, False, factor=plus), rtol=0, atol=0)


@pytest.mark.parametrize("sides", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_sums_see_the_numbers_of_the_forward_pass(sides: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(2, 3, 4, 4, dtype=dtype, requires_grad=True) for _ in range(2))
    source = NoiseSource()

    def numbers() -> Tensor:
        torch.manual_seed(5)
        return source.normal(torch.empty_like(a), training=True)

    def product() -> Tensor:
        torch.manual_seed(5)
        return source.add(a * b, 0.5, training=True, plus=a if sides else None, factor=b)

    expected = a * b + 0.5 * b * numbers() + (a if sides else 0)
    torch.testing.assert_close(product(), expected)
    weights = torch.randn_like(a)
    wanted = torch.autograd.grad((weights * expected).sum(), (a, b), create_graph=True)
    found = torch.autograd.grad((weights * product().contiguous()).sum(), (a, b), create_graph=True)
    torch.testing.assert_close(found, wanted)
    # A gradient that comes in another layout than the sum has.
    turned = weights.to(memory_format=torch.channels_last)
    found = torch.autograd.grad((turned * product().to(memory_format=torch.channels_last)).sum(), (a, b))
    torch.testing.assert_close(found, wanted, check_stride=False)
    torch.manual_seed(5)
    total = source.add(a * 2, 0.5, training=True, plus=a * b if sides else None)
    torch.testing.assert_close(total, 2 * a + 0.5 * numbers() + (a * b if sides else 0))
    slope = 2 * weights + (weights * b if sides else 0)
    torch.testing.assert_close(torch.autograd.grad((weights * total).sum(), a)[0], slope)


@pytest.mark.parametrize("scaled", ["x", "plus"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_side_that_scales_the_noise_gets_both_of_its_gradients(scaled: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    x, plus = (torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    factor = x if scaled == "x" else plus
    source = NoiseSource()

    def f(x: Tensor, plus: Tensor) -> Tensor:
        torch.manual_seed(5)
        found = source.add(x, 0.5, training=True, plus=plus, factor=x if scaled == "x" else plus)
        return found.contiguous(memory_format=layout)

    torch.manual_seed(5)
    n = source.normal(torch.empty_like(x), training=True)
    wanted = torch.autograd.grad((x + plus + 0.5 * factor * n).square().sum(), (x, plus))
    torch.testing.assert_close(torch.autograd.grad(f(x, plus).square().sum(), (x, plus)), wanted, check_stride=False)
    assert torch.autograd.gradgradcheck(f, (x, plus))


def test_a_compiled_sum_draws_its_numbers_again_in_the_backward_pass() -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(2, 3, 4, 4, requires_grad=True) for _ in range(2))
    source = NoiseSource()
    kept: list[int] = []

    def product(a: Tensor, b: Tensor) -> Tensor:
        return source.add(a, 0.5, training=True, plus=b, factor=b)

    def gradients(call: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        torch.manual_seed(5)
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            out = call(a, b)
        return torch.autograd.grad(out.square().sum(), (a, b))

    expected = gradients(product)
    compiled = torch.compile(product, fullgraph=True, backend="aot_eager_decomp_partition")
    torch.testing.assert_close(gradients(compiled), expected)
    assert 16 in kept  # the key
    assert a.numel() not in kept


@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("kind", ["add", "addcmul"])
def test_a_compiled_prediction_equals_an_eager_one_and_leaves_its_arguments(kind: str) -> None:
    torch.manual_seed(0)
    x, given = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    source = NoiseSource(seed=1)

    def noisy(left: Tensor, branch: Tensor) -> Tensor:
        if kind == "add":
            return source.add(left, 0.5, training=False, plus=branch)
        return source.add(left, 0.5, training=False, plus=branch, factor=left)

    def sums(x: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        kept, spent = x * 2, x * 3
        # One branch is read again, one is not, and one is not the function's own.
        return noisy(x, kept), kept + 1, noisy(x, spent), noisy(x, given)

    before = given.clone()
    with torch.no_grad():
        expected = sums(x, given)
        source.reseed(1)
        found = torch.compile(sums, fullgraph=True)(x, given)
    torch.testing.assert_close(found, expected)
    assert given.equal(before)
    turned = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        source.reseed(1)
        expected = sums(turned, given)
        source.reseed(1)
        torch.testing.assert_close(torch.compile(sums)(turned, given), expected, check_stride=False)


@pytest.mark.parametrize("kind", ["add", "addcmul"])
def test_gradients_of_halves_see_the_numbers_of_the_forward_pass(kind: str) -> None:
    torch.manual_seed(0)
    x, plus = (torch.randn(2, 3, 8, 8).bfloat16().requires_grad_() for _ in range(2))
    source = NoiseSource()
    torch.manual_seed(5)
    numbers = source.normal(torch.empty_like(x, dtype=torch.float32), training=True)
    torch.manual_seed(5)
    if kind == "add":
        total, slope = source.add(x, 0.5, training=True, plus=plus), torch.ones_like(numbers)
    else:
        total, slope = source.add(x, 0.5, training=True, plus=plus, factor=x), 1 + 0.5 * numbers
    of_x, of_plus = torch.autograd.grad(total.sum(), (x, plus))
    assert total.dtype == of_x.dtype == torch.bfloat16
    torch.testing.assert_close(of_x, slope.bfloat16(), rtol=2**-8, atol=0)
    assert (of_plus == 1).all()


@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
def test_compiled_halves_are_checked_too() -> None:
    noisy = torch.compile(lambda x, std: NoiseSource().add(x, std, training=False))
    x = torch.full((1000,), 4.0, dtype=torch.bfloat16)
    assert noisy(x, 0.5).float().std() == pytest.approx(0.5, rel=0.1)
    with pytest.raises(NoiseLostError, match="smaller than the rounding"):
        noisy(x, 1e-4)


def test_a_second_derivative_goes_through_the_same_numbers() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    source = NoiseSource()

    def f(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        return source.add(x * x, 0.5, training=True, factor=x * x)

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


def test_the_backward_pass_keeps_a_key_and_not_the_numbers() -> None:
    x, factor = (torch.randn(64, requires_grad=True) for _ in range(2))
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        NoiseSource().add(x, 0.5, training=True, factor=factor).sum()
    assert kept == [16]


def test_noise_and_audits_do_not_load_torchs_compiler() -> None:
    code = "import sys, resperturb.auditing.api, resperturb.noise; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Forks and ranks


def in_fork(call: Callable[[], Tensor]) -> Tensor:
    parent, child = multiprocessing.get_context("fork").Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        child.send(call().tolist())
        os._exit(0)
    result = torch.tensor(parent.recv())
    os.waitpid(pid, 0)
    return result


@pytest.mark.parametrize("training", [True, False])
def test_a_forked_child_does_not_repeat_its_parents_noise(training: bool) -> None:
    source = NoiseSource()
    torch.manual_seed(0)

    def draw() -> Tensor:
        return source.normal(torch.empty(8), training)

    children = [in_fork(draw), in_fork(draw)]
    drawn = torch.stack([draw(), *children]).flatten()
    assert len(drawn.unique()) == 24


def test_a_forked_child_that_seeds_itself_is_reproducible() -> None:
    torch.manual_seed(0)

    def draw() -> Tensor:
        torch.manual_seed(12)
        return NoiseSource().normal(torch.empty(8), training=True)

    assert in_fork(draw).allclose(draw())


class _Noises(torch.utils.data.Dataset[Tensor]):
    """Outputs of a perturbed model in training mode, in a worker of a data loader."""

    def __init__(self) -> None:
        self.source = NoiseSource()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        return self.source.normal(torch.empty(4), training=index % 2 == 0)


def test_data_loader_workers_draw_different_noise() -> None:
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(_Noises(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    drawn = torch.cat([batch.flatten() for _ in range(2) for batch in loader])
    assert len(drawn.unique()) == len(drawn) == 48


RANK = """
import sys, torch, resperturb as rp
from torch import nn
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
torch.manual_seed(0)
model = rp.perturb(rp.models.build("resnet8", num_classes=3, norm="group"), rp.Additive(gamma=0.5))
parallel = nn.parallel.DistributedDataParallel(model)
x = torch.zeros(2, 3, 16, 16)
torch.manual_seed(0)
training = parallel(x)
training.sum().backward()
predictions = parallel.eval()(x)
torch.manual_seed(0)
again = parallel.train()(x)
torch.save([output.detach() for output in (training, predictions, again)], f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


def test_data_parallel_ranks_draw_different_noise_that_follows_the_seed(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [process.wait(timeout=300) for process in ranks] == [0, 0]
    (train0, eval0, again0), (train1, eval1, again1) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert not torch.isclose(train0, train1).any()
    assert not torch.isclose(eval0, eval1).any()
    assert train0.equal(again0)
    assert train1.equal(again1)


def test_threads_draw_different_noise() -> None:
    model = tiny(STRATEGIES[1]).eval()
    x = torch.ones(2, 4)
    outputs: list[Tensor] = []
    threads = [threading.Thread(target=lambda: outputs.append(model(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(torch.cat(outputs).unique()) == 8 * 8


# Compilers


def compiled(model: nn.Module, backend: str = "aot_eager") -> Callable[[Tensor], Tensor]:
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_compiled_model_draws_anew_from_the_operating_system(strategy: rp.Additive) -> None:
    model = tiny(strategy).eval()
    call = compiled(model)
    x = torch.ones(2, 4)

    def predict() -> Tensor:
        torch.manual_seed(0)
        return call(x)

    assert differ(predict)
    with rp.noise_off(model):
        assert call(x).equal(call(x))
        torch.testing.assert_close(call(x), model(x))
    assert differ(predict)


def test_a_compiled_model_follows_the_seed_in_training_whatever_compiles_it() -> None:
    model = tiny(rp.Multiplicative(gamma=0.5)).train()
    x = torch.ones(2, 4)

    def gradients(call: Callable[[Tensor], Tensor]) -> list[Tensor]:
        model.zero_grad()
        torch.manual_seed(5)
        call(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = gradients(compiled(model, "eager"))
    assert len(plain) == 4
    call = compiled(model, "aot_eager_decomp_partition")
    for expected, actual, again in zip(plain, gradients(call), gradients(call), strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.equal(again)


def test_inductor_keeps_the_noise() -> None:
    model = rp.perturb(Block(), rp.Additive(gamma=0.5)).eval()
    call = compiled(model, "inductor")
    assert differ(lambda: call(torch.zeros(2, 4)))


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
@pytest.mark.parametrize("strategy", [rp.Additive(gamma=0.0, input_std=1.0), rp.Multiplicative(gamma=1.0)])
def test_two_draws_over_the_same_tensor_are_not_merged_by_the_compiler(strategy: rp.Strategy, backend: str) -> None:
    ensemble = rp.models.Ensemble([nn.Sequential(Block()), nn.Sequential(Block())])
    ensemble.networks[1].load_state_dict(ensemble.networks[0].state_dict())
    rp.perturb(ensemble, strategy).eval()
    x = torch.ones(1, 4)

    def difference(x: Tensor) -> Tensor:
        return ensemble.networks[0](x) - ensemble.networks[1](x)

    def twice(x: Tensor) -> Tensor:
        return ensemble.networks[0](x) - ensemble.networks[0](x)

    for function in (difference, twice):
        call = torch.compile(function, fullgraph=True, backend=backend)
        assert (call(x) != 0).all()
        with torch.no_grad():  # which draws in another way: into the sum
            assert (call(x) != 0).all()


def test_a_compiled_graph_serves_all_models_each_with_its_own_noise() -> None:
    torch.manual_seed(0)
    one, other = (rp.perturb(Block(), rp.Additive(gamma=0.5), seed=seed).eval() for seed in (1, 2))
    other.load_state_dict(one.state_dict())
    graphs = []

    def backend(graph: torch.fx.GraphModule, examples: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    x = torch.zeros(2, 4)
    first, second = (torch.compile(model, backend=backend)(x) for model in (one, other))
    assert not (first == second).any()
    compiled_so_far = len(graphs)
    assert compiled_so_far > 0
    again = rp.perturb(Block(), rp.Additive(gamma=0.5), seed=1).eval()
    again.load_state_dict(one.state_dict())
    assert torch.compile(again, backend=backend)(x).equal(first)
    assert len(graphs) == compiled_so_far


def test_vmap_that_is_compiled_gives_every_example_noise_of_its_own() -> None:
    model = tiny(rp.Additive(gamma=0.5))
    call = torch.compile(torch.func.vmap(model, randomness="different"), backend="aot_eager")
    assert len(call(torch.zeros(6, 1, 4)).unique()) == 24


@pytest.mark.parametrize(
    "strategy",
    [*STRATEGIES, rp.Additive(gamma=0.0, input_std=1.0), rp.Multiplicative(gamma=0.0, output_std=0.5)],
    ids=rp.Strategy.describe,
)
@pytest.mark.parametrize("own_blocks", [True, False])
def test_a_model_perturbed_after_it_was_compiled_is_noisy(strategy: rp.Strategy, own_blocks: bool) -> None:
    torch.manual_seed(0)
    model: nn.Module = (
        rp.models.build("resnet8", num_classes=3, norm="group") if own_blocks else nn.Sequential(Block())
    )
    x = torch.ones(2, 3, 16, 16) if own_blocks else torch.ones(2, 4)
    calls = [torch.compile(model, backend="aot_eager"), torch.compile(lambda x: model(x), backend="aot_eager")]
    model.eval()
    with torch.no_grad():
        for call in calls:
            call(x)
    rp.perturb(model, strategy)
    for call in calls:
        assert differ(lambda call=call: call(x))  # type: ignore[misc]


def test_a_model_compiled_in_place_is_perturbed_before_that() -> None:
    model = nn.Sequential(Block())
    model.compile(backend="aot_eager")
    with pytest.raises(UsageError, match="perturb the model first"):
        rp.perturb(model, STRATEGIES[0])


FRESH_PROCESS = """
import os, sys
hooks = []
os.register_at_fork = lambda **given: hooks.append(given)
import ctypes, torch
before = dict(os.environ)
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        assert name != "mallopt", "the allocator was tuned"
        return super().__getattr__(name)
ctypes.CDLL = Library
hooks.clear()
import resperturb as rp, resperturb.training, resperturb.noise, resperturb.perturbation
assert not hooks, "importing registered a fork hook"
assert dict(os.environ) == before, "importing changed the environment"
graphs = []
def backend(graph, examples):
    graphs.append(graph)
    return graph.forward
users = torch.compile(lambda x: x + 1, backend=backend)
users(torch.zeros(2))
before = dict(os.environ)  # torch's compiler has noted its cache there
model = rp.perturb(rp.models.build("resnet8", num_classes=3), rp.Additive(gamma=0.5))
users(torch.zeros(2))
assert len(graphs) == 1, "the user's compiled function was thrown away"
rp.training.predict(model, torch.zeros(2, 3, 8, 8, dtype=torch.uint8), mean=0.0, std=1.0)
assert dict(os.environ) == before, "the environment was changed"
"""


def test_the_library_leaves_its_users_process_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH_PROCESS], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("compile_", [False, True])
def test_checkpointed_blocks_see_the_same_draw_twice(reentrant: bool, compile_: bool) -> None:
    model = tiny(rp.Multiplicative(gamma=0.5)).train()

    def checkpointed(x: Tensor) -> Tensor:
        for block in model:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    if compile_ and reentrant:
        pytest.skip("torch.compile does not support reentrant checkpoints in one graph")
    call = torch.compile(checkpointed, backend="aot_eager", fullgraph=True) if compile_ else checkpointed

    def gradient(function: Callable[[Tensor], Tensor]) -> Tensor:
        torch.manual_seed(5)
        x = torch.ones(2, 4, requires_grad=True)
        function(x).sum().backward()
        assert x.grad is not None
        return x.grad

    whole = torch.compile(model, backend="eager", fullgraph=True) if compile_ else model
    assert gradient(call).allclose(gradient(whole))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_without_their_random_state_are_refused(reentrant: bool) -> None:
    """The recomputation would draw other noise than the forward pass, and the gradient would be silently wrong.

    It is other noise too where an earlier forward pass from the same seed drew it.
    """
    model = tiny(STRATEGIES[1]).train()
    x = torch.ones(2, 4, requires_grad=True)
    torch.manual_seed(5)
    for _ in range(3):
        model(x)
    torch.manual_seed(5)
    output = checkpoint(model, x, use_reentrant=reentrant, preserve_rng_state=False)
    with pytest.raises(UsageError, match="preserve_rng_state"):
        output.sum().backward()


def test_checkpoints_in_eval_are_refused_rather_than_recomputed_with_other_noise() -> None:
    model = tiny(rp.Multiplicative(gamma=0.5)).eval()
    output = checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=False)
    with pytest.raises(UsageError, match="checkpointing"):
        output.sum().backward()


# vmap


def test_vmap_gives_every_example_noise_of_its_own_or_refuses() -> None:
    model = tiny(rp.Additive(gamma=0.5))
    x = torch.zeros(6, 1, 4)
    out = torch.func.vmap(model, randomness="different")(x)
    assert len(out.unique()) == 24
    for randomness in ("same", "error"):
        with pytest.raises(UsageError, match="different"):
            torch.func.vmap(model, randomness=randomness)(x)


def test_stacked_models_do_not_share_the_noise_of_a_shared_input() -> None:
    models = [tiny(rp.Additive(gamma=0.0, input_std=1.0)) for _ in range(3)]  # all with the same weights
    parameters, buffers = torch.func.stack_module_state(models)

    def call(parameters: Any, buffers: Any) -> Tensor:
        return torch.func.functional_call(models[0], (parameters, buffers), (torch.zeros(1, 4),))

    out = torch.func.vmap(call, randomness="different")(parameters, buffers)
    assert len(out.unique()) == 12


def test_per_example_gradients_have_the_examples_noise() -> None:
    model = tiny(rp.Multiplicative(gamma=0.5))

    def loss(parameters: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness="different")
    per_example = gradient(dict(model.named_parameters()), torch.ones(5, 1, 4))["0.layer.weight"]
    assert len(per_example.flatten(1).unique(dim=0)) == 5


# Exported graphs


class Wide(nn.Module):
    """One junction over enough elements to measure its noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


WIDE = torch.full((400, 64), 2.0)


def check_exported(call: Callable[[], np.ndarray[Any, Any]], strategy: rp.Additive | rp.Multiplicative) -> None:
    one, other = call() - 2.0, call() - 2.0
    std = {"additive": 0.5 * math.sqrt(1.25), "multiplicative": 0.5 * max(2.0, getattr(strategy, "floor", 0))}[
        strategy.name
    ]
    tolerance = 5 / math.sqrt(one.size)
    for noise in (one, other):
        assert abs(noise.mean()) < tolerance * std
        assert noise.std() == pytest.approx(std, rel=tolerance)
        assert (noise**4).mean() / noise.var() ** 2 == pytest.approx(3, abs=5 * math.sqrt(96 / one.size))
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 2 * tolerance


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_exported_program_keeps_the_noise(strategy: rp.Additive) -> None:
    model = rp.perturb(Wide(), strategy).eval()
    program = torch.export.export(model, (WIDE,)).module()
    check_exported(lambda: program(WIDE).detach().numpy(), strategy)


def test_a_traced_model_keeps_the_noise() -> None:
    model = rp.perturb(Wide(), STRATEGIES[0]).eval()
    traced = torch.jit.trace(model, (WIDE,), check_trace=False)
    check_exported(lambda: traced(WIDE).detach().numpy(), STRATEGIES[0])


@pytest.mark.parametrize(
    "strategy", [*STRATEGIES, rp.Multiplicative(gamma=0.5, floor=3.0), rp.Additive(gamma=0.5, clip_radius=1e3)]
)
def test_onnx_sessions_and_calls_draw_different_noise_of_the_right_size(
    strategy: rp.Additive, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = rp.perturb(Wide(), strategy).eval()
    path = str(tmp_path / "model.onnx")
    program = torch.onnx.export(model, (WIDE,), dynamo=True, verbose=False)
    assert program is not None
    program.save(path)
    sessions = [onnxruntime.InferenceSession(path) for _ in range(2)]
    feed = {sessions[0].get_inputs()[0].name: WIDE.numpy()}
    check_exported(lambda: sessions[0].run(None, feed)[0], strategy)
    fresh = iter([onnxruntime.InferenceSession(path) for _ in range(2)])
    check_exported(lambda: next(fresh).run(None, feed)[0], strategy)  # the first call of each of two sessions


def test_scripting_is_refused() -> None:
    with pytest.raises(UsageError, match=r"torch\.export"):
        torch.jit.script(tiny(STRATEGIES[1]))


def test_symbolic_tracing_keeps_the_noise_or_refuses() -> None:
    traced = torch.fx.symbolic_trace(tiny(STRATEGIES[1]).eval())
    assert differ(lambda: traced(torch.ones(2, 4)))
    traced = torch.fx.symbolic_trace(tiny(STRATEGIES[0]).eval())  # it calls forward, past the noise of the input
    with pytest.raises(UsageError, match="called by itself"):
        traced(torch.ones(2, 4))


def test_a_traced_graph_outlives_its_model_with_noise() -> None:
    traced = torch.fx.symbolic_trace(tiny(STRATEGIES[1]).eval())
    assert differ(lambda: copy.deepcopy(traced)(torch.ones(2, 4)))


# Changing the model afterwards


def test_pruning_and_quantisation_keep_the_noise() -> None:
    from torch.ao.quantization import quantize_dynamic
    from torch.nn.utils import prune

    model = tiny(STRATEGIES[0], width=8).eval()
    for block in model:
        prune.l1_unstructured(block.layer, "weight", amount=0.5)
        prune.remove(block.layer, "weight")
    assert differ(lambda: model(torch.ones(2, 8)))
    quantised = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert type(quantised[0].layer) is not nn.Linear
    assert differ(lambda: quantised(torch.ones(2, 8)))


def test_a_shallow_copy_keeps_the_noise() -> None:
    model = copy.copy(tiny(STRATEGIES[0]).eval())
    assert rp.strategy_of(model) == STRATEGIES[0]
    assert differ(lambda: model(torch.ones(2, 4)))


def test_training_keys_use_128_bits() -> None:
    torch.manual_seed(0)
    keys = np.array([list(training_key()) for _ in range(2000)], dtype=np.uint8)
    ones = np.unpackbits(keys, axis=1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / math.sqrt(2000)
