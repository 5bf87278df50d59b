"""Python that the rewriting leaves alone, and texts that are no Python; see tests/snippets.py."""

UNSUPPORTED = {
    "global": ("def f():\n    global k\n    k = 1\n", "global statement"),
    "nonlocal": ("def outer():\n    k = 0\n    def f():\n        nonlocal k\n        k += 1\n        return k\n    return f\n"
                 "f = outer()\n", "nonlocal statement"),
    "nonlocal inside": ("def f():\n    k = 0\n    def g():\n        nonlocal k\n        k += 1\n    g()\n    return k\n",
                        "nonlocal"),
    "class": ("def f():\n    class A:\n        x = 1\n    return A.x\n", "class statement"),
    "import": ("def f():\n    import math\n    return math.pi\n", "import statement"),
    "from import": ("def f():\n    from math import pi\n    return pi\n", "import statement"),
    "match": ("def f():\n    match 1:\n        case 1:\n            return 2\n", "match statement"),
    "async": ("async def f():\n    return 1\n", "not what it was"),  # it is not even looked for
    "async for": ("async def f():\n    return [x async for x in g()]\n", "not what it was"),
    "await inside": ("def f():\n    async def g():\n        await 1\n    return g\n", "asynchronous"),
    "locals": ("def f():\n    x = 1\n    return locals()\n", "locals"),
    "eval": ("def f():\n    x = 1\n    return eval('x')\n", "eval"),
    "a decorated function inside": ("def f():\n    @staticmethod\n    def g():\n        return 1\n    return g\n", "decorated"),
    "a loop into an attribute": ("def f():\n    for log.x in [1]:\n        pass\n", "stores into an object"),
    "with into an attribute": ("def f():\n    with open('x') as log.x:\n        pass\n", "stores into an object"),
    "except star": ("def f():\n    try:\n        pass\n    except* ValueError:\n        pass\n", "statement"),
}

# Lines that Python does not like; the function has x = 1.
WRONG = """
len() | len(1) | len([], []) | isinstance(1) | isinstance(1, 2) | isinstance(1, (2, 3)) | issubclass(1, int) | dict(1)
dict(1, 2) | range() | range("a") | sorted() | sorted([1, "a"]) | max() | max([]) | max(1) | int("x") | int([])
[].append() | [1].index(2) | {}["k"] | [][0] | "a".join(1) | "a".join([1]) | (1).real.q | getattr(1, "q") | getattr(1)
setattr(1, "q", 2) | sum(1) | sum(["a"]) | next(iter([])) | next([]) | zip(1) | map(1) | list(map(1, [2])) | enumerate()
1 + "a" | "a" + 1 | -"a" | 1 < "a" | 1 in 2 | x[0] | x() | None.x | [i for i in x] | [*x] | {**x} | f(*x) | f(**x)
dict(a=1, **{"a": 2}) | f(a=1, **{"a": 2}) | round("a") | abs("a") | pow("a", 2) | divmod(1, 0) | 1 / 0 | {[]: 1} | {[]}
[1, 2][1:2:0] | "abc"[None] | complex("x") | float("x") | chr(-1) | ord("ab") | tuple(1) | set([[]])
list(zip("a", "bc", strict=True)) | object(1) | type() | [1].sort(key=1) | sorted([1], key=1) | "%d" % "a" | f"{1:x y}"
"{}".format() | slice() | iter(1) | hash([]) | [].pop() | {}.pop("a") | set().pop() | {}.popitem() | [].remove(1)
callable() | a, b = 1 | a, b = [1] | a, *b = [] | undefined | x.y.z | x.y = 1 | x[0] = 1 | del x.y | del x[0] | x @ 2 | ~1.5
1 << "a" | assert x - 1, "text" | raise x | raise ValueError | raise KeyError("k") from ValueError | f(1, 2, 3) | f(q=1)
(lambda a: a)() | (lambda a: a)(b=1) | A(1) | A().y | A.z | A().m(1) | math.sqrt(-1) | math.sqrt("a") | math.floor()
functools.reduce(max, []) | functools.partial() | operator.add(1) | operator.getitem([], 0) | itertools.chain(1, 2).q
list(itertools.chain(1))
""".replace("\n", " | ").strip(" |").split(" | ")
