"""Names, argument names, out= rules, overlapping memory and refusals: what a program meets before any numbers."""

import inspect

import pytest
import torch
from compare import agree_on

import flambeau

EXPRESSIONS = """
torch._foreach_add([torch.ones(2), torch.zeros(3)], 2)
torch._foreach_add([torch.ones(2)], [torch.ones(2)], alpha=3)
torch._foreach_mul_([torch.ones(2)], [3.])
torch._foreach_div([torch.ones(2)], torch.tensor(2.))
torch._foreach_pow(2., [torch.arange(3.)])
torch._foreach_maximum([torch.arange(3.)], 1.)
torch._foreach_addcmul([torch.ones(2)], [torch.ones(2)], [torch.ones(2)], value=2)
torch._foreach_addcdiv_([torch.ones(2)], [torch.ones(2)], [torch.full((2,), 4.)], [0.5])
torch._foreach_lerp([torch.zeros(2)], [torch.ones(2)], 0.25)
torch._foreach_norm([torch.tensor([3., 4.])])
torch._foreach_sqrt([torch.tensor([4.])])
torch._foreach_add([torch.ones(2)], [1., 2.])
torch._foreach_add([], 1.)
torch._foreach_zero_([torch.ones(2)])
torch._check(False)
torch._check_value(False, lambda: 'x')
torch._check(True)
torch.zeros(4, 3).fill_diagonal_(2)
torch.zeros(7, 3).fill_diagonal_(1, wrap=True)
torch.zeros(3).fill_diagonal_(1)
torch.zeros(2, 3).t().dim_order()
torch.get_device(torch.zeros(1))
torch.cosine_similarity(torch.eye(2), torch.ones(2, 2))
torch.kl_div(torch.zeros(2), torch.ones(2), 2)
torch.pairwise_distance(torch.zeros(2, 4), torch.ones(2, 4)).round()
torch.segment_reduce(torch.arange(4.), 'sum', lengths=torch.tensor([1, 3]))
torch.segment_reduce(torch.arange(4.), 'max', lengths=torch.tensor([1, 2]))
torch.norm_except_dim(torch.ones(2, 3), 2, 1)
torch.symeig(torch.eye(2))
torch.zeros(2).solve(torch.zeros(2))
torch.heaviside(torch.tensor([-1., 0]), values=torch.tensor([.5]))
torch.trapezoid(y=torch.arange(3.), x=torch.arange(3.))
torch.special.hermite_polynomial_h(x=torch.arange(3.), n=2)
torch.special.airy_ai(x=torch.zeros(1))
torch.result_type(tensor=torch.zeros(1), other=1)
torch.rsub(torch.ones(1), 3, 2)
torch.arange(0, 2, 0.5, dtype=torch.int)
torch.equal(torch.tensor([1, 2]), torch.tensor([1., 2.]))
torch.nonzero(torch.tensor([[1, 0], [0, 2]]))
torch.nonzero(torch.tensor([[1, 0], [0, 2]]), as_tuple=True)
~torch.tensor([1.])
-torch.tensor([True])
torch.tensor([True, True]).sum_to_size(1)
torch.tensor(True).sum_to_size(())
torch.ones(2, 3, dtype=torch.int32).sum_to_size(3)
torch.unravel_index(torch.tensor([1, 2], dtype=torch.uint8), (2, 2))
torch.zeros(2, dtype=torch.uint8).index_add(0, torch.tensor([0]), torch.tensor([3], dtype=torch.uint8), alpha=-1)
torch.masked.cumsum(torch.tensor([1, 2], dtype=torch.uint8), 0)
torch.clamp_max(2, torch.ones(1))
torch.polar(torch.ones(1), 2)
torch.unbind_copy(torch.tensor(1))
torch.fft.irfft(torch.tensor(1.))
torch.fft.fft2(torch.tensor(1.))
torch.zeros(3, 4).narrow(0, torch.tensor([1]), 1)
torch.zeros(3, 4).hsplit('a')
torch.signal.windows.hann(3, layout=torch.sparse_coo)
torch.zeros(2, out=torch.ones(3))
torch.sqrt(torch.ones(2), out=torch.zeros(0, dtype=torch.float64))
torch.sqrt(torch.ones(2), out=torch.zeros(3))
torch.sqrt(torch.ones(2), out=torch.zeros(2, dtype=torch.int))
torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.zeros(2, 2, dtype=torch.float64))
torch.gather(torch.ones(2), 0, torch.tensor([1]), out=torch.zeros(1, dtype=torch.float64))
torch.cat([torch.ones(2)], out=torch.zeros(2, dtype=torch.int))
torch.amax(torch.ones(2), 0, out=torch.zeros((), dtype=torch.float64))
torch.max(torch.ones(2), out=torch.zeros((), dtype=torch.float64))
torch.floor(torch.ones(2), out=torch.zeros(2, dtype=torch.float64))
(lambda x: x[1:].add_(x[:-1]))(torch.arange(5.))
(lambda x: x[1:].copy_(x[:-1]))(torch.arange(5.))
(lambda x: x.add_(x[0]))(torch.arange(5.))
(lambda x: x.mul_(x.t()))(torch.ones(3, 3))
(lambda x: x[::2].add_(x[1::2]))(torch.arange(6.))
(lambda x: x.add_(x))(torch.arange(6.))
(lambda x: x.pow_(x[:1]))(torch.arange(5.))
(lambda x: torch.sin(x[:-1], out=x[1:]))(torch.arange(5.))
(lambda x: torch.sin(x, out=x))(torch.zeros(5))
(lambda x: torch.add(x[:-1], 1, out=x[1:]))(torch.arange(5.))
(lambda x: torch.gather(x, 0, torch.tensor([0, 1]), out=x))(torch.arange(2.))
(lambda x: torch.take(x, torch.tensor([0, 1]), out=x))(torch.arange(2.))
(lambda x: torch.cat([x[:2], x[2:]], out=x))(torch.arange(4.))
(lambda x: torch.index_select(x, 0, torch.tensor([0]), out=x[:1]))(torch.ones(3, 3))
"""


