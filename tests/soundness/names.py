"""How a function finds what it uses: globals, cells, defaults, code made from text, modules, patched functions."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import math
import operator
import pathlib
import sys
import tempfile
import types
from math import sqrt

from soundness.world import F, Thing, around, each, item, nn, put, torch, vec

GAIN, BIAS, COUNT = 2.0, 1, 0
HERE = sys.modules[__name__]


class Holder:
    gain = 2.0


def helper(x):
    return x * GAIN


@contextlib.contextmanager
def kept(owner, *names):
    """Afterwards these attributes are what they were, or gone if they were not there."""
    missing = object()
    before = {name: getattr(owner, name, missing) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not missing:
                setattr(owner, name, value)
            elif hasattr(owner, name):
                delattr(owner, name)


def patched(compile, f, owner, **values):
    """Calls around a change of attributes, which is undone at the end."""
    with kept(owner, *values):
        yield from around(compile(f), put(owner, **values))


def code(text, **names):
    """A namespace in which this text was run; its functions have no source file."""
    names.update(torch=torch)
    exec(text, names)
    return names


# ---------------------------------------------------------------------------------------------------------------- globals
def global_of_two_functions_down(compile):
    def middle(x):
        return helper(x) + BIAS
    yield from patched(compile, lambda x: middle(x), HERE, GAIN=3.0)
    yield from patched(compile, lambda x: middle(x), HERE, BIAS=2)


def global_function_replaced(compile):
    return patched(compile, lambda x: helper(x) + 1, HERE, helper=lambda x: x * 3.0)


def global_class_replaced(compile):
    return patched(compile, lambda x: x * Holder().gain, HERE, Holder=type("Holder", (), {"gain": 3.0}))


def global_deleted_for_a_builtin(compile):
    """A global of a builtin's name hides the builtin until it is deleted."""
    names = code("def f(x): return x * len(x)", len=lambda x: 2.0)
    return around(compile(names["f"]), lambda: names.pop("len"), lambda: names.update(len=lambda x: 2.0))


def global_written_by_the_call(compile):
    def f(x):
        global COUNT
        COUNT += 1
        return x * COUNT
    with kept(HERE, "COUNT"):
        yield from around(compile(f), put(HERE, COUNT=0))
        yield COUNT


def globals_by_get(compile):
    return patched(compile, lambda x: x * globals().get("LATER", 2.0), HERE, LATER=3.0)


def globals_written_through_the_dict(compile):
    def f(x):
        globals()["COUNT"] = globals()["COUNT"] + 1
        return x * COUNT
    with kept(HERE, "COUNT"):
        yield from each(compile(f), vec())
        yield COUNT


def vars_of_the_module(compile):
    return patched(compile, lambda x: x * vars(HERE)["GAIN"], HERE, GAIN=3.0)


def module_attribute_through_sys(compile):
    return patched(compile, lambda x: x * sys.modules[__name__].GAIN, HERE, GAIN=3.0)




def builtin_that_appears(compile):
    with kept(builtins, "louder"):
        builtins.louder = lambda x: x * 2.0
        yield from around(compile(lambda x: louder(x)), put(builtins, louder=lambda x: x * 3.0))  # noqa: F821


# ------------------------------------------------------------------------------------------------------------------ cells
def cell_two_functions_out(compile):
    gain = 2.0

    def outer():
        def inner(x):
            return x * gain
        return inner
    f = compile(outer())
    for n in range(8):
        gain = 2.0 if n % 6 < 3 else 3.0
        yield f(vec())


def cell_written_by_another(compile):
    gain = 2.0

    def louder():
        nonlocal gain
        gain += 1.0
    return around(compile(lambda x: x * gain), louder, louder)


def cell_contents_written(compile):
    gain = 2.0

    def f(x):
        return x * gain
    cell = f.__closure__[0]
    return around(compile(f), put(cell, cell_contents=3.0), put(cell, cell_contents=2.0))


def cell_counted_by_the_call(compile):
    done = 0

    def f(x):
        nonlocal done
        done += 1
        return x * done
    f = compile(f)
    for n in range(6):
        yield f(vec()), done
        done = done if n != 3 else 0


def cell_emptied(compile):
    gain = 3.0

    def f(x):
        try:
            return x * gain
        except NameError:
            return x * 2.0
    f = compile(f)
    for n in range(9):
        if n == 3:
            del gain
        if n == 6:
            gain = 3.0
        yield f(vec())


