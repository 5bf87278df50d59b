"""A call takes the next of something: queues, files, cursors, chance, data loaders. Each call gets another one."""

from __future__ import annotations

import collections
import csv
import io
import itertools
import os
import pathlib
import pickle
import queue
import random
import re
import secrets
import sqlite3
import struct
import tempfile
import threading
import time
import uuid

import numpy as np

from soundness.world import Thing, around, data, each, final, fit, line, torch, vec

NINE = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


# ---------------------------------------------------------------------------------------------------------- things to take
def list_popped(compile):
    rest = list(NINE)
    yield from each(compile(lambda x: x * rest.pop()), vec())
    yield rest


def list_popped_at_the_front(compile):
    box = Thing(rest=list(NINE))
    yield from each(compile(lambda x: x * box.rest.pop(0)), vec())
    yield box.rest


def ordered_dict_popped(compile):
    rest = collections.OrderedDict((str(n), n) for n in NINE)
    yield from each(compile(lambda x: x * rest.popitem(last=False)[1]), vec())
    yield rest


def queues_of_all_kinds(compile):
    first, last, least, simple = queue.Queue(), queue.LifoQueue(), queue.PriorityQueue(), queue.SimpleQueue()
    for n in NINE:
        for q in (first, last, simple):
            q.put(n)
        least.put((-n, n))
    f = compile(lambda x: x * first.get() + last.get() + least.get()[1] + simple.get_nowait())
    yield from each(f, vec())
    yield first.qsize(), simple.qsize()


def queue_that_is_empty(compile):
    q = queue.Queue()
    q.put(2.0)

    def f(x):
        try:
            return x * q.get_nowait()
        except queue.Empty:
            return x * -1.0
    return around(compile(f), lambda: q.put(3.0))


def queue_filled_by_a_thread(compile):
    q = queue.Queue(maxsize=2)
    thread = threading.Thread(target=lambda: [q.put(n) for n in NINE[:6]], daemon=True)
    thread.start()
    yield from each(compile(lambda x: x * q.get(timeout=30)), vec())
    thread.join(timeout=1)
    yield q.qsize()


# ------------------------------------------------------------------------------------------------------- files and cursors
def text_read_by_lines(compile):
    text = io.StringIO("1\n2\n3\n4\n5\n6\n7\n")
    yield from each(compile(lambda x: x * float(text.readline())), vec())
    yield text.tell()


def bytes_read_in_pieces(compile):
    raw = io.BytesIO(struct.pack("<8d", *NINE[:8]))
    return each(compile(lambda x: x * struct.unpack("<d", raw.read(8))[0]), vec())


def file_read_and_sought(compile):
    with tempfile.TemporaryFile("w+") as file:
        file.write("123456789")
        file.seek(0)
        yield from around(compile(lambda x: x * float(file.read(1))), lambda: file.seek(0))
        yield file.tell()


def pickles_in_a_row(compile):
    raw = io.BytesIO(b"".join(pickle.dumps([n, vec() * n]) for n in NINE))

    def f(x):
        gain, tensor = pickle.load(raw)
        return x * gain + tensor
    return each(compile(f), vec())


def rows_as_dicts(compile):
    rows = csv.DictReader(io.StringIO("gain,bias\n" + "".join(f"{n},{n + 1}\n" for n in range(8))))

    def f(x):
        row = next(rows)
        return x * float(row["gain"]) + float(row["bias"])
    return each(compile(f), vec())


def matches_in_text(compile):
    found = re.finditer(r"\d+", "1 a 2 b 3 c 4 d 5 e 6 f 7")
    return each(compile(lambda x: x * float(next(found).group())), vec())


def rows_of_a_database(compile):
    base = sqlite3.connect(":memory:")
    base.execute("create table gains (gain real)")
    base.executemany("insert into gains values (?)", [(n,) for n in NINE])
    cursor = base.execute("select gain from gains order by gain desc")
    yield from each(compile(lambda x: x * cursor.fetchone()[0]), vec())
    base.close()


def database_asked_and_changed(compile):
    base = sqlite3.connect(":memory:")
    base.execute("create table gains (gain real)")
    base.execute("insert into gains values (2.0)")
    f = compile(lambda x: x * base.execute("select sum(gain) from gains").fetchone()[0])
    yield from around(f, lambda: base.execute("insert into gains values (1.0)"))
    base.close()


def folder_listed(compile):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "a").touch()
        f = compile(lambda x: x * len(os.listdir(folder)) + len(list(pathlib.Path(folder).glob("b*"))))
        yield from around(f, pathlib.Path(folder, "b").touch, pathlib.Path(folder, "a").unlink)


# ------------------------------------------------------------------------------------------------------- chance and clocks
def random_of_python(compile):
    gains = [1.0, 2.0, 3.0]

    def f(x):
        random.shuffle(gains)
        return x * random.choice(gains) + random.randint(0, 9) + random.sample(range(9), 2)[0]
    yield from each(compile(f), vec())
    yield gains, random.random()


