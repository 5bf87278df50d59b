"""Containers that a function reads, changed between calls: big, deep, round, in one another; and containers as arguments."""

from __future__ import annotations

import array
import bisect
import collections
import configparser
import copy
import ctypes
import heapq
import itertools
import json
import mmap
import struct
import types

from soundness.world import Thing, around, each, item, nn, put, torch, turns, vec


def scaled(compile, gain, *changes):
    """Calls that multiply by gain(), with changes between them."""
    return around(compile(lambda x: x * gain()), *changes)


# ------------------------------------------------------------------------------------------------------------------ lists
def list_slice_assigned(compile):
    gains = [1.0, 1.0, 0.0]
    return scaled(compile, lambda: sum(gains), lambda: gains.__setitem__(slice(0, 2), [3.0]), gains.pop)


def list_sorted_in_place(compile):
    gains = [3.0, 2.0]
    return scaled(compile, lambda: gains[0], gains.sort, gains.reverse)


def list_inserted_and_deleted(compile):
    gains = [2.0, 5.0]
    return scaled(compile, lambda: gains[0], lambda: gains.insert(0, 3.0), lambda: gains.__delitem__(0),
                  lambda: gains.remove(2.0))


def list_negative_index(compile):
    gains = [5.0, 2.0]
    return scaled(compile, lambda: gains[-1], lambda: gains.append(3.0), lambda: gains.__imul__(0) or gains.append(2.0))


def list_of_ten_thousand(compile):
    gains = [0.0] * 10_000
    gains[7777] = 2.0
    return scaled(compile, lambda: sum(gains), item(gains, 5000, 1.0), item(gains, 9999, -1.0))


def list_of_long_lists(compile):
    rows = [[0.0] * 200 for _ in range(50)]
    rows[7][7] = 2.0
    return scaled(compile, lambda: sum(map(sum, rows)), item(rows[49], 199, 1.0))


def list_that_holds_itself(compile):
    ring = [2.0]
    ring.append(ring)
    return scaled(compile, lambda: ring[1][1][1][0], item(ring, 0, 3.0), item(ring, 1, [0, [0, [2.0]]]))


def list_five_hundred_deep(compile):
    inner = made = [2.0]
    for _ in range(500):
        made = [made]

    def gain():
        found = made
        while isinstance(found, list):
            found = found[0]
        return found
    return scaled(compile, gain, item(inner, 0, 3.0))


def list_repeated_by_reference(compile):
    rows = [[1.0]] * 2
    return scaled(compile, lambda: sum(r[0] for r in rows), item(rows[0], 0, 1.5), item(rows, 1, [0.5]))


def list_compared(compile):
    a, b = [1, [2]], [1, [2]]
    return around(compile(lambda x: x * 2.0 if a == b else x * 3.0), lambda: b[1].append(3), lambda: a[1].append(3))


def list_searched(compile):
    names = ["a", "b", "c"]
    return scaled(compile, lambda: names.index("b") + names.count("c"), lambda: names.insert(0, "c"))


def list_unpacked(compile):
    gains = [2.0, 1.0, 5.0]

    def f(x):
        first, *rest = gains
        return x * first + len(rest)
    return around(compile(f), item(gains, 0, 3.0), lambda: gains.append(1.0))


def lists_zipped(compile):
    a, b = [2.0, 1.0], [1.0, 1.0]
    return scaled(compile, lambda: sum(p * q for p, q in zip(a, b)), lambda: a.append(5.0), lambda: b.append(1.0))


def list_grows_while_walked(compile):
    work = [1, 2]

    def f(x):
        total = 0
        for n in work:
            total += n
            if len(work) < 4:
                work.append(n)
        return x * total
    yield from around(compile(f), lambda: work.__delitem__(slice(1, None)))
    yield work


def list_of_one_tensor_replaced(compile):
    """By one that is equal, and then written to."""
    gains = [vec() * 2]

    def change():
        gains[0] = gains[0].clone()
    return around(compile(lambda x: x * gains[0]), change, lambda: gains[0].add_(1))