def cells_of_a_loop(compile):
    fs = []
    for i in range(3):
        fs.append(compile(lambda x: x * i))
    for i in (1, 1, 1, 2, 2, 2):  # noqa: B007
        yield [f(vec()) for f in fs]


def cell_of_a_decorator(compile):
    def counted(f):
        calls = 0

        @functools.wraps(f)
        def call(x):
            nonlocal calls
            calls += 1
            return f(x) * calls
        return call
    return each(compile(counted(lambda x: x * 2.0)), vec())


def cell_of_a_generator(compile):
    def counter():
        n = 0
        while True:
            n += 1
            yield float(n)
    source = counter()
    return each(compile(lambda x: x * next(source)), vec())


# -------------------------------------------------------------------------------------------- functions as changing objects
def code_of_a_function_replaced(compile):
    def two(x):
        return x * 2.0

    def three(x):
        return x * 3.0
    return around(compile(lambda x: two(x)), put(two, __code__=three.__code__))


def code_of_the_function_itself_replaced(compile):
    def two(x):
        return x * 2.0

    def three(x):
        return x * 3.0
    return around(compile(two), put(two, __code__=three.__code__))


def defaults_of_a_helper(compile):
    def scale(x, gain=2.0):
        return x * gain
    return around(compile(lambda x: scale(x)), put(scale, __defaults__=(3.0,)), put(scale, __defaults__=(2.0,)))


def keyword_defaults(compile):
    def scale(x, *, gain=2.0):
        return x * gain
    f = compile(lambda x: scale(x))
    return around(f, item(scale.__kwdefaults__, "gain", 3.0), put(scale, __kwdefaults__={"gain": 2.0}))


def keyword_defaults_of_the_function_itself(compile):
    def scale(x, *, gain=2.0):
        return x * gain
    return around(compile(scale), item(scale.__kwdefaults__, "gain", 3.0))


def default_dict_of_a_helper(compile):
    def scale(x, memo={}):  # noqa: B006
        memo["calls"] = memo.get("calls", 0) + 1
        return x * memo["calls"]
    yield from each(compile(lambda x: scale(x)), vec())
    yield scale.__defaults__


def annotations_read(compile):
    def scale(x: 2.0):
        return x * scale.__annotations__["x"]
    scale.__annotations__["x"] = 2.0
    return around(compile(scale), item(scale.__annotations__, "x", 3.0))


def docstring_read(compile):
    def scale(x):
        return x * len(scale.__doc__)
    scale.__doc__ = "ab"
    return around(compile(lambda x: scale(x)), put(scale, __doc__="abc"))


def partial_with_keywords(compile):
    scale = functools.partial(lambda x, gain: x * gain, gain=2.0)
    return around(compile(lambda x: scale(x)), item(scale.keywords, "gain", 3.0))


def partial_set_anew(compile):
    def scale(gain, x):
        return x * gain
    part = functools.partial(scale, 2.0)
    return around(compile(lambda x: part(x)), lambda: part.__setstate__((scale, (3.0,), {}, {})))


def partial_method(compile):
    class Box:
        def scale(self, gain, x):
            return x * gain
        louder = functools.partialmethod(scale, 2.0)
    box = Box()
    return around(compile(lambda x: box.louder(x)), put(Box, louder=functools.partialmethod(Box.scale, 3.0)))


def method_caller(compile):
    class Box(Thing):
        def scale(self, x):
            return x * self.gain
    box = Box(gain=2.0)
    return around(compile(lambda x: operator.methodcaller("scale", x)(box)), put(box, gain=3.0),
                  put(Box, scale=lambda self, x: x * 2.0))


def cached_function(compile):
    @functools.lru_cache(maxsize=2)
    def gain(n):
        asked.append(n)
        return 2.0 + n % 2
    asked, box = [], Thing(n=0)
    yield from around(compile(lambda x: x * gain(box.n)), put(box, n=1), put(box, n=2), put(box, n=0))
    yield asked, tuple(gain.cache_info())


def cached_function_emptied(compile):
    box = Thing(gain=2.0)

    @functools.cache
    def gain():
        return box.gain
    return around(compile(lambda x: x * gain()), put(box, gain=3.0), gain.cache_clear)


def reduced_by_a_function(compile):
    box = Thing(how=operator.add)
    f = compile(lambda x: x * functools.reduce(box.how, [1.0, 2.0, 3.0]))
    return around(f, put(box, how=operator.sub), put(box, how=max))


def wrapped_function_replaced(compile):
    @functools.wraps(helper)
    def call(x):
        return call.__wrapped__(x)
    return around(compile(call), put(call, __wrapped__=lambda x: x * 3.0))


