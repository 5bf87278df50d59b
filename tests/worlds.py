"""Writes random programs over Python state: a world, a function that reads and changes it, changes between its calls.

A program is text that anybody can run: `make(compile)` builds the world and the compiled function, and gives a list of acts
(calls and changes) and a function that shows the world. The author draws *places* first (an expression and what is found
there), then statements over them. Numbers are small and operations few: what differs is to be Python's and not arithmetic's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hypothesis import strategies as st

HEAD = '''\
import array, collections, contextvars, functools, itertools, math, operator, os, queue, random, types, weakref
import numpy as np
import flambeau as torch
from flambeau import nn, optim

class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)

class Slotted:
    __slots__ = ("a", "b", "c")
    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)

class Fallback(Thing):
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return 2.0

class Told(Thing):
    def __setattr__(self, name, value):
        log.append(name)
        super().__setattr__(name, value)

class Config(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

class Owner(Thing):
    def run(self, *args):
        self.runs = getattr(self, "runs", 0) + 1
        return self.inner(*args)

class Layer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, *args):
        return self.inner(*args)

class Missing(dict):
    def __missing__(self, key):
        self.asked = getattr(self, "asked", 0) + 1
        return self.asked % 3

class Stored:
    def __init__(self):
        self.values = []
    def __get__(self, owner, kind=None):
        return self.values[-1] if self.values else 2.0
    def __set__(self, owner, value):
        self.values.append(value)

class Scaled(torch.autograd.Function):
    gain = 2.0
    @staticmethod
    def forward(ctx, x):
        log.append("forward")
        return x * Scaled.gain
    @staticmethod
    def backward(ctx, grad):
        log.append("backward")
        return grad * Scaled.gain

class Section:
    def __init__(self):
        self.inside = self.entered = 0
    def __enter__(self):
        self.inside, self.entered = self.inside + 1, self.entered + 1
        return self
    def __exit__(self, kind, error, trace):
        self.inside -= 1
        return kind is KeyError

def vec():
    return torch.arange(1.0, 4.0)

def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)

def spoil():
    """Somebody writes into the last result."""
    for made in list(tensors(results[-1:]))[:1]:
        made.detach().add_(1)

def walk():
    """Somebody walks back from the last result."""
    for made in list(tensors(results[-1:]))[:1]:
        if made.requires_grad:
            made.sum().backward(retain_graph=True)

def keep(made):
    results.append(made)
    return made

log, results = [], []
'''

NUMBERS = "2.0", "3.0", "0.5", "1", "2", "3", "True", "0.0", "-0.0", "1.0"
OTHERS = "3.0", "2.0", "2", "-0.0", "0.0", "True", "1", "0.5", "1.0"
TENSORS = ("torch.full((3,), 2.0)", "vec()", "torch.tensor(2.0)", "torch.ones(3, requires_grad=True)", "torch.ones(1, 3)",
           "torch.arange(3)", "nn.Parameter(torch.ones(3))", "torch.zeros(6)[::2]")
TEXTS = '"a"', '"ab"', '"b"', '""'
LISTS = ("[{}]", "collections.deque([{}])", "collections.UserList([{}])", 'array.array("d", [{}])', "np.array([{}], float)")
TABLES = ("dict({})", "collections.OrderedDict({})", "collections.defaultdict(float, {})", "collections.UserDict({})",
          "collections.Counter({})", "collections.ChainMap(dict({}))")
THINGS = "Thing", "types.SimpleNamespace", "Slotted", "Fallback", "Told", "Config"
ITERATORS = ("itertools.count(1)", "itertools.cycle([2.0, 3.0, 1])", "iter([2.0, 3.0, 1, 2, 0.5] * 6)",
             "map(float, range(1, 60))", "(n % 3 for n in range(60))", "itertools.accumulate(range(60))",
             "iter(dict.fromkeys(range(60)))", "itertools.chain(range(3), itertools.repeat(2))", "reversed(range(60))",
             "iter(torch.arange(1.0, 60.0))", "filter(None, itertools.cycle([0, 1, 2]))", 'map(ord, "abcdefg" * 9)',
             "map(operator.add, itertools.count(), itertools.cycle([1, 2]))", "iter(set(range(1, 60)))")
ALIASES = "{}", "{}.view(3)", "{}.detach()", "{}.data", "{}[:]", "torch.from_numpy({}.numpy())", "torch.zeros(3)", "{}.clone()"
FORMS = {"function": "compile(f)", "lambda": "compile(lambda *args: f(*args))", "method": "compile(Owner(inner=f).run)",
         "layer": "compile(Layer(f))", "partial": "compile(functools.partial(f))", "twice": "compile(compile(f))",
         "inner": "Owner(inner=compile(f)).run"}


class Place(NamedTuple):
    """Something in the world."""
    text: str  # an expression
    kind: str  # number, tensor, text, list or table
    assignable: bool = True


class Program(NamedTuple):
    text: str
    sourced: bool  # can inspect find the source?

    def __repr__(self):
        return f"a program {'with' if self.sourced else 'without'} source:\n{self.text}"


class Programs(st.SearchStrategy):
    """Draws numbers from Hypothesis's data itself: between strategies it would make five variants of every program it finds."""

    def do_draw(self, data):
        return Author(lambda n: data.draw_integer(0, n - 1)).program()