def list_of_functions_sorted(compile):
    steps = [torch.sigmoid, torch.tanh]

    def f(x):
        for step in steps:
            x = step(x)
        return x
    return around(compile(f), steps.reverse)


def sort_by_a_key_outside(compile):
    rank = {"a": 1, "b": 2}
    gains = {"a": 2.0, "b": 3.0}
    f = compile(lambda x: x * gains[sorted(gains, key=rank.get)[0]] + gains[min(gains, key=rank.__getitem__)])
    return around(f, item(rank, "a", 9))


def sorted_once_more(compile):
    heights = [3, 1, 2]

    def f(x):
        bisect.insort(heights, len(heights))
        return x * heights[len(heights) // 2]
    yield from each(compile(f), vec())
    yield heights


def heap_used_up(compile):
    heap = [5.0, 3.0, 4.0, 1.0, 2.0, 6.0, 7.0]
    heapq.heapify(heap)
    yield from each(compile(lambda x: x * heapq.heappop(heap)), vec())
    yield heap


# ------------------------------------------------------------------------------------------------------------------ dicts
def dict_of_ten_thousand(compile):
    table = dict.fromkeys(range(10_000), 0.0)
    table[3] = 2.0
    return scaled(compile, lambda: sum(table.values()), item(table, 9876, 1.0), lambda: table.pop(9876))


def dict_key_of_another_type(compile):
    """1, 1.0 and True are one key."""
    table = {1: "one"}

    def change(key):
        return lambda: (table.clear(), table.update({key: "one"}))
    f = compile(lambda x: (x * 2.0, type(next(iter(table))).__name__))
    return around(f, change(1.0), change(True))


def dict_keys_of_many_kinds(compile):
    table = {(1, 2): 2.0, None: 1.0, frozenset({3}): 1.0, ...: 0.0, b"k": 1.0}
    f = compile(lambda x: x * table[(1, 2)] * table[None] * table[frozenset({3})] + table[...] + table[b"k"])
    return around(f, item(table, (1, 2), 3.0), item(table, ..., 1.0), item(table, b"k", 0.0))


def dict_merged(compile):
    base, more = {"gain": 2.0}, {}
    return scaled(compile, lambda: (base | more)["gain"], item(more, "gain", 3.0), more.clear)


def dict_default_asked(compile):
    table = {}
    return scaled(compile, lambda: table.get("gain", 2.0), item(table, "gain", 3.0), lambda: table.pop("gain"))


def dict_asked_by_a_changing_key(compile):
    table, box = {"a": 2.0, "b": 3.0}, Thing(key="a")
    return scaled(compile, lambda: table[box.key], put(box, key="b"), item(table, "b", 2.0))


def dict_emptied_one_by_one(compile):
    table = {str(n): float(n) for n in range(8)}
    yield from each(compile(lambda x: x * table.popitem()[1]), vec())
    yield table


def dict_last_and_first(compile):
    table = {"a": 2.0, "b": 3.0}
    return scaled(compile, lambda: next(iter(table.values())) + 2 * next(reversed(table.values())),
                  lambda: item(table, "a", table.pop("a"))(), item(table, "c", 5.0))


def dict_of_dicts_of_lists(compile):
    table = {"a": {"b": [{"c": (1.0, [2.0])}]}}
    return scaled(compile, lambda: table["a"]["b"][0]["c"][1][0], item(table["a"]["b"][0]["c"][1], 0, 3.0),
                  lambda: table.update(a={"b": [{"c": (0, [2.0])}]}))


def dict_copied_in_the_call(compile):
    table = {"a": [2.0]}
    return scaled(compile, lambda: copy.copy(table)["a"][0] * copy.deepcopy(table)["a"][0], item(table["a"], 0, 3.0))


def dict_by_proxy(compile):
    table = {"gain": 2.0}
    shown = types.MappingProxyType(table)
    return scaled(compile, lambda: shown["gain"] * len(shown), item(table, "gain", 3.0), item(table, "more", 1.0))


def dict_compared_with_another(compile):
    old, new = {"a": 1}, {"a": 1}
    return around(compile(lambda x: x * 2.0 if old == new else x * 3.0), item(new, "a", 2), lambda: old.update(new))


def dict_keys_subtracted(compile):
    a, b = {"p": 1, "q": 2}, {"p": 1}
    return scaled(compile, lambda: len(a.keys() - b.keys()) + 1, item(a, "r", 1), lambda: b.update(q=0, r=0))


def dict_iterated_with_its_values(compile):
    table = {"mul": 2.0, "add": 1.0}

    def f(x):
        for name, value in table.items():
            x = x * value if name == "mul" else x + value
        return x
    return around(compile(f), lambda: table.update(mul=table.pop("mul")), item(table, "add", 2.0))


# ------------------------------------------------------------------------------------------------------------ collections
def ordered_dict_new_key_later(compile):
    table = collections.OrderedDict(a=1.0, b=1.0)
    return scaled(compile, lambda: sum(table.values()), item(table, "c", 1.0), lambda: table.popitem(last=False))


def ordered_dict_compared_by_order(compile):
    a, b = collections.OrderedDict(p=1, q=2), collections.OrderedDict(p=1, q=2)
    return around(compile(lambda x: x * 2.0 if a == b else x * 3.0), lambda: b.move_to_end("p"))


def defaultdict_with_another_factory(compile):
    table = collections.defaultdict(lambda: 2.0)

    def f(x):
        gain = table["gain"]
        del table["gain"]
        return x * gain
    return around(compile(f), put(table, default_factory=lambda: 3.0))


def defaultdict_new_keys(compile):
    table, box = collections.defaultdict(float), Thing(key="a")
    yield from around(compile(lambda x: x * table[box.key] + len(table)), put(box, key="b"), item(table, "a", 2.0),
                      put(box, key="c"))
    yield table


def counter_counts(compile):
    count = collections.Counter()

    def f(x):
        count["calls"] += 1
        return x * count.total()
    return around(compile(f), lambda: count.subtract(calls=2), count.clear)


def chain_map_with_a_new_map(compile):
    table = collections.ChainMap({"gain": 2.0})
    return scaled(compile, lambda: table["gain"], lambda: table.maps.insert(0, {"gain": 3.0}), lambda: table.maps.pop(0))


def user_dict(compile):
    table = collections.UserDict(gain=2.0)
    return scaled(compile, lambda: table["gain"], item(table, "gain", 3.0), lambda: table.data.update(gain=2.0))


def user_text(compile):
    text = collections.UserString("ab")
    return scaled(compile, lambda: len(text), put(text, data="abc"))


def deque_with_a_bound(compile):
    window = collections.deque([1.0, 2.0], maxlen=2)
    return scaled(compile, lambda: window[0], lambda: window.append(3.0), window.rotate, lambda: window.extendleft([5.0]))


def deque_length(compile):
    window = collections.deque(maxlen=3)

    def f(x):
        window.append(1)
        return x * len(window)
    return around(compile(f), window.clear)


def mapping_of_ones_own(compile):
    class Table(collections.abc.Mapping):
        rows = [("gain", 2.0)]

        def __getitem__(self, key):
            return dict(self.rows)[key]

        def __iter__(self):
            return (k for k, _ in self.rows)

        def __len__(self):
            return len(self.rows)
    table = Table()
    return scaled(compile, lambda: dict(**table)["gain"] * len(table), item(Table.rows, 0, ("gain", 3.0)))


# ------------------------------------------------------------------------------------------------------------- raw memory
def array_of_numbers(compile):
    gains = array.array("d", [2.0, 1.0])
    return scaled(compile, lambda: gains[0] * len(gains), item(gains, 0, 3.0), lambda: gains.append(0.0))


def bytes_that_change(compile):
    data = bytearray(b"\x02\x01")
    return scaled(compile, lambda: data[0], item(data, 0, 3), lambda: data.insert(0, 2))


def bytes_unpacked(compile):
    data = bytearray(struct.pack("<d", 2.0))
    return scaled(compile, lambda: struct.unpack_from("<d", data)[0], lambda: struct.pack_into("<d", data, 0, 3.0))


def memory_cast(compile):
    data = array.array("d", [2.0])
    shown = memoryview(data).cast("B").cast("d")
    return scaled(compile, lambda: shown[0], item(data, 0, 3.0))


def memory_mapped(compile):
    with mmap.mmap(-1, 16) as memory:
        memory[0] = 2
        yield from scaled(compile, lambda: memory[0], item(memory, 0, 3))


def ctypes_array_and_struct(compile):
    class Pair(ctypes.Structure):
        _fields_ = [("gain", ctypes.c_double), ("bias", ctypes.c_int)]
    pair, row = Pair(2.0, 1), (ctypes.c_double * 2)(1.0, 1.0)
    f = compile(lambda x: x * pair.gain * row[1] + pair.bias)
    return around(f, put(pair, gain=3.0), item(row, 1, 2.0), put(pair, bias=0))


# ------------------------------------------------------------------------------------------------------ sets, ranges, text
def set_changed(compile):
    seen = {1, 2}
    return scaled(compile, lambda: len(seen) if 2 in seen else 5.0, lambda: seen.add(3), lambda: seen.discard(2))


def set_of_the_same_size(compile):
    seen = {2.0}
    return scaled(compile, lambda: sum(seen), lambda: (seen.clear(), seen.add(3.0)))


def sets_combined(compile):
    a, b = {1, 2, 3}, {2, 3}
    return scaled(compile, lambda: len(a & b) + len(a ^ b) * 2 + (a >= b), lambda: b.add(9), lambda: a.difference_update({1}))


def set_used_up(compile):
    left = {2.0}

    def f(x):
        gain = left.pop()
        left.add(gain + 1.0)
        return x * gain
    return each(compile(f), vec())


def range_replaced(compile):
    box = Thing(steps=range(2))

    def f(x):
        for _ in box.steps:
            x = x * 2.0
        return x
    return around(compile(f), put(box, steps=range(3)), put(box, steps=range(5, 0, -2)))


def slice_replaced(compile):
    box = Thing(part=slice(0, 2))
    return around(compile(lambda x: x[box.part] * 2.0), put(box, part=slice(1, 3)), put(box, part=slice(None, None, 2)))


def text_of_a_configuration(compile):
    parser = configparser.ConfigParser()
    parser.read_string("[net]\ngain = 2.0\n")
    return scaled(compile, lambda: parser.getfloat("net", "gain"), lambda: parser.set("net", "gain", "3.0"))


def text_in_json(compile):
    box = Thing(text='{"gain": 2.0}')
    return scaled(compile, lambda: json.loads(box.text)["gain"], put(box, text='{"gain": 3.0}'))


def text_assembled(compile):
    digits = ["2", "0"]
    return scaled(compile, lambda: float(".".join(digits)), item(digits, 0, "3"))


# ----------------------------------------------------------------------------------------------------- containers of layers
def module_list_changed(compile):
    layers = nn.ModuleList([nn.Tanh()])

    def f(x):
        for layer in layers:
            x = layer(x)
        return x
    return around(compile(f), lambda: layers.append(nn.Sigmoid()), lambda: layers.insert(0, nn.ReLU()),
                  lambda: layers.__delitem__(1))


def module_list_item_replaced(compile):
    layers = nn.ModuleList([nn.Tanh(), nn.Tanh()])
    return around(compile(lambda x: layers[1](layers[0](x))), item(layers, 1, nn.Sigmoid()))


def module_dict_chosen_by_name(compile):
    layers, box = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Sigmoid()}), Thing(name="a")
    return around(compile(lambda x: layers[box.name](x)), put(box, name="b"), item(layers, "b", nn.ReLU()))


