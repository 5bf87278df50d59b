"""Code that is made from rows (ops/core/generate.py): what it records is what PyTorch records, whichever way a call goes."""

import inspect
import linecache

import numpy as np
import pytest
import torch
from compare import Tolerance, same

import flambeau
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.backends.cpu.table import KERNELS
from flambeau.ops.core import generate
from flambeau.ops.core.export import FOREACH
from flambeau.ops.core.row import FUNCTIONS, ROWS
from flambeau.ops.pointwise.families import unary

# Functions of a module, a 3 x 4 tensor, another one, and one that needs no gradient.
CALLS = {
    "mul": lambda m, x, y, c: x * y, "mul of one": lambda m, x, y, c: x * c, "mul by a number": lambda m, x, y, c: x * 2.5,
    "add": lambda m, x, y, c: x + y, "sub": lambda m, x, y, c: c - x, "div": lambda m, x, y, c: x / y,
    "div by a number": lambda m, x, y, c: x / 2, "pow": lambda m, x, y, c: x ** 2, "power of two": lambda m, x, y, c: x.pow(y),
    "atan2": lambda m, x, y, c: m.atan2(x, y), "maximum": lambda m, x, y, c: m.maximum(x, y),
    "broadcast": lambda m, x, y, c: x * y[0], "tanh": lambda m, x, y, c: x.tanh(), "exp": lambda m, x, y, c: x.exp(),
    "sin": lambda m, x, y, c: x.sin(), "neg": lambda m, x, y, c: -x, "relu": lambda m, x, y, c: x.relu(),
    "gelu": lambda m, x, y, c: m.nn.functional.gelu(x), "elu": lambda m, x, y, c: m.nn.functional.elu(x, 0.5),
    "leaky_relu": lambda m, x, y, c: m.nn.functional.leaky_relu(x, 0.1), "t": lambda m, x, y, c: x.t(),
    "transpose": lambda m, x, y, c: x.transpose(0, -1), "permute": lambda m, x, y, c: x.permute(1, 0),
    "view": lambda m, x, y, c: x.view(2, -1), "reshape": lambda m, x, y, c: x.reshape((4, 3)),
    "expand": lambda m, x, y, c: x[:1].expand(5, 4), "unsqueeze": lambda m, x, y, c: x.unsqueeze(-1),
    "select": lambda m, x, y, c: x.select(1, -2), "narrow": lambda m, x, y, c: x.narrow(1, 1, 2),
    "flatten": lambda m, x, y, c: x.flatten(), "squeeze": lambda m, x, y, c: x[:, :1].squeeze(),
    "squeeze one": lambda m, x, y, c: x[:, :1].squeeze(1), "index": lambda m, x, y, c: x[1], "slice": lambda m, x, y, c: x[1:],
    "indices": lambda m, x, y, c: x[:, 1], "sum": lambda m, x, y, c: x.sum(), "sum of rows": lambda m, x, y, c: x.sum(1),
    "mean": lambda m, x, y, c: x.mean(), "mean of rows": lambda m, x, y, c: x.mean(1, True),
    "mean by name": lambda m, x, y, c: x.mean(dim=0, keepdim=True), "max": lambda m, x, y, c: x.max(),
    "max of rows": lambda m, x, y, c: x.max(1)[0], "amax": lambda m, x, y, c: x.amax(0), "flip": lambda m, x, y, c: x.flip(1),
    "norm": lambda m, x, y, c: x.norm(), "clone": lambda m, x, y, c: x.clone(), "cumsum": lambda m, x, y, c: x.cumsum(1),
    "softmax": lambda m, x, y, c: x.softmax(dim=-1), "log_softmax": lambda m, x, y, c: x.log_softmax(0),
    "clamp": lambda m, x, y, c: x.clamp(0.25, 0.75), "masked_fill": lambda m, x, y, c: x.masked_fill(c > 0.5, 2.0),
    "gather": lambda m, x, y, c: x.gather(1, m.tensor([[0, 3], [2, 2], [1, 0]])),
    "where": lambda m, x, y, c: m.where(c > 0.5, x, y), "mm": lambda m, x, y, c: x @ y.t(),
    "linear": lambda m, x, y, c: m.nn.functional.linear(c, x, y[:, 0]),
    "linear without bias": lambda m, x, y, c: m.nn.functional.linear(x, c),
    "embedding": lambda m, x, y, c: m.nn.functional.embedding(m.tensor([2, 0, 2]), x),
    "layer_norm": lambda m, x, y, c: m.nn.functional.layer_norm(x, (4,), y[0], y[1]),
    "cat": lambda m, x, y, c: m.cat([x, y, c]), "stack": lambda m, x, y, c: m.stack([x, y], 1),
    "split": lambda m, x, y, c: x.split(2, 1)[1]}


