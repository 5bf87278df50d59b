"""Wrapper subclasses: what `__torch_dispatch__` of a user's class sees and gives is what it is in PyTorch."""

from __future__ import annotations

import importlib

import pytest
import torch

import flambeau


def part(m, name):
    return importlib.import_module(f"{m.__name__}.{name}")


def wrapper_class(m, log):
    """A tensor that holds another one, logs every operation and runs it on what it holds."""
    tree_map = part(m, "utils._pytree").tree_map

    class Wrapper(m.Tensor):
        __slots__ = ["elem"]
        __torch_function__ = m._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, elem, requires_grad=False):
            made = m.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(), dtype=elem.dtype,
                layout=elem.layout, device=elem.device, requires_grad=requires_grad or elem.requires_grad)
            made.elem = elem.detach() if made.requires_grad else elem
            return made

        def __repr__(self):
            return f"Wrapper({self.elem})"

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args, kwargs = tree_map(lambda x: x.elem if isinstance(x, cls) else x, (args, kwargs or {}))
            log.append(str(func))
            return tree_map(lambda x: cls(x) if isinstance(x, m.Tensor) else x, func(*args, **kwargs))

    return Wrapper


def numbers(x):
    return [round(float(v), 5) for v in getattr(x, "elem", x).detach().reshape(-1)]


def arithmetic(m, W):
    x, y = W(m.tensor([1.0, 2.0]), requires_grad=True), W(m.tensor([3.0, 4.0]))
    z = (x * y).sin().sum()
    z.backward()
    return type(z).__name__, type(x.grad).__name__, numbers(x.grad), z.grad_fn.name(), x.is_leaf, z.requires_grad


def training(m, W):
    f = m.nn.functional
    x, w, b = [W(t, requires_grad=True) for t in (m.ones(3, 4), m.full((2, 4), 0.5), m.zeros(2))]
    loss = f.cross_entropy(f.linear(x, w, b), m.tensor([0, 1, 0]))
    loss.backward()
    return numbers(loss), numbers(x.grad), numbers(w.grad), numbers(b.grad), list(loss.shape)


def views(m, W):
    x = W(m.arange(6.0).view(2, 3), requires_grad=True)
    y = x.t().reshape(2, 3)[0].unsqueeze(0).expand(2, 3)
    y.pow(2).sum().backward()
    return list(y.shape), numbers(y), numbers(x.grad), str(y.dtype), str(y.device), list(y.stride())


def in_place(m, W):
    x = W(m.ones(3))
    x.add_(2)
    x.mul_(x)
    y = x.clone()
    y.zero_()
    return numbers(x), numbers(y), x._version


def in_place_recorded(m, W):
    x = W(m.ones(3), requires_grad=True)
    y = x * 2
    y.add_(1)
    y.sum().backward()
    return numbers(y), numbers(x.grad), y.grad_fn.name()


def derivative_of_a_derivative(m, W):
    x = W(m.full((2, 2), 0.5), requires_grad=True)
    g, = m.autograd.grad((x ** 3).sum(), x, create_graph=True)
    g.sum().backward()
    return numbers(g), numbers(x.grad)


def classes_of_results(m, W):
    x = W(m.ones(2))
    made = (x + 1, 1 + x, m.add(m.ones(2), x), x.detach(), m.cat([x, m.ones(1)]), x.T, x.data, x.float(), x.double())
    return repr(x), list(x.shape), x.numel(), x.dim(), str(x.dtype), [type(t).__name__ for t in made]


def parameters(m, W):
    p = m.nn.Parameter(W(m.ones(2)))
    optimizer = m.optim.Adam([p], lr=0.5, foreach=False)
    (p * 2).sum().backward()
    optimizer.step()
    return isinstance(p, m.nn.Parameter), p.requires_grad, type(p * 2).__name__, numbers(p)


def attention(m, W):
    q = W(m.arange(24.0).view(1, 2, 3, 4) / 24, requires_grad=True)
    out = m.nn.functional.scaled_dot_product_attention(q, q, q)
    out.sum().backward()
    return numbers(out), numbers(q.grad)


def layers(m, W):
    model = m.nn.Sequential(m.nn.Conv2d(1, 2, 3), m.nn.ReLU(), m.nn.MaxPool2d(2), m.nn.Flatten(), m.nn.LayerNorm(2))
    for p in model.parameters():
        m.nn.init.constant_(p, 0.1)
    out = model(W(m.arange(16.0).view(1, 1, 4, 4)))
    out.sum().backward()
    return numbers(out), [type(p.grad).__name__ for p in model.parameters()], numbers(model[0].weight.grad)


