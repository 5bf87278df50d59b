"""Python in all its forms, for tests/test_compile_rewrite.py: modules with a function `f` that notes in `log` what happens."""

from __future__ import annotations

PRELUDE = """
log = []

def t(name, value=None):
    log.append(name)
    return name if value is None else value

class Loud:
    def __init__(self, name, value=0):
        self.__dict__.update(name=name, value=value)
    def say(self, *what):
        log.append((self.__dict__["name"], *what))
    def __getattr__(self, key):
        self.say("get", key)
        return self.__dict__.setdefault("_" + key, 1)
    def __setattr__(self, key, value):
        self.say("set", key, value)
        self.__dict__["_" + key] = value
    def __delattr__(self, key):
        self.say("del", key)
    def __getitem__(self, key):
        self.say("item", key)
        return 3
    def __setitem__(self, key, value):
        self.say("put", key, value)
    def __delitem__(self, key):
        self.say("drop", key)
    def __add__(self, other):
        self.say("add")
        return Loud(self.__dict__["name"] + "+")
    def __radd__(self, other):
        self.say("radd")
        return 7
    def __iadd__(self, other):
        self.say("iadd")
        return self
    def __neg__(self):
        self.say("neg")
        return -1
    def __lt__(self, other):
        self.say("lt")
        return self.__dict__["value"] < 1
    def __eq__(self, other):
        self.say("eq")
        return True
    def __hash__(self):
        self.say("hash")
        return 1
    def __bool__(self):
        self.say("bool")
        return bool(self.__dict__["value"])
    def __len__(self):
        self.say("len")
        return 2
    def __contains__(self, value):
        self.say("contains", value)
        return "yes"
    def __iter__(self):
        self.say("iter")
        return iter([1, 2])
    def __call__(self, *args, **kwargs):
        self.say("call", args, kwargs)
        return 5
    def __enter__(self):
        self.say("enter")
        return self.__dict__["value"]
    def __exit__(self, kind, error, trace):
        self.say("exit", kind and kind.__name__)
        return self.__dict__["value"] == 2
    def __format__(self, spec):
        self.say("format", spec)
        return "formatted"
    def __index__(self):
        self.say("index")
        return 1
    def __repr__(self):
        return "Loud " + self.__dict__["name"]
    def keys(self):
        self.say("keys")
        return ["k", "l"]
"""

