"""Compiled functions at the edges: memory shared between arguments and outside, unusual modes, copies, threads, odd sizes."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from compiled import programs

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.capture import Traced, living


def both(build, calls):
    """Results of the calls, eagerly and compiled; build gives (function, list of arguments per call)."""
    found = []
    for wrap in (lambda f: f, torch.compile):
        fn, arguments = build()
        fn = wrap(fn)
        found.append([fn(*arguments[i]).tolist() for i in calls])
    return found


# ------------------------------------------------------------------------------------------------------ shared memory
def test_an_argument_that_is_also_a_closure_variable():
    def build():
        w, v = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 5.0))
        return lambda p: (p * 2 + w).detach(), [(w,), (v,)]
    eager, compiled = both(build, (0, 0, 1, 1, 0))
    assert eager == compiled


def test_an_argument_becomes_a_tensor_that_the_program_writes():
    def build():
        w, v = torch.ones(3), torch.full((3,), 5.0)

        def f(p):
            p.mul_(2)
            w.add_(p)
            p.sub_(1)
            return w + p
        return f, [(v,), (w,), (w[:],)]
    eager, compiled = both(build, (0, 0, 0, 1, 1, 0, 2, 2))
    assert eager == compiled


def test_a_view_argument_is_written_and_its_base_is_read():
    def build():
        w = torch.ones(6)

        def f(v):
            v.mul_(2)
            return w.sum()
        return f, [(w[:2],), (w[1:3],)]
    eager, compiled = both(build, (0, 0, 1, 0, 1))
    assert eager == compiled


def test_slices_of_one_tensor_share_a_program():
    data = torch.arange(12.0).reshape(6, 2)
    f = torch.compile(lambda x: x * 2 + 1)
    for i in range(6):
        assert f(data[i]).tolist() == (data[i] * 2 + 1).tolist()
    assert programs(f) == 1


# -------------------------------------------------------------------------------------------------------------- modes
def test_inference_mode():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = torch.compile(model)
    with torch.inference_mode():
        made = [compiled(x) for _ in range(3)]
        outside = torch.randn(4, 3)
    assert all(m.is_inference() for m in made)
    assert compiled(x).requires_grad and not compiled(x).is_inference()
    scaled = torch.compile(lambda t: t * model.weight[0])
    scaled(x), scaled(x)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        scaled(outside)


def test_inference_mode_inside():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    @torch.compile
    def f(x):
        with torch.inference_mode():
            return model(x)
    assert [f(x).is_inference() for _ in range(3)] == [True] * 3 and programs(f) == 1


def test_a_step_that_changes_its_learning_rate():
    class Halving(optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                group["lr"] *= 0.5

    def run(wrap):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        opt = Halving(model.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        step = wrap(step)
        return [step(torch.ones(4, 3)).item() for _ in range(5)], opt.param_groups[0]["lr"]
    with pytest.warns(RuntimeWarning, match="lr"):
        compiled = run(torch.compile)
    assert compiled == run(lambda f: f)


# ----------------------------------------------------------------------------------------------- numbers and odd sizes
def test_the_smallest_integer_as_a_constant():
    x = torch.tensor([-2**63, 0, 5])
    f = torch.compile(lambda x: [x > -2**63, x.clamp(min=-2**63), x == -2**63])
    for _ in range(2):
        assert [t.tolist() for t in f(x)] == [[False, True, True], [-2**63, 0, 5], [True, False, False]]


def test_an_empty_parameter_in_an_optimizer():
    params = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(0))]
    opt = optim.Adam(params, lr=0.1)

    @torch.compile
    def step(x):
        opt.zero_grad()
        loss = (params[0] * x).sum() + params[1].sum()
        loss.backward()
        opt.step()
        return loss
    seen = [round(step(torch.ones(3)).item(), 4) for _ in range(4)]
    assert seen == [3.0, 2.7, 2.4, 2.1] and programs(step) == 1


def test_a_program_of_many_operations():
    def f(x):
        for i in range(700):
            x = x * 0.99 + i % 3
        return x
    x = torch.randn(5)
    compiled = torch.compile(f)
    np.testing.assert_allclose([compiled(x).numpy() for _ in range(2)][1], f(x).numpy(), rtol=1e-5)
    assert compiled._compiled.plans and len(next(iter(compiled._compiled.plans.values()))[0].program.groups) > 1


# -------------------------------------------------------------------------------------------- what is left behind
def test_an_exception_leaves_nothing_behind():
    w = torch.ones(3)

    @torch.compile
    def f(x):
        w.add_(x[0])
        raise ValueError("no")
    for _ in range(4):
        with pytest.raises(ValueError, match="no"):
            f(torch.ones(3))
        assert not any(type(getattr(t, "_array", None)) is Traced for t in living())
    assert w.tolist() == [5.0] * 3 and gc.isenabled() and not torch.compiler.is_compiling()


def test_a_frozen_collector():
    w = nn.Parameter(torch.ones(3))
    gc.freeze()
    try:
        f = torch.compile(lambda x: (x * w).sum().detach())
        seen = []
        for _ in range(3):
            seen.append(f(torch.ones(3)).item())
            w.data.mul_(2)
    finally:
        gc.unfreeze()
    assert seen == [3.0, 6.0, 12.0] and programs(f) == 1


def test_threads_share_one_program():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(5, 8)
    expected, compiled, wrong, done = model(x).detach(), torch.compile(model), [], threading.Event()

    def eager():
        while not done.is_set():
            wrong.extend([] if torch.allclose(model(x[:])[:, 1:].detach(), expected[:, 1:]) else ["eager"])

    def fast():
        for _ in range(10):
            with torch.no_grad():
                wrong.extend([] if torch.allclose(compiled(x), expected, atol=1e-5) else ["compiled"])
    others = [threading.Thread(target=eager), *[threading.Thread(target=fast) for _ in range(3)]]
    for thread in others:
        thread.start()
    for thread in others[1:]:
        thread.join()
    done.set()
    others[0].join()
    assert not wrong and sum(map(len, compiled._compiled.plans.values())) <= 1


def test_copies_of_a_compiled_module():
    model, x = torch.compile(nn.Linear(3, 2)), torch.randn(4, 3)
    expected = [model(x) for _ in range(2)][1]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.allclose(other(x), expected) and list(other.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        with torch.no_grad():
            other.weight.zero_()
        assert torch.allclose(other(x), other.bias.expand(4, 2)) and torch.allclose(model(x), expected)


# ------------------------------------------------------------------------------------------------- torch.compiler
def test_backends():
    with pytest.raises(torch.compiler.InvalidBackend, match="no backend 'foo'"):
        torch.compile(lambda x: x, backend="foo")
    with pytest.raises(TypeError):
        torch.compile(lambda x: x, colour="red")
    with pytest.warns(UserWarning, match="FX"):
        assert torch.compile(lambda x: x + 1, backend=lambda graph, inputs: graph)(torch.ones(1)).item() == 2
    torch.compiler.set_default_backend("eager")
    try:
        assert torch.compiler.get_default_backend() == "eager"
        assert torch.compile(both) is both
    finally:
        torch.compiler.set_default_backend(None)
    assert torch.compiler.get_default_backend() == "inductor"


def test_stances():
    f = torch.compile(lambda x: x * 3)
    with torch.compiler.set_stance("force_eager"):
        assert f(torch.ones(2)).tolist() == [3, 3] and programs(f) == 0
    f(torch.ones(2))
    with torch.compiler.set_stance("eager_on_recompile"):
        assert f(torch.ones(3)).tolist() == [3, 3, 3] and programs(f) == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        f(torch.ones(2))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            f(torch.ones(3))

    @torch.compiler.set_stance("force_eager")
    def eager():
        return f(torch.ones(4))
    eager()
    assert programs(f) == 1
    f(torch.ones(4))
    assert programs(f) == 2
    with pytest.raises(RuntimeError, match="unknown stance"):
        torch.compiler.set_stance("calm")


def test_a_limit_of_programs():
    f = torch.compile(lambda x: x * 3, recompile_limit=2)
    for n in range(1, 6):
        assert f(torch.ones(n)).tolist() == [3.0] * n
    assert programs(f) == 2


def test_names_that_change_nothing():
    assert torch.compiler.wrap_numpy(np.add)(torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    assert torch.compiler.nested_compile_region(both) is both and torch.compiler.nested_compile_region()(both) is both
    assert torch.compiler.skip_all_guards_unsafe([1, 2]) == [True, True]
    assert torch.compiler.save_cache_artifacts() is None
    with pytest.raises(NotImplementedError):
        torch.compiler.load_compiled_function(None)
    for name in torch.compiler.__all__:
        assert getattr(torch.compiler, name) is not None


def test_the_graph_before_a_compiled_function_is_let_go():
    model, head = nn.Linear(3, 3), nn.Linear(3, 2)
    f = torch.compile(lambda x: head(x).sum())
    alive = []
    for _ in range(3):
        hidden = model(torch.randn(4, 3))
        alive.append(weakref.ref(hidden.grad_fn))
        f(hidden).backward()
        del hidden
    assert programs(f) == 1 and [r() for r in alive] == [None] * 3


def test_programs_go_away_with_their_function():
    f = torch.compile(lambda x: torch.linalg.svdvals(x * 2).sum())
    for _ in range(2):
        f(torch.eye(3))
    program = weakref.ref(next(iter(f._compiled.plans.values()))[0].program)
    gc.disable()
    try:
        del f
        assert program() is None
    finally:
        gc.enable()
