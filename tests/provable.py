"""Functions for tests/test_compile_witness.py, and the world that they look at: PROVABLE and UNPROVABLE, the latter with a
part of what is said about each."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import datetime
import enum
import functools
import io
import itertools
import logging
import math
import operator
import os
import random
import re
import string
import sys
import threading
import time
import types
import warnings

import numpy as np

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

X = torch.arange(3.0)


class Plain:
    k, table = 2.0, {"a": 1.0}

    def __init__(self, value=2.0):
        self.value = value

    def scaled(self, x):
        return x * self.value

    @property
    def double(self):
        return self.value * 2

    @classmethod
    def made(cls, value):
        return cls(value)

    @staticmethod
    def twice(x):
        return x * 2


class Sub(Plain):
    def scaled(self, x):
        return super().scaled(x) + 1


class Slotted:
    __slots__ = ("v",)

    def __init__(self):
        self.v = 2.0


class Fallback:
    def __getattr__(self, name):
        return 2.0


class Items:
    def __getitem__(self, key):
        return 2.0

    def __len__(self):
        return 2

    def __iter__(self):
        yield 1.0
        yield 2.0

    def __contains__(self, value):
        return value == 1

    def __call__(self, x):
        return x * 2


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Record:
    a: float = 2.0
    b: list = dataclasses.field(default_factory=list)


class Checked(Record):
    def __post_init__(self):
        self.b.append(1)


Point = collections.namedtuple("Point", "x y")
NUMBERS, TABLE, SET, OBJECT, RECORD = [1.0, 2.0], {"a": 2.0, "b": [3.0]}, {1, 2}, Plain(), Record()
ORDERED, DEFAULT, POINT = collections.OrderedDict(a=2.0), collections.defaultdict(float, a=2.0), Point(1.0, 2.0)
PARTIAL = functools.partial(lambda x, k: x * k, k=2.0)
WEIGHT, BUFFER, LAYER = torch.ones(3, requires_grad=True), torch.zeros(3), nn.Linear(3, 3)
NET = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.0), nn.Linear(4, 3))
HOOKED = nn.Linear(3, 3)
HOOKED.register_forward_hook(lambda m, a, out: out * 2)
STEP, LOG = optim.SGD([WEIGHT], lr=0.1), logging.getLogger("witness")
COUNT, NAME = 2.0, "value"


def helper(x, k=2.0, *more, scale=1.0, **rest):
    return x * k * scale


def doubled(v):
    return v * 2


def numbers():
    yield 1.0
    yield 2.0


def recursive(x, n):
    return x if n == 0 else recursive(x * 2, n - 1)


def augmented(x):
    made = [1.0]
    made += [2.0]
    made[0] *= 3
    table = {}
    table["a"] = made
    table["a"][1] -= 1
    o = Plain()
    o.value += 1
    return x * made[0] * len(table) * o.value


def looped(x):
    for i, (a, b) in enumerate(zip(NUMBERS, [1.0, 2.0])):
        x = x * a + b * i
    while x.ndim < 2:
        x = x[None]
    return x


def handled(x):
    try:
        TABLE["missing"]
    except KeyError:
        x = x * 3
    else:
        x = x * 4
    finally:
        x = x + 1
    return x


def graph(x):
    (WEIGHT * x).sum().backward()
    WEIGHT.grad = None
    return x


def swallow(x):
    with warnings.catch_warnings():
        return x * 2


def raising(x):
    def inner():
        raise ValueError("inner")
    try:
        inner()
    except (KeyError, ValueError):
        return x * 3


PROVABLE = {
    "globals": lambda x: x * COUNT,
    "a function with defaults": lambda x: helper(x, scale=3.0),
    "keywords": lambda x: helper(x, *[2.0], **{"scale": 2.0, "other": 1}),
    "recursion": lambda x: recursive(x, 3),
    "a lambda": lambda x: (lambda y: y + 1)(x),
    "an attribute": lambda x: x * OBJECT.value,
    "an attribute of a class": lambda x: x * Plain.k + Plain.table["a"],
    "a method": lambda x: OBJECT.scaled(x),
    "a property": lambda x: x * OBJECT.double,
    "a class method": lambda x: x * Plain.made(3.0).value,
    "a static method": lambda x: Plain.twice(x) + OBJECT.twice(x),
    "super": lambda x: Sub(3.0).scaled(x),
    "slots": lambda x: x * Slotted().v,
    "getattr": lambda x: x * getattr(OBJECT, NAME) * getattr(OBJECT, "none", 3.0),
    "hasattr": lambda x: x * (2 if hasattr(OBJECT, "none") else 3),
    "a fallback": lambda x: x * Fallback().anything,
    "an object of one's own": lambda x: Items()(x) * Items()[0] * len(Items()) * sum(Items()) * (1 in Items()),
    "a list": lambda x: x * NUMBERS[0] * len(NUMBERS) * sum(NUMBERS) * (2.0 in NUMBERS) * max(NUMBERS),
    "a dict": lambda x: x * TABLE["a"] * TABLE["b"][0] * TABLE.get("none", 3.0) * len(TABLE) * ("a" in TABLE),
    "items of a dict": lambda x: sum((x * (v if k == "a" else v[0]) for k, v in TABLE.items())),
    "a set": lambda x: x * len(SET),
    "an ordered dict": lambda x: x * ORDERED["a"] * len(list(ORDERED.values())),
    "a defaultdict": lambda x: x * DEFAULT["a"],
    "a tuple": lambda x: x * POINT.x * POINT[1] * Point(1.0, 2.0).y,
    "a record": lambda x: x * RECORD.a * Record(3.0).a,
    "an enumeration": lambda x: x * (2 if Colour.RED is Colour.BLUE else 3),
    "a partial": lambda x: PARTIAL(x),
    "a partial of its own": lambda x: functools.partial(helper, k=3.0)(x),
    "math": lambda x: x * math.sqrt(4.0) * math.pi,
    "operator": lambda x: operator.mul(x, operator.add(1, 2)),
    "itertools": lambda x: sum(x * i for i in itertools.chain([1, 2], itertools.islice(itertools.count(), 3))),
    "reduce": lambda x: functools.reduce(lambda a, b: a * b, NUMBERS, x),
    "sorted": lambda x: x * sorted(NUMBERS, key=lambda v: -v)[0],
    "map": lambda x: x * sum(map(doubled, NUMBERS)),
    "a generator": lambda x: sum(x * v for v in numbers()),
    "texts": lambda x: x * len('a{}'.format("b").upper() + f"{COUNT:.2f}" + "-".join(["a", "b"])),
    "augmented assignment": augmented,
    "loops": looped,
    "exceptions": handled,
    "comprehensions": lambda x: torch.stack([x * i for i in range(3) if i % 2 == 0]),
    "isinstance": lambda x: x * (2 if isinstance(OBJECT, Plain) and issubclass(Sub, Plain) and not isinstance(x, int) else 3),
    "type": lambda x: x * (2 if type(OBJECT) is Plain else 3),
    "the shape of a tensor": lambda x: x * x.shape[0] * BUFFER.ndim,
    "a module": lambda x: NET(x),
    "a layer's parameters": lambda x: x @ LAYER.weight + sum(p.sum() for p in LAYER.parameters()),
    "named parts of a module": lambda x: x * len(list(NET.children())) * len(dict(LAYER.named_parameters())),
    "functional": lambda x: F.gelu(x) + torch.relu(x) + x.tanh(),
    "no_grad": torch.no_grad()(lambda x: x * 2),
    "random numbers": lambda x: x + torch.rand(3),
    "a buffer that is written": lambda x: BUFFER.copy_(x).sum(),
    "backward": graph,
    "autocast": lambda x: autocast(x),
    "constants that are looked at": lambda x: x * torch.tensor([1.0, 2.0]).sum().item(),
    "comparison of objects": lambda x: x * (2 if OBJECT == OBJECT and OBJECT != Plain() else 3),
    "is None": lambda x: x * (2 if TABLE.get("none") is None else 3),
    "an exception of its own": raising,
    "numpy's numbers": lambda x: x * np.pi,
}


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return LAYER(x).float()


UNPROVABLE = {
    "print": (lambda x: print("said") or x, "print"),
    "logging": (lambda x: LOG.info("said") or x, "called"),
    "a file": (lambda x: io.StringIO("a").read() and x * 2, "StringIO"),
    "open": (lambda x: x * len(open(os.devnull).read()), "open"),
    "time": (lambda x: x * 0 * time.time(), "time"),
    "a date": (lambda x: x * 0 * datetime.datetime.now().year, "datetime|now"),
    "Python's random numbers": (lambda x: x * 0 * random.random(), "random"),
    "NumPy": (lambda x: x * float(np.sqrt(4.0)), "ufunc"),
    "a NumPy array": (lambda x: x * float(np.ones(2)[0]), "ones|ndarray"),
    "the environment": (lambda x: x * len(os.environ), "'os."),
    "the identity of a number": (lambda x: x * 2 if COUNT is NUMBERS[1] else x, "identity"),
    "id": (lambda x: x * 0 * id(x), "id"),
    "hash": (lambda x: x * 0 * hash("a"), "hash"),
    "a global that is set": (lambda x: globals_set(x), "global statement"),
    "locals": (lambda x: x * len(locals()), "locals"),
    "an import": (lambda x: importing(x), "import"),
    "a class that is made": (lambda x: class_made(x), "class statement"),
    "a list that grows": (lambda x: NUMBERS.append(NUMBERS.pop()) or x, "list is changed"),
    "a dict that is set": (lambda x: set_entry(x), "item of a 'dict'"),
    "an attribute that is set": (lambda x: set_attribute(x), "attribute 'value'"),
    "an attribute that is deleted": (lambda x: delete_attribute(x), "'gone'"),
    "a set that grows": (lambda x: SET.add(len(SET)) or SET.discard(2) or x, "set is changed"),
    "an iterator": (lambda x: x * next(iterators["a"]), "advanced"),
    "a loop over an iterator": (lambda x: sum(x * v for v in itertools.islice(iterators["b"], 1)), "gone through"),
    "a generator from outside": (lambda x: x * next(iterators["c"]), "advanced"),
    "zip from outside": (lambda x: x * next(iterators["d"])[0], "advanced"),
    "a deque": (lambda x: x * containers["deque"][0], "deque"),
    "a Counter": (lambda x: x * containers["counter"]["a"], "Counter"),
    "an array": (lambda x: x * containers["bytearray"][0], "bytearray"),
    "a UserDict": (lambda x: x * containers["user"]["a"], ""),
    "a mapping proxy": (lambda x: x * containers["proxy"]["a"], "mappingproxy"),
    "a ChainMap": (lambda x: x * containers["chain"]["a"], ""),
    "a defaultdict that makes an entry": (lambda x: x * (1 + DEFAULT["none"]), "makes an entry"),
    "a regular expression": (lambda x: x * len(re.sub("a", "b", "abc")), "re"),
    "a template": (lambda x: x * len(string.Template("$a").substitute(a=1)), ""),
    "hooks of a module": (lambda x: HOOKED(x), "hooks"),
    "register_hook": (lambda x: hooked(x), "register_hook"),
    "a value that is read": (lambda x: x * x.sum().item(), "value was read"),
    "a branch on a value": (lambda x: x if x.sum() > 0 else -x, "a branch depends on a tensor.s value"),
    "a tensor as a text": (lambda x: x * len(f"{x}"), "values were read"),
    "numpy()": (lambda x: x * float(x.numpy()[1]), "NumPy"),
    "a pointer": (lambda x: x * 0 * x.data_ptr(), "data_ptr"),
    "a storage": (lambda x: x * 0 + x.untyped_storage().nbytes(), "storage"),
    "requires_grad that is set": (lambda x: requiring(x), "requires_grad"),
    "a seed": (lambda x: torch.manual_seed(0) and x * 2, "manual_seed"),
    "the random state": (lambda x: x * 0 + torch.get_rng_state().sum(), "random generator|get_rng_state"),
    "threads": (lambda x: torch.set_num_threads(torch.get_num_threads()) or x, "set_num_threads|get_num_threads"),
    "a manager of Python's": (lambda x: swallow(x), "warnings"),
    "a descriptor of one's own": (lambda x: x * Described().k, "descriptor"),
    "a cached property": (lambda x: x * CACHED.k, "descriptor"),
    "__getattribute__": (lambda x: x * Looking().k, "in its own way"),
    "an operator of one's own": (lambda x: x * (Adding() + 1), "Adding"),
    "a truth of one's own": (lambda x: x * (2 if Truthful() else 3), "truth"),
    "equality of one's own": (lambda x: x * (2 if Equal() == 1 else 3), "Equal"),
    "__new__ of one's own": (lambda x: x * Made().k, "made"),
    "a metaclass": (lambda x: x * MetaMade.k, "in its own way"),
    "an abstract class": (lambda x: x * (2 if isinstance(OBJECT, Abstract) else 3), "abstract"),
    "a finalizer": (lambda x: x * Finalized().k, "made"),
    "a record that checks itself": (lambda x: x * Checked(2.0).a, "made|__init__"),
    "a function cached by functools": (lambda x: x * cached(2), "lru_cache|called"),
    "compiler.disable": (lambda x: disabled(x), "disable"),
    "stack frames": (lambda x: x * 0 + sys._getframe().f_lineno * 0, "_getframe"),
    "a thread": (lambda x: threaded(x), "Thread|threading"),
    "vars": (lambda x: x * vars(OBJECT)["value"], "vars"),
    "eval": (lambda x: eval("x * 2"), "eval"),
    "exec'd code": (lambda x: EXECUTED["f"](x), "source"),
    "copy": (lambda x: x * copy.copy(OBJECT).value, "copy"),
    "a manager of one's own": (lambda x: managed(x), "'with'"),
    "the attribute of an argument": (lambda x: mine(x), "attribute 'mine'"),
    "a result that was there": (lambda x: NUMBERS, "was there"),
    "an optimizer with hooks": (lambda x: stepped(x), "hooks"),
    "a number of NumPy's that is made": (lambda x: x * float(np.float32(2)), "float32"),
    "match": (lambda x: matched(x), "match"),
    "an operation that warns": (lambda x: F.mse_loss(x, torch.ones(1, 3)), "warning"),
    "setdefault": (lambda x: x * DEFAULT.setdefault("a", 1.0), "changed"),
    "update of a dict": (lambda x: TABLE.update(a=2.0) or x, "changed"),
    "sorting a list": (lambda x: NUMBERS.sort() or x, "changed"),
    "a slice that is set": (lambda x: slice_set(x), "item of a 'list'"),
    "an augmented global list": (lambda x: augmented_list(x), "list is changed"),
    "a str subclass": (lambda x: x * len(Text("a")), "made"),
    "a module attribute that is set": (lambda x: module_set(x), "attribute 'k'"),
    "a buffer that is replaced": (lambda x: buffer_set(x), "attribute 'state'"),
    "an object given to print-like functions": (lambda x: x * len(str(OBJECT)), "given to"),
    "repr of a tensor": (lambda x: x * len(repr(x)), "read|'repr'|shown|print"),
    "sys.stdout": (lambda x: (sys.stdout.write("") and x) or x, ""),
}


def globals_set(x):
    global COUNT
    COUNT = 2.0
    return x


def importing(x):
    import math as m
    return x * m.pi


def class_made(x):
    class Local:
        k = 2.0
    return x * Local.k


def set_entry(x):
    TABLE["a"] = 3.0
    TABLE["a"] = 2.0
    return x


def set_attribute(x):
    OBJECT.value = 3.0
    OBJECT.value = 2.0
    return x


def delete_attribute(x):
    OBJECT.gone = 1
    del OBJECT.gone
    return x


def hooked(x):
    y = x * WEIGHT
    y.register_hook(lambda g: g * 2)
    return y.detach()


def requiring(x):
    BUFFER.requires_grad = True
    BUFFER.requires_grad = False
    return x * 2


def threaded(x):
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return x


def mine(x):
    x.mine = 2.0
    return x * x.mine


def managed(x):
    with Managing():
        return x * 2


def matched(x):
    match x.ndim:
        case 1:
            return x * 2
        case _:
            return x


def slice_set(x):
    NUMBERS[:] = list(NUMBERS)
    return x


def augmented_list(x):
    numbers = NUMBERS
    numbers += []
    return x


def module_set(x):
    LAYER.k = 3.0
    return x * LAYER.k


def buffer_set(x):
    STATEFUL.state = x + 1
    return STATEFUL.state * 1


def stepped(x):
    STEPPED.zero_grad()
    (SMALL * x).sum().backward()
    STEPPED.step()
    return x


class Descriptor:
    def __get__(self, o, kind):
        return 2.0


class Described:
    k = Descriptor()


class Caching:
    @functools.cached_property
    def k(self):
        return 2.0


class Looking:
    def __getattribute__(self, name):
        return 2.0


class Adding:
    def __add__(self, other):
        return 2.0


class Truthful:
    def __bool__(self):
        return True


class Equal:
    def __eq__(self, other):
        return True

    __hash__ = None


class Made:
    def __new__(cls):
        made = object.__new__(cls)
        made.k = 2.0
        return made


class Meta(type):
    def __getattr__(cls, name):
        return 2.0


class MetaMade(metaclass=Meta):
    pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def nothing(self):
        pass


class Finalized:
    k = 2.0

    def __del__(self):
        pass


class Text(str):
    pass


class Managing:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None


@functools.lru_cache
def cached(n):
    return n * 2.0


@torch.compiler.disable
def disabled(x):
    return x * 3


iterators = {"a": itertools.cycle([2.0]), "b": itertools.repeat(2.0), "c": (2.0 for _ in itertools.count()),
             "d": zip(itertools.count(2.0, 0.0), itertools.count())}
containers = {"deque": collections.deque([2.0]), "counter": collections.Counter(a=2), "bytearray": bytearray(b"\x02"),
              "user": collections.UserDict(a=2.0), "proxy": types.MappingProxyType({"a": 2.0}),
              "chain": collections.ChainMap({"a": 2.0})}
CACHED, STATEFUL, SMALL = Caching(), nn.Module(), torch.ones(3, requires_grad=True)
STATEFUL.register_buffer("state", torch.zeros(3))
STEPPED = optim.SGD([SMALL], lr=0.0)
STEPPED.register_step_post_hook(lambda *args: None)
EXECUTED: dict = {}
exec("def f(x):\n    return x * 2\n", EXECUTED)
