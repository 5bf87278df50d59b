"""torch.library: operations written in Python."""

import pytest
import torch
from compare import MODULES

import flambeau


@pytest.fixture(params=MODULES)
def m(request):
    return MODULES[request.param]


def annotated(m, **hints):
    """Sets a function's annotations (which differ by package)."""
    def decorate(function):
        function.__annotations__ = {k: getattr(m, v) if isinstance(v, str) else v for k, v in hints.items()}
        return function

    return decorate


def test_a_custom_operation(m):
    @annotated(m, x="Tensor", n=int, **{"return": "Tensor"})
    def scaled(x, n=2):
        return x.detach().clone() * n

    op = m.library.custom_op(f"tests_{m.__name__}::scaled", mutates_args=())(scaled)
    op.register_autograd(lambda ctx, grad: (grad * ctx.n, None),
                         setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]))
    x = m.ones(3, requires_grad=True)
    y = op(x, 4)
    y.sum().backward()
    assert y.tolist() == [4.0] * 3 and x.grad.tolist() == [4.0] * 3
    assert getattr(m.ops, f"tests_{m.__name__}").scaled(x, n=5).tolist() == [5.0] * 3
    assert m.library.infer_schema(scaled, mutates_args=()) == "(Tensor x, SymInt n=2) -> Tensor"


def test_without_a_formula(m):
    @annotated(m, x="Tensor", **{"return": "Tensor"})
    def plain(x):
        return x + 1

    op = m.library.custom_op(f"tests_{m.__name__}::plain", plain, mutates_args=())
    y = op(m.ones(2, requires_grad=True))
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula"):
        y.sum().backward()


def test_several_outputs_and_lists(m):
    @annotated(m, xs=list[m.Tensor], **{"return": tuple[m.Tensor, m.Tensor]})
    def both(xs):
        return sum(xs), xs[0] - xs[1]

    op = m.library.custom_op(f"tests_{m.__name__}::both", both, mutates_args=())
    op.register_autograd(lambda ctx, g, h: ([g + h, g - h],))
    x, y = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
    total, apart = op([x, y])
    (total + 2 * apart).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and y.grad.tolist() == [-1.0, -1.0]


def test_the_library_class(m):
    library = m.library.Library(f"more_{m.__name__}", "DEF")
    library.define("add_n(Tensor x, float n=1.5, *, int times=1) -> Tensor")
    library.impl("add_n", lambda x, n=1.5, times=1: x + n * times, "CompositeExplicitAutograd")
    op = getattr(m.ops, f"more_{m.__name__}").add_n
    assert op(m.ones(1)).tolist() == [2.5] and op(m.ones(1), 1.0, times=3).tolist() == [4.0]


def test_results_must_be_new(m):
    @annotated(m, x="Tensor", **{"return": "Tensor"})
    def same(x):
        return x

    op = m.library.custom_op(f"tests_{m.__name__}::same", same, mutates_args=())
    with pytest.raises(RuntimeError, match="must not also be an input"):
        op(m.ones(2))


def test_what_is_wrong(m):
    with pytest.raises(ValueError):
        m.library.custom_op("noname", lambda x: x, mutates_args=())
    with pytest.raises(ValueError, match="annotation"):
        m.library.custom_op(f"tests_{m.__name__}::bare", lambda x: x, mutates_args=())
    with pytest.raises(AttributeError):
        _ = getattr(m.ops, f"more_{m.__name__}").no_such_operation


def test_shapes_alone():
    flambeau.library.define("tests_meta::twice", "(Tensor x) -> Tensor")
    flambeau.library.impl("tests_meta::twice", "cpu", lambda x: flambeau.cat([x, x]))
    flambeau.library.register_fake("tests_meta::twice")(lambda x: x.new_empty(2 * x.shape[0]))
    assert flambeau.ops.tests_meta.twice(flambeau.empty(3, device="meta")).shape == (6,)
    assert flambeau.library.opcheck("tests_meta::twice", (flambeau.ones(2),))["test_faketensor"] == "SUCCESS"
    assert torch.library is not flambeau.library
