"""Followed calls and threads, processes, grad modes, graphs, random numbers and unusual tensors."""

import os
import queue
import threading

import numpy as np
import pytest
from compiled import same_seen
from followed import agree, batch, follow, history, stepped, task

import flambeau as torch
from flambeau import nn, optim
from flambeau.autograd.state import FOLLOW, state
from flambeau.compiler.capture.tracing import Uncapturable
from flambeau.compiler.follow.matching import native

pytestmark = pytest.mark.skipif(native() is None, reason="needs a C compiler")


# ------------------------------------------------------------------------------------------- threads, modes, the process
def test_another_thread_sees_what_is_pending():
    def build():
        asked, answers = queue.Queue(), queue.Queue()
        weight = torch.ones(3)

        def serve():
            while (t := asked.get()) is not None:
                answers.put([(t * 2).tolist(), weight.tolist(), (weight + 1).sum().item()])
        thread = threading.Thread(target=serve)

        def f(x):
            y = (x * 3).relu()
            weight.add_(y)
            asked.put(y)
            seen_there = answers.get()
            weight.mul_(0.5)
            return y + weight, seen_there

        def args(n):
            if not thread.is_alive():
                thread.start()
            return (torch.arange(3.0) + n,)
        build.stop = lambda: asked.put(None)
        return f, args, weight
    expected, _ = history(build, 6, lambda f: f)
    build.stop()
    got, fn = history(build, 6, follow)
    build.stop()
    same_seen(expected, got)
    assert fn.paths.runs >= 6


def test_two_threads_call_one_function():
    net, _ = task()
    f = follow(lambda x: net(x).sum(1) * 2)
    errors = []

    def work(n):
        for i in range(60):
            x = torch.full((3, 4), float(n + i))
            if not torch.allclose(f(x), net(x).sum(1) * 2):
                errors.append((n, i))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and f.paths.runs


def test_other_threads_run_eagerly_meanwhile():
    started, done, results = threading.Event(), threading.Event(), []

    def other():
        started.wait()
        results.append((state.mode & FOLLOW, type((torch.ones(3) + 1)._array)))
        done.set()

    def f(x):
        y = x + 1
        started.set()
        done.wait()
        return y * 2
    thread = threading.Thread(target=other)
    thread.start()
    assert follow(f)(torch.ones(2)).tolist() == [4.0, 4.0]
    thread.join()
    assert results == [(0, np.ndarray)]


def test_processes_that_are_forked_inside():
    def build():
        def f(x):
            y = x * 2
            if os.fork() == 0:
                os._exit(0 if (y + 1).tolist() == ((x * 2) + 1).tolist() and not state.mode & FOLLOW else 1)
            _, status = os.wait()
            return y + 1, status
        return f, lambda n: (torch.arange(3.0) + n,)
    agree(build, calls=4)


def test_grad_modes_inside():
    def build():
        net, _ = task()

        def f(x, y):
            with torch.no_grad():
                a = net(x)
            with torch.inference_mode():
                b = net(x) + 1
            c = net(x)
            return a.requires_grad, b.is_inference(), c.requires_grad, a, b, c, torch.is_grad_enabled()
        return f, batch
    agree(build, builds=1, runs=7)


def test_a_grad_mode_that_is_left_behind():
    def f(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y
    try:
        for _ in range(3):
            assert follow(f)(torch.ones(2)).tolist() == [2.0, 2.0] and not torch.is_grad_enabled() and not state.mode & FOLLOW
            torch.set_grad_enabled(True)
    finally:
        torch.set_grad_enabled(True)


def test_the_backward_pass_outside():
    def build():
        net, opt = task()
        forward = build.wrap(lambda x: net(x))

        def step(x, y):
            opt.zero_grad()
            loss = ((forward(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch, net
    results = []
    for wrap in (lambda f: f, follow):
        build.wrap = wrap
        results.append(history(build, 6, lambda f: f)[0])
    same_seen(*results)


def test_second_derivatives_inside_and_outside():
    def build():
        def f(x):
            y = (x ** 3).sum()
            slope, = torch.autograd.grad(y, x, create_graph=True)
            return slope, torch.autograd.grad(slope.sum(), x, retain_graph=True)[0]

        def args(n):
            return (torch.tensor([1.0, 2.0, float(n)], requires_grad=True),)
        return f, args
    agree(build)
    f = follow(lambda x: torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0])
    for n in range(4):
        x = torch.tensor([1.0, n], requires_grad=True)
        assert torch.autograd.grad(f(x).sum(), x)[0].tolist() == [6.0, 6.0 * n]


def test_nested_functions_are_part_of_the_outer_one():
    inner = follow(lambda x: x.tanh() + 1)
    outer = follow(lambda x: inner(x * 2) * 3)
    for n in range(5):
        x = torch.arange(3.0) + n
        assert torch.allclose(outer(x), ((x * 2).tanh() + 1) * 3)
    assert outer.paths.runs == 4 and not inner.paths.calls


def test_random_numbers():
    def build():
        drop = nn.Dropout(0.4)
        generator = torch.Generator().manual_seed(3)

        def f(x):
            return (drop(x), torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5), torch.rand_like(x),
                    torch.normal(0.0, 2.0, (3,), generator=generator), torch.bernoulli(torch.full((4,), 0.5)), x.uniform_(0, 1))
        return f, lambda n: (torch.ones(6),)
    agree(build, runs=7)


def test_seeds_inside():
    def build():
        def f(x, seed):
            torch.manual_seed(seed)
            a = torch.rand(3) + x
            before = torch.get_rng_state()
            b = torch.rand(3)
            torch.set_rng_state(before)
            return a, b, torch.rand(3), torch.initial_seed()
        return f, lambda n: (torch.ones(3), n % 3)
    agree(build)


def test_exact_mode_keeps_every_bit():
    def build():
        net, opt = task(width=32, kind=optim.Adam)
        return lambda x, y: stepped(net, opt, x, y), batch, net, opt
    agree(build, rtol=0, exact=True, runs=6)


def test_fullgraph_refuses_branches_and_nothing_else():
    f = follow(lambda x: (x * 2).sort().values.cumsum(0), fullgraph=True)
    for n in range(3):
        assert f(torch.tensor([3.0, n])).tolist() == (torch.tensor([3.0, n]) * 2).sort().values.cumsum(0).tolist()
    with pytest.raises(Uncapturable, match=r"test_compile_follow_modes.py, line \d+"):
        follow(lambda x: x if (x * 2).sum() > 0 else -x, fullgraph=True)(torch.ones(2))
    assert follow(lambda x: x * (x * 2).sum().item(), fullgraph=True)(torch.ones(2)).tolist() == [4.0, 4.0]
    assert not state.mode & FOLLOW


def test_unusual_modes_are_left_to_eager():
    f = follow(lambda x: x * 2)
    with torch.autograd.set_detect_anomaly(True):
        assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not f.paths.calls


def test_meta_and_sparse_tensors_inside():
    def build():
        table = nn.Embedding(6, 3, sparse=True)
        opt = optim.SparseAdam(table.parameters(), lr=0.1)

        def f(at):
            opt.zero_grad()
            loss = table(at).pow(2).sum()
            loss.backward()
            opt.step()
            return loss, (torch.empty(3, 2, device="meta") @ torch.empty(2, 5, device="meta")).shape
        return f, lambda n: (torch.tensor([n % 6, 2, 2]),), table
    agree(build)
