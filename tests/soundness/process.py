"""What a call does to the process around it: threads, locks, callbacks, finalizers; and what it must leave alone."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import os
import queue
import sys
import threading
import time
import weakref

from soundness.effects import doing
from soundness.world import Thing, around, torch, vec


def queue_filled(compile):
    q, count = queue.Queue(), itertools.count()
    yield from doing(compile, lambda: q.put(next(count)), q.qsize)
    yield [q.get() for _ in range(q.qsize())]


def event_set(compile):
    event = threading.Event()
    f = compile(lambda x: event.set() or x * 2.0)
    for _ in range(6):
        event.clear()
        yield f(vec()), event.is_set()


def lock_taken(compile):
    class Counted:
        def __init__(self):
            self.lock, self.taken = threading.Lock(), 0

        def __enter__(self):
            self.lock.acquire()
            self.taken += 1

        def __exit__(self, *error):
            self.lock.release()
    lock = Counted()

    def effect():
        with lock:
            pass
    return doing(compile, effect, lambda: (lock.taken, lock.lock.locked()))


def lock_left_taken(compile):
    lock = threading.Lock()

    def f(x):
        return x * 2.0 if lock.acquire(blocking=False) else x * 3.0
    return around(compile(f), lock.release)


def semaphore_used_up(compile):
    places = threading.Semaphore(3)
    f = compile(lambda x: x * 2.0 if places.acquire(blocking=False) else x * 3.0)
    return around(f, places.release)


def thread_started(compile):
    done = []

    def effect():
        thread = threading.Thread(target=done.append, args=(len(done),))
        thread.start(), thread.join()
    return doing(compile, effect, lambda: list(done))


def tasks_of_a_loop(compile):
    done = []

    async def one(n):
        await asyncio.sleep(0)
        done.append(n)

    async def both():
        await asyncio.gather(one(1), one(2))
    return doing(compile, lambda: asyncio.run(both()), lambda: list(done), calls=4)


def variable_of_the_context_set(compile):
    depth = contextvars.ContextVar("depth", default=0)
    return doing(compile, lambda: depth.set(depth.get() + 1), depth.get)


def environment_set(compile):
    def effect():
        os.environ["SOUNDNESS_CALLS"] = str(int(os.environ.get("SOUNDNESS_CALLS", "0")) + 1)
    try:
        yield from doing(compile, effect, lambda: os.environ["SOUNDNESS_CALLS"])
    finally:
        os.environ.pop("SOUNDNESS_CALLS", None)


def callbacks_called(compile):
    seen, listeners = [], []

    def effect():
        for listener in listeners:
            listener(len(listeners))
    yield from around(compile(lambda x: effect() or x * 2.0), lambda: listeners.append(seen.append),
                      lambda: listeners.append(lambda n: seen.append(-n)))
    yield seen


def callback_that_removes_itself(compile):
    seen, listeners = [], []

    def once():
        listeners.remove(once)
        seen.append("once")

    def f(x):
        for listener in list(listeners):
            listener()
        return x * 2.0
    f = compile(f)
    yield from around(f, lambda: listeners.append(once), lambda: listeners.append(once))
    yield seen, len(listeners)


def finalizer_called(compile):
    gone = []

    def effect():
        thing = Thing()
        weakref.finalize(thing, gone.append, len(gone))
    return doing(compile, effect, lambda: list(gone))


def weak_reference_called(compile):
    gone, refs, box = [], [], Thing(kept=None)

    def effect():
        box.kept = Thing()
        refs.append(weakref.ref(box.kept, lambda ref: gone.append(1)))
    return doing(compile, effect, lambda: (len(gone), refs[-1]() is box.kept))


def collector_asked(compile):
    ring = []

    class Round:
        def __del__(self):
            ring.append(1)

    def effect():
        made = Round()
        made.me = made
        del made
        gc.collect()
    return doing(compile, effect, lambda: len(ring), calls=4)


def breakpoint_reached(compile):
    hits, before = [], sys.breakpointhook
    sys.breakpointhook = lambda *args: hits.append(len(hits))
    try:
        yield from doing(compile, lambda: breakpoint(), lambda: list(hits))
    finally:
        sys.breakpointhook = before


def profiler_keeps_running(compile):
    """A profiler of the user's own stays, and sees what is called between the calls."""
    def profiler(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "marked":
            seen.append(1)
    return watched(compile, profiler, sys.getprofile, sys.setprofile, seen := [])


def tracer_keeps_running(compile):
    def tracer(frame, event, arg):
        if event == "line" and frame.f_code.co_name == "marked":
            seen.append(1)
        return tracer
    return watched(compile, tracer, sys.gettrace, sys.settrace, seen := [])


def watched(compile, watcher, get, set, seen):
    def marked():
        pass
    f, before = compile(lambda x: x * 2.0), get()
    set(watcher)
    try:
        for n in range(5):
            y = f(vec() * n)
            marked()
            yield y, get() is watcher, len(seen)
    finally:
        set(before)


def collector_switched_off(compile):
    f = compile(lambda x: x * 2.0 if gc.isenabled() else x * 3.0)
    gc.disable()
    try:
        yield from around(f, gc.enable, gc.disable)
        yield gc.isenabled(), gc.get_freeze_count()
    finally:
        gc.enable()


def other_thread_undisturbed(compile):
    """A thread that computes beside gets its own results, whatever is captured meanwhile."""
    stop, wrong = threading.Event(), []

    def work():
        x, n = vec(), 0
        while not stop.is_set():
            n += 1
            if not torch.equal(x * n, torch.tensor([n, 2.0 * n, 3.0 * n])):
                wrong.append(n)
            time.sleep(0)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for gain in (2.0, 3.0):
            f = compile(lambda x, gain=gain: x * gain)
            yield [f(vec() * n) for n in range(4)]
    finally:
        stop.set(), thread.join()
    yield wrong