@pytest.mark.parametrize("source", EXPRESSIONS.strip().splitlines())
def test_same_as_pytorch(source):
    agree_on(source, warned=False)


def test_every_overridable_function_has_a_name():
    """All that torch.overrides lists at the top level, on Tensor and in linalg, fft and special."""
    spaces = [(torch, flambeau), (torch.Tensor, flambeau.Tensor), (torch.linalg, flambeau.linalg),
              (torch.fft, flambeau.fft), (torch.special, flambeau.special)]
    listed = {f for f in torch.overrides.get_testing_overrides() if callable(f)}
    missing = [n for theirs, ours in spaces for n in dir(theirs)
               if not n.startswith("_") and _is_one_of(getattr(theirs, n, None), listed) and not hasattr(ours, n)]
    assert missing == []


def _is_one_of(value, listed):
    try:
        return value in listed
    except TypeError:
        return False


@pytest.mark.parametrize("name", ["quantized_lstm", "cudnn_convolution", "fbgemm_pack_quantized_matrix"])
def test_what_is_left_out_says_so(name):
    with pytest.raises(NotImplementedError, match=name):
        getattr(flambeau, name)(1)


def test_dtypes_without_tensors():
    assert isinstance(flambeau.qint8, flambeau.dtype) and repr(flambeau.qint8) == "torch.qint8"
    with pytest.raises(NotImplementedError, match="qint8"):
        flambeau.zeros(2, dtype=flambeau.qint8)
    with pytest.raises(NotImplementedError):
        _ = flambeau.no_such_part
    assert not hasattr(flambeau, "no_such_name")


# Functions of ATen whose Python binding takes other arguments than the schema says (CUDA only, or overloads for lists).
_NOT_CHECKED = {"mm", "bmm", "sort", "copy_", "add_", "mul_", "tensor_split", "round", "select", "rnn_relu", "rnn_tanh", "gru",
                "lstm", "as_tensor", "tensor", "frexp", "ldexp", "xlogy", "result_type", "range", "heaviside_", "geqrf", "qr",
                "svd", "triangular_solve", "addmv_", "view", "index", "to", "cholesky_solve", "dequantize",
                "quantize_per_tensor"}
_SAME = {"self": "input", "y": "input", "x": "input", "n": "other", "input2": "tau", "input3": "other"}


def _schemas():
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        scalar_form = any(a.name in "ablt" for a in schema.arguments)
        if schema.name.startswith("aten::") and not name.startswith("_") and not scalar_form and (
                "out" not in schema.overload_name.lower() and "Dimname" not in str(schema)):
            found.setdefault(name, []).append(schema)
    return found


@pytest.mark.parametrize("space", ["", "Tensor"])
def test_argument_names(space):
    """Every argument of every overload of a function can be given by PyTorch's name."""
    theirs, ours = (getattr(torch, space), getattr(flambeau, space)) if space else (torch, flambeau)
    kind = "method_descriptor" if space else "builtin_function_or_method"
    wrong = []
    for name, schemas in _schemas().items():
        if name in _NOT_CHECKED or type(getattr(theirs, name, None)).__name__ != kind or not hasattr(ours, name):
            continue
        function = getattr(ours, name)
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters) or (function.__doc__ or "").startswith("Not available"):
            continue
        known = {_SAME.get(p.name, p.name) for p in parameters} | {"out"}
        for schema in schemas:
            if schema.overload_name in ("values", "dim_max", "dim_min", "dim_values", "values_stable", "X", "U", "Q", "a"):
                continue
            lacking = [a.name for a in schema.arguments if _SAME.get(a.name, a.name) not in known and a.name != "self"]
            if lacking:
                wrong.append(f"{name}.{schema.overload_name}: {', '.join(lacking)}")
    assert wrong == []


@pytest.mark.parametrize("function", ["tanh", "sigmoid", "special.i1", "special.i1e"])
def test_second_derivatives(function):
    """Complex numbers, and the origin, where a formula divides by zero."""
    def second(package):
        values = [0.0, 0.5] if "special" in function else [0.5 + 0.25j, -1j]
        x = package.tensor(values, dtype=package.float64 if "special" in function else package.complex128, requires_grad=True)
        made = x
        for part in function.split("."):
            package = getattr(package, part)
        made = package(x)
        first, = torch_of(x).autograd.grad(made.sum() if not made.is_complex() else made.abs().sum(), x, create_graph=True)
        return torch_of(x).autograd.grad(first.real.sum() if first.is_complex() else first.sum(), x)[0].tolist()

    assert second(flambeau) == pytest.approx(second(torch))


def torch_of(x):
    return torch if isinstance(x, torch.Tensor) else flambeau


def test_operations_by_their_internal_names():
    x = flambeau.ones(2)
    assert flambeau.ops.aten.add.Tensor(x, x).tolist() == [2, 2]
    assert flambeau.ops.aten.linalg_inv(flambeau.eye(2)).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(NotImplementedError, match="no_such_operation"):
        flambeau.ops.aten.no_such_operation(x)