def indented(lines, by=4):
    return [" " * by + line for line in lines]


class Author:
    def __init__(self, draw):
        self.draw = draw
        self.outside, self.inside = [], []  # lines of the module, lines of make() before the function
        self.globals, self.cells, self.parameters, self.shown = [], ["calls"], [], []  # names
        self.places, self.used = [], []
        self.reads, self.acts = [], []  # lines that are ready to be used, in the function and between its calls
        self.arguments = ["vec()"] * 6 + ["vec().requires_grad_()", "torch.ones(3)", "vec() * 2", "(kept or [vec()])[-1]"]
        self.more = []  # texts of arguments beside x
        self.count = 0

    def pick(self, options):
        return options[self.draw(len(options))]

    def upto(self, n):
        return self.draw(n + 1)

    def some(self, options):
        return [self.pick(options) for _ in range(1 + self.upto(2))]

    def name(self, letter, keep=None):
        """A new name; among the names `keep`, and shown with them."""
        self.count += 1
        made = f"{letter}{self.count}"
        if keep is not None:
            keep.append(made)
            self.shown.append(made)
        return made

    # ------------------------------------------------------------------------------------------------------ plain values
    def value(self, depth):
        """The text of something, and the places in it with expressions relative to it."""
        deep = ["thing", "nested", "tuple"] * (depth > 0)
        kind = self.pick(["number"] * 3 + ["tensor"] * 2 + ["text", "list", "table"] + deep)
        if kind in ("number", "tensor", "text"):
            return self.pick({"number": NUMBERS, "tensor": TENSORS, "text": TEXTS}[kind]), [Place("", kind)]
        if kind == "list":
            return self.pick(LISTS).format(", ".join(self.some(NUMBERS))), [Place("", kind)]
        if kind == "table":
            return self.pick(TABLES).format(", ".join(f"{n}={v}" for n, v in zip("pqr", self.some(NUMBERS)))), [Place("", kind)]
        parts = [self.value(depth - 1) for _ in range(1 + self.upto(2))]
        if kind == "tuple":
            text, ways = f"({', '.join(text for text, _ in parts)},)", ("[0]", "[1]", "[2]")
        else:
            type = self.pick(THINGS if kind == "thing" else ("dict", "collections.OrderedDict"))
            text = f"{type}({', '.join(f'{n}={text}' for n, (text, _) in zip('abc', parts))})"
            ways = [(".{}" if kind == "thing" else '["{}"]').format(n) for n in "abc"]
        places = [Place(way + p.text, p.kind, p.assignable and (kind != "tuple" or p.text != ""))
                  for way, (_, inner) in zip(ways, parts) for p in inner]
        return text, places

    def plain_root(self):
        """A name for some value: a global, a variable of the closure, a default, an attribute of a class, an argument."""
        text, places = self.value(2)
        where = self.pick(("global", "cell", "default", "class", "argument"))
        if where == "global":
            name = self.name("G", self.globals)
            self.outside.append(f"{name} = {text}")
        elif where == "cell":
            name = self.name("c", self.cells)
            self.inside.append(f"{name} = {text}")
        elif where == "default":
            name = self.name("d", self.parameters)
            self.inside.append(f"{name} = {text}")
            places = [p for p in places if p.text]  # the name itself is the function's own
        elif where == "class":
            base, name = self.name("Base"), self.name("K")
            self.outside += [f"class {base}:", f"    gain = {text}", f"class {name}({base}):", "    pass"]
            places = [Place(".gain" + p.text, p.kind, p.assignable) for p in places]
            self.acts += [[f"{base}.gain = {text}"], [f"{name}.gain = {self.value(0)[0]}"]]
            self.shown.append(f"{name}.gain")
        else:
            name = self.name("a")
            self.more.append((name, text))
            self.reads += [self.read(Place(name + p.text, p.kind)) for p in places]
            return
        self.places += [Place(name + p.text, p.kind, p.assignable) for p in places]

    # ------------------------------------------------------------------------------------------------------ special roots
    def iterator(self):
        name = self.name("it")
        self.cells.append(name)
        text = self.pick(ITERATORS)
        self.inside.append(f"{name} = {text}")
        self.reads += [[f"x = x * next({name})"], [f"x = x + sum(itertools.islice({name}, 2))"]]
        self.acts += [[f"next({name})"], [f"{name} = {text}"]]

    def function(self):
        name = self.name("h", self.cells)
        self.inside += [f"def {name}(v, k=2.0):", f"    {name}.calls += 1", "    return v * k", f"{name}.calls = 0"]
        self.reads += [[f"x = {name}(x)"], [f"x = functools.partial({name}, k=3.0)(x)"], [f"x = x * {name}.calls"]]
        self.acts += [[f"{name}.__defaults__ = ({self.pick(OTHERS)},)"], [f"{name}.calls = 0"],
                      [f"{name}.__code__ = (lambda v, k=2.0: v + k).__code__"]]

    def helper(self):
        """A function between the compiled one and the world."""
        if self.places:
            name = self.name("g")
            self.inside += [f"def {name}(x):", *indented([*self.declared(self.statement()), "return x"])]
            self.cells.append(name)
            self.reads += [[f"x = {name}(x)"], [f"x = {name}({name}(x))"]]
            self.acts.append([f"{name} = lambda x: x * 3.0"])

    def cached(self):
        name = self.name("q", self.cells)
        self.inside += ["@functools.lru_cache(maxsize=2)", f"def {name}(n):", "    log.append(n)", "    return n + 1.0"]
        numbers = [p.text for p in self.places if p.kind == "number"]
        self.reads += [[f"x = x * {name}({number})"] for number in ("1", *numbers)]
        self.acts.append([f"{name}.cache_clear()"])

    def computed(self):
        kind = self.name("P")
        name = self.name("o", self.cells)
        self.outside += [f"class {kind}(Thing):", "    reads = 0", "    @property", "    def gain(self):",
                         "        self.reads += 1", "        return self.base + self.reads % 2",
                         "    def tick(self):", "        self.base = self.base % 3 + 1", "        return self.base"]
        self.inside.append(f"{name} = {kind}(base=1.0)")
        self.reads += [[f"x = x * {name}.gain"], [f"x = x * {name}.tick()"], [f"x = x + {name}.base"]]
        self.acts += [[f"{kind}.gain = property(lambda self: 3.0)"], [f"{name}.base = {self.pick(OTHERS)}"],
                      [f"{kind}.tick = lambda self: 2.0"], [f"{name}.__class__ = Thing", f"{name}.gain = 2.0"]]

    def variable(self):
        name = self.name("var")
        self.inside.append(f'{name} = contextvars.ContextVar("{name}", default=2.0)')
        self.shown.append(f"{name}.get()")
        self.reads += [[f"x = x * {name}.get()"], [f"{name}.set({name}.get() % 3 + 1)"]]
        self.acts.append([f"{name}.set({self.pick(OTHERS)})"])

    def line_of_waiting(self):
        name = self.name("q")
        self.inside += [f"{name} = queue.Queue()", f"for n in range(60): {name}.put(n % 4)"]
        self.shown.append(f"{name}.qsize()")
        self.reads += [[f"x = x * {name}.get()"], [f"x = x + {name}.qsize()"]]
        self.acts.append([f"{name}.put({self.pick(OTHERS)})"])

    def reference(self):
        name, ref = self.name("o", self.cells), self.name("ref")
        self.inside += [f"{name} = Thing(gain=2.0)", f"{ref} = weakref.ref({name})"]
        self.reads.append([f"x = x * ({ref}().gain if {ref}() is not None else 5.0)"])
        self.acts += [[f"{name} = None"], [f"if {name} is not None: {name}.gain = {self.pick(OTHERS)}"]]

    def aliases(self):
        """A tensor and another name for its memory; or not."""
        base, other = self.name("t", self.cells), self.name("v", self.cells)
        ways = [way.format(base) for way in ALIASES]
        self.inside += [f"{base} = torch.zeros(3)", f"{other} = {self.pick(ways)}"]
        self.reads += [[f"y = {other} * 2.0", f"{base}.add_(1)", f"x = x + y + {other}"],
                       [f"{other}.mul_(0.5)", f"x = x + {base}"], ["y = x * 2.0", f"{base}.add_(1)", "x = x + y"]]
        self.acts += [[f"{other} = {self.pick(ways)}"], [f"{base}.fill_(1.0)"], [f"{other}[0] = 5.0"],
                      [f"{base} = torch.ones(3)"]]
        self.arguments = [*self.arguments, base, f"{base}.detach()", other, f"{other}.data"]

    def model(self):
        net, opt = self.name("net", self.cells), self.name("opt", self.cells)
        layers = self.pick(("nn.Linear(3, 3)", "nn.Sequential(nn.Linear(3, 3), nn.Tanh())",
                            "nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))"))
        make = self.pick(("optim.SGD({}.parameters(), lr=0.1)", "optim.SGD({}.parameters(), lr=0.1, momentum=0.9)",
                          "optim.Adam({}.parameters(), lr=0.1)")).format(net)
        first = self.name("w", self.cells)
        self.inside += [f"{net} = {layers}", f"{opt} = {make}", f"{first} = next({net}.parameters())"]
        step = [f"{opt}.zero_grad({self.pick(('', 'set_to_none=False'))})",
                f"loss = ({net}(x.detach().float().sin()) ** 2).mean()",  # where tanh is flat, gradients are rounding alone
                "loss.backward()", f"{opt}.step()", "x = x + loss.detach()"]
        rate = f'{opt}.param_groups[0]["lr"]'
        self.reads += [step, step, [f"x = {net}(x.float())"], [f"x = x * {rate}"], [f"{rate} *= 0.5"],
                       [f"x = x * len(list({net}.parameters()))"], [f"if {net}.training: x = x * 2.0"]]
        self.acts += [[f"{net}.eval()"], [f"{net}.train()"], [f"{rate} = 0.5"], [f"{opt}.state.clear()"],
                      [f"{net}.requires_grad_(False)"], [f"{first}.data.fill_(0.5)"], [f"{first}.grad = None"],
                      [f"{net}.register_forward_hook(lambda m, a, out: log.append(len(log)))"],
                      [f"{first}.register_hook(lambda g: log.append(1))"], [f"{first}.data = {first}.data * 0.5"],
                      [f"{net}.double().float()"], [f"if {first}.grad is not None: {first}.grad.requires_grad_()"],
                      [f"{net}.forward = lambda v: v * {first}.sum()"]]

    def sent_to(self):
        name = self.name("s")
        self.inside += [f"def make_{name}():", "    n = 0", "    while True:", "        got = yield n",
                        "        n = (n + (got or 1)) % 5", f"{name} = make_{name}()", f"next({name})"]
        self.reads += [[f"x = x * {name}.send(2)"], [f"x = x + next({name})"]]
        self.acts.append([f"{name}.send(3)"])

    def stored(self):
        """A class whose attribute is kept by a descriptor."""
        kind = self.name("S")
        self.outside += [f"class {kind}:", "    gain = Stored()"]
        self.shown.append(f'vars({kind})["gain"].values')
        self.reads += [[f"x = x * {kind}().gain"], [f"{kind}().gain = {kind}().gain % 3 + 1"]]
        self.acts += [[f"{kind}().gain = {self.pick(OTHERS)}"], [f"{kind}.gain = Stored()"]]

    def missing(self):
        """A dict that computes what it does not have."""
        name = self.name("m", self.cells)
        self.inside.append(f"{name} = Missing(p=2.0)")
        self.reads += [[f'x = x * {name}["p"]'], [f'x = x + {name}["z"]'], [f'{name}["p"] = {name}["p"] % 3 + 1']]
        self.acts += [[f'{name}["p"] = {self.pick(OTHERS)}'], [f'{name}.pop("p", None)'], [f'{name}["z"] = 3.0']]

    def section(self):
        """A block that counts, and swallows some exceptions."""
        name = self.name("w", self.cells)
        self.inside.append(f"{name} = Section()")
        self.reads += [[f"with {name}:", *indented(self.other()), f"    x = x * {name}.inside"],
                       [f"with {name}:", f"    if {name}.entered % 3 == 2: raise KeyError", "    x = x * 2.0"]]
        self.acts.append([f"{name}.inside = {name}.entered = 0"])

    def shared_array(self):
        """An array of NumPy's under a tensor."""
        name, over = self.name("n", self.cells), self.name("t", self.cells)
        self.inside += [f"{name} = np.ones(3, np.float32)", f"{over} = torch.from_numpy({name})"]
        self.reads += [[f"{name} += 1", f"x = x + {over}"], [f"x = x * float({name}[0])"],
                       [f"{over}.mul_(0.5)", f"x = x + float({name}.sum())"],
                       [f"x = x + torch.from_numpy({name})"], [f"x = x + torch.tensor({name})"]]
        self.acts += [[f"{name}[0] = 5.0"], [f"{over}.fill_(2.0)"], [f"{name} = np.zeros(3, np.float32)"]]
        self.arguments = [*self.arguments, over, f"torch.from_numpy({name})"]

    def chance(self):
        name = self.name("r")
        self.cells.append(name)
        self.inside.append(f"{name} = torch.Generator().manual_seed(1)")
        self.shown.append(f"{name}.get_state()[:16]")
        self.reads += [[f"x = x + torch.rand(3, generator={name})"], ["x = nn.functional.dropout(x, 0.5)"],
                       ["if random.random() < 0.5: x = x + torch.rand(3)"], ["torch.manual_seed(len(log))"]]
        self.acts += [[f"{name}.manual_seed(1)"], ["torch.manual_seed(7)"], ["random.seed(7)"],
                      [f"{name} = torch.Generator().manual_seed(2)"]]

    def own_function(self):
        self.shown.append("Scaled.gain")
        self.reads += [["x = Scaled.apply(x)"], ["x = Scaled.apply(x * torch.ones(3, requires_grad=True)).detach()"],
                       ["w = torch.ones(3, requires_grad=True)", "Scaled.apply(w * x.detach()).sum().backward()",
                        "x = x + w.grad"]]
        self.acts += [[f"Scaled.gain = {self.pick(OTHERS)}"]]

    def gone_through(self):
        """An object that is asked for its length by the way, or that gives an iterator which it keeps."""
        kind, name = self.name("G"), self.name("g", self.cells)
        gives = self.pick(("iter([1.0, 2.0])", "self.kept", "(v for v in (2.0, 1.0))"))
        self.outside += [f"class {kind}(Thing):", "    def __iter__(self):", f"        return {gives}",
                         "    def __len__(self):", '        log.append("asked")', "        return 2"]
        self.inside.append(f"{name} = {kind}(kept=iter([float(n % 3) for n in range(90)]))")
        self.reads += [[f"for v in itertools.islice({name}, 2): x = x * v + 1"], [f"x = x * len({name})"],
                       *([[f"x = x * sum({way})"] for way in (f"list({name})[:2]", f"[*{name}][:2]", f"sorted({name})[:2]")]
                         if gives != "self.kept" else [])]
        self.acts.append([f"{name}.kept = iter([float(n % 4) for n in range(90)])"])

    def told_apart(self):
        """Tensors by which object they are: as keys, in a search; arguments and gradients among them."""
        one, other, table = self.name("t", self.cells), self.name("t", self.cells), self.name("by", self.cells)
        self.inside += [f"{one} = torch.ones(3, requires_grad=True)", f"{other} = torch.ones(3)",
                        f"{one}.grad = {other}", f"{table} = {{{one}: 2.0, {other}: 3.0}}"]
        self.reads += [[f"x = x * {table}.get({one}.grad, 4.0)"], [f"x = x * {table}.get(x, 5.0)"],
                       [f"x = x * (2.0 if {one}.grad is {other} else 3.0)"], [f"x = x * len({{{one}.grad, {other}}})"],
                       [f"if {one}.grad.requires_grad: x = x + 1"], [f'x = x * getattr({one}.grad, "tag", 2.0)']]
        self.acts += [[f"{one}.grad = torch.ones(3)"], [f"{one}.grad = {other}"], [f"{other} = torch.ones(3)"],
                      [f"{one}.grad = torch.ones(3, requires_grad=True)"], [f"{one}.grad.tag = {self.pick(OTHERS)}"]]
        self.arguments = [*self.arguments, other]

    def environment(self):
        name = self.name("WORLD")
        self.inside.append(f'os.environ["{name}"] = "2.0"')
        self.shown.append(f'os.environ["{name}"]')
        self.reads += [[f'x = x * float(os.environ["{name}"])'], [f'os.environ["{name}"] = os.environ["{name}"][0] + ".5"']]
        self.acts.append([f'os.environ["{name}"] = "3.0"'])

    # --------------------------------------------------------------------------------------------------------- statements
    def read(self, place):
        p = place.text
        return self.pick({
            "number": ([f"x = x * {p}"], [f"x = x + {p}"], [f"if {p} > 1:", "    x = x * 2.0", "else:", "    x = x + 1"],
                       [f"for _ in range(int({p})):", "    x = x + 1"], [f"x = x * (lambda k: k + {p})(1)"],
                       [f"x = x * {{True: 2.0, False: 3.0}}[{p} == 2]"], [f"x = x * (1 / {p})"],
                       [f"x = x * math.sqrt({p} - 1)"], [f"x = x * (lambda k: lambda: k * {p})(2.0)()"],
                       [f"x = torch.copysign(x, torch.tensor(float({p})))"]),
            "tensor": ([f"x = x * {p}"], [f"x = x + {p}.sum()"], [f"x = x * {p}.shape[-1]"],
                       [f"if {p}.requires_grad: x = x + 1"], [f"if {p}.sum() > 5: x = x * 2.0"],
                       [f"x = x * {p}.detach().sum().item()"], [f"x = x * (2.0 if {p}.is_leaf and {p}.grad is None else 3.0)"]),
            "text": ([f'x = x * 2.0 if {p} == "a" else x + 1'], [f"x = x * len({p})"], [f"x = x + ord(({p} + 'z')[0]) % 7"]),
            "list": ([f"x = x * float(sum({p}))"], [f"for v in {p}: x = x * float(v) + 1"], [f"x = x * len({p})"],
                     [f"x = x * float({p}[-1])"], [f"x = x + sum(float(v) for v in {p} if v > 1)"],
                     [f"first, *rest = {p}", "x = x * len(rest)"]),
            "table": ([f"x = x * sum({p}.values())"], [f"for k, v in {p}.items(): x = x * v + len(k)"],
                      [f'x = x * {p}.get("z", 2.0)'], [f"x = x + next(iter({p}.values()), 1)"], [f'if "q" in {p}: x = x * 2.0'],
                      [f'x = x * {p}["p"]']),
        }[place.kind])

    def effect(self, place):
        """Lines of the function that change the world."""
        p = place.text
        options = {
            "number": [], "text": [], "list": [[f"{p}[0] = {p}[0] % 3 + 1"]],
            "tensor": [["with torch.no_grad():", f"    {p}.add_(1)"], [f"{p}.mul_(2)"], [f"{p}.data.view(-1)[0] = 1"]],
            "table": [[f'{p}["n"] = {p}.get("n", 0) + 1'], [f'{p}["p"] = {p}.get("p", 0) % 3 + 1'], [f'{p}.pop("q", None)'],
                      [f'{p}.setdefault("s", 2.0)']],
        }[place.kind]
        if place.assignable:
            options += {"number": [[f"{p} = {p} % 3 + 1"], [f"{p} += 1"]], "text": [[f'{p} = {p} + "a"']],
                        "tensor": [[f"{p} = {p}.detach() * 0.5 + 1"]], "list": [[f"{p} = list({p}) + [1.0]"]],
                        "table": [[f"{p} = dict({p}, n=1)"]]}[place.kind]
        return self.pick(options) if options else self.read(place)

    def change(self, place):
        """Lines that somebody runs between the calls."""
        p = place.text
        options = {
            "number": [], "text": [],
            "tensor": [[f"{p}.data.fill_(3)"], [f"{p}.data = {p}.data.clone() + 1"], [f"{p}.grad = None"]],
            "list": [[f"{p}[0] = {self.pick(OTHERS)}"], [f"{p}[-1] = {self.pick(OTHERS)}"]],
            "table": [[f'{p}["{key}"] = {self.pick(OTHERS)}'] for key in "pqz"]
            + [[f'{p}["p"] = {p}.pop("p", 2.0)'], [f'{p}.pop("q", None)']],
        }[place.kind]
        if place.assignable:
            fresh = {"number": self.pick(OTHERS), "text": self.pick(TEXTS), "tensor": self.pick(TENSORS),
                     "list": f"[{', '.join(self.some(OTHERS))}]", "table": f"dict(p={self.pick(OTHERS)}, w=1)"}[place.kind]
            options += [[f"{p} = {fresh}"]] * 2
            if found := re.fullmatch(r"(.*)\.(\w+)", p):
                options.append([f'setattr({found[1]}, "{found[2]}", {fresh})'])
        return self.pick(options) if options else ["pass"]

    def statement(self, depth=1):
        """A few lines of the function."""
        kind = self.pick(("read",) * 4 + ("ready",) * 4 + ("effect",) * 3 + ("other",) * 2 + ("block",) * 2 * (depth > 0))
        if kind == "block":
            return self.block(self.statement(depth - 1))
        if kind == "ready" and self.reads:
            return self.pick(self.reads)
        if kind == "other" or not self.places:
            return self.other()
        place = self.pick(self.places)
        self.used.append(place)
        return self.effect(place) if kind == "effect" else self.read(place)

    def block(self, inner):
        """These lines under some condition."""
        inner = indented(inner)
        return self.pick((
            ["if len(log) % 2 == 0:", *inner], ["for _ in range(2):", *inner], ["if calls % 3 != 1:", *inner],
            ["try:", *inner, "except (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError):", "    x = x * -1.0"],
            ["try:", *inner, "finally:", "    log.append(len(log))"], ["with torch.no_grad():", *inner],
            ["if x.sum() > 4:", *inner, "else:", "    x = x * 2.0"], ["if random.random() < 0.5:", *inner],
        ))

    def other(self):
        return self.pick((
            ['print("on the way", len(log))'], ["log.append(len(log))"], ["x = x * random.random()"], ["x = x + torch.rand(3)"],
            ["x = x + float(np.random.rand())"], ["calls += 1", "x = x * calls"], ["f.seen = getattr(f, 'seen', 0) + 1"],
            ["if len(log) % 3 == 2:", "    log.append(-1)", "    raise ValueError(f'at {len(log)}')"],
            ["x = (lambda v: v * 2.0 + len(log))(x)"], ["log.append(x.detach())"], ["log.append(tuple(x.shape))"],
            ["kept.append(x)", "x = x + len(kept)"], ["x.data.add_(1)"], ["x = kept[-1] * 0.5 + x if kept else x"],
            ["x = sum([x * n for n in range(3)])"], ['print(f"{x.sum().item():.3f}")'],
            ["x = x[x > 1] if x.dim() == 1 else x", "x = x.sum() + vec()"],
        ))

    # ---------------------------------------------------------------------------------------------------------- the whole
    def program(self):
        for _ in range(1 + self.upto(2)):
            self.plain_root()
        for _ in range(self.upto(3)):
            self.pick((self.iterator, self.function, self.cached, self.computed, self.variable, self.line_of_waiting,
                       self.helper, self.helper, self.reference, self.aliases, self.aliases, self.model, self.model,
                       self.sent_to, self.stored, self.missing, self.section, self.shared_array, self.chance,
                       self.own_function, self.environment, self.gone_through, self.told_apart))()
        body = [line for _ in range(1 + self.upto(4)) for line in self.statement()]
        place = self.pick([p.text for p in self.places] or ["x"])
        body.append(self.pick(("return x", "return x", f"return x, {place}", "return x[..., 1:], x", "return x, len(log)",
                               'return {"x": x, "more": [x * 2.0, None]}', "return [x, calls]", "return x.sum()",
                               "return x.detach()", "return None", "return x, kept[-1:]")))
        given = [name for name, _ in self.more] + [f"{name}={name}" for name in self.parameters]
        lines = [HEAD, *self.outside, "", "def make(compile):", "    calls, kept = 0, []", *indented(self.inside)]
        lines += [f"    def f({', '.join(['x', *given])}):", *indented(self.declared(body, own=self.parameters), 8)]
        lines += [f"    compiled = {FORMS[self.pick([*FORMS, 'function', 'function', 'function'])]}"]
        lines += self.schedule()
        lines += [f"    return acts, lambda: [{', '.join([*self.shown, 'log', 'calls', 'kept', 'results'])}]"]
        return Program("\n".join(lines) + "\n", self.upto(3) > 0)

    def declared(self, lines, own=()):
        """The lines, after the declarations that their assignments need."""
        def written(names):
            return [n for n in names if n not in own and any(re.match(rf"\s*(.*: )?{n} [-+*]?= ", line) for line in lines)]
        head = []
        if found := written(self.globals):
            head.append(f"global {', '.join(found)}")
        if found := written([*self.cells, *self.parameters]):
            head.append(f"nonlocal {', '.join(found)}")
        return head + lines

    def schedule(self):
        """The acts: calls, with changes between them."""
        lines, acts = [], []

        def calls(n):
            more = "".join(f", {text if self.upto(1) else text.replace('2.0', '3.0', 1)}" for _, text in self.more)
            acts.extend([f"('call', lambda: keep(compiled({self.pick(self.arguments)}{more})))"] * n)
        for _ in range(3):
            calls(2 + self.upto(1))
            for _ in range(1 + self.upto(1)):
                name = self.name("change")
                places = self.used if self.used and self.upto(3) else self.places
                ready = self.acts and (not places or self.upto(1))
                change = self.pick(self.acts) if ready else self.change(self.pick(places)) if places else ["pass"]
                change = self.pick((change, change, change, change, ["spoil()"], ["walk()"]))
                lines += [f"    def {name}():", *indented(self.declared(change), 8)]
                acts.append(f"('change', {name})")
        calls(2)
        return [*lines, "    acts = [" + ",\n            ".join(acts) + "]"]
