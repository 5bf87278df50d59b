"""Compiled functions at the edges: memory shared between arguments and outside, unusual modes, copies, threads, odd sizes."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from compiled import programs, way, why

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.capture.traced import Traced
from flambeau.compiler.run import pages


def eager_and_compiled(build, calls):
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
    eager, compiled = eager_and_compiled(build, (0, 0, 1, 1, 0))
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
    eager, compiled = eager_and_compiled(build, (0, 0, 0, 1, 1, 0, 2, 2))
    assert eager == compiled


def test_a_view_argument_is_written_and_its_base_is_read():
    def build():
        w = torch.ones(6)

        def f(v):
            v.mul_(2)
            return w.sum()
        return f, [(w[:2],), (w[1:3],)]
    eager, compiled = eager_and_compiled(build, (0, 0, 1, 0, 1))
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
        return [step(torch.ones(4, 3)).item() for _ in range(7)], opt.param_groups[0]["lr"], step
    losses, lr, step = run(torch.compile)
    expected = run(lambda f: f)
    assert losses == pytest.approx(expected[0]) and lr == expected[1] and way(step) == "follow"
    assert "an item of a 'dict' is set" in step._compiled.reasons[0]


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
        assert type(w._array) is not Traced
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
    with pytest.raises(torch.compiler.InvalidBackend, match="Invalid backend: 'foo'"):
        torch.compile(lambda x: x, backend="foo")
    with pytest.raises(TypeError):
        torch.compile(lambda x: x, colour="red")
    with pytest.warns(UserWarning, match="FX"):
        assert torch.compile(lambda x: x + 1, backend=lambda graph, inputs: graph)(torch.ones(1)).item() == 2
    torch.compiler.set_default_backend("eager")
    try:
        assert torch.compiler.get_default_backend() == "eager"
        assert torch.compile(len) is len
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
    assert torch.compiler.nested_compile_region(len) is len and torch.compiler.nested_compile_region()(len) is len
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


# -------------------------------------------------------------------------------------------- what a capture looks at
def trained(model):
    opt = optim.Adam(model.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()
    return step


def test_a_capture_does_not_look_at_all_objects(monkeypatch):
    """Its time must not grow with what else lives in the process."""
    step = torch.compile(trained(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))))
    with monkeypatch.context() as patch:
        patch.setattr(gc, "get_objects", lambda *args: pytest.fail("a capture looked at all objects"))
        for _ in range(4):
            step(torch.ones(5, 3))
    assert programs(step) == 1


def test_the_closure_of_a_function_that_is_hard_to_find():
    """It is reached through a table, not through a name: its variable is still guarded."""
    def scaling(by):
        def scaled(x):
            return x * by

        def change(value):
            nonlocal by
            by = value
        return scaled, change
    (first, change), (second, _) = scaling(2), scaling(2)
    table = {"one": [first], "two": [second]}
    f = torch.compile(lambda x: table["one"][0](x) + table["two"][0](x))
    for by in (2, 2, 5, 5, 2):
        change(by)
        assert f(torch.ones(1)).item() == by + 2


def test_a_call_that_goes_on_eagerly_copies_into_new_tensors():
    """After the capture was given up, old and new tensors are of one kind."""
    held = torch.full((3,), 7.0)

    def f(x):
        x.sum().item()
        made = torch.zeros(3)
        made.copy_(x)
        held.copy_(x * 2)
        made[1:].copy_(held[1:])
        return made
    g = torch.compile(f)
    for i in range(1, 7):
        assert g(torch.full((3,), float(i))).tolist() == [i, 2 * i, 2 * i] and held.tolist() == [2 * i] * 3
    assert way(g) == "follow" and "value was read" in g._compiled.reasons[0]


def test_a_tensor_that_another_thread_makes_meanwhile_is_not_kept():
    def f(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(x * 2))
        thread.start()
        thread.join()
        return found[0] + 1
    g = torch.compile(f)
    for i in range(7):
        assert g(torch.full((2,), float(i))).tolist() == [2.0 * i + 1] * 2
    assert way(g) == "follow", why(g)


def test_values_of_constants_may_be_read():
    outside = np.ones(5000, np.float32)

    @torch.compile
    def f(x):
        return x * torch.tensor([1.0, 2.0, 3.0]).sum().item() + sum(torch.arange(3).tolist())

    @torch.compile
    def g(x):
        return x * torch.from_numpy(outside)[3].item()
    for i in range(6):
        outside[:] = i
        assert f(torch.ones(2)).tolist() == [9.0, 9.0] and g(torch.ones(2)).tolist() == [i, i]
    assert way(f) == "skip" and programs(f) == 1 and way(g) == "follow"


@pytest.mark.parametrize("counted", [False, True])
def test_dead_temporaries_give_their_pages_back(monkeypatch, counted):
    """The addresses stay taken, so the program is the same; the captured call itself has right results."""
    given = {}
    if counted:
        monkeypatch.setattr(pages, "give_back", given.setdefault)  # a builtin: no Python may run in a captured call
    torch.manual_seed(0)
    layers = [nn.Linear(256, 256) for _ in range(12)]

    def f(x):
        for layer in layers:
            x = torch.tanh(layer(x))
        return x
    x = torch.randn(512, 256)
    with torch.no_grad():
        expected = f(x)
        g = torch.compile(f)
        for _ in range(3):
            torch.testing.assert_close(g(x), expected)
    assert programs(g) == 1 and (sum(given.values()) > 4 << 20) is counted


# --------------------------------------------------------------------------------- derivatives that depend on values
CASES = {
    "distinct": [[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]], "ties": [[3.0, 1.0, 3.0], [1.0, 3.0, 1.0]],
    "nan": [[3.0, float("nan"), 2.0], [0.5, 4.0, float("nan")]], "zero": [[3.0, 0.0, 2.0], [0.5, 4.0, -1.0]],
    "zeros": [[0.0, 0.0, 2.0], [0.0, 4.0, -1.0]],
}


@pytest.mark.parametrize("name, function", [
    ("max", lambda x: x.max()), ("min", lambda x: x.min()), ("median", lambda x: x.median()), ("prod", lambda x: x.prod()),
    ("prod of rows", lambda x: (x.prod(1) * x.new_ones(2)).sum()), ("kept", lambda x: x.prod(0, keepdim=True).square().sum()),
    ("cumprod", lambda x: x.cumprod(1).square().sum())])
def test_derivatives_that_depend_on_values_are_captured(name, function):
    """One program serves ties, zeros and nan, with PyTorch's numbers."""
    import torch as reference

    @torch.compile
    def step(x):
        function(x).backward()
        return x.grad.clone()
    for case in (*CASES, *CASES):
        theirs = reference.tensor(CASES[case], requires_grad=True)
        function(theirs).backward()
        found = step(torch.tensor(CASES[case], requires_grad=True))
        np.testing.assert_allclose(found.numpy(), theirs.grad.numpy(), rtol=1e-6, err_msg=f"{name}, {case}")
    assert programs(step) == 1