def module_dict_with_a_new_layer(compile):
    layers = nn.ModuleDict({"a": nn.Tanh()})

    def f(x):
        for name, layer in layers.items():
            x = layer(x) * len(name)
        return x
    return around(compile(f), item(layers, "last", nn.Sigmoid()), lambda: layers.pop("a"))


def sequential_cut_short(compile):
    net = nn.Sequential(nn.Tanh(), nn.Sigmoid())
    return around(compile(lambda x: net(x)), lambda: net.__delitem__(1), lambda: net.insert(0, nn.ReLU()))


def parameter_dict_changed(compile):
    table = nn.ParameterDict({"gain": nn.Parameter(torch.full((3,), 2.0))})
    return around(compile(lambda x: x * sum(table.values())), item(table, "more", nn.Parameter(torch.ones(3))),
                  item(table, "gain", nn.Parameter(torch.zeros(3))))


def plain_list_of_layers(compile):
    layers = [nn.Tanh(), nn.Sigmoid()]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x
    return around(compile(f), layers.reverse, lambda: layers.append(nn.ReLU()))


# -------------------------------------------------------------------------------------------------- containers as arguments
def argument_list_filled(compile):
    def f(x, log):
        log.append(len(log))
        return x * len(log)
    f, log = compile(f), []
    for n in range(6):
        log = log if n != 3 else []
        yield f(vec(), log), list(log)