SNIPPETS = {
    "star arguments": """
def g(*args, a=1, **more):
    return args, a, more

def f():
    some, table = [t("x"), t("y")], {"q": t("z")}
    return g(t("first"), *some, t("then"), *t("none", ()), a=t("a"), **table, **{"r": t("w")}), g(*"ab", *(i for i in [1, 2]))
""",
    "keywords given twice": """
def f():
    return dict(a=1, **{"a": t("again")})
""",
    "keywords from a mapping of one's own": """
def f():
    return dict(**Loud("m")), (lambda **k: k)(**Loud("n"))
""",
    "a call that does not fit": """
def g(a, b):
    return a

def f():
    x = t("before")
    return g(
        t("one"),
    )
""",
    "order of a call": """
def f():
    return Loud("f")(t("a"), *[t("b")], c=t("c"), **{"d": t("d")})
""",
    "chained comparison": """
def f():
    return [t("a", 1) < t("b", 2) < t("c", 3), 3 < t("d", 2) < t("never", 1), 1 < 2 < 3 > 0 != 5, (1 < 2) is True,
            Loud("x") < Loud("y") < Loud("z"), Loud("x", 1) < Loud("y") < Loud("z"), 2 in [1, 2] == [1, 2], not 1 < 2]
""",
    "comparisons": """
def f():
    a = Loud("a")
    return [a == 1, 1 == a, a != 2, 3 in a, 3 not in a, a is a, a is not a, None is None, "x" in "xyz", 1 == 1.0 == True]
""",
    "and, or, not": """
def f():
    return [t("a", 0) and t("never"), t("b", 1) and t("c"), t("d") or t("never"), t("e", "") or t("f", 0), not Loud("g"),
            Loud("h") and 1, Loud("i", 1) and 2, Loud("j") or Loud("k"), (Loud("l") or Loud("m", 1)) and 5,
            t("n") if Loud("o") else t("p"), not (t("q", 0) or t("r", 1)) and t("s")]
""",
    "walrus": """
def f():
    if (n := t("n", 4)) > 3 and (m := n + 1):
        pass
    found = [y for x in [1, 2, 3] if (y := x * n) > 4]
    return n, m, found, y, (z := [1, 2])[0], z, [w := 1, w + 1]
""",
    "comprehension scopes": """
def f():
    x = "outer"
    a = [x for x in range(3)]
    b = {x: [x + y for y in range(x)] for x in range(3) if x % 2 == 0}
    c = {(x, y) for x, y in [(1, 2), (3, 4)]}
    d = sum(x * y for x in range(3) for y in range(x) if y)
    e = [[i for i in range(j)] for j in [1, 2]]
    return x, a, b, sorted(c), d, e, [t(x) for x in t("once", [1, 2]) if t("test")]
""",
    "late binding of closures in comprehensions": """
def f():
    return [g() for g in [lambda: i for i in range(3)]], [g() for g in [lambda i=i: i for i in range(3)]]
""",
    "nested functions and defaults": """
def f():
    k = 2
    def g(a, b=t("default", k), *c, d=t("kw"), **e):
        def h():
            return a + b + k
        return h(), c, d, e
    k = 3
    def recursive(n):
        return 1 if n < 2 else n * recursive(n - 1)
    return g(1), g(1, 5, 6, d=7, x=8), recursive(5), g.__name__, g.__qualname__, g.__defaults__, recursive.__qualname__
""",
    "a function that calls itself": """
def f(n=4):
    return [n] if n == 0 else [n, *f(n - 1)]
""",
    "a function that knows its own name": """
def f():
    f.count = getattr(f, "count", 0) + 1
    return f.__name__, f.__qualname__
""",
    "a class around it": """
class A:
    def __init__(self):
        self.__secret = 5
        self.__known__ = 6
    def who(self):
        return "A", self.__secret
    @classmethod
    def made(cls):
        return cls()
    @staticmethod
    def still(x):
        return x * 2
    @property
    def secret(self):
        return self.__secret

class B(A):
    def __init__(self):
        super().__init__()
        self.__secret = 7
    def who(self):
        return (*super().who(), super(B, self).who(), __class__.__name__, self.__secret, self._A__secret, self.__known__)
    @classmethod
    def made(cls):
        return super().made()

def f():
    b = B()
    return b.who(), B.who(b), type(B.made()).__name__, b.still(2), B.still(3), b.secret, sorted(b.__dict__)
""",
    "a method of a class, private names": """
class __Under:
    def __init__(self):
        self.__x, self.y = 1, 2
    def f(self):
        self.__x += 1
        self.__z: int = 5
        def inner():
            return self.__x
        del self.y
        __local = 3
        return inner(), __local, sorted(self.__dict__), [self.__x for _ in range(2)]

f = __Under().f
""",
    "augmented assignment": """
def f():
    a, b, c, k = Loud("a"), [1, 2, 3, 4], {"k": 5}, 3
    a.x += t("value", 2)
    a[t("key")] += t("more", 1)
    b[t("at", 0)] -= 1
    b[t("low", 1):t("high", 3)] += t("piece", [9])
    b[::2] = [t("x"), t("y"), t("z")]
    c["k"] **= 2
    k <<= 2
    k |= 1
    a += 1
    s = "a"
    s += "b"
    u = v = [1]
    u += (2,)
    w = (1,)
    w += (2,)
    n = 7
    n //= 2; n %= 2; n *= 10; n /= 4; n @= Loud("never") if 0 else Mat()
    return b, c, k, s, v, w, n

class Mat:
    def __rmatmul__(self, other):
        return ("matmul", other)
""",
    "augmented assignment that fails half way": """
def f():
    x = ([1], 2)
    try:
        x[0] += [t("added")]
    except TypeError as error:
        log.append(str(error))
    return x
""",
    "unpacking": """
def f():
    a, (b, *c), d = t("value", (1, (2, 3, 4), 5))
    x, o = Loud("x"), {}
    x.left, o[t("key")], *x.rest = t("three", [1, 2, 3, 4])
    [e, g] = "eg"
    (h,) = {"h": 1}
    first = second = third = [t("shared")]
    x.a = x.b = o["c"] = t("all")
    *i, j = range(3)
    for k, (l, m) in [(1, (2, 3))]:
        pass
    return a, b, c, d, e, g, h, first is second is third, i, j, k, l, m, o, x._left, x._rest
""",
    "unpacking that does not fit": """
def f():
    x = Loud("x")
    for value in ([1, 2], [1, 2, 3], (i for i in [1]), 5):
        try:
            x.a, x.b = value
        except Exception as error:
            log.append(repr(error))
        try:
            (p, q), r = [value, 1]
        except Exception as error:
            log.append(repr(error))
    a, b = [1]
""",
    "slices": """
class Show:
    def __getitem__(self, key):
        return key

def f():
    s = Show()
    return [s[1], s[1:2], s[::3], s[:], s[1, 2], s[1:2, ::3], s[...], s[..., None, 1:], s[()], s[t("a"):t("b"):t("c")],
            [1, 2, 3][-2:], "abc"[::-1], (1, 2, 3)[1:], s[[1, 2]], s[s[1]:], s[(1, 2)], [1, 2, 3][Loud("i")]]
""",
    "deleting": """
def f():
    a, b, c = [1, 2, 3, 4], Loud("b"), {"k": 1}
    x = y = 1
    del a[1], b.attr, b[t("key")], c["k"], x
    del a[1:]
    try:
        return x
    except UnboundLocalError as error:
        log.append(str(error))
    return a, c
""",
    "try, except, else, finally": """
def g(n):
    for i in range(3):
        try:
            t(("try", n, i))
            if n == 1:
                raise ValueError(n)
            if n == 2:
                return "returned"
            if n == 3:
                continue
            if n == 4:
                break
            if n == 5:
                {}["missing"]
        except ValueError as error:
            t(("caught", str(error)))
        except (KeyError, IndexError) as error:
            raise RuntimeError("other") from error
        else:
            t("else")
        finally:
            t("finally")
    else:
        t("loop else")
    return "end"

def f():
    found = []
    for n in range(6):
        try:
            found.append(g(n))
        except RuntimeError as error:
            found.append((str(error), repr(error.__cause__)))
    return found
""",
    "an exception and its lines": """
def g(x):
    y = x + 1
    return (
        y +
        {}[
            "missing"
        ]
    )

def f():
    a = t("a")
    return [
        g(i)
        for i in range(2)
    ]
""",
    "an exception in an operator of one's own": """
class Bad:
    def __add__(self, other):
        x = 1
        raise ValueError("no " +
                         "sum")

def f():
    return 1 + 2, Bad() + 1
""",
    "an exception through nested functions, a bare raise": """
def f():
    def inner():
        try:
            raise KeyError("deep")
        except KeyError:
            t("seen")
            raise
    x = 1
    inner()
""",
    "assert": """
def f():
    assert Loud("a", 1), t("never")
    assert 1 < 2 < 3
    assert t("b", 0), f"message {t('said')}"
""",
    "generators": """
def g(n):
    for i in range(n):
        got = yield t(i)
        if got:
            log.append(("got", got))
    return "done"

def h():
    value = yield from g(2)
    yield from [value, *"ab"]
    try:
        yield "last"
    finally:
        t("closed")

def f():
    a = g(3)
    found = [next(a), a.send("hello"), list(a), list(h())]
    b = h()
    next(b)
    b.close()
    yield found, [*g(2)], sum(x for x in g(3))
    return (yield "of f")
""",
    "with": """
def f():
    with Loud("a") as x, Loud("b", 2) as y:
        t("inside")
        raise ValueError("swallowed by b")
    with Loud("c"):
        return x, y, t("returned")
""",
    "with that lets an exception through": """
def f():
    with Loud("a") as x:
        with Loud("b"):
            {}[t("missing")]
""",
    "lambdas on one line": """
def f():
    a, b, c = lambda x: x + 1, lambda x: x * 10, (lambda x, y=2, *z, **k: (x, y, z, sorted(k)))
    return a(1), b(1), c(1), c(1, 3, 4, q=5), (lambda: (lambda: t("deep")))()()
""",
    "a lambda among others at the top": """
pair = lambda x=1: x + 1, lambda x=2: x * 10
f = pair[1]
""",
    "a lambda of two lines": """
f = (lambda x=3:
     x + len([
         x]))
""",
    "decorated": """
import functools

def twice(g):
    @functools.wraps(g)
    def call(*args):
        return g(*args), g(*args)
    return call

class A:
    @twice
    def g(self, x):
        t("g")
        return x + 1

@twice
def h(x: t("annotation", int) = 5) -> t("returns", int):
    return x

def f():
    return A().g(1), h(2), h.__name__
""",
    "annotations": """
def f():
    x: t("never evaluated") = 1
    y: int
    def g(a: t("evaluated", int), *b: int, c: int = t("default", 2), **d: "text") -> t("too", str):
        z: undefined = 3
        return a, b, c, d, z
    return x, g(1, 2)
""",
    "texts": """
def f():
    x, width = 3.14159, 8
    return [f"{x:.2f}|{x:{width}.{2}f}|{t('a')!r:>5}|{x=}|{{}}|{Loud('l'):spec}|{Loud('m')!s:.1}" if 0 else f"{x:.2f}",
            f"{x:{width}.{2}f}|{t('a')!r:>5}|{x=}|{{}}|{Loud('l'):spec}", "%s %d" % (t("b"), 3), "{} {k}".format(t("c"), k=4),
            f"{[i for i in range(2)]}{'nested ' + f'{x:.1f}'}", b"%d" % 3, "a" "b" f"{1}"]
""",
    "literals": """
def f():
    return [(t("a"), t("b")), [t("c"), *[t("d")]], {t("e"): t("f"), **{"x": t("g")}, t("h"): t("i")}, {t("j"), *"k"} and 0,
            -1, +2, ~3, not 4, -1j, 1_000, 0x1f, ..., None, True, (), [], {}, -(-5), -t("k", 5), ~t("l", 5), -Loud("m")]
""",
    "loops": """
def f():
    found = []
    for i in Loud("a"):
        found.append(i)
    else:
        found.append("else")
    n = 3
    while n := n - 1:
        if n == 1:
            break
        found.append(n)
    else:
        found.append("never")
    for found_last in range(0):
        pass
    for i, x in enumerate(t("items", "ab"), start=1):
        for y in x:
            if y == "b":
                continue
            found.append((i, y))
    return found, i, x
""",
    "names": """
def f():
    try:
        return undefined_name
    except NameError as error:
        log.append(str(error))
    try:
        print(later)
        later = 1
    except UnboundLocalError as error:
        log.append(str(error))
    len = lambda x: "mine"
    return len([1]), max(3, 1), __name__
""",
    "the order of an assignment": """
def f():
    a, b = [0, 0], Loud("b")
    a[t("key", 0)] = t("value")
    b.x = b.y
    b[b.k] = b.v
    a[0], a[1] = t("left"), t("right")
    Loud("looked up").x: int
    return a
""",
    "iterators that are used up": """
def f():
    it = iter([1, 2, 3, 4, 5])
    return next(it), [*zip(it, it)], next(it, t("none")), list(map(lambda a, b: a + b, [1, 2], [3, 4])), [*filter(None, [0, 1])]
""",
    "sorting and folding with functions": """
import functools

def f():
    return (sorted([3, 1, 2], key=lambda v: t(-v)), max("abc", "d", key=len), min([], default=t("d")), sum([[1], [2]], []),
            functools.reduce(lambda a, b: a * b, [1, 2, 3], 4), any(t(i) for i in [0, 1, 2]), all(t(i, i) for i in [1, 0, 2]))
""",
    "containers that change": """
def f():
    a = [3]
    a.append(t("x")); a.extend(i for i in "yz"); a.insert(0, 1); a += [5]; a.remove(3); a[1:1] = [t("s")]
    d = dict(k=1)
    d.update(l=2); d.setdefault("m", t("default")); d |= {"n": 3}
    popped = a.pop(), d.pop("k"), d.pop("nothing", t("none"))
    s = {1, 2}
    s.add(3); s.discard(1); s |= {9}
    return a, d, popped, sorted(s), a.index(1), a.count(5), list(d.items()), [*d], "l" in d, d.get("q", t("q"))
""",
    "builtins": """
def f():
    return [type(1), type(None), sorted([3, 1, 2], reverse=True), max(3, 1, 2), max([1, 5], default=0), min("b", "a"),
            pow(2, 5, 7), round(2.5), round(2.345, 2), divmod(7, 3), abs(-3), int("ff", 16), int(3.9), float("1e3"), bool([]),
            complex(1, 2), str(3.0),
            bytes([65, 66]), list("ab"), tuple([1]), frozenset([1]), dict([(1, 2)], a=3), dict.fromkeys("ab", 0), set("a"),
            list(enumerate("ab", start=1)), list(zip("ab", [1, 2], strict=True)), list(reversed([1, 2])), [*range(5, 0, -2)],
            isinstance(1, (str, int)), isinstance(True, int), issubclass(bool, int), hasattr(1, "real"), hasattr(1, "unreal"),
            getattr(1, "unreal", t("default")), callable(f), callable(1), list(iter([1, 2])), ord("a"), chr(98), bin(5),
            hex(255), oct(8), format(3.14159, ".2f"), repr("a"), len({1: 2}), sum([1, 2], 3), sum(([1], [2]), []),
            any([]), all([]),
            slice(1, 2).indices(5), "-".join(str(i) for i in range(3)), "a,b".split(","), "abc".replace("b", "x"),
            [3, 1].index(1), {1: 2}.get(3), {1: 2}.get(3, 4), {**{1: 2}}.items() == {1: 2}.items(), 1 in {1: 2}.keys(),
            [1, 2].copy(), (1, 2).count(1)]
""",
    "exceptions of one's own": """
class Mine(Exception):
    def __init__(self, code, *rest):
        super().__init__(code, *rest)
        self.code = t(code)

def f():
    found = []
    for make in (lambda: Mine(1), lambda: Mine(2, "a"), lambda: ValueError("x", 1), lambda: KeyError("k")):
        try:
            raise make() from None
        except Mine as error:
            found.append((error.code, error.args))
        except Exception as error:
            found.append(repr(error))
    raise Mine(5) from ValueError("cause")
""",
    "recursion between functions": """
def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

def f():
    return even(6), odd(6)
""",
}
