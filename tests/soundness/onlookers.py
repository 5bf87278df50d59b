"""What others see of a call besides its result: results that hold tensors where nobody looks, names and frames, objects that
are let go."""

from __future__ import annotations

import collections
import sys
import traceback
import weakref

from soundness.world import Thing, around, item, nn, torch, vec

Pair = collections.namedtuple("Pair", "a b")


# -------------------------------------------------------------------------------------------------- results that hold tensors
def result_is_a_frozen_set_or_a_slice(compile):
    f = compile(lambda x: (frozenset([x * 2.0]), slice(x * 3.0, None), slice(x)))
    for n in range(5):
        some, part, given = f(vec() * n)
        yield list(some), part.start, given.stop


def result_has_a_tensor_as_a_key(compile):
    f = compile(lambda x: {x * 2.0: 1})
    return (list(f(vec() * n)) for n in range(5))


def result_is_a_tuple_that_is_kept(compile):
    box = Thing(numbers=(1000, 2000.5), pair=Pair(1000, 2000.5))
    f = compile(lambda x, given: (x * 2.0, box.numbers, box.pair, given))
    for n in range(5):
        given = (vec(), n)
        y, numbers, pair, back = f(vec() * n, given)
        yield y, numbers is box.numbers, pair is box.pair, back is given


# --------------------------------------------------------------------------------------------------- names as Python has them
class Private:
    def __init__(self):
        self.__gain, self._fs = 2.0, [lambda x: x * self.__gain]

    def function(self):
        def inner(x, *, __scale=1.0):
            __twice = 2.0
            return x * self.__gain * __twice * __scale
        return inner

    def set(self, value):
        self.__gain = value


def names_private_to_a_class(compile):
    box = Private()
    f, g = compile(box.function()), compile(box._fs[0])
    return around(lambda x: f(x) + g(x), lambda: box.set(3.0))


def variables_of_a_function_that_is_given_back(compile):
    def f(x):
        y = x * 2.0

        def later(**options):
            """What it does."""
            return y.abs()
        return later
    f = compile(f)
    for n in range(4):
        later = f(vec() * n)
        yield later(), later.__code__.co_freevars, len(later.__closure__), later.__doc__


def names_of_the_caller(compile):
    box = Thing(n=0)

    def names():
        return sorted(sys._getframe(1).f_locals)

    def f(x):
        box.n += 1
        first = second = x.abs()
        return first + second, names()
    f = compile(f)
    return (f(vec() * n) for n in range(4))


def caller_of_a_property(compile):
    class Box:
        def __init__(self):
            self.made_by = sys._getframe(1).f_code.co_name

        @property
        def gain(self):
            return len(sys._getframe(1).f_code.co_name) + len(self.made_by)
    box = Box()

    def asker(x):
        return x * box.gain * len(Box().made_by)
    f = compile(asker)
    return (f(vec() * n) for n in range(4))


def list_that_holds_itself_shown(compile):
    some = [1.0]
    some.append(some)
    return around(compile(lambda x: x * len(str(some)) * len(repr(some[1]))), item(some, 0, 22.0))


# ------------------------------------------------------------------------------------------------ objects that are let go
def object_replaced_that_dies(compile):
    gone = []

    class Box:
        def __init__(self, gain):
            self.gain = gain

        def __del__(self):
            gone.append(self.gain)
    holder = Thing(box=Box(2.0))
    f = compile(lambda x: x * holder.box.gain)
    for n in range(9):
        if n % 3 == 2:
            holder.box = Box(3.0 + n)
        yield f(vec()), list(gone)


def model_replaced_that_dies(compile):
    holder = Thing(net=nn.Linear(3, 3))
    first = weakref.ref(holder.net)

    def f(x):
        with torch.no_grad():
            return holder.net(x)
    f = compile(f)
    for n in range(8):
        if n == 4:
            holder.net = nn.Linear(3, 3)
        yield f(vec()), first() is None


# --------------------------------------------------------------------------------------------- branches that catch everything
def branching(compile, branch):
    f = compile(lambda x: torch.cond(x[0] > 0, branch, lambda x: x - 1, (x,)))
    return (f(vec() * (1 if n % 2 else -1)) for n in range(6))


def branch_that_catches_everything(compile):
    log = []

    def branch(x):
        try:
            log.append(1)
        except:  # noqa: E722
            return x * 100
        return x * 2
    yield from branching(compile, branch)
    yield log


def branch_that_returns_in_the_end(compile):
    def branch(x):
        try:
            print("taken")
        finally:
            return x * 3  # noqa: B012
    return branching(compile, branch)


# ------------------------------------------------------------------------------------------- tracebacks that the call reads
class Broken:
    def __init__(self, bad=False):
        if bad:
            raise ValueError("bad")

    @property
    def gain(self):
        return self.missing

    def __getitem__(self, key):
        return {}[key]


def failing(x):
    raise ValueError(x)


BROKEN = Broken()
FAILURES = {
    "attribute": lambda: BROKEN.missing, "property": lambda: BROKEN.gain, "item": lambda: BROKEN["k"], "key": lambda: {}["k"],
    "making": lambda: Broken(True), "operator": lambda: "a" + 1, "function": lambda: failing(1), "builtin": lambda: len(5),
    "map": lambda: list(map(failing, [1])), "sorted": lambda: sorted([2, 1], key=failing), "next": lambda: next(iter([]))}


def traced(compile, fail):
    def f(x):
        try:
            fail()
        except Exception:
            first = traceback.format_exc()
        try:
            fail()
        except:  # noqa: E722
            return x * 2.0, first, traceback.format_exc()
    f = compile(f)
    return (f(vec() * n) for n in range(3))


def traceback_of(fail):
    def run(compile):
        return traced(compile, fail)
    return run


for _name, _fail in FAILURES.items():
    globals()[f"traceback_of_{_name}"] = traceback_of(_fail)


def profiler_left_behind(compile):
    def profiler(*event):
        pass

    def f(x):
        sys.setprofile(profiler)
        return x * 2.0
    f = compile(f)
    for n in range(3):
        y = f(vec() * n)
        left = sys.getprofile() is profiler
        sys.setprofile(None)
        yield y, left
