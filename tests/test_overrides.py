"""__torch_function__: subclasses, tensor-like objects and modes. Compared with torch where it can be."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import torch
from compare import Programs, agree

import flambeau as fl
from flambeau.ops.core import overrides

programs = Programs()


def plain_subclass(mod):
    class Tagged(mod.Tensor):
        pass

    return Tagged


def logging_subclass(mod, log):
    class Logged(mod.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    return Logged


@programs
def results_keep_the_subclass(mod):
    Tagged = plain_subclass(mod)
    x = mod.ones(3).as_subclass(Tagged)
    made = [x + 1, 1 + x, x * x, x.exp(), mod.exp(x), x.sum(), x[0], x.view(3, 1), mod.cat([x, x]), x.max(0),
            x.split(1), x.add_(1)]
    return [type(m).__name__ if isinstance(m, mod.Tensor) else [type(v).__name__ for v in m] for m in made]


@programs
def mixed_with_plain(mod):
    x = mod.ones(3).as_subclass(plain_subclass(mod))
    return type(mod.ones(3) * x).__name__, type(mod.nn.Parameter(mod.ones(3)) * x).__name__


@programs
def as_subclass_keeps_the_graph(mod):
    x = mod.ones(3, requires_grad=True)
    y = x.as_subclass(plain_subclass(mod))
    (y * 2).sum().backward()
    return x.grad, type(y).__name__, y.requires_grad, y.is_leaf


@programs
def make_subclass(mod):
    Tagged = plain_subclass(mod)
    x = mod.Tensor._make_subclass(Tagged, mod.ones(2), True)
    y = x * 3
    y.sum().backward()
    return type(x).__name__, x.is_leaf, x.requires_grad, x.grad.tolist()


@programs
def constructor(mod):
    Tagged = plain_subclass(mod)
    return type(Tagged([1.0, 2.0])).__name__, Tagged([1.0, 2.0]).tolist(), isinstance(Tagged([1.0]), mod.Tensor)


@programs
def attributes(mod):
    class Named(mod.Tensor):
        @staticmethod
        def __new__(cls, data, name):
            return mod.as_tensor(data).as_subclass(cls)

        def __init__(self, data, name):
            self.label = name

        def shout(self):
            return self.label.upper()

    x = Named([1.0, 2.0], "ab")
    return x.label, x.shout(), hasattr(x + 1, "label"), tuple(x.shape)


@programs
def logged_functions(mod):
    log = []
    x = mod.ones(3).as_subclass(logging_subclass(mod, log))
    log.clear()
    mod.exp(x)
    x.sin()
    mod.add(x, 1)
    mod.cat([x, x])
    return log


@programs
def not_implemented(mod):
    class Refuses(mod.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    mod.exp(mod.Tensor._make_subclass(Refuses, mod.ones(2)))


@programs
def unrelated_subclasses(mod):
    a, b = mod.ones(2).as_subclass(plain_subclass(mod)), mod.ones(2).as_subclass(plain_subclass(mod))
    return a + b


@programs
def subclass_before_superclass(mod):
    asked = []

    class Base(mod.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(cls.__name__)
            return NotImplemented

    class Derived(Base):
        pass

    a, b = mod.Tensor._make_subclass(Base, mod.ones(1)), mod.Tensor._make_subclass(Derived, mod.ones(1))
    try:
        mod.add(a, b)
    except TypeError:
        return asked


@programs
def disabled_for_a_class(mod):
    disabled = mod.overrides if mod.__name__ == "flambeau" else mod._C

    class Quiet(mod.Tensor):
        __torch_function__ = disabled._disabled_torch_function_impl

    x = mod.Tensor._make_subclass(Quiet, mod.ones(2))
    return type(x + 1).__name__


@programs
def tensor_like_object(mod):
    handled = {}

    def implements(function):
        def register(f):
            handled[function] = f
            return f
        return register

    class Scalar:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled:
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    @implements(mod.mean)
    def mean(input):
        return input.value / input.n

    @implements(mod.add)
    def add(a, b):
        return Scalar(a.n, a.value + b.value).value

    seen = [mod.mean(Scalar(2, 6.0)), mod.add(Scalar(2, 1.0), Scalar(2, 2.0)),
            mod.overrides.is_tensor_like(Scalar(1, 1))]
    try:
        mod.exp(Scalar(1, 1.0))
    except TypeError:
        seen.append("TypeError")
    return seen


@programs
def mode(mod):
    log = []

    class Log(mod.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = mod.ones(3)
    with Log():
        mod.exp(x)
        y = mod.add(x, x)
    mod.sin(x)
    return log, y


@programs
def mode_replaces(mod):
    class Double(mod.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 2

    with Double(), Double():
        return mod.exp(mod.zeros(2))


@programs
def mode_and_subclass(mod):
    log = []
    x = mod.ones(3).as_subclass(logging_subclass(mod, log))

    class Log(mod.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(("mode", len(types)))
            return func(*args, **(kwargs or {}))

    log.clear()
    with Log():
        mod.exp(x)
    return log


@programs
def has_torch_function(mod):
    x = mod.ones(3).as_subclass(plain_subclass(mod))
    has = mod.overrides.has_torch_function
    return has((x,)), has((mod.ones(1),)), has((1, "a")), has((mod.ones(1), x))


@programs
def library_function(mod):
    def mine(x, y):
        if mod.overrides.has_torch_function((x, y)):
            return mod.overrides.handle_torch_function(mine, (x, y), x, y)
        return "plain"

    class Overrides(mod.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "overridden" if func is mine else super().__torch_function__(func, types, args, kwargs)

    return mine(mod.ones(1), 2), mine(mod.Tensor._make_subclass(Overrides, mod.ones(1)), 2)


@programs
def subclass_of_parameter(mod):
    class Weight(mod.nn.Parameter):
        pass

    w = Weight(mod.ones(2))
    return type(w).__name__, w.requires_grad, type(w * 2).__name__, isinstance(w, mod.nn.Parameter)


@programs
def autograd_grad_with_subclass(mod):
    x = mod.ones(2).as_subclass(plain_subclass(mod)).requires_grad_()
    g, = mod.autograd.grad((x * x).sum(), x)
    return g.tolist()


@programs
def repr_of_a_subclass(mod):
    return repr(mod.ones(2).as_subclass(plain_subclass(mod)))


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


class Picklable(fl.Tensor):
    pass


def test_pickle():
    x = fl.ones(3).as_subclass(Picklable)
    y = pickle.loads(pickle.dumps(x))
    assert type(y) is Picklable and y.tolist() == [1.0, 1.0, 1.0]


def test_deepcopy():
    x = fl.ones(3).as_subclass(Picklable)
    x.extra = [1]
    y = copy.deepcopy(x)
    assert type(y) is Picklable and y.tolist() == x.tolist() and y.extra == [1] and y.extra is not x.extra


def test_modes_end_after_an_error():
    class Nothing(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(ZeroDivisionError):
        with Nothing():
            1 / 0
    assert overrides._get_current_function_mode() is None
    assert fl.autograd.graph.state.mode == 0


def test_lists_of_functions():
    assert fl.add in overrides.get_testing_overrides()
    assert overrides.resolve_name(fl.exp) == torch.overrides.resolve_name(torch.exp)
    assert overrides.get_overridable_functions()[fl.Tensor]


# ---------------------------------------------------------------------------------- functions by the names users hold
def test_functions_that_load_late_are_the_ones_that_handlers_see():
    code = """
