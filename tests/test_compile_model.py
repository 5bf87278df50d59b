"""Compiled models and functions whose results join the autograd graph."""

from __future__ import annotations

import gc
import weakref

import pytest
from compiled import programs, same_seen, seen, way, why
from trainers import batch, network

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


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
    assert way(g) == "follow"  # after the first pass through some of them


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
    """A graph of the backward pass is made by running the function again, eagerly; then calls are followed."""
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
    assert way(f) == "follow"


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


def test_second_derivatives_raise_once_where_the_function_cannot_run_again():
    """Not of the captured call, which has a graph of its own, nor of those after the error, which are followed."""
    bias = torch.zeros(3)
    dropped = torch.compile(lambda x: F.dropout(x, 0.5).square().sum())
    read = torch.compile(lambda x: ((x + bias) ** 3).sum())
    x = torch.ones(3, requires_grad=True)

    def slope_of(f, change=0.0):
        y = f(x)
        bias.add_(change)
        return torch.autograd.grad(y, x, create_graph=True)[0]
    for _ in range(3):
        assert slope_of(torch.compile(lambda x: F.dropout(x, 0.5).square().sum())).requires_grad
    for _ in range(3):
        dropped(x).backward()
    with pytest.raises(RuntimeError, match="create_graph"):
        slope_of(dropped)
    with pytest.raises(RuntimeError, match="modified"):
        slope_of(read, 1.0)
    for _ in range(2):
        assert slope_of(dropped).requires_grad and slope_of(read, 1.0).requires_grad


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
