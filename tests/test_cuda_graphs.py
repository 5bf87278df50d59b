"""CUDA graphs made by hand (torch.cuda.CUDAGraph). Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def device(cuda):
    """Every test is on a CUDA device."""


def test_a_graph_does_its_work_again():
    x, graph = torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = (x * 2 + 1).exp()
    for n in range(3):
        x.fill_(float(n))
        graph.replay()
        torch.testing.assert_close(y, (x * 2 + 1).exp())


def test_forward_and_backward():
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).cuda()
    x, y = torch.zeros(6, 5, device="cuda"), torch.zeros(6, dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
    grads = [p.grad for p in model.parameters()]
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn(6, 5))
        graph.replay()
        got = [g.clone() for g in grads]
        wanted = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        torch.testing.assert_close(got, list(wanted))


def test_memory_that_is_shared_and_kept():
    """What lies between, and results that are held, are nobody else's."""
    x, first, second = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = (x + 1) * (x + 2)
    with torch.cuda.graph(second, pool=first.pool()):
        z = y * 2
    assert second.pool() == first.pool()
    for n in range(4):
        x.fill_(float(n))
        others = [torch.full((1000,), 7.0, device="cuda") for _ in range(8)]
        first.replay()
        second.replay()
        assert z[0].item() == 2 * (n + 1) * (n + 2)
        assert all([bool((o == 7).all()) for o in others])


def test_constants_from_the_host_are_kept():
    x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t = x + 1
        del t
        y = x * torch.tensor([1.0, 2.0, 3.0], device="cuda")
    for _ in range(2):
        graph.replay()
        assert y.tolist() == [1.0, 2.0, 3.0]


def test_what_a_graph_cannot_do_raises():
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="random numbers"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.rand(3, device="cuda")
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        torch.cuda.CUDAGraph().replay()
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("module", [False, True])
def test_graphed_callables(module):
    layer = nn.Linear(5, 3).cuda()
    sample = torch.ones(4, 5, device="cuda")
    made = torch.cuda.make_graphed_callables(layer if module else (lambda x: layer(x).relu()), (sample,))
    assert (made is layer) is module
    for n in range(3):
        x = torch.full((4, 5), float(n), device="cuda")
        layer.zero_grad()
        made(x).sum().backward()
        got = layer.weight.grad.clone()
        layer.zero_grad()
        wanted = F.linear(x, layer.weight, layer.bias)
        (wanted if module else wanted.relu()).sum().backward()
        torch.testing.assert_close(got, layer.weight.grad)
