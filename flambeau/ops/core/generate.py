"""Code of operations, made as text from their rows.

A row says what an operation computes, what its derivative needs and of which arguments. That is known when the row is made, so
the code that runs at each call need not ask again: it is written here, as text, the way `dataclasses` writes `__init__`. Texts
that read the same are compiled once. A debugger steps through them, and `source(function)` shows one:

    >>> print(source(flambeau.mul))

All of them record a node with the same lines (`recording`), and nothing else in ops/ writes down a node's fields for a row with
one result.
"""

from __future__ import annotations

import functools
import linecache
import os
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from ...autograd import state as _state
from ...autograd.node import FLOAT32, INFERENCE_SAVED, freed_error, next_sequence, start_counter
from ...autograd.views import NO_GRAD_VIEW, edge_of
from ...backends import registry
from ...backends.cpu.parallel import LARGE, large
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap

_NAMES: dict[str, Any] = dict(
    __name__=__name__, FLOAT32=FLOAT32, FOLLOWED=_state.FOLLOWED, INFERENCE_SAVED=INFERENCE_SAVED, LARGE=LARGE,
    NO_GRAD=_state.NO_GRAD, NO_GRAD_VIEW=NO_GRAD_VIEW, Parameter=Parameter, Tensor=Tensor, WINDOWS=registry.WINDOWS,
    asarray=registry.cpu.asarray, edge_of=edge_of, freed_error=freed_error, large=large, ndarray=registry.CPU_ARRAY,
    new=object.__new__, next_sequence=next_sequence, start_counter=start_counter, state=_state.state, wrap=wrap)
_HERE = os.path.splitext(os.path.abspath(__file__))[0] + "d"


def knows(**names: Any) -> None:
    """Names that the texts may use, entered by the modules that have them."""
    _NAMES.update(names)


@functools.cache
def _template(text: str) -> FunctionType:
    file = f"{_HERE} {_template.cache_info().misses}"  # tracebacks and the compiler see whose code it is
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["call"]


def function(title: str, signature: str, body: Iterable[str], **given: Any) -> Callable[..., Any]:
    """A function of this text. given: what it refers to beyond the names above, values of its own."""
    template = _template(f"def call({signature}):\n" + "".join([f"    {line}\n" for line in body]))
    made = FunctionType(template.__code__.replace(co_name=title, co_qualname=title), {**_NAMES, **given}, title,
                        template.__defaults__)
    made.__kwdefaults__, made.__qualname__ = template.__kwdefaults__, title
    return made


def later(title: str, body: Iterable[str], **given: Any) -> Callable[..., Any]:
    """`function` of (*args, **kwargs), whose text is compiled at its first call: most programs need few of them."""
    def compiled() -> Callable[..., Any]:
        made.__code__ = function(title, "*args, **kwargs", body).__code__
        return made
    made = function(title, "*args, **kwargs", ["return compiled()(*args, **kwargs)"], compiled=compiled, **given)
    return made


def source(made: Callable[..., Any]) -> str:
    """The text of a function that was made here."""
    return "".join(linecache.getlines(made.__code__.co_filename))


# ------------------------------------------------------------------------------------------------------- recording
def recording(row: Any, names: list[str], tensors: Iterable[int], plain: Iterable[int] = (), held: bool = False) -> list[str]:
    """Lines that give the tensor `t` over the array `made` its node, if one of the row's arguments has a history.

    names: the variables that hold the arguments. tensors: numbers of those that are tensors for sure; plain: of those that are
    not. Any other may be either. held: a second backward pass is refused even if no tensor was saved.
    """
    tensors, plain = set(tensors), set(plain)
    wanted = [i for i in row.targets if i not in plain]
    if row.node is None or not wanted:
        return []
    edges = [f"{names[i]}_edge" for i in range(len(names))]
    lines = []
    for i in wanted:
        if i in tensors:
            lines.append(f"{names[i]}_counter = {names[i]}._counter")
        lines.append(f"{edges[i]} = {_edge(names[i], i in tensors)}")
    lines += [f"if {' or '.join([f'{edges[i]} is not None' for i in wanted])}:",
              "    t._node = node = new(Node)",
              f"    node.next = {_tuple([edges[i] if i in wanted else 'None' for i in range(len(names))])}",
              "    node.sequence = next_sequence()",
              "    node.shape = made.shape",
              "    if made.dtype is not FLOAT32:",
              "        node.dtype = made.dtype"]
    if row.saving:
        lines += ["    " + line for line in _saving(row, names, edges, wanted, tensors, plain, held)]
    return lines


