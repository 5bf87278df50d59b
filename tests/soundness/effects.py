"""What a call does beside its result: it prints, logs, warns, writes files, counts, collects."""

from __future__ import annotations

import array
import collections
import contextlib
import csv
import ctypes
import heapq
import io
import itertools
import json
import logging
import os
import pathlib
import pickle
import pprint
import sqlite3
import sys
import tempfile
import warnings

import numpy as np

from soundness.world import Thing, around, each, final, fit, line, nn, put, torch, vec


def doing(compile, effect, show=lambda: None, calls=6):
    """Calls with an effect on the way, and what it has done after each of them."""
    def f(x):
        effect()
        return x * 2.0
    f = compile(f)
    for _ in range(calls):
        yield f(vec()), show()


# -------------------------------------------------------------------------------------------------------------------- text
def printed(compile):
    return doing(compile, lambda: print("a call"))


def printed_in_parts(compile):
    return doing(compile, lambda: (print("a", end=" "), print("b", "c", sep="-", flush=True)))


def printed_to_the_error_stream(compile):
    return doing(compile, lambda: print("a call", file=sys.stderr))


def printed_by_write(compile):
    return doing(compile, lambda: sys.stdout.write("a call\n"))


def printed_with_a_count(compile):
    count = itertools.count()
    return doing(compile, lambda: print(f"call {next(count)}"))


def printed_shape(compile):
    def f(x):
        print(tuple(x.shape), x.dtype, len(x))
        return x * 2.0
    f = compile(f)
    for n in (3, 3, 4, 3, 4, 4):
        yield f(vec(n))


def printed_tensor(compile):
    def f(x):
        y = x * 2.0
        print("doubled:", y)
        return y + 1
    f = compile(f)
    for n in range(6):
        yield f(vec() * n)


def printed_in_a_branch(compile):
    box = Thing(loud=False)

    def f(x):
        if box.loud:
            print("loud")
        return x * 2.0
    return around(compile(f), put(box, loud=True), put(box, loud=False))


def printed_by_a_layer(compile):
    class Talking(nn.Module):
        def forward(self, x):
            print("forward of", type(self).__name__)
            return x * 2.0
    net = nn.Sequential(Talking(), nn.Tanh())
    return each(compile(lambda x: net(x)), vec())


def printed_loss(compile):
    net, opt, x, y = line()

    @compile
    def step(x, y):
        loss = fit(net, opt, x, y)
        print(f"loss {loss.item():.4f}")
        return loss
    yield from each(step, x, y)
    yield final(net, opt)


def printed_every_third_time(compile):
    box = Thing(n=0)

    def f(x):
        box.n += 1
        if box.n % 3 == 0:
            print("third")
        return x * 2.0
    return each(compile(f), vec(), calls=8)


def printed_elsewhere(compile):
    """Somebody takes the output away for a while."""
    text = io.StringIO()
    f = compile(lambda x: print("a call") or x * 2.0)
    for n in range(6):
        with contextlib.redirect_stdout(text) if n % 2 else contextlib.nullcontext():
            f(vec())
        yield text.getvalue()


def printed_inside_a_redirection(compile):
    texts = []

    def f(x):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("a call")
        texts.append(text.getvalue())
        return x * 2.0
    yield from each(compile(f), vec())
    yield texts


def pretty_printed(compile):
    table = {"b": [1, 2], "a": {"c": 3}}
    return around(compile(lambda x: pprint.pprint(table) or x * 2.0), lambda: table["b"].append(3))


@contextlib.contextmanager
def log_of(level="INFO"):
    text, log = io.StringIO(), logging.getLogger("soundness.effects")
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(level)
    try:
        yield log, text
    finally:
        log.removeHandler(handler)


def logged_with_arguments(compile):
    with log_of() as (log, text):
        count = itertools.count()
        yield from doing(compile, lambda: log.info("call %d of %s", next(count), "many"), text.getvalue)


def logged_below_the_level(compile):
    with log_of("WARNING") as (log, text):
        f = compile(lambda x: log.info("a call") or x * 2.0)
        yield from around(f, lambda: log.setLevel("INFO"), put(log, disabled=True), put(log, disabled=False))
        yield text.getvalue()


def logged_through_a_filter(compile):
    class Counting(logging.Filter):
        seen = 0

        def filter(self, record):
            self.seen += 1
            return self.seen % 2 == 0
    with log_of() as (log, text):
        counting = Counting()
        log.addFilter(counting)
        yield from doing(compile, lambda: log.warning("a call"), lambda: counting.seen)
        log.removeFilter(counting)
        yield text.getvalue()