# ----------------------------------------------------------------------------------------- settings of unusual kinds
class AttributeDict(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


class Slotted:
    __slots__ = ("k",)


class Indirect:
    def __init__(self):
        self.table = {"k": 2}

    def __getattr__(self, name):
        return self.__dict__["table"][name]


def settings():
    plain, slotted, indirect = collections.OrderedDict(k=2), Slotted(), Indirect()
    attributes, missing = AttributeDict(inner=AttributeDict(k=2)), collections.defaultdict(int, k=2)
    slotted.k = 2
    return {
        "ordered": (lambda x: x * plain["k"], lambda v: plain.update(k=v)),
        "default": (lambda x: x * missing["k"], lambda v: missing.update(k=v)),
        "attributes": (lambda x: x * attributes.inner.k, lambda v: attributes.inner.update(k=v)),
        "slots": (lambda x: x * slotted.k, lambda v: setattr(slotted, "k", v)),
        "indirect": (lambda x: x * indirect.k, lambda v: indirect.table.update(k=v)),
    }


@pytest.mark.parametrize("kind", settings())
def test_settings_that_change(kind):
    function, change = settings()[kind]
    f = torch.compile(function)
    for value in (2, 2, 2, 5, 5, 5, 2):
        change(value)
        assert f(torch.ones(1)).item() == value
    assert programs(f) == (0 if kind == "attributes" else 2), why(f)  # a class with an odd __getattr__ is followed


loss = None


def test_a_global_that_is_called_like_an_attribute():
    """As in a script whose `loss` is new at each step, where the step reads `output.loss`."""
    global loss

    class Output:
        def __init__(self, loss):
            self.loss = loss
    f = torch.compile(lambda x: Output(x * 2).loss)
    for _ in range(4):
        loss = f(torch.ones(1))
    assert programs(f) == 1


# ------------------------------------------------------------------------------------------ objects and what becomes of them
class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)

    def step(self, x):
        self.loss = self.model(x).sum()
        return self.loss