# -------------------------------------------------------------------------------------------------------- code from text
def made_by_exec(compile):
    names = code("def f(x): return x * gain", gain=2.0)
    return around(compile(names["f"]), item(names, "gain", 3.0), item(names, "gain", 2.0))


def made_by_exec_with_a_helper(compile):
    names = code("def g(x): return x * 2.0\ndef f(x): return g(x) + 1")
    return around(compile(names["f"]), lambda: exec("def g(x): return x * 3.0", names))


def made_by_eval(compile):
    names = {"gain": 2.0}
    return around(compile(eval("lambda x: x * gain", names)), item(names, "gain", 3.0))


def exec_inside(compile):
    space = {"n": 0}

    def f(x):
        exec("n += 1", space)
        return x * space["n"]
    return around(compile(f), item(space, "n", 0))


def eval_of_locals(compile):
    box = Thing(text="gain * 2", gain=1.0)

    def f(x):
        gain = box.gain
        return x * eval(box.text, {}, {"gain": gain})
    return around(compile(f), put(box, text="gain * 3"), put(box, gain=2.0))


def locals_read(compile):
    box = Thing(gain=2.0)

    def f(x):
        gain = box.gain
        return x * locals()["gain"]
    return around(compile(f), put(box, gain=3.0))


def builtins_of_a_namespace(compile):
    """A namespace may have builtins of its own."""
    own = {"gain": 2.0}
    names = {"__builtins__": own}
    exec("def f(x): return x * gain", names)
    return around(compile(names["f"]), item(own, "gain", 3.0), item(names, "gain", 2.0))


def template_of_text(compile):
    box = Thing(formula="{} * 2")
    f = compile(lambda x: x * eval(box.formula.format("1")))
    return around(f, put(box, formula="{} * 3"))


# ---------------------------------------------------------------------------------------------------------------- modules
def import_inside(compile):
    return patched(compile, lambda x: x * __import__("math").tau, math, tau=3.0)


def import_statement_inside(compile):
    def f(x):
        import math as m
        from math import e
        return x * m.tau * e
    return patched(compile, f, math, tau=3.0, e=2.0)


def name_imported_early(compile):
    """`from math import sqrt` keeps the old function when the module is patched; `math.sqrt` does not."""
    box = Thing(square=4.0)

    def f(x):
        return x * sqrt(box.square) + math.sqrt(box.square)
    with kept(math, "sqrt"):
        yield from around(compile(f), put(box, square=9.0), put(math, sqrt=lambda v: 2.0), put(box, square=16.0))


def module_entry_replaced(compile):
    def made(gain):
        module = types.ModuleType("soundness_plugin")
        module.gain = gain
        return module

    def f(x):
        import soundness_plugin
        return x * soundness_plugin.gain
    sys.modules["soundness_plugin"] = made(2.0)
    try:
        yield from around(compile(f), lambda: sys.modules.update(soundness_plugin=made(3.0)))
    finally:
        del sys.modules["soundness_plugin"]


def module_reloaded(compile):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "soundness_reloaded.py")
        file.write_text("def scale(x):\n    return x * 2.0\n")
        sys.path.insert(0, folder)
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            module = importlib.import_module("soundness_reloaded")

            def change():
                file.write_text("def scale(x):\n    return x * 3.0  # louder\n")
                importlib.invalidate_caches()
                importlib.reload(module)
            yield from around(compile(lambda x: module.scale(x)), change)
        finally:
            sys.path.remove(folder)
            sys.modules.pop("soundness_reloaded", None)
            sys.dont_write_bytecode = before


def function_of_the_library_patched(compile):
    return patched(compile, lambda x: F.relu(x) + 1, F, relu=lambda x: x * 3.0)


def function_of_the_tensors_patched(compile):
    return patched(compile, lambda x: torch.tanh(x), torch, tanh=lambda x: x * 3.0)


def method_of_the_tensors_added(compile):
    def f(x):
        try:
            return x.louder()
        except AttributeError:
            return x * 2.0
    return patched(compile, f, torch.Tensor, louder=lambda self: self * 3.0)


def method_of_the_tensors_patched(compile):
    return patched(compile, lambda x: x.tanh(), torch.Tensor, tanh=lambda self: self * 3.0)


def forward_of_a_library_layer_patched(compile):
    net = nn.Tanh()
    return patched(compile, lambda x: net(x), nn.Tanh, forward=lambda self, x: x * 3.0)


def class_of_a_layer_replaced(compile):
    return patched(compile, lambda x: nn.ReLU()(x), nn, ReLU=nn.Tanh)
