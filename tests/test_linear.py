"""linear and bilinear, their layers and the graph they record."""

import numpy as np
import pytest
from compare import MODULES, agree_in_words
from layer_cases import both_refuse, derivatives_agree, numbers


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    args = [numbers(*shape), numbers(3, 4)] + ([numbers(3)] if bias else [])
    derivatives_agree(lambda torch, *a: torch.nn.functional.linear(*a), *args, second=True, node=len(shape) > 1)


def test_linear_of_views_and_repeated_inputs():
    def call(torch, x, w, b):
        y = torch.nn.functional.linear(x.t(), w[:, ::2], b)
        return torch.nn.functional.linear(y, w[:, :3], b) + y

    derivatives_agree(call, numbers(2, 5), numbers(3, 4), numbers(3), node=False)


def test_linear_large_and_half():
    derivatives_agree(lambda torch, x, w, b: torch.nn.functional.linear(x, w, b), numbers(300, 70, dtype=np.float32),
                      numbers(400, 70, dtype=np.float32), numbers(400, dtype=np.float32), tolerance=1e-4)
    out = []
    for torch in MODULES.values():
        x, w, b = [torch.tensor(a.tolist()).to(torch.bfloat16).requires_grad_()
                   for a in (numbers(3, 4), numbers(2, 4), numbers(2))]
        made = torch.nn.functional.linear(x, w, b)
        made.sum().backward()
        out.append([t.detach().float().numpy() for t in (made, x.grad, w.grad, b.grad)])
    for a, b in zip(*out):
        np.testing.assert_allclose(b, a, rtol=2e-2, atol=2e-2)


def test_saved_weight_is_watched():
    def program(torch):
        layer = torch.nn.Linear(3, 2)
        x = torch.ones(4, 3, requires_grad=True)
        loss = layer(x).sum()
        with torch.no_grad():
            layer.weight.add_(1)
        loss.backward()

    agree_in_words(program, text=False)


def test_graph_looks_like_pytorchs():
    def program(torch):
        layer = torch.nn.Linear(3, 2)
        out = layer(torch.ones(4, 3))
        first = out.grad_fn
        return [first.name()] + [None if f is None else type(f).__name__ for f, _ in first.next_functions]

    agree_in_words(program)


def test_backward_twice_is_refused():
    def program(torch):
        out = torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum()
        out.backward()
        out.backward()

    agree_in_words(program, text=False)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (3,)])
def test_bilinear(shape):
    derivatives_agree(lambda torch, *a: torch.nn.functional.bilinear(*a), numbers(*shape), numbers(*shape[:-1], 2),
                      numbers(5, 3, 2), numbers(5), second=True, node=False)


@pytest.mark.parametrize("text", ["Linear(4, 3)", "Linear(4, 3, bias=False)", "Linear(4, 3, dtype=torch.float64)",
                                  "Bilinear(4, 4, 2)", "Bilinear(4, 4, 2, bias=False)", "Identity(3, x=2)",
                                  "Flatten()", "Flatten(0, 1)", "Unflatten(1, (2, 2))", "CosineSimilarity(dim=0)",
                                  "PairwiseDistance(p=1, keepdim=True)",
                                  "Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))"])
def test_layers_start_as_pytorchs(text):
    def program(torch):
        torch.manual_seed(7)
        layer = eval(f"torch.nn.{text}", {"torch": torch})
        x = torch.linspace(-1, 1, 20).reshape(5, 4)
        x = x.to(torch.float64) if "float64" in text else x
        two = any(n in text for n in ("Bilinear", "Cosine", "Pairwise"))
        return layer, layer.state_dict(), layer(x, x + 1) if two else layer(x)

    agree_in_words(program, tolerance=1e-6)


def test_lazy_linear():
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.LazyLinear(3)
        before = repr(layer)
        out = layer(torch.ones(2, 5))
        other = torch.nn.LazyLinear(3)
        other.load_state_dict(layer.state_dict())
        return before, layer, type(layer).__name__, layer.weight, out, other(torch.ones(2, 5))

    agree_in_words(program, tolerance=1e-6)


def test_distances():
    derivatives_agree(lambda torch, a, b: torch.nn.functional.cosine_similarity(a, b), numbers(4, 3), numbers(4, 3, seed=1),
                      second=True)
    derivatives_agree(lambda torch, a, b: torch.nn.functional.pairwise_distance(a, b, p=3.0), numbers(4, 3),
                      numbers(4, 3, seed=1), node=False)
    derivatives_agree(lambda torch, a: torch.nn.functional.pdist(a), numbers(5, 3), node=False)


@pytest.mark.parametrize("call", [
    lambda torch: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 2)),
    lambda torch: torch.nn.functional.linear(torch.ones(2, 2, 3), torch.ones(4, 2), torch.ones(4)),
    lambda torch: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(5)),
    lambda torch: torch.nn.functional.linear(torch.ones(2, 3).double(), torch.ones(4, 3)),
    lambda torch: torch.nn.functional.linear([1.0], torch.ones(4, 3)),
    lambda torch: torch.nn.functional.bilinear(torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 3, 3)),
    lambda torch: torch.nn.Bilinear(0, 1, 1),
    lambda torch: torch.nn.functional.pdist(torch.ones(3)),
    lambda torch: torch.nn.Unflatten(1, 3),
])
def test_refusals(call):
    both_refuse(call)
