"""Compiled calls of several threads, inside each other, with errors in the middle, with options and modes."""

from __future__ import annotations

import threading
import warnings

import pytest
from compiled import agree, programs, same_seen, seen
from trainers import batch, network

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


def test_two_functions_with_the_same_source():
    """Their programs are the same file on disk: each keeps its own memory and its own calls of NumPy."""
    def make():
        return torch.compile(lambda x: torch.linalg.inv(x) * 2)
    f, g = make(), make()
    for _ in range(3):
        f(torch.eye(3) * 2)
        g(torch.eye(3) * 4)
    assert f(torch.eye(3) * 8)[0, 0].item() == 0.25
    assert g(torch.eye(3) * 16)[0, 0].item() == 0.125
    del f
    assert g(torch.eye(3))[0, 0].item() == 2


def test_two_threads_call_one_function():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    fn = torch.compile(lambda x: (net(x).softmax(1), x[:4].cumsum(0).sum()))
    inputs = [torch.eye(6, 4) * (i + 1) + 0.1 for i in range(8)]
    with torch.no_grad():
        expected = [seen(fn._torchdynamo_orig_callable(x)) for x in inputs]
    wrong = []

    def work(start):
        try:
            with torch.no_grad():
                for i in range(60):
                    k = (start + i) % len(inputs)
                    same_seen(expected[k], seen(fn(inputs[k])))
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work, args=(i * 3,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]
    assert programs(fn) >= 1


def test_two_threads_make_their_first_calls_at_once():
    """One captures while the other works with tensors of its own, eagerly and compiled."""
    wrong = []
    fn = torch.compile(lambda x: (x * 2 + 1).sin().sum())

    def work(seed):
        try:
            x = torch.full((5,), float(seed), requires_grad=True)
            for _ in range(20):
                x.grad = None
                fn(x).backward()
                got, x.grad = x.grad, None
                (x * 2 + 1).sin().sum().backward()
                torch.testing.assert_close(got, x.grad)
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]


def test_a_compiled_call_inside_a_compiled_call():
    inner = torch.compile(lambda x: x.tanh() * 2)

    def outer(x):
        return inner(x) + inner(x * 3)
    fn = torch.compile(outer)
    for _ in range(3):
        x = torch.linspace(-1, 1, 5).requires_grad_()
        y = fn(x)
        torch.testing.assert_close(y, x.tanh() * 2 + (x * 3).tanh() * 2)
        y.sum().backward()
        inner(x.detach())
        assert x.grad is not None


def test_a_compiled_model_inside_a_compiled_step():
    def build():
        net = network()
        model = torch.compile(net)
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt
    agree(build, [batch()] * 4, 1)


def test_an_exception_in_the_middle():
    def build():
        w = torch.ones(3, requires_grad=True)
        state = {"fail": False}

        def step(x):
            w.grad = None
            (x * w).sum().backward()
            with torch.no_grad():
                w.sub_(w.grad)
            if state["fail"]:
                raise KeyError("stop")
            with torch.no_grad():
                w.mul_(2)
            return w.sum()
        return step, w, state

    def run(wrap):
        step, w, state = build()
        fn = wrap(step)
        found = []
        for i in range(8):
            state["fail"] = i in (0, 3, 4)
            try:
                result = seen(fn(torch.arange(3.0)))
            except KeyError as error:
                result = repr(error)
            found.append([result, seen([w, w.grad])])
        return found
    same_seen(run(lambda f: f), run(torch.compile))
    x = torch.ones(2)
    assert type(x._array).__name__ == "ndarray" and (x + 1).tolist() == [2, 2]  # nothing is left of the capture


def test_bad_index_raises_as_in_eager():
    net = nn.Embedding(5, 3)

    @torch.compile
    def step(i):
        net.zero_grad()
        loss = net(i).sum()
        loss.backward()
        return loss
    for _ in range(3):
        step(torch.tensor([0, 4, 2]))
    with pytest.raises(IndexError, match="out of range"):
        step(torch.tensor([0, 5, 2]))
    with pytest.raises(IndexError):
        step(torch.tensor([0, -1, 2]))
    assert step(torch.tensor([1, 2, 3])).item() == pytest.approx(net(torch.tensor([1, 2, 3])).sum().item(), rel=1e-5)
    assert programs(step) == 1


