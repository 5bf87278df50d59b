"""The short ways of frequent operations against PyTorch: values, strides, gradients, nodes, second backward passes."""

from __future__ import annotations

import pytest
import torch
from compare import Tolerance, same

import flambeau

SHAPE = (4, 6, 5)
KEYS = [(slice(None), slice(2, 5)), (1, 2), (-1, slice(1, None)), (slice(None), -3), (slice(None), slice(None)),
        (slice(1, 3), slice(None)), (slice(3, 1), 0), (slice(None), slice(0, 100)), (slice(-3, -1), slice(None, -2)),
        (slice(None), 0, slice(1, 2)), (0, 0, 0), (..., 1), (None, 2), (slice(None, None, 2), 1), 2, slice(1, 3), slice(3, 1)]
FORMS = {
    "t": lambda m, x: x[0].t(), "transpose": lambda m, x: x.transpose(0, 2), "permute": lambda m, x: x.permute(2, 0, 1),
    "view": lambda m, x: x.view(-1, 10), "unsqueeze": lambda m, x: x.unsqueeze(1), "narrow": lambda m, x: x.narrow(1, 1, 3),
    "expand": lambda m, x: x.expand(2, *SHAPE), "flatten": lambda m, x: x.flatten(1), "select": lambda m, x: x.select(1, -2),
    "squeeze": lambda m, x: x.squeeze(), "split": lambda m, x: x.split(4, 1)[1], "chunk": lambda m, x: x.chunk(3, -1)[1],
    "split by sizes": lambda m, x: x.split((1, 5), 1)[1], "clone": lambda m, x: x.clone(), "cat": lambda m, x: m.cat([x, x], 1),
    "sum": lambda m, x: x.sum(1), "gather": lambda m, x: x.gather(1, m.tensor([[[0, 1], [5, 2]]])),
    "gather along the last": lambda m, x: x.gather(-1, m.zeros(4, 6, 1, dtype=m.int64)),
    "masked_fill": lambda m, x: x.masked_fill(m.arange(5) > 2, 3), "masked_fill whole": lambda m, x: x.masked_fill(x > 1, -0.5),
    "norm": lambda m, x: x.norm(), "norm 2": lambda m, x: x.norm(2), "norm 1": lambda m, x: x.norm(1),
    "max": lambda m, x: x.max(1).values, "min": lambda m, x: x.min(-1)[0], "max of all": lambda m, x: x.max(),
    "linear": lambda m, x: m.nn.functional.linear(x[0], x[1]),
}


def tensors(dtype="float32"):
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    return [(torch, values.clone().requires_grad_()),
            (flambeau, flambeau.tensor(values.tolist(), dtype=getattr(flambeau, dtype), requires_grad=True))]


def chain(node):
    """The names of the nodes behind a result, as far as each has one input."""
    names = []
    while node is not None:
        names.append(type(node).__name__)
        node = node.next_functions[0][0] if node.next_functions else None
    return names


def described(m, x, form):
    y = form(m, x)
    weights = m.arange(y.numel(), dtype=y.dtype).reshape(y.shape) + 1
    graph = y.grad_fn
    names = chain(graph)
    (y * weights).sum().backward()
    again = "ok"
    try:
        (y * weights).sum().backward()
    except RuntimeError as error:
        again = str(error)[:60]
    return y.detach(), names, x.grad, again, y._is_view(), y._version


def form_agrees(form, dtype="float32"):
    same(*[described(m, x, form) for m, x in tensors(dtype)], Tolerance(1.3e-6, 1e-5), strides=True)
    same(*[form(m, x.detach()) for m, x in tensors(dtype)], Tolerance(1.3e-6, 1e-5))


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_keys(key):
    form_agrees(lambda m, x: x[key])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, dtype):
    form_agrees(FORMS[name], dtype)


@pytest.mark.parametrize("name", ["split", "chunk"])
def test_pieces_cannot_be_changed_in_place(name):
    for m, x in tensors():
        y = x * 1
        piece = getattr(y, name)(2)[0]
        with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views"):
            piece.mul_(2)
        with m.no_grad():
            getattr(x.detach(), name)(2)[0].zero_()
        assert not x[0].any() and x[-1].any()


def test_a_weight_that_changed_since():
    """After optimizer steps the counters of weights are under way; a change between forward and backward is noticed."""
    for m, x in tensors():
        weight = m.nn.Parameter(m.ones(3, 5))
        with m.no_grad():
            weight.add_(1)
        y = m.nn.functional.linear(x, weight)
        y.sum().backward()
        assert x.grad[0, 0].tolist() == [6.0] * 5
        y = m.nn.functional.linear(x, weight)
        with m.no_grad():
            weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("sign", ["add_", "sub_"])
def test_scaled_in_place(sign):
    made = []
    for _, x in tensors():
        x = x.detach()
        before = x._version
        y = x[1].clone()
        getattr(x[0], sign)(y, alpha=0.5)
        getattr(x, sign)(y[0], alpha=2)
        with pytest.raises(RuntimeError, match="shape"):
            getattr(y, sign)(x, alpha=0.5)
        with pytest.raises(RuntimeError, match="single memory location|overlap"):
            getattr(x[0, 0, 1:], sign)(x[0, 0, :-1], alpha=0.5)
        made.append((x.tolist(), x._version - before))
    torch.testing.assert_close(torch.tensor(made[1][0]), torch.tensor(made[0][0]))
    assert made[0][1] == made[1][1]