def indexing(m, W):
    x = W(m.arange(4.0))
    y = x[1:3]
    x[0] = 9.0
    x[m.tensor([1])] = 5.0
    return numbers(x), numbers(y), float(x.sum()), bool((x > 100).any()), int(x[0]), x[3].item()


@pytest.mark.parametrize("program", [arithmetic, training, views, in_place, in_place_recorded, derivative_of_a_derivative,
                                     classes_of_results, parameters, attention, layers, indexing], ids=lambda p: p.__name__)
def test_wrapper(program):
    found = []
    for m in (flambeau, torch):
        log = []
        found.append((program(m, wrapper_class(m, log)), [n for n in log if "profiler" not in n]))
    assert found[0] == found[1]


def test_a_mode_is_asked_before_the_subclass():
    def program(m):
        log = []
        W = wrapper_class(m, log)

        class Mode(part(m, "utils._python_dispatch").TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append(("mode", str(func), [t.__name__ for t in types]))
                return func(*args, **(kwargs or {}))

        x = W(m.ones(2))
        with Mode():
            y = x + m.ones(2)
        return type(y).__name__, log

    assert program(flambeau) == program(torch)


def quantized_class(m):
    """Weights in eight bits: only products know what to do, and all else sees them as floats."""
    tree_map = part(m, "utils._pytree").tree_map
    aten = m.ops.aten

    class Quantized(m.Tensor):
        __torch_function__ = m._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, data, scale):
            return m.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)

        def __init__(self, data, scale):
            self.data_, self.scale = data, scale

        def dequantized(self):
            return self.data_.to(self.scale.dtype) * self.scale

        def __tensor_flatten__(self):
            return ["data_", "scale"], None

        @staticmethod
        def __tensor_unflatten__(inner, meta, size, stride):
            return Quantized(inner["data_"], inner["scale"])

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is aten.t.default:
                return cls(args[0].data_.t(), args[0].scale)
            if func is aten.detach.default:
                return cls(args[0].data_, args[0].scale)
            args = tree_map(lambda x: x.dequantized() if isinstance(x, cls) else x, args)
            return func(*args, **(kwargs or {}))

    return Quantized


def test_a_quantized_weight():
    def program(m):
        Q, dispatch = quantized_class(m), part(m, "utils._python_dispatch")
        weight = Q(m.tensor([[1, 2, 3], [4, 5, 6]], dtype=m.int8), m.tensor(0.5))
        x = m.arange(6.0).view(2, 3).requires_grad_()
        out = m.nn.functional.linear(x, weight, m.ones(2))
        out.sum().backward()
        twice = dispatch.transform_subclass(weight, lambda name, t: t * 2 if name == "data_" else t)
        return numbers(out), numbers(x.grad), dispatch.is_traceable_wrapper_subclass(weight), (
            dispatch.is_traceable_wrapper_subclass(x)), numbers(twice.dequantized()), list(weight.t().shape)

    assert program(flambeau) == program(torch)


def test_nobody_knows_and_nothing_is_guessed():
    def class_of(m):
        class Refusing(m.Tensor):
            __torch_function__ = m._C._disabled_torch_function_impl

            @staticmethod
            def __new__(cls, data):
                return m.Tensor._make_subclass(cls, data)

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        return Refusing

    for m in (flambeau, torch):
        with pytest.raises(TypeError, match="Multiple dispatch failed"):
            m.add(class_of(m)(m.ones(2)), 1)
    W = wrapper_class(flambeau, [])
    with pytest.raises(NotImplementedError, match="derivative of aten.lgamma|derivative of aten.linalg"):
        x = W(flambeau.eye(2), requires_grad=True)
        flambeau.linalg.inv(x).sum().backward()


def test_inside_no_dispatch_subclasses_are_plain():
    def program(m):
        log = []
        no_dispatch = part(m, "utils._mode_utils").no_dispatch

        class Logged(m.Tensor):
            __torch_function__ = m._C._disabled_torch_function_impl

            @staticmethod
            def __new__(cls, data):
                return m.Tensor._make_subclass(cls, data)

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                log.append(str(func))
                with no_dispatch():
                    return func(*args, **(kwargs or {}))

        made = Logged(m.ones(2)) * 2
        return type(made).__name__, numbers(made), log

    assert program(flambeau) == program(torch)


def test_return_and_correct_aliasing():
    def program(m):
        log = []
        W = wrapper_class(m, log)
        dispatch = part(m, "utils._python_dispatch")
        x = W(m.ones(2))
        aten = m.ops.aten
        changed = dispatch.return_and_correct_aliasing(aten.add_.Tensor, (x, 1), {}, W(m.ones(2)))
        fresh = W(m.zeros(2))
        return changed is x, dispatch.return_and_correct_aliasing(aten.add.Tensor, (x, 1), {}, fresh) is fresh

    assert program(flambeau) == program(torch)