def argument_dict_filled(compile):
    def f(x, cache):
        if "table" not in cache:
            cache["table"] = vec() * 2
        cache["used"] = cache.get("used", 0) + 1
        return x * cache["table"]
    f, cache = compile(f), {}
    for n in range(8):
        cache = cache if n != 4 else {}
        yield f(vec(), cache), dict(cache)


def argument_list_of_tensors_written(compile):
    def f(x, parts):
        parts[0].mul_(2.0)
        parts[1] = parts[1] * 2.0
        return x + parts[0]
    f, parts = compile(f), [vec(), vec()]
    first, second = parts
    for _ in range(6):
        yield f(vec(), parts), parts[1], first, second


def argument_list_changes_its_length(compile):
    f = compile(lambda x, parts: x + sum(parts))
    return turns(f, ([vec()], [vec()], [vec(), vec()], [vec()], [], [vec(), vec()], []))


def argument_dict_changes_its_order(compile):
    def f(x, table):
        for name, value in table.items():
            x = x * value + len(name)
        return x
    two, swapped = {"a": 2.0, "bb": 3.0}, {"bb": 3.0, "a": 2.0}
    return turns(compile(f), (two, two, swapped, two, swapped, swapped, {"a": 2.0}))


def argument_nested_and_shared(compile):
    """The same list twice in one argument, or two equal ones."""
    def f(x, pair):
        pair[0].append(1.0)
        return x * len(pair[1])
    f = compile(f)
    for n in range(8):
        one = [1.0]
        yield f(vec(), (one, one) if n % 4 > 1 else (one, [1.0])), one


def argument_container_of_each_kind(compile):
    def f(x, table):
        return x * sum(table) * (2.0 if isinstance(table, tuple) else 3.0)
    kinds = (1.0, 2.0), [1.0, 2.0], {1.0, 2.0}, {1.0: 0, 2.0: 0}, collections.deque([1.0, 2.0]), range(4), frozenset({3.0})
    return turns(compile(f), itertools.chain(kinds, kinds))


def argument_that_holds_itself(compile):
    ring = [2.0]
    ring.append(ring)
    return around(compile(lambda x, ring: x * ring[1][1][0]), item(ring, 0, 3.0), args=(vec(), ring))


def argument_namedtuple_of_tensors(compile):
    Batch = collections.namedtuple("Batch", "x gain")
    f = compile(lambda b: Batch(b.x * b.gain, b.gain + 1))
    for gain in (2.0, 2.0, 2.0, 3.0, 3.0):
        yield f(Batch(vec(), gain))