def tensors(m):
    values = np.linspace(0.1, 1.3, 36).reshape(3, 3, 4)
    values = values[:, :, [2, 0, 3, 1]]  # no order that a kernel might like
    x, y, c = (m.tensor(v.tolist(), dtype=m.float64) for v in values)
    return x.requires_grad_(), y.requires_grad_(), c


def graph_and_gradients(m, call, before=lambda x, y: (x, y)):
    """Result, node, gradients, and whether the graph can be used again."""
    x, y, c = tensors(m)
    result = call(m, *before(x, y), c)
    weight = m.linspace(1, 2, result.numel(), dtype=m.float64).reshape(result.shape)
    found = [type(result.grad_fn).__name__, [None if n is None else type(n).__name__ for n, _ in result.grad_fn.next_functions]]
    result.backward(weight)
    try:
        result.backward(weight)
        found.append("again")
    except RuntimeError as error:
        found.append("second time" in str(error))
    return found, result.detach(), x.grad, y.grad


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name):
    same(graph_and_gradients(torch, CALLS[name]), graph_and_gradients(flambeau, CALLS[name]), Tolerance(1e-9, 1e-12))


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch_on_views_and_changed_tensors(name):
    def before(x, y):
        with (torch if isinstance(x, torch.Tensor) else flambeau).no_grad():
            y.add_(0.125)
        return x.view(4, 3).view(3, 4), y
    same(graph_and_gradients(torch, CALLS[name], before), graph_and_gradients(flambeau, CALLS[name], before),
         Tolerance(1e-9, 1e-12))


@pytest.mark.parametrize("name", CALLS)
def test_as_the_general_way(name):
    """Under saved-tensor hooks every call goes the general way."""
    want = graph_and_gradients(flambeau, CALLS[name])
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        same(want, graph_and_gradients(flambeau, CALLS[name]), Tolerance(1e-9, 1e-12))


# (Of gather's input PyTorch needs the shape alone, but keeps all of it.)
@pytest.mark.parametrize("name", [name for name in CALLS if name != "gather"])
def test_changes_of_saved_tensors_are_noticed_as_in_pytorch(name):
    def noticed(m):
        x, y, c = tensors(m)
        x, y = x * 1, y * 1
        result = CALLS[name](m, x, y, c)
        found = []
        for t in (x, y, c):
            with m.no_grad():
                t.add_(0)
            try:
                result.sum().backward(retain_graph=True)
                found.append(False)
            except RuntimeError as error:
                found.append("modified by an inplace operation" in str(error))
        return found
    assert noticed(flambeau) == noticed(torch)


@pytest.mark.parametrize("name", CALLS)
def test_inference_tensors_are_not_saved(name):
    def refused(m):
        with m.inference_mode():
            c = m.ones(3, 4, dtype=m.float64)
        x, y, _ = tensors(m)
        try:
            CALLS[name](m, x, y, c)
        except RuntimeError as error:
            return "Inference tensors cannot be saved" in str(error)
        return False
    assert refused(flambeau) == refused(torch)