import flambeau as torch
table = {torch.einsum: "einsum", torch.trace: "trace", torch.stft: "stft", torch.svd: "svd", torch.cdist: "cdist"}
torch.einsum("ij->i", torch.ones(2, 2)), torch.ones(2, 2).svd(), torch.stft(torch.ones(8), 4, return_complex=True)
class Handled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return table[func]
x = torch.ones(2, 2).as_subclass(Handled)
print(torch.einsum("ij->i", x), x.trace(), torch.trace(x), torch.stft(x, 4), torch.svd(x), x.svd(), torch.cdist(x, x))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["einsum", "trace", "trace", "stft", "svd", "svd", "cdist"]


def test_names_of_functions_are_pytorchs():
    for place in ("mul", "Tensor.mul_", "nn.functional.relu", "nn.init.uniform_", "linalg.inv", "fft.fft"):
        mine, theirs = fl, torch
        for name in place.split("."):
            mine, theirs = getattr(mine, name), getattr(theirs, name)
        assert fl.overrides.resolve_name(mine) == torch.overrides.resolve_name(theirs) == f"torch.{place}"
    assert fl.overrides.resolve_name(print) is None


def test_each_function_that_can_be_overridden_asks():
    class Asked:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return dummies[func](*args, **(kwargs or {}))

        def __len__(self):
            return 1

    dummies = fl.overrides.get_testing_overrides()
    for space in (fl.nn.functional, fl.nn.init, fl.linalg, fl.fft):
        functions = fl.overrides.get_overridable_functions()[space]
        assert functions
        for function in functions:
            spec = inspect.getfullargspec(dummies[function])
            assert spec._replace(annotations={}) == inspect.getfullargspec(function)._replace(annotations={})
            count = len(spec.args) - len(spec.defaults or ()) or 2
            if function is not fl.nn.functional.grouped_mm:  # which says torch._grouped_mm
                assert function(*[Asked() for _ in range(count)]) == -1


def test_initialisation_can_be_overridden():
    class Kept(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__ if func is fl.nn.init.uniform_ else super().__torch_function__(func, types, args, kwargs)

    x = fl.zeros(2).as_subclass(Kept)
    assert fl.nn.init.uniform_(x) == "uniform_" and fl.nn.init.constant_(x, 2.0).tolist() == [2, 2]


def test_redispatch_skips_one_handler():
    for torch_ in (fl, torch):
        said = []

        class Loud(torch_.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                said.append(func.__name__)
                return torch_.overrides.redispatch_function(func, types, args, kwargs or {})

        def scaled(a, b):
            if torch_.overrides.has_torch_function((a, b)):
                return torch_.overrides.handle_torch_function(scaled, (a, b), a, b)
            return a * b + 1

        x = torch_.ones(1).as_subclass(Loud)
        found = scaled(x, x)
        assert said == ["scaled", "mul"] and type(found) is torch_.Tensor and found.tolist() == [2]


def test_handlers_see_the_operands_of_einsum_one_by_one():
    for mod in (fl, torch):
        def forward(a, b):
            return mod.einsum("ij,jk->ik", [a, b])

        node = next(n for n in mod.fx.symbolic_trace(forward).graph.nodes if n.op == "call_function")
        assert node.target is mod.einsum and [str(a) for a in node.args] == ["ij,jk->ik", "a", "b"]
