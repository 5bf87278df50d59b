"""What nodes save, and hooks on it. Compared with torch."""

import gc
import os
import tempfile
import uuid
import weakref

import pytest
from compare import Programs, agree, leaf

import flambeau

programs = Programs()


def hooked(mod, pack, unpack):
    return mod.autograd.graph.saved_tensors_hooks(pack, unpack)


@programs
def saved_names(mod):
    x, y = leaf(mod), mod.tensor([3.0, 4.0])
    p = x * y
    return (p.grad_fn._saved_self, p.grad_fn._saved_other, x.exp().grad_fn._saved_result,
            x.sin().grad_fn._saved_self is x)


@programs
def no_such_name(mod):
    leaf(mod).exp().grad_fn._saved_nothing


@programs
def add_saves_nothing(mod):
    x = leaf(mod)
    y = x + x
    return [n for n in ("_saved_self", "_saved_other") if hasattr(y.grad_fn, n)]


@programs
def freed(mod):
    y = leaf(mod).exp()
    y.sum().backward()
    return y.grad_fn._saved_result


@programs
def pack_and_unpack(mod):
    seen = []

    def pack(t):
        seen.append(("pack", t.detach().tolist(), t.requires_grad))
        return t.detach().tolist()

    def unpack(values):
        seen.append(("unpack", values))
        return mod.tensor(values)

    x = leaf(mod)
    with hooked(mod, pack, unpack):
        y = (x * x).exp()
    y.sum().backward()
    return x.grad, seen


@programs
def identity_hooks(mod):
    x = leaf(mod)
    with hooked(mod, lambda t: t, lambda t: t):
        y = (x * x).exp() * x
    y.sum().backward(retain_graph=True)
    g, = mod.autograd.grad(y.sum(), x, create_graph=True)
    return x.grad, mod.autograd.grad(g.sum(), x)


@programs
def innermost_pair_counts(mod):
    x = leaf(mod)
    with hooked(mod, lambda t: t * 2, lambda t: t):
        with hooked(mod, lambda t: t * 3, lambda t: t):
            y = x.exp()
        z = x.exp()
    (y + z).sum().backward()
    return x.grad


@programs
def unpack_must_return_a_tensor(mod):
    x = leaf(mod)
    with hooked(mod, lambda t: t, lambda t: 3):
        y = x * x
    y.sum().backward()


@programs
def pack_must_not_write(mod):
    x = leaf(mod) * 1
    with hooked(mod, lambda t: t.mul_(2), lambda t: t):
        x * x


@programs
def disabled(mod):
    with mod.autograd.graph.disable_saved_tensors_hooks("not here"):
        with hooked(mod, lambda t: t, lambda t: t):
            pass


@programs
def disabled_inside(mod):
    with hooked(mod, lambda t: t, lambda t: t):
        with mod.autograd.graph.disable_saved_tensors_hooks("not here"):
            pass


@programs
def hooks_in_a_custom_function(mod):
    class Square(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y, None)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y, _ = ctx.saved_tensors
            return g * x + y * 0

    x = leaf(mod)
    with hooked(mod, lambda t: t * 10, lambda t: t):
        y = Square.apply(x)
    y.sum().backward()
    return x.grad


@programs
def raw_saved_hooks(mod):
    x = leaf(mod)
    y = x.exp()
    raw = y.grad_fn._raw_saved_result
    raw.register_hooks(lambda t: t * 2, lambda t: t)
    value = y.grad_fn._saved_result
    y.sum().backward()
    return value, x.grad


@programs
def raw_saved_hooks_twice(mod):
    y = leaf(mod).exp()  # (torch's raw saved tensors must not outlive their node)
    raw = y.grad_fn._raw_saved_result
    raw.register_hooks(lambda t: t, lambda t: t)
    raw.register_hooks(lambda t: t, lambda t: t)


@programs
def raw_saved_none(mod):
    y = leaf(mod) * mod.ones(2)
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


@programs
def raw_saved_freed(mod):
    y = leaf(mod).exp()
    raw = y.grad_fn._raw_saved_result
    y.sum().backward()
    raw.register_hooks(lambda t: t, lambda t: t)


@programs
def raw_saved_not_callable(mod):
    y = leaf(mod).exp()
    y.grad_fn._raw_saved_result.register_hooks(1, 2)


@programs
def raw_saved_after_a_change(mod):
    y = leaf(mod) * 1
    z = y * y
    raw = z.grad_fn._raw_saved_self
    y.add_(1)
    raw.register_hooks(lambda t: t, lambda t: t)


@programs
def copies_may_be_changed(mod):
    x = leaf(mod)
    with hooked(mod, lambda t: t.clone(), lambda t: t):
        y = x * 1
        z = y * y
    with mod.no_grad():
        y.add_(5)
    z.sum().backward()
    return x.grad


@programs
def save_on_cpu(mod):
    x = leaf(mod)
    with mod.autograd.graph.save_on_cpu():
        y = x.exp() * x
    y.sum().backward()
    return x.grad


@programs
def mutation_allowed(mod):
    x = leaf(mod)
    with mod.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        out = (y ** 2).sum()
        y.sin_()
        y.mul_(3)
        out.backward()
    return x.grad, y


@programs
def mutation_allowed_only_inside(mod):
    x = leaf(mod)
    with mod.autograd.graph.allow_mutation_on_saved_tensors():
        out = (x.clone() ** 2).sum()
    out.backward()


@programs
def increment_version(mod):
    x = leaf(mod) * 1
    y = x * x
    mod.autograd.graph.increment_version(x)
    y.sum().backward()


@programs
def modified(mod):
    x = leaf(mod) * 1
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


class OnDisk:
    def __init__(self):
        self.name = os.path.join(tempfile.gettempdir(), f"{uuid.uuid4()}.flambeau")

    def __del__(self):
        os.remove(self.name)


def test_saved_on_disk_in_files_that_delete_themselves():
    import pickle

    def pack(tensor):
        held = OnDisk()
        with open(held.name, "wb") as file:
            pickle.dump(tensor.tolist(), file)
        names.append(held.name)
        return held

    def unpack(held):
        with open(held.name, "rb") as file:
            return flambeau.tensor(pickle.load(file))

    names = []
    x = flambeau.ones(5, requires_grad=True)
    with flambeau.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.pow(2)
    assert y.grad_fn._saved_self.tolist() == [1.0] * 5
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [4.0] * 5
    del y
    assert names and not any(os.path.exists(n) for n in names)


def test_packing_an_output_makes_no_cycle():
    gc.disable()
    try:
        x = leaf(flambeau)
        with flambeau.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.exp()
        held = weakref.ref(y.grad_fn)
        assert y.grad_fn._saved_result.grad_fn is y.grad_fn
        del y
        assert held() is None
    finally:
        gc.enable()


def test_the_error_names_the_line_that_changed_the_tensor():
    x = leaf(flambeau) * 1
    y = x * x
    x.add_(1)  # the culprit
    with pytest.raises(RuntimeError, match=r"test_saved_tensors.py\", line \d+, in test_the_error"):
        y.sum().backward()


def test_hooks_are_the_threads_own():
    import threading
    seen = []

    def other():
        leaf(flambeau).exp()
        seen.append(len(flambeau.autograd.graph.state.saved_hooks))

    with flambeau.autograd.graph.saved_tensors_hooks(lambda t: seen.append("packed") or t, lambda t: t):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [0]