def _edge(name: str, sure: bool) -> str:
    counter = f"{name}_counter" if sure else f"{name}._counter"
    edge = f"{name}._node if {counter} is None or {name}._base is None else edge_of({name})"
    return edge if sure else f"None if {name} is None or not isinstance({name}, Tensor) else {edge}"


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _saving(row: Any, names: list[str], edges: list[str], wanted: list[int], tensors: set[int], plain: set[int],
            held: bool) -> list[str]:
    """Lines that save what the formulas of those arguments need that have a history, with the versions of tensors."""
    values, versions, unsure = [], {}, []
    for slot, (kind, index, users) in enumerate(row.saving):
        users = [u for u in users if u in wanted]
        name = None if kind == "result" else names[index]
        value = {"argument": name, "result": f"wrap(results[{index}])" if index else "made", "dtype": f"{name}.dtype",
                 "shape": f"{name}._array.shape", "strides": f"{name}._array.strides",
                 "needs": "tuple([e is not None for e in node.next])"}[kind]
        if not users:
            values.append("None")
            continue
        if users != wanted:
            value = f"{value} if {' or '.join([f'{edges[u]} is not None' for u in users])} else None"
        values.append(value)
        if kind == "argument" and index not in plain:
            versions[slot] = name
            held |= index in tensors
            if index not in tensors:
                unsure.append(name)
        held |= kind == "result"
    lines = [f"node.saved = {_tuple(values)}"]
    sure = [n for n in versions.values() if n not in unsure]
    if sure:
        counter = {n: f"{n}_counter" if names.index(n) in wanted else f"{n}._counter" for n in sure}
        marks = [f"0 if {counter[versions[s]]} is None else {counter[versions[s]]}.value" if versions.get(s) in sure else "0"
                 for s in range(len(values))]
        lines += [f"if {' or '.join([f'{counter[n]} is not None' for n in sure])}:",
                  f"    if {' or '.join([f'{n}._inference' for n in sure])}:",
                  "        raise RuntimeError(INFERENCE_SAVED)",
                  f"    node.versions = {_tuple(marks)}"]
    if unsure:
        lines.append(f"note_versions(node, {len(sure)})")
    elif not held and "release" not in row.node.__dict__:
        lines.append("node.release = nothing_to_free")
    return lines


def tensor(row: Any) -> Callable[..., Tensor]:
    """The function of (mode, made, *arguments): the array that the row's kernel made as a tensor, in mode 0 with its node."""
    names = list(row.args)
    body = ["t = new(Tensor)", "t._array = made", "t._node = t._counter = None"] if not row.view else (
        _view_of(names[0], "in_mode"))
    plain = range(1, len(names)) if row.view else ()  # of a view: dimensions and sizes
    if lines := recording(row, names, [i for i in row.targets if i not in row.optional], plain):
        body += ["if in_mode == 0:", *["    " + line for line in lines]]
    return function(row.name, ", ".join(["in_mode", "made", *names]), [*body, "return t"], Node=row.node)


def first(row: Any, plain: Iterable[int]) -> Callable[..., Tensor]:
    """The function of (results, *arguments): the first result as a tensor with its node. Nobody gets the others, which need no
    counters or edges then. plain: numbers of the arguments that are no tensors."""
    names = list(row.args)
    lines = recording(row, names, set(range(len(names))) - set(plain), plain)
    return function(row.name, ", ".join(["results", *names]),
                    ["made = results[0]", "t = new(Tensor)", "t._array = made", "t._node = t._counter = None",
                     "if not state.mode & NO_GRAD:", *["    " + line for line in lines], "return t"], Node=row.node)


def _view_of(base: str, mode: str) -> list[str]:
    """Lines that make `t` a view of a tensor: one counter for both. mode: the variable that is 0 where a node is recorded."""
    return ["t = new(Tensor)", "t._array = made", "t._node = None",
            f"t._counter = counter = start_counter({base}) if {base}._counter is None else {base}._counter",
            f"t._base = {base} if {base}._base is None else {base}._base",
            "if counter.value:", "    t._seen = counter.value",
            *(["mode &= NO_GRAD"] if mode == "mode" else []), f"if {mode}:", "    t._creation = NO_GRAD_VIEW",
            f"elif {base}._creation is not None:", f"    t._creation = {base}._creation"]