def into_a_dict(batch):
    batch["y"] = batch["x"] * 2
    return batch["y"]


def into_a_list(batch):
    batch.append(batch[0] * 2)
    return batch[-1]


@pytest.mark.parametrize("function, given, taken", [
    (into_a_dict, lambda x: {"x": x}, lambda batch: batch["y"]), (into_a_list, lambda x: [x], lambda batch: batch[-1])])
def test_results_that_are_put_into_an_argument(function, given, taken):
    f = torch.compile(function)
    for i in range(7):
        batch = given(torch.full((2,), float(i)))
        assert f(batch) is taken(batch) and taken(batch).tolist() == [2.0 * i] * 2
    assert way(f) == "follow", why(f)


def test_results_that_are_kept_as_an_attribute():
    trainer = Trainer()
    step = torch.compile(trainer.step)
    for i in range(7):
        loss = step(torch.full((1, 3), float(i)))
        assert loss is trainer.loss
        torch.testing.assert_close(loss, trainer.model(torch.full((1, 3), float(i))).sum())
    assert way(step) == "follow" and "attribute 'loss'" in step._compiled.reasons[0]


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    weight: float = 1.0
    more: dict = dataclasses.field(default_factory=dict)


def test_dataclasses_are_taken_apart():
    """One program for all objects of a kind, and a result of that kind; one that is a setting is guarded."""
    setting = Sample(None, 2.0)

    def used(sample):
        return sample.x * sample.weight * setting.weight

    @torch.compile
    def f(sample):
        return Sample(used(sample), 3.0), collections.OrderedDict(twice=sample.more["x"] * 2)
    for i in range(8):
        setting.weight = 5.0 if i > 5 else 2.0
        x = torch.full((2,), float(i))
        made, more = f(Sample(x, 1.0 + (i > 3), {"x": x}))
        assert type(made) is Sample and made.weight == 3.0 and made.x.tolist() == (x * (1 + (i > 3)) * setting.weight).tolist()
        assert type(more) is collections.OrderedDict and more["twice"].tolist() == [2.0 * i] * 2
    assert programs(f) == 3


def test_objects_that_live_inside_a_call():
    class Running:
        def __init__(self):
            self.total, self.n = 0, 0

        def add(self, x):
            self.total, self.n = self.total + x, self.n + 1

    @torch.compile
    def f(x):
        mean = Running()
        for row in x:
            mean.add(row)
        return mean.total / mean.n
    for i in range(4):
        assert f(torch.full((3, 2), float(i))).tolist() == [i, i]
    assert programs(f) == 1


@pytest.mark.parametrize("layer", ["Embedding", "EmbeddingBag"])
def test_sparse_gradients_whose_size_depends_on_the_padding(layer):
    def build():
        torch.manual_seed(0)
        table = getattr(nn, layer)(6, 3, sparse=True, padding_idx=0, **({"mode": "sum"} if layer == "EmbeddingBag" else {}))
        optimizer = optim.SGD(table.parameters(), lr=0.1)

        def step(at):
            optimizer.zero_grad()
            (table(at) ** 2).sum().backward()
            optimizer.step()
            return table.weight.detach().clone()
        return step, [(torch.tensor([i]),) for i in ([1, 2, 0], [0, 0, 3], [1, 4, 5], [0, 1, 2], [0, 0, 0])]
    eager, compiled = eager_and_compiled(build, (0, 1, 2, 3, 4, 0, 1, 2))
    for ours, theirs in zip(compiled, eager):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