def test_the_larger_operand_decides_about_threads():
    """A small tensor first, or second: the same numbers, whichever kernel takes them."""
    row, matrix = flambeau.linspace(0, 1, 700), flambeau.linspace(-1, 1, 490_000).view(700, 700)
    for name in ("add", "mul", "sub", "maximum"):
        function = getattr(flambeau, name)
        want = getattr(torch, name)(torch.tensor(row.tolist()), torch.tensor(matrix.tolist()))
        assert function(row, matrix).tolist() == want.tolist()


def test_a_new_operation_is_one_row():
    KERNELS["test_cube"] = lambda x: x * x * x
    cube = unary("test_cube", "a * a * a", lambda grad, self: grad * 3 * self * self, toplevel=False, method=False)
    try:
        x = flambeau.tensor([[0.5, -2.0]], dtype=flambeau.float64, requires_grad=True)
        assert cube(x).tolist() == [[0.125, -8.0]] and type(cube(x).grad_fn).__name__ == "TestCubeBackward0"
        assert flambeau.autograd.gradcheck(cube, x) and flambeau.autograd.gradgradcheck(cube, x)
        out = flambeau.empty(1, 2, dtype=flambeau.float64)
        assert cube(x.detach(), out=out) is out and out.tolist() == [[0.125, -8.0]]
        assert flambeau.Tensor.test_cube_(x.detach().clone()).tolist() == [[0.125, -8.0]]
        step = flambeau.compile(lambda t: cube(t) + 1)
        for n in range(4):
            assert step(flambeau.full((3,), float(n))).tolist() == [n ** 3 + 1.0] * 3
        assert cube(flambeau.empty(2, 5, device="meta")).shape == (2, 5)
        assert flambeau.func.jvp(cube, (x.detach(),), (flambeau.ones_like(x),))[1].tolist() == [[0.75, 12.0]]
        assert cube(flambeau.tensor([2])).dtype == flambeau.float32
        assert cube(flambeau.ones(2).bfloat16()).dtype == flambeau.bfloat16
        with pytest.raises(TypeError, match="must be Tensor"):
            cube("x")
    finally:
        del flambeau.Tensor.test_cube_, KERNELS["test_cube"], ROWS["test_cube"]
        FUNCTIONS.pop("test_cube", None)
        FOREACH.pop("test_cube", None)


def test_generated_code_can_be_read():
    text = generate.source(flambeau.mul)
    assert "made = kernel(x, y)" in text and "node.saved" in text
    assert inspect.getsource(flambeau.mul).strip() == text.strip()  # what a debugger shows
    linecache.checkcache()
    assert generate.source(flambeau.mul) == text
    texts = {generate.source(f) for f in (flambeau.sin, flambeau.cos, flambeau.erf)}
    assert len(texts) == 1  # one text serves all rows that say the same