def logged_when_enabled(compile):
    with log_of("WARNING") as (log, _):
        f = compile(lambda x: x * 3.0 if log.isEnabledFor(logging.DEBUG) else x * 2.0)
        yield from around(f, lambda: log.setLevel("DEBUG"))


def logged_exception(compile):
    def f(x):
        try:
            raise KeyError("gain")
        except KeyError:
            log.exception("failed")
        return x * 2.0
    with log_of() as (log, text):
        yield from each(compile(f), vec())
        yield text.getvalue().count("failed"), text.getvalue().count("KeyError: 'gain'")


def warned_of_a_category(compile):
    class Odd(UserWarning):
        pass
    f = compile(lambda x: warnings.warn("odd", Odd, stacklevel=1) or x * 2.0)
    for n in range(6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always" if n != 3 else "ignore")
            f(vec())
        yield [str(w.message) for w in caught if w.category is Odd]


def warned_as_an_error(compile):
    f = compile(lambda x: warnings.warn("odd", FutureWarning, stacklevel=1) or x * 2.0)
    for n in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if n % 4 > 1 else "ignore", FutureWarning)
            try:
                yield f(vec())
            except FutureWarning as error:
                yield str(error)


# ------------------------------------------------------------------------------------------------------------------- files
def files_of_many_kinds(compile):
    with tempfile.TemporaryDirectory() as folder:
        path, count = pathlib.Path(folder), itertools.count()

        def effect():
            n = next(count)
            (path / f"{n}.txt").write_text(str(n))
            with open(path / "all.json", "a") as file:
                json.dump({"n": n}, file)
            np.save(path / f"{n}.npy", np.full(2, n))

        def show():
            return sorted(os.listdir(folder)), (path / "all.json").read_text()
        yield from doing(compile, effect, show)


def file_held_open(compile):
    with tempfile.TemporaryFile("w+") as file:
        yield from doing(compile, lambda: file.write("x"), file.tell)


def file_renamed(compile):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "a").touch()

        def effect():
            name, = os.listdir(folder)
            os.rename(os.path.join(folder, name), os.path.join(folder, name + "a"))
        yield from doing(compile, effect, lambda: os.listdir(folder))


def checkpoint_saved(compile):
    net, opt, x, y = line()
    with tempfile.TemporaryDirectory() as folder:
        path, count = os.path.join(folder, "net.pt"), itertools.count(1)

        @compile
        def step(x, y):
            loss = fit(net, opt, x, y)
            if next(count) % 2 == 0:
                torch.save(net.state_dict(), path)
            return loss
        for n in range(6):
            yield step(x, y), n and torch.load(path)


def rows_written(compile):
    text = io.StringIO()
    rows, count = csv.DictWriter(text, ["n"]), itertools.count()
    return doing(compile, lambda: rows.writerow({"n": next(count)}), text.getvalue)


def rows_inserted(compile):
    base = sqlite3.connect(":memory:")
    base.execute("create table calls (n integer)")
    yield from doing(compile, lambda: base.execute("insert into calls values (1)"),
                     lambda: base.execute("select count(*) from calls").fetchone()[0])
    base.close()


def pickled_into_memory(compile):
    raw = io.BytesIO()
    return doing(compile, lambda: pickle.dump("a call", raw), raw.tell)


# ---------------------------------------------------------------------------------------------------------------- counters
def counted_in_many_ways(compile):
    numbers, table, count = [0], {"n": 0}, collections.Counter()
    words, raw, row, cell = array.array("l", [0]), bytearray(1), np.zeros(1, int), ctypes.c_int(0)

    def effect():
        numbers[0] += 1
        table["n"] += 2
        count["n"] += 3
        words[0] += 4
        raw[0] += 5
        row[0] += 6
        cell.value += 7
    return doing(compile, effect, lambda: (list(numbers), dict(table), dict(count), list(words), list(raw), row, cell.value))


def counted_in_a_tensor(compile):
    count = torch.zeros((), dtype=torch.int64)
    return doing(compile, lambda: count.add_(1), lambda: count)


def counted_by_an_instance(compile):
    class Meter:
        n = 0

        def tick(self):
            self.n += 1
    meter = Meter()
    return doing(compile, meter.tick, lambda: (meter.n, Meter.n))


def counted_by_a_class(compile):
    class Meter:
        n = 0

        @classmethod
        def tick(cls):
            cls.n += 1
    return doing(compile, Meter.tick, lambda: Meter.n)


def counted_by_a_generator(compile):
    count = itertools.count(5)
    return doing(compile, lambda: next(count), lambda: repr(count))


def counted_deep_inside(compile):
    box = Thing(a=[{"b": Thing(c=Thing(n=0))}])

    def effect():
        box.a[0]["b"].c.n += 1
    return doing(compile, effect, lambda: box.a[0]["b"].c.n)


