"""Exceptions that are caught on the way, and exceptions of every kind."""

from __future__ import annotations

import contextlib
import traceback

from soundness.exceptions import Refused, at, tried
from soundness.world import F, Thing, around, each, final, fit, line, nn, optim, put, torch, vec


# -------------------------------------------------------------------------------------------------------- caught on the way
def caught_and_counted(compile):
    box = Thing(failures=0)

    def f(x):
        try:
            if box.bad:
                raise Refused("bad")
            return x * 2.0
        except Refused:
            box.failures += 1
            return x * 3.0
    return at(compile, f, box, {3, 4}, lambda: box.failures)


def caught_and_tried_again(compile):
    box = Thing(tries=0)

    def flaky(x):
        box.tries += 1
        if box.tries % 3:
            raise ConnectionError(box.tries)
        return x * 2.0

    def f(x):
        for _ in range(5):
            try:
                return flaky(x)
            except ConnectionError:
                continue
    return at(compile, f, box, (), lambda: box.tries)


def caught_and_raised_from(compile):
    box = Thing()

    def f(x):
        try:
            if box.bad:
                raise KeyError("inner")
            return x * 2.0
        except KeyError as error:
            raise Refused("outer") from error
    f = compile(f)
    for n in range(6):
        box.bad = n % 3 == 2
        try:
            yield f(vec())
        except Refused as error:
            yield repr(error.__cause__), error.__suppress_context__


def caught_by_a_group(compile):
    box, log = Thing(), []

    def f(x):
        try:
            if box.bad:
                raise ExceptionGroup("many", [KeyError("a"), ValueError("b")])
            x = x * 2.0
        except* KeyError:
            log.append("key")
        except* ValueError:
            log.append("value")
        return x
    return at(compile, f, box, {3, 4}, lambda: list(log))


def caught_from_a_tensor(compile):
    box = Thing(weight=torch.ones(4))

    def f(x):
        try:
            y = x * 2.0
            return y + box.weight
        except RuntimeError:
            return x * 3.0
    return around(compile(f), put(box, weight=torch.ones(3)), put(box, weight=torch.ones(4)))


def suppressed(compile):
    box, log = Thing(), []

    def f(x):
        with contextlib.suppress(Refused):
            log.append("in")
            if box.bad:
                raise Refused("bad")
            log.append("out")
        return x * len(log)
    return at(compile, f, box, {3, 4})


def finally_returns(compile):
    box = Thing()

    def f(x):
        try:
            if box.bad:
                raise Refused("lost")
            return x * 2.0
        finally:
            if box.bad:
                return x * 3.0  # noqa: B012
    return at(compile, f, box, {3, 4})


def cleaned_up_in_order(compile):
    box, log = Thing(), []

    def f(x):
        with contextlib.ExitStack() as stack:
            for name in "abc":
                stack.callback(log.append, name)
            if box.bad:
                stack.pop_all()
                raise Refused("bad")
            return x * 2.0
    return at(compile, f, box, {3, 4}, lambda: "".join(log))


def swallowed_by_the_block_with_a_tensor(compile):
    class Rescue:
        result = None

        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            if kind is Refused:
                self.result = error.payload
            return kind is Refused
    box = Thing()

    def f(x):
        with Rescue() as rescue:
            if box.bad:
                raise Refused("bad", x * 3.0)
            return x * 2.0
        return rescue.result
    return at(compile, f, box, {3, 4})


# ------------------------------------------------------------------------------------------------------- kinds of exceptions
def not_an_exception_proper(compile):
    class Stop(BaseException):
        pass
    box, log = Thing(), []

    @compile
    def f(x):
        log.append(1)
        if box.bad:
            raise Stop("stop")
        return x * 2.0
    for n in range(6):
        box.bad = n in (0, 3)
        try:
            yield f(vec()), len(log)
        except Stop as stop:
            yield str(stop), len(log)


def of_exit_and_interrupt(compile):
    box = Thing(kind=None)

    def f(x):
        if box.kind is not None:
            raise box.kind(3)
        return x * 2.0
    f = compile(f)
    for kind in (None, None, None, SystemExit, None, KeyboardInterrupt, None):
        box.kind = kind
        try:
            yield f(vec())
        except (SystemExit, KeyboardInterrupt) as error:
            yield type(error).__name__


def of_the_end_of_an_iterator(compile):
    it = iter([2.0, 3.0, 4.0, 5.0])
    f = compile(lambda x: x * next(it))
    return (tried(f, vec()) for _ in range(6))


def of_dividing_by_zero(compile):
    box = Thing(n=1)
    f = compile(lambda x: x * (2 // box.n))
    return around(lambda x: tried(f, x), put(box, n=0), put(box, n=2))


def of_a_missing_name(compile):
    box, table = Thing(), {}

    def f(x):
        return x * table["gain"] if box.bad else x * 2.0
    return at(compile, f, box, {0, 4})


def of_too_deep_a_recursion(compile):
    box = Thing()

    def down(n):
        return down(n + 1) if box.bad else n

    def f(x):
        try:
            return x * (down(0) + 2.0)
        except RecursionError:
            return x * 3.0
    return at(compile, f, box, {2, 4}, calls=6)


def with_the_users_lines_in_the_traceback(compile):
    box = Thing()

    def deep(x):
        if box.bad:
            raise Refused("bad")
        return x * 2.0

    def shallow(x):
        return deep(x)
    f = compile(shallow)
    for n in range(6):
        box.bad = n in (0, 4)
        try:
            yield f(vec())
        except Refused as error:
            yield [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.name in ("deep", "shallow")]


def with_a_note(compile):
    box = Thing(n=0)

    def f(x):
        box.n += 1
        error = Refused("noted")
        error.add_note(f"call {box.n}")
        if box.n % 3 == 0:
            raise error
        return x * 2.0
    f = compile(f)
    for _ in range(6):
        try:
            yield f(vec())
        except Refused as error:
            yield error.__notes__


def of_the_library_with_its_text(compile):
    table = nn.Embedding(4, 2)
    f = compile(lambda i: F.one_hot(i, 4).sum() + table(i).sum())
    for n in range(6):
        yield tried(f, torch.tensor([1, 2 if n % 3 else 9]))


def then_all_is_well(compile):
    """An optimizer's state made in a step that failed is the state of the next one."""
    net, opt, x, y = line(lambda ps: optim.Adam(ps, lr=0.1))
    box = Thing()

    def f(_):
        loss = fit(net, opt, x, y)
        if box.bad:
            raise Refused("after the step")
        return loss
    yield from at(compile, f, box, {0, 1, 4}, lambda: final(net, opt))


def in_each_second_of_two_functions(compile):
    box = Thing(n=0)

    def one(x):
        box.n += 1
        return x * box.n

    def two(x):
        if box.n % 2:
            raise Refused(f"odd {box.n}")
        return x * 2.0
    one, two = compile(one), compile(two)
    return each(lambda x: (one(x), tried(two, x)), vec())
