"""`mode="exact"`: every bit of eager's results and gradients, whatever kernel eager chooses for the size."""

from __future__ import annotations

import pytest
from compiled import way, why

import flambeau as torch
import flambeau.nn.functional as F

FUNCTIONS = {
    "tanh of a product": lambda a, b: (a @ b.t()).tanh(), "linear": lambda a, b: F.linear(a, b).relu(),
    "exp": lambda a, b: (a @ b.t() * 0.01).exp(), "sum of a product": lambda a, b: (a @ b).sum(),
    "softmax": lambda a, b: (a @ b).softmax(-1), "gelu": lambda a, b: F.gelu(a @ b), "sigmoid": lambda a, b: (a * b).sigmoid(),
    "layer_norm": lambda a, b: F.layer_norm(a @ b, (a.shape[1],)), "var": lambda a, b: (a * b).var(0),
    "sum of exp": lambda a, b: (a * b).exp().sum(1), "erf": lambda a, b: (a + b).erf(), "silu": lambda a, b: F.silu(a * b),
    "log": lambda a, b: (a.abs() + b.abs()).log(), "pow": lambda a, b: (a.abs() + 0.1) ** b,
    "norm": lambda a, b: (a * b).norm(), "mean": lambda a, b: (a @ b).mean(0), "std": lambda a, b: (a - b).std(1),
    "cumsum": lambda a, b: (a * b).cumsum(1),
    "sin": lambda a, b: (a * b).sin(), "cross_entropy": lambda a, b: F.cross_entropy(a, b.argmax(1)),
    "polynomial": lambda a, b: a * (1 - a * b) + b,
}


@pytest.mark.parametrize("size", [3, 17, 64, 300])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits(name, size):
    function = FUNCTIONS[name]
    torch.manual_seed(size)
    values = torch.randn(2, size, size)
    compiled = torch.compile(function, mode="exact")

    def run(called, times):
        a, b = [v.clone().requires_grad_() for v in values]
        for _ in range(times):
            a.grad = b.grad = None
            result = called(a, b)
            result.sum().backward()
        return result.detach(), a.grad, b.grad
    for want, have in zip(run(function, 1), run(compiled, 2)):
        assert want is have is None or torch.equal(want, have)
    for _ in range(2):
        assert torch.equal(function(*values), compiled(*values))


@pytest.mark.parametrize("mode", [None, "exact"])
def test_the_parts_of_a_sparse_gradient_keep_their_order(mode):
    table = torch.nn.Embedding(10, 2, sparse=True)

    def step(few, more):
        table.weight.grad = None
        (table(few).sum() + 2 * table(more).sum()).backward()
    few, more = torch.tensor([1, 2]), torch.tensor([3, 4, 4])
    step(few, more)
    eager = table.weight.grad
    compiled = torch.compile(step, mode=mode)
    for _ in range(3):
        compiled(few, more)
        assert torch.equal(table.weight.grad._indices(), eager._indices())
        assert torch.equal(table.weight.grad._values(), eager._values())


def test_a_sparse_gradient_as_the_result():
    table = torch.nn.Embedding(10, 2, sparse=True)

    def step(rows):
        table.weight.grad = None
        table(rows).sum().backward()
        return table.weight.grad
    compiled = torch.compile(step)
    for rows in ([1, 2], [3, 4], [5, 5], [1, 2], [6, 7], [8, 9], [9, 9]):
        assert compiled(torch.tensor(rows)) is table.weight.grad
        assert table.weight.grad._indices().tolist() == [rows]
    assert way(compiled) == "skip", why(compiled)
