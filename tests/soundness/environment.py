"""What a process carries and a function may ask for: variables, contexts, threads, folders, files, limits."""

from __future__ import annotations

import contextvars
import decimal
import inspect
import itertools
import os
import pathlib
import sys
import tempfile
import threading

from soundness.world import Thing, around, each, item, put, vec


def environment_variable(compile):
    os.environ["SOUNDNESS_GAIN"] = "2.0"
    try:
        f = compile(lambda x: x * float(os.environ["SOUNDNESS_GAIN"]))
        yield from around(f, item(os.environ, "SOUNDNESS_GAIN", "3.0"), lambda: os.putenv("SOUNDNESS_GAIN", "9.0"))
    finally:
        del os.environ["SOUNDNESS_GAIN"]


def environment_with_a_default(compile):
    try:
        f = compile(lambda x: x * float(os.getenv("SOUNDNESS_LATER", "2.0")))
        yield from around(f, item(os.environ, "SOUNDNESS_LATER", "3.0"))
    finally:
        os.environ.pop("SOUNDNESS_LATER", None)


def context_variable(compile):
    gain = contextvars.ContextVar("gain", default=2.0)
    tokens = []
    f = compile(lambda x: x * gain.get())
    return around(f, lambda: tokens.append(gain.set(3.0)), lambda: gain.reset(tokens[0]))


def context_of_ones_own(compile):
    gain = contextvars.ContextVar("gain", default=2.0)
    f = compile(lambda x: x * gain.get())
    other = contextvars.copy_context()
    other.run(gain.set, 3.0)
    for _ in range(4):
        yield f(vec()), other.run(f, vec())


def thread_local_value(compile):
    local = threading.local()
    local.gain = 2.0
    f = compile(lambda x: x * getattr(local, "gain", 3.0))
    for _ in range(4):
        made = []
        thread = threading.Thread(target=lambda: made.append(f(vec())))
        thread.start(), thread.join()
        yield f(vec()), made


def thread_asked_for_its_name(compile):
    f = compile(lambda x: x * len(threading.current_thread().name))
    for name in ("a", "a", "abc", "a", "abc"):
        made = []
        thread = threading.Thread(target=lambda: made.append(f(vec())), name=name)
        thread.start(), thread.join()
        yield made


def arguments_of_the_program(compile):
    before = list(sys.argv)
    try:
        f = compile(lambda x: x * 3.0 if "--loud" in sys.argv else x * 2.0)
        yield from around(f, lambda: sys.argv.append("--loud"))
    finally:
        sys.argv[:] = before


def working_folder(compile):
    before = os.getcwd()
    f = compile(lambda x: x * len(pathlib.Path.cwd().parts))
    try:
        yield from around(f, lambda: os.chdir("/"))
    finally:
        os.chdir(before)


def file_that_appears(compile):
    with tempfile.TemporaryDirectory() as folder:
        flag = pathlib.Path(folder, "stop")
        yield from around(compile(lambda x: x * 3.0 if flag.exists() else x * 2.0), flag.touch, flag.unlink)


def file_with_a_setting(compile):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "gain")
        file.write_text("2.0")
        yield from around(compile(lambda x: x * float(file.read_text())), lambda: file.write_text("3.0"))


def decimal_context(compile):
    def f(x):
        return x * float(decimal.Decimal(8) / decimal.Decimal(3))
    with decimal.localcontext() as context:
        context.prec = 9
        yield from around(compile(f), put(context, prec=1), put(context, prec=2))


def recursion_limit_read(compile):
    before = sys.getrecursionlimit()
    try:
        yield from around(compile(lambda x: x * (sys.getrecursionlimit() % 7)), lambda: sys.setrecursionlimit(before + 1))
    finally:
        sys.setrecursionlimit(before)


def identity_of_objects(compile):
    box = Thing(a=Thing(), b=None)
    box.b = box.a
    return around(compile(lambda x: x * 2.0 if id(box.a) == id(box.b) else x * 3.0), put(box, b=Thing()),
                  lambda: put(box, a=box.b)())


def caller_asked_for_a_name(compile):
    """Looks up the stack for a variable of whoever called."""
    def found(name):
        frame = sys._getframe()
        while frame is not None:
            if name in frame.f_locals:
                return frame.f_locals[name]
            frame = frame.f_back
    f = compile(lambda x: x * found("gain_of_the_caller"))
    for n in range(6):
        gain_of_the_caller = 2.0 if n < 3 else 3.0
        yield f(vec()), gain_of_the_caller


def signature_read(compile):
    def scale(x, gain=2.0):
        return x
    f = compile(lambda x: x * inspect.signature(scale).parameters["gain"].default)
    return around(f, put(scale, __defaults__=(3.0,)))


def unique_numbers(compile):
    class Tag:
        numbers = itertools.count(1)

        def __init__(self):
            self.number = next(self.numbers)
    yield from each(compile(lambda x: x * Tag().number), vec())
    yield Tag().number