def random_of_python_seeded_again(compile):
    f = compile(lambda x: x * random.random())
    return around(f, lambda: random.seed(5), lambda: random.seed(5))


def random_of_python_seeded_inside(compile):
    def f(x):
        random.seed(3)
        return x * random.random()
    f = compile(f)
    for _ in range(6):
        yield random.random(), f(vec()), random.random()


def random_of_numpy(compile):
    def f(x):
        return x * float(np.random.uniform()) + int(np.random.randint(9))
    yield from around(compile(f), lambda: np.random.seed(7))
    yield np.random.rand()


def random_state_of_numpy(compile):
    state, generator = np.random.RandomState(3), np.random.default_rng(4)
    f = compile(lambda x: x * float(state.rand()) + float(generator.random()))
    return around(f, lambda: state.seed(3))


def random_array_of_numpy(compile):
    generator = np.random.default_rng(4)
    return each(compile(lambda x: x + torch.from_numpy(generator.standard_normal(3, dtype=np.float32))), vec())


def random_of_all_three(compile):
    def f(x):
        return x * torch.rand(3) + random.random() + float(np.random.rand())
    return each(compile(f), vec())


def random_indices_of_python(compile):
    rows = torch.arange(30.0).reshape(10, 3)
    return each(compile(lambda x: x + rows[random.randrange(10)]), vec())


def secrets_and_uuids(compile):
    seen = set()

    def f(x):
        seen.add(uuid.uuid4().hex + secrets.token_hex(4) + os.urandom(4).hex())
        return x * 2.0
    yield from each(compile(f), vec())
    yield len(seen)


def clocks(compile):
    seen = []

    def f(x):
        seen.append((time.time_ns(), time.perf_counter_ns()))
        return x * 2.0
    yield from each(compile(f), vec())
    yield len(seen), len({b for _, b in seen}) == len(seen)


def sleeping(compile):
    f = compile(lambda x: time.sleep(0.02) or x * 2.0)
    for _ in range(4):
        start = time.perf_counter()
        yield f(vec()), time.perf_counter() - start >= 0.02


# ----------------------------------------------------------------------------------------------------------- data loaders
def rows(n=32):
    x = torch.arange(3.0 * n).reshape(n, 3) / (3 * n)
    return data.TensorDataset(x, x.sum(1, keepdim=True))


def loader_in_a_closure(compile):
    net, opt, _, _ = line()
    batches = iter(data.DataLoader(rows(), batch_size=4))

    @compile
    def step():
        x, y = next(batches)
        return fit(net, opt, x, y)
    yield from each(step)
    yield final(net, opt)


def loader_enumerated(compile):
    net, opt, _, _ = line()
    batches = enumerate(data.DataLoader(rows(), batch_size=4, shuffle=True))

    @compile
    def step():
        n, (x, y) = next(batches)
        return fit(net, opt, x, y), n
    yield from each(step)
    yield final(net, opt)


def loader_of_two_epochs(compile):
    """Calls from a loop over the loader, whose last batch is smaller."""
    net, opt, _, _ = line()
    loader = data.DataLoader(rows(10), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    step = compile(lambda x, y: fit(net, opt, x, y))
    for _ in range(3):
        for x, y in loader:
            yield step(x, y)
    yield final(net, opt)


def loader_walked_in_the_call(compile):
    net, opt, _, _ = line()
    loader = data.DataLoader(rows(12), batch_size=4, shuffle=True)

    @compile
    def epoch():
        total = 0.0
        for x, y in loader:
            total = total + fit(net, opt, x, y).detach()
        return total
    yield from each(epoch, calls=4)
    yield final(net, opt)


def loader_of_an_iterable(compile):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return (vec() * n for n in itertools.count(1))
    batches = iter(data.DataLoader(Stream(), batch_size=2))
    return each(compile(lambda: next(batches) * 2.0))


def loader_with_a_collate_that_counts(compile):
    made = []

    def collate(items):
        made.append(len(items))
        return torch.stack([x for x, _ in items])
    batches = iter(data.DataLoader(rows(), batch_size=4, collate_fn=collate))
    yield from each(compile(lambda: next(batches) * 2.0))
    yield made


def sampler_of_ones_own(compile):
    dataset, order = rows(), iter(data.RandomSampler(rows()))
    return each(compile(lambda: dataset[next(order)][0] * 2.0))


def dataset_that_counts(compile):
    class Noisy(data.Dataset):
        asked = 0

        def __getitem__(self, i):
            self.asked += 1
            return vec() * i + self.asked

        def __len__(self):
            return 9
    dataset = Noisy()
    yield from each(compile(lambda i: dataset[i] * 2.0), 3)
    yield dataset.asked