# -------------------------------------------------------------------------------------------------------- backward
def backward(row: Any) -> Callable[..., Any]:
    """`Node.apply` of a row: each formula whose argument has a history, on what it names."""
    edges = [f"{name}_edge" for name in row.args]
    slots = [f"{slot}_" if slot in ("node", "kept") else slot for slot in row.slots]
    body = ["kept = node.saved", "if kept is None:", "    raise freed_error(node)", "if node.spans is not None:",
            "    return node.apply_lists(grads)", "grad = grads if node.outputs is None else grads[0]",
            f"{_tuple(edges)} = node.next"]
    for number, (slot, (kind, _, _)) in enumerate(zip(slots, row.saving)):
        body.append(f"{slot} = kept[{number}]")
        if kind in ("argument", "result"):
            body += [f"if {slot}.__class__ is not Tensor or {slot}._counter is not None:",
                     f"    {slot} = unpack(node, {number})"]
    results = ["None"] * len(row.args)
    for n, (index, _, picks) in enumerate(row.formulas):
        given = ", ".join([p if p.__class__ is str else slots[p] for p in picks])
        unless = f"{edges[index]} is None" + (" or grad is None" if "grad" in picks else "")
        results[index] = f"None if {unless} else formula{n}({given})"
    body += ["return (", *[f"    {r}," for r in results], ")"]
    return function(f"backward_{row.name}", "node, grads", body,
                    **{f"formula{n}": formula for n, (_, formula, _) in enumerate(row.formulas)})


