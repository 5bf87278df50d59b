"""Compiled models and functions whose results join the autograd graph; threads, nesting, errors in the middle."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import pytest
from compiled import agree, programs, same_seen, seen, way, why

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


def network():
    """No bias before batch norm: its gradient would be zero but for rounding, and that is nothing to compare."""
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def batch(n=6):
    return torch.linspace(-1, 1, 4 * n).view(n, 4).sin(), torch.arange(n) % 3


def train(model, net, opt, calls, rounds):
    history = []
    for i in range(rounds):
        x, y = batch()
        out = calls(model, x, i)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(seen([loss, net, opt, torch.get_rng_state()]))
    return history


def test_compiled_model_in_an_eager_training_loop():
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = network()
        model = torch.compile(net) if compiled else net
        opt = optim.Adam(model.parameters(), lr=0.01)
        found.append(train(model, net, opt, lambda m, x, i: m(x), 6))
    same_seen(*found)
    assert len(model._compiled.plans) == 1


def test_train_eval_and_no_grad_are_programs_of_their_own():
    torch.manual_seed(0)
    net = network()
    model = torch.compile(net)
    x = batch()[0]
    for _ in range(2):
        model.train()
        model(x)
        model.eval()
        assert not net.training and not net[3].training
        expected = net(x)
        out = model(x)
        torch.testing.assert_close(out, expected)
        assert out.requires_grad
        with torch.no_grad():
            out = model(x)
            torch.testing.assert_close(out, expected.detach())
            assert not out.requires_grad and out.grad_fn is None
        with torch.inference_mode():
            torch.testing.assert_close(model(x), expected.detach())


def test_state_dict_keys_and_attributes_of_a_compiled_model():
    net = nn.Linear(2, 3)
    model = torch.compile(net)
    assert list(model.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert model._orig_mod is net and model.weight is net.weight and isinstance(model, nn.Module)
    assert [n for n, _ in model.named_parameters()] == ["_orig_mod.weight", "_orig_mod.bias"]
    model.extra = 5
    assert net.extra == 5
    x = torch.ones(1, 2)
    before = model(x)
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    torch.testing.assert_close(model(x), before * 2)
    assert len(model._compiled.plans) == 1


def test_gradients_of_arguments_and_of_what_was_before_them():
    def build():
        w = torch.linspace(0, 1, 3).requires_grad_()

        def f(a, b):
            return (a * w).sin() + b @ a
        return f, w

    def gradients(wrap):
        f, w = build()
        f = wrap(f)
        found = []
        for _ in range(3):
            leaf = torch.arange(3.0, requires_grad=True)
            other = torch.eye(3).requires_grad_()
            out = f(leaf * 2, other)
            (out ** 2).sum().backward()
            found.append(seen([out, leaf.grad, other.grad, w.grad]))
        return found
    same_seen(gradients(lambda f: f), gradients(torch.compile))


def test_the_same_argument_twice_and_an_argument_that_needs_no_gradient():
    f = torch.compile(lambda a, b, c: a * b + c)
    for _ in range(3):
        a = torch.arange(3.0, requires_grad=True)
        f(a, a, torch.ones(3)).sum().backward()
        assert a.grad.tolist() == [0, 2, 4]
        b = torch.ones(3)
        a.grad = None
        f(a, b, b).sum().backward()
        assert a.grad.tolist() == [1, 1, 1] and b.grad is None


def test_several_results_some_unused_in_backward():
    def f(x, w):
        h = x @ w
        return h.tanh(), h.sum(), h.argmax(1), h.detach(), {"more": [h * 2, None]}
    g = torch.compile(f)

    def use(f, which):
        w = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
        out = f(batch()[0], w)
        parts = [out[0].sum(), out[1], out[4]["more"][0].pow(2).sum()]
        sum(p for i, p in enumerate(parts) if i in which).backward()
        return seen([out, w.grad])
    for which in ((0, 1, 2), (0,), (1,), (2,), (0, 2), (0, 1, 2)):
        same_seen(use(f, which), use(g, which))
    assert len(g._compiled.plans) == 1


def test_backward_twice_raises_and_retain_graph_works():
    f = torch.compile(lambda x: (x * x).sin().sum())
    for _ in range(3):
        x = torch.arange(3.0, requires_grad=True)
        y = f(x)
        y.backward(retain_graph=True)
        once = x.grad.clone()
        y.backward()
        torch.testing.assert_close(x.grad, 2 * once)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


def test_second_derivatives_through_a_compiled_function():
    """A graph of the backward pass is made by running the function again, eagerly."""
    def penalty(f, x):
        (g,) = torch.autograd.grad(f(x, 2.0)["y"].sum(), x, create_graph=True)
        g.square().sum().backward()
        return [g.detach(), x.grad, model.weight.grad, model.bias.grad]
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def function(x, power):
        return {"n": 1, "y": torch.tanh(model(x)) ** power}
    f = torch.compile(function)
    for _ in range(3):
        x = torch.randn(4, 3)
        expected = penalty(function, x.clone().requires_grad_())
        model.zero_grad()
        found = penalty(f, x.clone().requires_grad_())
        model.zero_grad()
        torch.testing.assert_close(found, expected)
    assert programs(f) == 1


def test_transforms_of_compiled_functions():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)

    def total(x):
        return model(x).square().sum()

    def each(x):
        return torch.tanh(x) * x
    func, ones = torch.func, torch.ones_like(x)
    trials = [lambda f, e: func.grad(f)(x), lambda f, e: func.vmap(e)(x), lambda f, e: func.vmap(func.grad(f))(x),
              lambda f, e: func.jvp(e, (x,), (ones,)), lambda f, e: func.vjp(e, x)[1](ones), lambda f, e: func.hessian(f)(x),
              lambda f, e: func.jacrev(e)(x), lambda f, e: func.jacfwd(e)(x), lambda f, e: func.grad_and_value(f)(x),
              lambda f, e: torch.autograd.functional.hvp(f, x, ones)]
    for trial in trials:
        compiled = torch.compile(total), torch.compile(each)
        for _ in range(3):
            torch.testing.assert_close(trial(*compiled), trial(total, each))


def test_second_derivatives_raise_where_the_function_cannot_run_again():
    bias = torch.zeros(3)
    dropped = torch.compile(lambda x: F.dropout(x, 0.5).square().sum())
    read = torch.compile(lambda x: ((x + bias) ** 3).sum())
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        y = dropped(x)
        with pytest.raises(RuntimeError, match="create_graph"):
            torch.autograd.grad(y, x, create_graph=True)
        y = read(x)
        bias.add_(1)
        with pytest.raises(RuntimeError, match="modified"):
            torch.autograd.grad(y, x, create_graph=True)


def test_results_whose_graph_was_freed_inside():
    """What is computed from a part of the graph that a backward pass inside has freed cannot be differentiated outside."""
    w = torch.ones(3, requires_grad=True)

    @torch.compile
    def f(x):
        w.grad = None
        hidden = torch.exp(w * x)
        hidden.sum().backward()
        return hidden * 2, hidden
    for _ in range(3):
        for result in f(torch.ones(3)):
            assert result.requires_grad
            with pytest.raises(RuntimeError, match="second time"):
                result.sum().backward()
    assert programs(f) == 1


def test_several_graphs_alive_at_once():
    """Each call keeps what its own backward pass needs."""
    w = torch.linspace(0.5, 1.5, 3).requires_grad_()
    f = torch.compile(lambda x: (x * w).exp() * w)
    inputs = [torch.full((3,), float(i)) for i in range(5)]
    outs = [f(x) for x in inputs]
    for x, out in reversed(list(zip(inputs, outs))):
        w.grad = None
        out.sum().backward()
        got, w.grad = w.grad, None
        ((x * w).exp() * w).sum().backward()
        torch.testing.assert_close(got, w.grad)


def test_a_compiled_function_used_twice_in_one_graph():
    w = torch.tensor([2.0], requires_grad=True)
    f = torch.compile(lambda x: torch.tanh(x * w))
    for _ in range(3):
        w.grad = None
        f(f(f(torch.ones(1)))).backward()
        got, w.grad = w.grad, None
        x = torch.ones(1)
        for _ in range(3):
            x = torch.tanh(x * w)
        x.backward()
        torch.testing.assert_close(got, w.grad)


def test_changing_an_argument_before_backward_raises():
    f = torch.compile(lambda x, w: (x * w).exp())
    for _ in range(3):
        x, w = torch.arange(3.0), torch.ones(3, requires_grad=True)
        out = f(x, w)
        x.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            out.sum().backward()


def test_changing_a_parameter_before_backward_raises():
    w = torch.ones(3, requires_grad=True)
    f = torch.compile(lambda x: (x * w).exp())
    for _ in range(3):
        out = f(torch.arange(3.0).requires_grad_())
        with torch.no_grad():
            w.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            out.sum().backward()


def test_hooks_on_results_and_parameters_outside():
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    model = torch.compile(net)
    found = []
    for m in (net, net, model, model, model):
        net.zero_grad()
        out = m(batch()[0])
        out.register_hook(lambda g: g * 3)
        out.retain_grad()
        out.sum().backward()
        found.append(seen([out.grad, net.weight.grad]))
    for f in found[1:]:
        same_seen(found[0], f)
    handle = net.weight.register_hook(lambda g: g * 5)
    for _ in range(3):
        net.zero_grad()
        model(batch()[0]).sum().backward()
        same_seen(found[0][2], seen(net.weight.grad * 0.6))
    handle.remove()
    net.zero_grad()
    model(batch()[0]).sum().backward()
    same_seen(found[0][2], seen(net.weight.grad * 3))  # no hook on the result here


def test_a_module_with_hooks():
    torch.manual_seed(0)
    net = network().eval()
    net[0].register_forward_hook(lambda m, a, out: out + 1)
    net[4].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
    model = torch.compile(net)
    found = []
    for m in (net, model, model, model, model, model, model):
        net.zero_grad()
        out = m(batch()[0])
        out.pow(2).sum().backward()
        found.append(seen([out, net]))
    for f in found[1:]:
        same_seen(found[0], f)
    assert way(model) == "follow", why(model)


def test_decorator_on_a_method():
    class Scaler:
        def __init__(self, by):
            self.by = by

        @torch.compile
        def scale(self, x):
            return x * self.by + 1

    a, b = Scaler(2.0), Scaler(3.0)
    x = torch.arange(3.0)
    for _ in range(3):
        assert torch.equal(a.scale(x), x * 2 + 1)
        assert torch.equal(b.scale(x), x * 3 + 1)
    a.by = 5.0
    assert torch.equal(a.scale(x), x * 5 + 1)


def test_decorator_on_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        @torch.compile
        def forward(self, x):
            return x * self.w
    torch.manual_seed(0)
    first, second = Net(), Net()
    with torch.no_grad():
        second.w.mul_(3)
    for _ in range(3):
        assert first(torch.ones(3)).tolist() == [1, 1, 1]
        assert second(torch.ones(3)).tolist() == [3, 3, 3]
        first(torch.ones(3)).sum().backward()
    assert first.w.grad.tolist() == [3, 3, 3]


def test_gradients_without_a_gradient():
    """Integer results, results cut off from the graph, and no argument that requires one."""
    f = torch.compile(lambda x: (x.argsort(), x.detach() * 2, x > 1))
    for _ in range(3):
        x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
        order, twice, more = f(x)
        assert order.tolist() == [1, 2, 0] and not twice.requires_grad and more.tolist() == [True, False, True]


def test_result_that_is_an_argument_of_the_graph():
    f = torch.compile(lambda x: (x, x * 2, x[1:]))
    for _ in range(3):
        leaf = torch.arange(3.0, requires_grad=True)
        x = leaf * 1
        same_one, double, tail = f(x)
        assert same_one is x
        (double.sum() + tail.sum() * 10).backward()
        assert leaf.grad.tolist() == [2, 12, 12]


def test_in_place_changes_of_arguments_that_are_part_of_a_graph():
    def f(x):
        x.mul_(3)
        return x.sum()

    def gradient(f):
        leaf = torch.arange(3.0, requires_grad=True)
        x = leaf * 1
        y = f(x)
        (y + x.sum()).backward()
        return seen([y, x, leaf.grad])
    g = torch.compile(f)
    for _ in range(6):
        same_seen(gradient(f), gradient(g))
    assert way(g) == "follow", why(g)


def test_leaf_arguments_get_their_gradients_inside():
    """Each call's own argument gets the gradient, whatever became of the earlier ones."""
    @torch.compile
    def f(x):
        loss = (x * x).sum()
        loss.backward()
        return loss.detach()
    kept = []
    for i in range(5):
        x = torch.full((3,), float(i)).requires_grad_()
        assert f(x).item() == 3 * i * i
        assert x.grad.tolist() == [2.0 * i] * 3
        if i % 2:
            kept.append(x)
        else:
            x.grad = None
    f(kept[0])
    assert kept[0].grad.tolist() == [4.0] * 3 and kept[1].grad.tolist() == [6.0] * 3
    assert programs(f) <= 2


