"""Activations: values, first and second derivatives, nodes, in-place forms, layers, random ones from a seed."""

import numpy as np
import pytest
import torch as reference
from compare import MODULES, Tolerance, agree_in_words, same
from layer_cases import both_refuse, derivatives_agree, numbers

import flambeau

CASES = [
    ("relu", {}), ("relu6", {}), ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.2}), ("elu", {}),
    ("elu", {"alpha": 0.7}), ("selu", {}), ("celu", {"alpha": 1.3}), ("gelu", {}), ("gelu", {"approximate": "tanh"}),
    ("silu", {}), ("mish", {}), ("hardtanh", {}), ("hardtanh", {"min_val": -0.3, "max_val": 0.6}), ("hardswish", {}),
    ("hardsigmoid", {}), ("hardshrink", {"lambd": 0.4}), ("softshrink", {"lambd": 0.4}), ("tanhshrink", {}),
    ("softplus", {}), ("softplus", {"beta": 3.0, "threshold": 1.0}), ("softsign", {}), ("sigmoid", {}), ("tanh", {}),
    ("logsigmoid", {}), ("threshold", {"threshold": 0.2, "value": -1.0}), ("glu", {"dim": 1}), ("softmax", {"dim": 0}),
    ("log_softmax", {"dim": -1}), ("softmin", {"dim": 1}), ("rrelu", {}),
]
SINGLE = {"hardsigmoid": 1e-6, "celu": 1e-6}  # PyTorch divides by 6 and by alpha in single precision in the backward pass
IDS = [f"{n}-{'-'.join(map(str, k.values()))}" for n, k in CASES]


@pytest.mark.parametrize("name, kwargs", CASES, ids=IDS)
def test_values_and_derivatives(name, kwargs):
    derivatives_agree(lambda torch, x, **k: getattr(torch.nn.functional, name)(x, **k), numbers(5, 6),
                      tolerance=SINGLE.get(name), second=name != "hardsigmoid",  # (of which PyTorch has no second derivative)
                      **kwargs)


@pytest.mark.parametrize("name, kwargs", CASES, ids=IDS)
def test_single_precision_and_large(name, kwargs):
    x = numbers(40, 500, dtype=np.float32)
    derivatives_agree(lambda torch, x, **k: getattr(torch.nn.functional, name)(x, **k), x, tolerance=2e-5, **kwargs)


@pytest.mark.parametrize("name, kwargs", [c for c in CASES if c[0] != "glu" and "soft" not in c[0][:4]],
                         ids=[i for i, c in zip(IDS, CASES) if c[0] != "glu" and "soft" not in c[0][:4]])
def test_zero_dim_and_half(name, kwargs):
    if name in ("log_softmax",):
        kwargs = {"dim": -1}
    derivatives_agree(lambda torch, x, **k: getattr(torch.nn.functional, name)(x, **k), np.array(0.3),
                      tolerance=SINGLE.get(name), **kwargs)
    x = numbers(3, 4).tolist()
    a, b = [getattr(t.nn.functional, name)(t.tensor(x).to(t.bfloat16), **kwargs) for t in MODULES.values()]
    same(a, b, Tolerance(2e-2, 1e-2))


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "hardtanh",
                                  "hardswish", "hardsigmoid", "rrelu"])
def test_in_place(name):
    def call(torch, x):
        y = x * 1
        made = getattr(torch.nn.functional, name)(y, inplace=True)
        assert made is y
        return made

    derivatives_agree(call, numbers(4, 5), node=False, tolerance=SINGLE.get(name))


@pytest.mark.parametrize("name", ["relu_", "leaky_relu_", "elu_", "selu_", "celu_", "hardtanh_", "rrelu_", "threshold_"])
def test_underscored_functions(name):
    args = (0.1, 0.5) if name == "threshold_" else ()
    derivatives_agree(lambda torch, x: getattr(torch.nn.functional, name)(x * 1, *args), numbers(4, 5), node=False)


def test_limits_are_exact():
    for x in (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e30, -1e30, 88.0, -100.0):
        for name, kwargs in CASES[:27]:
            if name == "glu" or (name == "gelu" and abs(x) > 1e20):  # nan in one of PyTorch's own kernels
                continue
            a, b = [getattr(t.nn.functional, name)(t.tensor([x, 1.0]), **kwargs).tolist()[0]
                    for t in MODULES.values()]
            assert a == b or (a != a and b != b) or abs(a - b) < 1e-6 * max(1, abs(a)), (name, x, a, b)


def test_relu_passes_no_gradient_at_zero_and_no_trace_of_inf():
    for torch in MODULES.values():
        x = torch.tensor([-1.0, 0.0, -0.0, 2.0, float("nan")], requires_grad=True)
        torch.relu(x).backward(torch.tensor([float("inf")] * 5))
        assert x.grad.tolist()[:4] == [0.0, 0.0, 0.0, float("inf")]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