# ------------------------------------------------------------------------------------------------------ pointwise
def of_one(row: Any, *, chars: str, ufunc: bool, fallback: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A pointwise operation of one tensor, and numbers: plain tensors go straight to the kernel, all else to the fallback.

    chars: dtypes that need no promotion. ufunc: the kernel is one of NumPy's, which gives scalars for zero-dim arrays and uses
    one thread; there is an `out`.
    """
    numbers = list(row.args[1:])
    values = ", ".join(["x", *numbers])
    if ufunc:
        run = ["elif x.size < LARGE:", f"    made = kernel({values}) if x.ndim else asarray(kernel({values}))",
               "else:", f"    made = large(kernel, {values})"]
    else:
        run = ["else:", f"    made = kernel({values})"]
    body = ["mode, kind = state.mode, input.__class__",
            f"if (mode < 2 or mode in FOLLOWED) and (kind is Tensor or kind is Parameter){' and out is None' * ufunc}:",
            "    x = input._array",
            "    if x.dtype.char in chars and (type(x) is ndarray or (mode > 1 and type(x) in WINDOWS)):",
            "        if mode > 1:",
            "            mode &= NO_GRAD",
            f"            made = state.follower.call(kernel_name, ({values}{',' * (not numbers)}))",
            *["        " + line for line in run],
            "        t = new(Tensor)",
            "        t._array = made",
            "        t._node = t._counter = None"]
    lines = recording(row, ["input", *numbers], [0], range(1, len(row.args)))
    if lines:
        body += ["        if mode == 0:", *["            " + line for line in lines]]
    body += ["        return t", f"return fallback(row, {_tuple(['input', *numbers])}, {'out' if ufunc else 'None'})"]
    return function(row.name, ", ".join(["input", *numbers, *["*, out=None"] * ufunc]), body, row=row, kernel=row.cpu,
                    kernel_name=row.kernel, Node=row.node, chars=chars, fallback=fallback)


def of_two(row: Any, *, chars: str | None, number_chars: str, fallback: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A pointwise operation of two tensors, or of a tensor and a number. chars: as in `of_one`; None: all."""
    test = "native is y.dtype" + ("" if chars is None else " and native.char in chars")
    tensors = recording(row, ["input", "other"], [0, 1])
    number = recording(row, ["input", "other"], [0], [1], held=True)  # PyTorch saves a number as a tensor
    body = ["mode = state.mode",
            "if out is None and (mode < 2 or mode in FOLLOWED):",
            "    cls, kind = input.__class__, other.__class__",
            "    if (kind is Tensor or kind is Parameter) and (cls is Tensor or cls is Parameter):",
            "        x, y = input._array, other._array",
            "        native = x.dtype",
            f"        if {test} and (mode < 2 or (type(x) in WINDOWS and type(y) in WINDOWS)):",
            "            try:",
            "                if mode > 1:",
            "                    mode &= NO_GRAD",
            "                    made = state.follower.call(kernel_name, (x, y))",
            "                elif x.size < LARGE and y.size < LARGE:",
            "                    made = kernel(x, y) if x.size > 1 else kernel(x, y, out=...)  # an array, not a scalar",
            "                else:",
            "                    made = large(kernel, x, y)",
            "            except ValueError:",
            "                raise broadcast_error(x.shape, y.shape) from None",
            "            t = new(Tensor)",
            "            t._array = made",
            "            t._node = t._counter = None"]
    if tensors:
        body += ["            if mode == 0:", *["                " + line for line in tensors]]
    body += ["            return t",
             "    elif (kind is float or kind is int) and (cls is Tensor or cls is Parameter):",
             "        x = input._array",
             "        if x.dtype.char in number_chars and (mode < 2 or type(x) in WINDOWS):",
             "            if mode > 1:",
             "                mode &= NO_GRAD",
             "                made = state.follower.call(kernel_name, (x, state.follower.literal(other, x.dtype)))",
             "            else:  # as an array: NumPy takes twice as long over a Python number",
             "                y = constants.get((other, x.dtype)) or constant(other, x.dtype)",
             "                if x.size < LARGE:",
             "                    made = kernel(x, y) if x.size > 1 else kernel(x, y, out=...)",
             "                else:",
             "                    made = large(kernel, x, y)",
             "            t = new(Tensor)",
             "            t._array = made",
             "            t._node = t._counter = None"]
    if number:
        body += ["            if mode == 0:", *["                " + line for line in number]]
    body += ["            return t", "return fallback(row, (input, other), out)"]
    return function(row.name, "input, other, *, out=None", body, row=row, kernel=row.cpu, kernel_name=row.kernel, Node=row.node,
                    chars=chars, number_chars=number_chars, fallback=fallback)


# ---------------------------------------------------------------------------------------------- plain calls of a function
def front(of: Callable[..., Any], row: Any, takes: str, *, made: Any, when: str = "", given: str = "", chars: str = "",
          prepare: Iterable[str] = (), tensors: str = "", **using: Any) -> Callable[..., Any]:
    """A function that does the plain calls of another one by itself, and passes every other call on as it came.

    takes: its arguments, the first of them a tensor: "self dim0 dim1", "self *shape", or "self dim keepdim=False", which may be
    given by name. when: what has to be true of them; x is the tensor's array, which is not empty, n its number of dimensions;
    prepare: lines before that. made: an expression of the result's array, or lines that end with one. given: the row's further
    arguments. chars: dtypes; none where a view is made. tensors: arguments that are tensors; using: names in these texts. In a
    call that is followed the row's kernel is asked instead, unless it makes a view.
    """
    parts = takes.split()
    names = [t.partition("=")[0].lstrip("*") for t in parts]
    first, rest = names[0], [g.strip() for g in given.split(";")] if given else []
    *before, last = [made] if made.__class__ is str else made
    inner = [*prepare, *([f"if {when}:"] if when else [])]
    body = list(before)
    if row.view:
        body += [f"made = {last}", *_view_of(first, "mode")]
    else:
        asked = _tuple(["x", *[f"{r}._array" if r in tensors.split() else r for r in rest]])
        body += ["if mode > 1:", "    mode &= NO_GRAD", f"    made = state.follower.call(kernel_name, {asked})", "else:",
                 f"    made = {last}", "t = new(Tensor)", "t._array = made", "t._node = t._counter = None"]
    sure = {i for i, a in enumerate([first, *rest]) if i == 0 or a in tensors.split()}
    if lines := recording(row, [first, *rest], sure, set(range(len(row.args))) - sure):
        body += ["if mode == 0:", *["    " + line for line in lines]]
    body.append("return t")
    inner += ["    " * bool(when) + line for line in body]
    if "=" in parts[-1]:
        using["bind"] = eval(f"lambda {', '.join(parts)}: {_tuple(names)}")
    text = ["mode = state.mode", *_arguments(parts, names),
            f"    kind = {first}.__class__", "    if kind is Tensor or kind is Parameter:",
            f"        x = {first}._array", f"        if {_plain_array(row, first, chars)}:", "            n = x.ndim",
            *["            " + line for line in inner], "return of(*args, **kwargs)"]
    return later(row.name, text, of=of, Node=row.node, kernel_name=row.kernel, chars=chars, **using)


def _plain_array(row: Any, first: str, chars: str) -> str:
    if row.view:
        return f"type(x) in WINDOWS and {first}._view_fn is None and not {first}._inference and x.size"
    return "x.dtype.char in chars and (type(x) is ndarray or (mode > 1 and type(x) in WINDOWS)) and x.size"


def _arguments(takes: list[str], names: list[str]) -> list[str]:
    """Lines that bind the arguments to names, up to the `if` that holds where that could be done."""
    if takes[-1].startswith("*"):
        return [f"if len(args) > {len(takes) - 2} and not kwargs and (mode < 2 or mode in FOLLOWED):",
                f"    {', '.join([*names[:-1], '*' + names[-1]])} = args"]
    if "=" not in takes[-1]:
        return [f"if len(args) == {len(takes)} and not kwargs and (mode < 2 or mode in FOLLOWED):",
                f"    {_tuple(names)} = args"]
    return ["if mode < 2 or mode in FOLLOWED:", "    try:", f"        {_tuple(names)} = bind(*args, **kwargs)",
            "    except TypeError:", "        return of(*args, **kwargs)"]