def counted_and_reset_outside(compile):
    box = Thing(n=0)

    def f(x):
        box.n += 1
        return x * 2.0 if box.n < 3 else x * 3.0
    yield from around(compile(f), put(box, n=0), put(box, n=-5))
    yield box.n


def toggled(compile):
    box = Thing(on=False)

    def f(x):
        box.on = not box.on
        return x * 2.0 if box.on else x * 3.0
    return around(compile(f), put(box, on=False))


def machine_of_states(compile):
    then = {"idle": "warm", "warm": "hot", "hot": "idle"}
    gain = {"idle": 1.0, "warm": 2.0, "hot": 3.0}
    box = Thing(state="idle")

    def f(x):
        box.state = then[box.state]
        return x * gain[box.state]
    yield from around(compile(f), put(box, state="warm"))
    yield box.state


def number_written_back_to_what_it_was(compile):
    box = Thing(depth=0, deepest=0)

    def f(x):
        box.depth += 1
        box.deepest = max(box.deepest, box.depth)
        box.depth -= 1
        return x * 2.0
    f = compile(f)
    for n in range(6):
        box.depth = n % 3
        yield f(vec()), box.depth, box.deepest


def attribute_made_and_deleted(compile):
    box = Thing()

    def f(x):
        if hasattr(box, "flag"):
            del box.flag
            return x * 3.0
        box.flag = True
        return x * 2.0
    f = compile(f)
    for _ in range(6):
        yield f(vec()), hasattr(box, "flag")


# -------------------------------------------------------------------------------------------------------------- collecting
def appended_objects_are_fresh(compile):
    kept = []
    yield from doing(compile, lambda: kept.append([]), lambda: len(kept))
    kept[0].append(1)
    yield kept, len({id(k) for k in kept})


def appended_results(compile):
    kept = []

    def f(x):
        y = x * 2.0
        kept.append(y)
        return y
    f = compile(f)
    for n in range(6):
        y = f(vec() * n)
        y.add_(1)
        yield kept[-1] is y, kept


def appended_arguments(compile):
    kept = []

    def f(x):
        kept.append(x)
        return x * 2.0
    f = compile(f)
    for n in range(6):
        x = vec() * n
        yield f(x), kept[-1] is x
    yield kept


def appended_parameters(compile):
    net, kept = nn.Linear(3, 1), []

    def f(x):
        kept.append(net.weight)
        return net(x)
    yield from each(compile(f), vec())
    yield len(kept), all(k is net.weight for k in kept)


def appended_numbers(compile):
    kept = []

    def f(x):
        y = x.sum()
        kept.append((float(y), x.shape, y.item() > 7))
        return y
    f = compile(f)
    for n in range(6):
        yield f(vec() + n)
    yield kept


def running_mean_in_python(compile):
    box = Thing(mean=0.0)

    def f(x):
        box.mean = 0.5 * box.mean + 0.5 * x.mean().item()
        return x * box.mean
    f = compile(f)
    for n in range(6):
        yield f(vec() + n), box.mean


def history_by_step(compile):
    history, count = {}, itertools.count()

    def f(x):
        y = x * 2.0
        history[next(count)] = y.detach()
        return y
    f = compile(f)
    for n in range(6):
        f(vec() * n)
    yield history


def last_few_results(compile):
    window = collections.deque(maxlen=3)

    def f(x):
        window.append(x * 2.0)
        return sum(window) / len(window)
    f = compile(f)
    for n in range(7):
        yield f(vec() * n)
    yield list(window)


def best_results_on_a_heap(compile):
    heap, count = [], itertools.count()

    def f(x):
        heapq.heappush(heap, (-float(x.sum()), next(count)))
        return x * 2.0
    f = compile(f)
    for n in (3, 1, 4, 1, 5, 9):
        f(vec() * n)
    yield [heapq.heappop(heap) for _ in range(6)]


def tuple_extended(compile):
    box = Thing(seen=())

    def f(x):
        box.seen += (len(box.seen),)
        return x * len(box.seen)
    yield from around(compile(f), put(box, seen=()))
    yield box.seen


def text_extended(compile):
    box = Thing(text="")

    def effect():
        box.text += "."
    return doing(compile, effect, lambda: box.text)


def object_replaced_by_the_call(compile):
    box = Thing(node=None)

    def f(x):
        box.node = Thing(before=box.node, x=x * 2.0)
        return box.node.x
    f = compile(f)
    for n in range(5):
        f(vec() * n)
    node, found = box.node, []
    while node is not None:
        found.append(node.x)
        node = node.before
    yield found