def both_sides(m):
    f, like = m.nn.functional, dict(dtype=m.float64)
    return {
        "mul": (lambda x, y: x * y, (3, 4), (4,)), "mul by a number": (lambda x: x * 2.5, (3, 4)), "mul of scalars": (
            lambda x, y: x * y, (), ()), "sub": (lambda x, y: x - y, (3, 4), (3, 1)), "exp": (lambda x: x.exp(), (3, 4)),
        "log": (lambda x: x.log(), (5,)), "tanh": (lambda x: x.tanh(), (3, 4)), "sigmoid": (lambda x: x.sigmoid(), ()),
        "relu": (lambda x: (x - 0.5).relu(), (3, 4)), "elu": (lambda x: f.elu(x - 0.5, 0.5), (3, 4)),
        "celu": (lambda x: f.celu(x - 0.5, 0.5), (3, 4)), "leaky_relu": (lambda x: f.leaky_relu(x - 0.5), (3, 4)),
        "hardtanh": (lambda x: f.hardtanh(x, 0.2, 0.7), (3, 4)), "gelu": (f.gelu, (3, 4)), "silu": (f.silu, (3, 4)),
        "gelu tanh": (lambda x: f.gelu(x, approximate="tanh"), (3, 4)), "mish": (f.mish, (3, 4)),
        "softplus": (f.softplus, (3, 4)), "logsigmoid": (f.logsigmoid, (3, 4)), "mse": (f.mse_loss, (3, 4), (3, 4)),
        "huber": (lambda x, y: f.huber_loss(x, y, delta=0.3), (3, 4), (3, 4)), "l1": (f.smooth_l1_loss, (3, 4), (3, 4)),
        "soft margin": (lambda x: f.soft_margin_loss(x, m.ones(3, 4, **like)), (3, 4)),
        "bce": (lambda x, y: f.binary_cross_entropy(x, y, m.full((4,), 0.5, **like)), (3, 4), (3, 4)),
        "bce of logits": (lambda x, y: f.binary_cross_entropy_with_logits(x, y, pos_weight=m.full((4,), 2.0, **like)), (3, 4),
                          (3, 4)),
        "cross_entropy": (lambda x: f.cross_entropy(x, m.tensor([1, 0, 3]), m.arange(1.0, 5, **like)), (3, 4)),
        "linear": (f.linear, (3, 4), (2, 4), (2,)), "linear of three": (f.linear, (2, 3, 4), (2, 4)),
        "conv": (lambda x, w, b: f.conv2d(x, w, b, padding=1), (2, 3, 5, 5), (4, 3, 3, 3), (4,)),
        "conv transposed": (lambda x, w, b: f.conv_transpose1d(x, w, b), (2, 3, 5), (3, 2, 3), (2,)),
        "layer_norm": (lambda x, w, b: f.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
        "layer_norm of all": (lambda x, w: f.layer_norm(x, (3, 4), w), (3, 4), (3, 4)),
        "rms_norm": (lambda x, w: f.rms_norm(x, (4,), w), (3, 4), (4,)),
        "group_norm": (lambda x, w, b: f.group_norm(x, 2, w, b), (3, 4, 5), (4,), (4,)),
        "batch_norm": (lambda x, w, b: f.batch_norm(x, None, None, w, b, True), (3, 4), (4,), (4,)),
        "batch_norm in use": (lambda x, w, b: f.batch_norm(x, m.zeros(4, **like), m.ones(4, **like), w, b), (3, 4), (4,),
                              (4,)),
        "embedding": (lambda w: f.embedding(m.tensor([2, 0, 2]), w), (3, 4)),
        "attention": (lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 3, 4), (2, 3, 4), (2, 3, 4)),
        "cat": (lambda x, y: m.cat([x, y], 1), (3, 4), (3, 2)), "stack": (lambda x, y: m.stack([x, y], 1), (3, 4), (3, 4))}


@pytest.mark.parametrize("name", both_sides(flambeau))
def test_gradients_are_the_same_whether_the_pass_is_recorded_or_not(name):
    """Of every choice of arguments: by what the row says is fused, by its formulas, and in PyTorch."""
    call, *shapes = both_sides(flambeau)[name]
    theirs = both_sides(torch)[name][0]
    values = [np.linspace(0.15, 0.95, max(int(np.prod(s)), 1))[::-1].reshape(s) for s in shapes]
    for chosen in range(1, 1 << len(shapes)):
        def gradients(m, function, recorded, chosen=chosen):
            given = [m.tensor(v.tolist(), dtype=m.float64, requires_grad=bool(chosen >> k & 1)) for k, v in enumerate(values)]
            result = function(*given)
            weight = m.linspace(1, 2, result.numel(), dtype=m.float64).reshape(result.shape)
            return m.autograd.grad(result, [g for g in given if g.requires_grad], weight, create_graph=recorded)
        want = gradients(torch, theirs, False)
        for recorded in (False, True):
            got = gradients(flambeau, call, recorded)
            assert all(g.requires_grad <= recorded for g in got)
            same(want, tuple(g.detach() for g in got), Tolerance(1e-8, 1e-10))