@pytest.mark.parametrize("use", [
    lambda t, i: t.gather(0, i), lambda t, i: t[i], lambda t, i: t.index_select(0, i),
    lambda t, i: F.nll_loss(t.view(1, -1).log_softmax(1), i[:1]), lambda t, i: F.cross_entropy(t.view(1, -1), i[:1]),
    lambda t, i: F.one_hot(i, 4), lambda t, i: torch.zeros(4).scatter(0, i, t[:1]),
    lambda t, i: torch.zeros(4).index_add(0, i, t[:1]),
])
def test_bad_indices_of_every_kind(use):
    def run(f):
        try:
            return f(torch.arange(4.0), torch.tensor([4])).tolist()
        except Exception as error:
            return type(error)
    fn = torch.compile(lambda t, i: use(t, i))
    for k in (1, 2, 3):
        torch.testing.assert_close(fn(torch.arange(4.0), torch.tensor([k])), use(torch.arange(4.0), torch.tensor([k])))
    assert run(fn) == run(use)
    torch.testing.assert_close(fn(torch.arange(4.0), torch.tensor([1])), use(torch.arange(4.0), torch.tensor([1])))


def test_options_of_compile():
    with pytest.raises(RuntimeError, match="Unrecognized mode="):
        torch.compile(lambda x: x, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(lambda x: x, mode="default", options={})
    with pytest.raises(RuntimeError, match="expected a function"):
        torch.compile(3)

    @torch.compile(fullgraph=True, dynamic=True, backend="inductor", mode="reduce-overhead")
    def f(x):
        """Doubles."""
        return x * 2
    assert f.__name__ == "f" and f.__doc__ == "Doubles."
    assert f(torch.ones(2)).tolist() == [2, 2]
    assert torch.compile(lambda x: x + 1, disable=True)(torch.ones(1)).item() == 2


def test_is_compiling_and_reset():
    seen_flags = []

    @torch.compile
    def f(x):
        seen_flags.append(torch.compiler.is_compiling())
        return x * 2
    for _ in range(5):
        f(torch.ones(2))
    assert seen_flags[0] and len(seen_flags) == 5 and not torch.compiler.is_compiling()
    g = torch.compile(lambda x: x * 2)
    g(torch.ones(2))
    assert programs(g) == 1
    torch.compiler.reset()
    assert programs(g) == 0
    assert g(torch.ones(2)).tolist() == [2, 2] and programs(g) == 1


def test_explain():
    torch.manual_seed(0)
    net = network()
    opt = optim.Adam(net.parameters())

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss
    text = str(torch.compiler.explain(step, *batch()))
    for word in ("captured", "fused", "memory", "guarded", "test_compile_calls.py"):
        assert word in text, text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = str(torch.compiler.explain(lambda x: x.sum().item(), torch.ones(2)))
    assert text.startswith("follow") and "value was read" in text and "test_compile_calls.py" in text


@pytest.mark.filterwarnings("ignore:Anomaly")
def test_other_modes_run_eagerly():
    fn = torch.compile(lambda x: x @ x)
    x = torch.eye(3)
    fn(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fn(x).dtype == torch.bfloat16
    with torch.autograd.detect_anomaly(check_nan=False):
        assert fn(x).dtype == torch.float32
    assert fn(x).dtype == torch.float32


def test_results_that_are_views_of_what_the_call_made():
    """As of a linear layer on sequences: the view must not keep eager's graph alive."""
    def build():
        return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)), nn.Embedding(6, 4)
    found = []
    for wrap in (lambda f: f, torch.compile):
        torch.manual_seed(0)
        layers, table = build()
        f = wrap(lambda ids, layers=layers, table=table: layers(table(ids)))
        for i in range(3):
            y = f(torch.tensor([[i, 1], [2, 3]]))
            y.square().sum().backward()
            found.append([y.detach(), *[p.grad.clone() for p in (*layers.parameters(), *table.parameters())]])
    torch.testing.assert_close(found[3:], found[:3])
    assert programs(f) == 1
