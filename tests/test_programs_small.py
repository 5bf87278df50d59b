"""What small public libraries do with PyTorch: each piece here is something that one of them needed."""

import collections
import importlib
import itertools
import math
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from compare import Tolerance, agree_from_seed, same

import flambeau

BOTH = pytest.mark.parametrize("lib", [torch, flambeau], ids=["torch", "flambeau"])


def _module(lib, name):
    return importlib.import_module(f"{lib.__name__}.{name}")


# ------------------------------------------------------------------------------------------------ compiled functions
def _gradients(lib, function, shape, compiled, calls=3):
    """The results and gradients of several calls of a function of one tensor."""
    lib.manual_seed(0)
    x = lib.randn(*shape, requires_grad=True)
    run = lib.compile(function) if compiled else function
    found = []
    for _ in range(calls):
        x.grad = None
        y = run(x)
        y.square().mean().backward()
        found += [y.detach().clone(), x.grad]
    return found


def _filled(x):
    buffer = flambeau.zeros(4, 6)
    buffer[:2] = x[:2] * 2
    return (buffer + 1) * x


WRITTEN = {
    "dropout of a transposed tensor": lambda x: flambeau.nn.functional.dropout(x.t().sin(), 0.3),
    "dropout of channels": lambda x: flambeau.nn.functional.dropout1d(x.unsqueeze(0).sin(), 0.5),
    "random numbers like a transposed tensor": lambda x: x.t() * flambeau.rand_like(x.t()),
    "a buffer that is filled in part": _filled,
    "memory that is filled later": lambda x: x * flambeau.empty_like(x).fill_(0.5).mul_(3),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_backward_program_finds_what_the_forward_one_wrote(case):
    expected = _gradients(flambeau, WRITTEN[case], (4, 6), False)
    same(expected, _gradients(flambeau, WRITTEN[case], (4, 6), True))


class _Reversible(flambeau.autograd.Function):
    """Computes its block again in the backward pass, which adds to the gradients of the block's parameters by itself."""

    @staticmethod
    def forward(ctx, x, block):
        with flambeau.no_grad():
            y = x + block(x)
        ctx.x, ctx.block = x.detach(), block
        return y

    @staticmethod
    def backward(ctx, grad):
        x = ctx.x.requires_grad_()
        with flambeau.enable_grad():
            again = ctx.block(x)
        flambeau.autograd.backward(again, grad)
        return grad + x.grad, None


def _checkpointed(x, block):
    return flambeau.utils.checkpoint.checkpoint(block, x, use_reentrant=True)


@pytest.mark.filterwarnings("ignore:flambeau.compile")
@pytest.mark.parametrize("through", [_Reversible.apply, _checkpointed], ids=["Function", "checkpoint"])
def test_passes_inside_passes_count_once_under_compile(through):
    found = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        model = flambeau.nn.Sequential(flambeau.nn.Linear(4, 4), flambeau.nn.Linear(4, 4))
        x = flambeau.randn(3, 4)
        function = lambda x, model=model: through(model[0](x), model[1])
        run = flambeau.compile(function) if compiled else function
        for _ in range(3):
            model.zero_grad()
            run(x).square().mean().backward()
            found.append([p.grad.numpy() for p in model.parameters()])
    for grads in found[1:]:
        same(found[0], grads, Tolerance(1e-5, 1e-7))


class _Refusing(flambeau.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("cannot go back")


@pytest.mark.filterwarnings("ignore:flambeau.compile")
def test_a_backward_that_raises_is_met_only_by_who_asks_for_it():
    x = flambeau.ones(3, requires_grad=True)
    run = flambeau.compile(lambda x: _Refusing.apply(x) + 1)
    assert run(x).tolist() == run(x).tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="cannot go back"):
        run(x).sum().backward()


def test_a_backward_with_a_pass_of_its_own_over_own_tensors_is_compiled():
    class Inner(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with flambeau.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x.sin() * ctx.x
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            ctx.y.backward(grad, retain_graph=True)
            found, ctx.x.grad = ctx.x.grad, None
            return found

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word of running eagerly
        expected = _gradients(flambeau, lambda x: Inner.apply(x * 2), (3,), False)
        found = _gradients(flambeau, lambda x: Inner.apply(x * 2), (3,), True)
    same(expected, found)


def test_random_state_that_a_captured_call_kept():
    kept = []

    def draw(x):
        kept.append(flambeau.get_rng_state())
        return x + flambeau.rand(3)

    first = flambeau.compile(draw)(flambeau.zeros(3))
    flambeau.set_rng_state(kept[0])
    assert flambeau.rand(3).tolist() == first.tolist()


class _Made(flambeau.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


def test_modules_that_the_compiled_function_makes():
    inner = flambeau.nn.Linear(3, 3)
    run = flambeau.compile(lambda x: _Made(inner)(x))
    x = flambeau.randn(2, 3)
    for _ in range(3):
        np.testing.assert_allclose(run(x).detach().numpy(), (inner(x) * 2).detach().numpy(), rtol=1e-6)


class _Counting(flambeau.optim.Optimizer):
    """Keeps the number of steps in its group, as many optimizers outside PyTorch do."""

    def __init__(self, params, how):
        super().__init__(params, {"lr": 0.1, "beta": 0.9})
        self.how = how

    @flambeau.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            scale = self.how(group["beta"], group["step"])
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * scale)


COUNTS = {"power": lambda beta, step: 1 - beta ** step, "math": lambda beta, step: math.sqrt(1 - math.pow(beta, step)),
          "branch": lambda beta, step: 2.0 if step > 3 else 1.0, "every third": lambda beta, step: float(step % 3 == 0)}


@pytest.mark.filterwarnings("ignore:flambeau.compile")
@pytest.mark.parametrize("how", COUNTS)
def test_optimizers_that_count_in_their_groups(how):
    found = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        w = flambeau.randn(3, requires_grad=True)
        optimizer = _Counting([w], COUNTS[how])

        def step(w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = w.square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = flambeau.compile(step) if compiled else step
        found.append([run().item() for _ in range(7)] + [optimizer.param_groups[0]["step"]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


class _Scaled(flambeau.nn.Module):
    """Multiplies by a number that it keeps in some object of Python's."""

    count = 0

    def __init__(self, kept, number):
        super().__init__()
        self.kept, self.number = kept, number

    def forward(self, x):
        return x * self.number(self)


def _rotated(module):
    module.kept.rotate()
    return module.kept[0]


def _raised(module):
    module.kept["n"] += 1
    return module.kept["n"]


def _raised_inside(module):
    module.kept.n += 1
    return module.kept.n


def _raised_class(module):
    type(module).count += 1
    return type(module).count


def _raised_default(module, seen=[0]):  # noqa: B006
    seen[0] += 1
    return seen[0]


def _counter():
    n = 0

    def more():
        nonlocal n
        n += 1
        return n

    return more


KEPT = {
    "deque": (lambda: collections.deque([1.0, 2.0, 3.0]), _rotated),
    "Counter": (collections.Counter, _raised),
    "OrderedDict": (lambda: collections.OrderedDict(n=0), _raised),
    "defaultdict": (lambda: collections.defaultdict(int), _raised),
    "object": (lambda: type("Plain", (), {"n": 0, "__module__": __name__})(), _raised_inside),
    "class": (lambda: None, _raised_class),
    "default": (lambda: None, _raised_default),
    "closure": (_counter, lambda module: module.kept()),
    "count": (lambda: itertools.count(1), lambda module: next(module.kept)),
    "iterator": (lambda: iter(range(1, 20)), lambda module: next(module.kept)),
    "generator": (lambda: (2.0 * i for i in range(1, 20)), lambda module: next(module.kept)),
    "Random": (lambda: random.Random(0), lambda module: module.kept.random()),
    "NumPy": (lambda: np.random.default_rng(0), lambda module: float(module.kept.random())),
}


@pytest.mark.filterwarnings("ignore:flambeau.compile")
@pytest.mark.parametrize("case", KEPT)
def test_objects_that_every_call_changes(case):
    make, number = KEPT[case]
    found, x = [], flambeau.ones(2)
    for compiled in (False, True):
        _Scaled.count = _raised_default.__defaults__[0][0] = 0
        module = _Scaled(make(), number)
        run = flambeau.compile(module) if compiled else module
        found.append([run(x)[0].item() for _ in range(6)])
    assert found[1] == found[0] and len(set(found[0])) > 1


def test_variables_of_the_call_itself_may_change():
    def function(x):
        n = 0

        def more():
            nonlocal n
            n += 1
            return x * n

        return more() + more()

    run, x = flambeau.compile(function), flambeau.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            np.testing.assert_allclose(run(x).numpy(), function(x).numpy(), rtol=1e-6)


def test_gradients_inside_vmap_free_the_graph_last():
    def jacobian(lib, keep):
        x = lib.randn(3, requires_grad=True)
        y = x.pow(3)
        pull = lambda v: lib.autograd.grad(y, x, v, retain_graph=keep)[0]
        made = lib.vmap(pull)(lib.eye(3))
        if not keep:
            with pytest.raises(RuntimeError, match="second time"):
                y.sum().backward()
        return [made]

    for keep in (False, True):
        agree_from_seed(lambda lib: jacobian(lib, keep), 0, Tolerance(2e-5, 1e-6))


# ------------------------------------------------------------------------------------------------ writing optimizers
@BOTH
def test_tensors_by_device_and_dtype(lib):
    group = _module(lib, "utils._foreach_utils")._group_tensors_by_device_and_dtype
    a, b, c = lib.ones(2), lib.ones(3, dtype=lib.float64), lib.zeros(1)
    found = group([[a, b, c], [c, b, a], [], [None, b, None]], with_indices=True)
    lists, places = found[lib.device("cpu"), lib.float32]
    assert lists[0][0] is a and lists[0][1] is c and lists[1][0] is c and lists[2] == [] and lists[3] == [None, None]
    assert places == [0, 2] and found[lib.device("cpu"), lib.float64][1] == [1]
    assert lib.optim.Optimizer._group_tensors_by_device_and_dtype([[a, b]]).keys() == found.keys()
    with pytest.raises(RuntimeError, match="the 0-th Tensor is not"):
        group([[None, a]])
    with pytest.raises(RuntimeError):
        group([[a, b], [c]])


@BOTH
def test_helpers_of_optimizers(lib):
    helpers = _module(lib, "optim.optimizer")
    parameter = lib.nn.Parameter(lib.ones(2))
    assert helpers._default_to_fused_or_foreach([parameter], False, True) == (True, False)
    assert helpers._default_to_fused_or_foreach([parameter], False) == (False, False)
    assert helpers._get_value(lib.tensor(2.5)) == 2.5 and helpers._get_value(3) == 3
    assert helpers._get_scalar_dtype() is lib.float32 and helpers._to_scalar(lib.ones(1)).dim() == 0
    assert helpers._stack_if_compiling([1, 2]) == [1, 2]
    assert repr(helpers._RequiredParameter()) == repr(helpers.required) == "<required parameter>"
    assert "maximize" in helpers._maximize_doc and helpers.ParamsT and len(helpers._global_optimizer_pre_hooks) == 0
    params, moments = [lib.ones(2, dtype=lib.complex64)], [lib.zeros(2, dtype=lib.complex64)]
    helpers._view_as_real(params, moments)
    assert params[0].shape == moments[0].shape == (2, 2)
    helpers._device_dtype_check_for_fused(parameter)
    with pytest.raises(RuntimeError, match="floating point Tensors of supported devices"):
        helpers._device_dtype_check_for_fused(lib.ones(2, dtype=lib.int64))
    with pytest.raises(AttributeError):
        _ = helpers.no_such_helper


def _template_optimizer(lib):
    helpers = _module(lib, "optim.optimizer")

    class Template(helpers.Optimizer):
        """Gradient descent as an optimizer written after PyTorch's own."""

        def __init__(self, params, lr=0.1, differentiable=False):
            super().__init__(params, {"lr": lr, "differentiable": differentiable})
            self._patch_step_function()

        @helpers._use_grad_for_differentiable
        def step(self, closure=None):
            self._accelerator_graph_capture_health_check()
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                grouped = self._group_tensors_by_device_and_dtype([params, [p.grad for p in params]])
                for (mine, grads), _ in grouped.values():
                    lib._foreach_add_(mine, grads, alpha=-group["lr"])

    return Template


def test_an_optimizer_after_the_template():
    def train(lib):
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
        x, optimizer = lib.randn(5, 3), _template_optimizer(lib)(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert lib.is_grad_enabled()
        return list(model.parameters())

    agree_from_seed(train, 0, Tolerance(2e-5, 1e-6))


# ------------------------------------------------------------------------------------------------ warnings, once
WARNED = {
    "float(torch.ones(1, requires_grad=True))": "Converting a tensor with requires_grad=True to a scalar",
    "torch.ones(3).addcmul_(2, torch.ones(3), torch.ones(3))": "This overload of addcmul",
    "torch.ones(3).add(2, torch.ones(3))": "This overload of add is deprecated",
    "torch.addmm(1, torch.ones(2, 2), 1, torch.ones(2, 2), torch.ones(2, 2))": "This overload of addmm is deprecated",
    "torch.lu(torch.eye(2))": "torch.lu is deprecated in favor of torch.linalg.lu_factor",
    "torch.qr(torch.eye(2))": "torch.qr is deprecated in favor of torch.linalg.qr",
    "torch.cholesky(torch.eye(2))": "torch.cholesky is deprecated in favor of torch.linalg.cholesky",
    "torch.triangular_solve(torch.eye(2), torch.eye(2))": "torch.triangular_solve is deprecated",
    "torch.lu_solve(torch.eye(2), *torch.linalg.lu_factor(torch.eye(2)))": "torch.lu_solve is deprecated",
    "torch.chain_matmul(torch.eye(2), torch.eye(2))": "torch.chain_matmul is deprecated",
    "torch.stft(torch.ones(64), 16, return_complex=False)": "stft with return_complex=False is deprecated",
    "torch.stft(torch.ones(64), 16, return_complex=True)": "A window was not provided",
}
_PROGRAM = """
import sys, warnings
import {lib} as torch
for line in sys.stdin.read().splitlines():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if line.startswith("torch.stft"):
            eval(line)
        else:
            eval(line), eval(line)
    print([str(w.message).partition(" (Triggered")[0] for w in found if w.filename == "<string>"].__repr__())
"""


def test_warnings_that_come_once():
    """In a process of its own: what has been said is not said again."""
    lines = "\n".join(line for line in WARNED if "overload of" not in WARNED[line] or "addcmul" in line)
    code = _PROGRAM.format(lib="flambeau")
    out = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True).stdout
    for line, said in zip(lines.splitlines(), map(eval, out.splitlines())):
        assert len([text for text in said if text.startswith(WARNED[line])]) == 1 or "return_complex=True" in line, (line, said)


@pytest.mark.parametrize("line", WARNED)
def test_texts_of_warnings(line):
    found = []
    for lib in (torch, flambeau):
        lib.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                eval(line, {"torch": lib})
        finally:
            lib.set_warn_always(False)
        found.append([str(w.message).partition(" (Triggered")[0] for w in given if str(w.message).startswith(WARNED[line])])
    assert found[1] and (found[0] == found[1] or "overload" in WARNED[line]), found


@BOTH
def test_switches_of_attention(lib):
    flags, attention = lib.backends.cuda, _module(lib, "nn.attention")
    assert flags.flash_sdp_enabled() and flags.math_sdp_enabled() and flags.mem_efficient_sdp_enabled()
    flags.enable_flash_sdp(False)
    assert not flags.flash_sdp_enabled()
    flags.enable_flash_sdp(True)
    assert flags.flash_sdp_enabled()
    with attention.sdpa_kernel([attention.SDPBackend.MATH]):
        assert flags.math_sdp_enabled() and not flags.flash_sdp_enabled()
    with pytest.warns(FutureWarning, match="sdp_kernel"), flags.sdp_kernel(enable_flash=False, enable_cudnn=False):
        assert not flags.flash_sdp_enabled() and flags.mem_efficient_sdp_enabled()
    assert flags.flash_sdp_enabled() and not flags.fp16_bf16_reduction_math_sdp_allowed()


# ------------------------------------------------------------------------------------------------ who is asked
@BOTH
def test_functions_that_overrides_see(lib):
    """Libraries look functions up in a table: what they are handed is what `torch.stack` is."""
    seen = []

    class Odd(lib.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)

    x = lib.ones(3, 3).as_subclass(Odd)
    lib.stack([x, x])
    lib.cat([x, x])
    names = ("abs_", "add_", "sub_", "div_", "exp_", "neg_", "sigmoid_", "tanh_")
    for name in names:
        getattr(x, name)(*((1,) if name in ("add_", "sub_", "div_") else ()))
    x.add_(x, alpha=2)
    assert seen == [lib.stack, lib.cat, *[getattr(lib.Tensor, name) for name in names], lib.Tensor.add_]


@BOTH
def test_graphs_written_by_hand(lib):
    fx = _module(lib, "fx")
    graph = fx.Graph()
    tracer = _module(lib, "fx.proxy").GraphAppendingTracer(graph)
    x, y = [fx.Proxy(graph.placeholder(name), tracer) for name in "xy"]
    together = lib.broadcast_tensors(x, y)
    lib._assert(x.shape[-1] == 3, "three columns")
    graph.output((together[0] + y).node)
    module = fx.GraphModule(lib.nn.Module(), graph)
    assert [n.target for n in graph.nodes if n.op == "call_function"][0] is lib.broadcast_tensors
    assert module(lib.ones(1, 3), lib.ones(2, 3)).tolist() == [[2.0] * 3] * 2
    with pytest.raises(AssertionError, match="three columns"):
        module(lib.ones(1, 2), lib.ones(2, 2))


@BOTH
def test_private_names_that_libraries_import(lib):
    assert lib.cuda._initialized is False and lib._C._is_tracing() is False
    operators = _module(lib, "_ops")
    assert isinstance(lib.ops.aten.add, operators.OpOverloadPacket)
    assert isinstance(lib.ops.aten.add.Tensor, operators.OpOverload)
    assert not isinstance(lib.add, operators.HigherOrderOperator) and operators.ops is lib.ops
    collate = _module(lib, "utils.data._utils.collate")
    assert collate.np_str_obj_array_pattern.search("U") and not collate.np_str_obj_array_pattern.search("f")
    assert callable(lib.jit._get_trace_graph) and callable(lib.cuda._lazy_call)
    functional = _module(lib, "functional")
    assert functional.F is lib.nn.functional and "einsum" in functional.__all__ and "F" not in functional.__all__
    assert not hasattr(lib.ops.aten.add, "_no_such_part")