def test_prelu(shape):
    derivatives_agree(lambda torch, x, w: torch.nn.functional.prelu(x, w), numbers(*shape), np.array([0.2]), second=True)
    if len(shape) > 1:
        derivatives_agree(lambda torch, x, w: torch.nn.functional.prelu(x, w), numbers(*shape), numbers(shape[1]), second=True)


def test_random_slopes_and_gumbel_come_from_the_seed():
    derivatives_agree(lambda torch, x: torch.nn.functional.rrelu(x, training=True), numbers(6, 5))
    for hard in (False, True):
        derivatives_agree(lambda torch, x, hard=hard: torch.nn.functional.gumbel_softmax(x, tau=0.7, hard=hard), numbers(6, 5),
                          tolerance=1e-5, node=False)


LAYERS = ["Threshold(0.1, 20)", "ReLU()", "ReLU(inplace=True)", "RReLU(0.1, 0.3)", "Hardtanh(-2, 2)", "ReLU6()",
          "ReLU6(inplace=True)", "Sigmoid()", "Hardsigmoid()", "Tanh()", "SiLU()", "SiLU(inplace=True)", "Mish()",
          "Hardswish()", "ELU(0.5)", "CELU(0.7)", "SELU()", "GLU()", "GELU()", "GELU('tanh')", "Hardshrink()",
          "LeakyReLU(0.2)", "LogSigmoid()", "Softplus(2)", "Softshrink(0.3)", "PReLU()", "PReLU(4)", "Softsign()",
          "Tanhshrink()", "Softmin(1)", "Softmax(1)", "LogSoftmax(1)", "Softmax2d()"]


@pytest.mark.parametrize("text", LAYERS)
def test_layers(text):
    def program(torch):
        torch.manual_seed(0)
        layer = eval(f"torch.nn.{text}", {"torch": torch})
        x = torch.randn(2, 4, 3, 2)
        return layer, layer(x), list(layer.state_dict()), layer.eval()(x)

    agree_in_words(program, tolerance=1e-6)


def test_implicit_dimension_warns():
    def program(torch):
        return [torch.nn.functional.softmax(torch.ones(shape)) for shape in ((2,), (2, 3), (2, 3, 4))]

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("call", [
    lambda torch: torch.nn.functional.celu(torch.ones(2), 0.0),
    lambda torch: torch.nn.functional.glu(torch.ones(3)),
    lambda torch: torch.nn.functional.glu(torch.ones(())),
    lambda torch: torch.nn.functional.softshrink(torch.ones(2), -1.0),
    lambda torch: torch.nn.functional.gelu(torch.ones(2), approximate="sigmoid"),
    lambda torch: torch.nn.functional.prelu(torch.ones(2, 3), torch.ones(2)),
    lambda torch: torch.nn.functional.rrelu(torch.ones(2), 0.5, 0.1),
    lambda torch: torch.nn.functional.hardtanh(torch.ones(2), 2.0, 1.0),
    lambda torch: torch.nn.functional.silu(torch.ones(2).long()),
    lambda torch: torch.nn.Softmax2d()(torch.ones(2, 3)),
])
def test_refusals(call):
    both_refuse(call)


def test_functions_are_seen_by_overrides():
    seen = []

    class Mode(flambeau.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    F = flambeau.nn.functional
    with Mode():
        F.relu(flambeau.ones(2))
        F.gelu(flambeau.ones(2))
        F.silu(flambeau.ones(2))
    assert F.relu in seen and F.gelu in seen and F.silu in seen
    assert reference.nn.functional.relu is not F.relu


@pytest.mark.parametrize("name", ["gelu", "softplus", "softshrink", "logsigmoid"])
def test_out(name):
    for package in (flambeau, reference):
        function, x, out = getattr(package.nn.functional, name), package.tensor([-1.0, 0.3, 2.0]), package.empty(0)
        assert function(x, out=out) is out and out.tolist() == function(x).tolist()
        with pytest.raises(RuntimeError):
            function(x.requires_grad_(), out=out)
    out = flambeau.empty(2, 3)
    assert flambeau.nn.functional.linear(flambeau.ones(2, 4), flambeau.ones(3, 4), flambeau.ones(3), out=out) is out
    assert out.tolist() == [[5.0] * 3] * 2


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "relu6", "hardtanh", "hardshrink", "softshrink"])
def test_flat_second_derivatives(name):
    """Zeros and not None, so that a parameter before it has a gradient in a gradient penalty."""
    for package in (flambeau, reference):
        bias = package.zeros(4, requires_grad=True)
        x = package.linspace(-2, 2, 4).requires_grad_()
        made = getattr(package.nn.functional, name)(x + bias)
        first, = package.autograd.grad((made * x.detach()).sum(), x, create_graph=True)
        assert package.autograd.grad((first ** 2).sum(), bias)[0].tolist() == [0.0] * 4