def test_constant_results_and_gradients():
    """What a call computes from constants alone is fresh memory at each call."""
    w = torch.arange(4.0, requires_grad=True)

    @torch.compile
    def f(x):
        w.grad = None
        a = w * 1
        a.neg_()
        (a * 0.5).sum().backward()
        return torch.ones(3), torch.ones(2) * 3, x.detach(), torch.zeros(0)
    for _ in range(4):
        x = torch.ones(2)
        ones, threes, same_memory, empty = f(x)
        assert w.grad.tolist() == [-0.5] * 4
        assert ones.tolist() == [1] * 3 and threes.tolist() == [3] * 2 and empty.shape == (0,)
        ones.add_(1)
        threes.add_(1)
        w.grad.add_(1)
        x.add_(7)
        assert same_memory.tolist() == [8, 8]


@pytest.mark.parametrize("leaf", [False, True])
def test_arguments_are_not_kept_alive(leaf):
    f = torch.compile(lambda x: (x * 2).sin())
    for _ in range(3):
        x = torch.ones(5, requires_grad=leaf)
        gone = weakref.ref(x)
        out = f(x)
        if leaf:
            out.sum().backward()
        del x, out
        gc.collect()
        assert gone() is None
    assert programs(f) == 1


def test_one_tensor_twice_in_the_result():
    f = torch.compile(lambda x: [(h := x * 2), {"again": h}, h.float()])
    for _ in range(3):
        x = torch.arange(3.0, requires_grad=True)
        first, second, third = f(x)
        assert first is second["again"] is third and first.requires_grad
        (first + third).sum().backward()
        assert x.grad.tolist() == [4, 4, 4]


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
    for word in ("captured", "fused", "memory", "guarded", "test_compile_model.py"):
        assert word in text, text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = str(torch.compiler.explain(lambda x: x.sum().item(), torch.ones(2)))
    assert text.startswith("follow") and "value was read" in text and "test_compile_model.py" in text


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
