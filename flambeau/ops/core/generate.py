"""Code of operations, made as text from their rows.

A row says what an operation computes, what its derivative needs and of which arguments. That is known when the row is made, so
the code that runs at each call need not ask again: it is written here, as text, the way `dataclasses` writes `__init__`. Texts
that read the same are compiled once. A debugger steps through them, and `source(function)` shows one:

    >>> print(source(flambeau.mul))

All of them record a node with the same lines (`recording`); nothing else in ops/ writes down the fields of a row's node.
"""

from __future__ import annotations

import functools
import linecache
import os
from binascii import crc32
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from ...autograd import state as _state
from ...autograd.errors import freed_error
from ...autograd.node import (
    FLOAT32,
    INFERENCE_SAVED,
    Edge,
    SavedOutput,
    bump,
    next_sequence,
    start_counter,
)
from ...autograd.views import MULTI_OUTPUT, NO_GRAD_VIEW, edge_of
from ...backends import registry
from ...backends.cpu.layouts import uneven
from ...backends.cpu.parallel import HALF, LARGE, large
from ...backends.dtypes import native as _native
from ...backends.pending import PendingArray
from ...native import arrays
from ...tensors.dtypes import ALL
from ...tensors.parameter import Parameter
from ...tensors.tensor import Size, Tensor
from . import kept

PLAIN = frozenset((int, float, bool, str, tuple, type(None)))  # classes of arguments that are no tensors
_NAMES: dict[str, Any] = dict(
    __name__=__name__, ARRAY_TYPES=registry.ARRAY_TYPES, Edge=Edge, FLOAT32=FLOAT32, FLOAT64=_native("float64"),
    CASTING=_state.CASTING, CASTS=_state.CASTS, EAGER=registry.EAGER, INTO=registry.INTO,
    FOLLOWED=_state.FOLLOWED, HALF=HALF, INFERENCE_SAVED=INFERENCE_SAVED, LARGE=LARGE, MULTI_OUTPUT=MULTI_OUTPUT,
    NO_GRAD=_state.NO_GRAD, NO_GRAD_VIEW=NO_GRAD_VIEW, PLAIN=PLAIN, Parameter=Parameter, PendingArray=PendingArray,
    SavedOutput=SavedOutput, Tensor=Tensor,
    WATCHED=_state.NO_GRAD | _state.FORWARD_AD, FOLLOWABLE=registry.FOLLOWABLE, WINDOWS=registry.WINDOWS,
    asarray=registry.cpu.asarray, bump=bump,
    edge_of=edge_of, freed_error=freed_error, large=large, ndarray=registry.CPU_ARRAY, new=object.__new__,
    next_sequence=next_sequence, start_counter=start_counter, state=_state.state, uneven=uneven)
_SPACES = [_NAMES]  # the names that each function finds; none are kept once native functions are among them
_HERE = os.path.splitext(os.path.abspath(__file__))[0] + "d"


def knows(**names: Any) -> None:
    """Names that the texts may use, entered by the modules that have them."""
    _NAMES.update(names)


def _first_call(name: str) -> Callable[..., Any]:
    """Stands for a function of native/arrays.py until one of them is called: loading them is no part of importing."""
    def call(*args: Any) -> Any:
        found = arrays.loaded()
        for names in _SPACES:
            names.update(found)
        _SPACES.clear()
        return found[name](*args)

    return call


arrays.describe(Tensor, Parameter, Size, [d.native for d in ALL], LARGE)
knows(**{name: _first_call(name) for name in arrays.NAMES})


@functools.cache
def _template(text: str) -> FunctionType:
    file = f"{_HERE} {crc32(text.encode()):08x}"  # tracebacks and the compiler see whose code it is
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {}
    exec(kept.code(text, file), space)
    return space["call"]


def function(title: str, signature: str, body: Iterable[str], **given: Any) -> Callable[..., Any]:
    """A function of this text. given: what it refers to beyond the names above, values of its own."""
    template = _template(f"def call({signature}):\n" + "".join([f"    {line}\n" for line in body]))
    names = {**_NAMES, **given}
    if _SPACES:
        _SPACES.append(names)
    made = FunctionType(template.__code__.replace(co_name=title, co_qualname=title), names, title, template.__defaults__)
    made.__kwdefaults__, made.__qualname__ = template.__kwdefaults__, title
    return made


def later(title: str, signature: str, body: Iterable[str], **given: Any) -> Callable[..., Any]:
    """`function`, whose text is compiled at its first call: most programs need few of them."""
    def compiled() -> Callable[..., Any]:
        real = function(title, signature, body)
        made.__code__, made.__defaults__ = real.__code__, real.__defaults__
        return made
    made = function(title, "*args, **kwargs", ["return compiled()(*args, **kwargs)"], compiled=compiled, **given)
    return made


def is_made(function: Any) -> bool:
    """Whether a function was made here: an operation that calls kernels, but no other operation."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_HERE)


def source(made: Callable[..., Any]) -> str:
    """The text of a function that was made here."""
    return "".join(linecache.getlines(made.__code__.co_filename))


# ------------------------------------------------------------------------------------------------------- recording
_ATTACH = {  # how the node comes to know its results, and what is saved of them
    "one": (["t._node = node", "node.shape = made.shape", "if made.dtype is not FLOAT32:", "    node.dtype = made.dtype"],
            lambda number: "made"),
    "first": (["t._node = node", "node.shape = made[0].shape", "if made[0].dtype is not FLOAT32:",
               "    node.dtype = made[0].dtype"], lambda number: f"wrapped(made[{number}])"),
    "many": (["node.outputs = [(a.shape, a.dtype) for a in made]", "for number, t in enumerate(results):",
              "    if number not in without_gradient:", "        t._node = Edge(node, number)"],
             lambda number: f"SavedOutput(results[{number}], {number})"),
    "any": (["attach(node, results)"],
            lambda number: f"SavedOutput(results[{number}] if results.__class__ is tuple else results, {number})")}


def recording(row: Any, names: list[str], tensors: Iterable[int], not_tensors: Iterable[int] = (), held: bool = False,
              results: str = "one") -> list[str]:
    """Lines that give the tensor `t` over the array `made` its node, if one of the row's arguments has a history.

    names: the variables that hold the arguments. tensors: numbers of those that are tensors for sure; not_tensors: of those
    that are not. Any other may be either. held: a second backward pass is refused even if no tensor was saved. results:
    "first" where `made` is a tuple, and t the only result that anybody sees; "many": `results` are tensors over the arrays
    `made`; "any": `results` are tensors, one or several, of whatever kind.
    """
    tensors, not_tensors = set(tensors), set(not_tensors)
    wanted = [i for i in row.targets if i not in not_tensors]
    if row.node is None or not wanted:
        return []
    edges = [f"{names[i]}_edge" for i in range(len(names))]
    lines = []
    for i in wanted:
        if i in tensors:
            lines.append(f"{names[i]}_counter = {names[i]}._counter")
        lines.append(f"{edges[i]} = {f'edges_of({names[i]})' if i in row.lists else _edge(names[i], i in tensors)}")
    ways = [("*" * (i in row.lists) + edges[i]) if i in wanted else "None" for i in range(len(names))]
    lines += [f"if {' or '.join([f'{edges[i]} is not None' for i in wanted])}:", "    node = new(Node)",
              f"    node.next = {in_tuple(ways)}", "    node.sequence = next_sequence()",
              *["    " + line for line in _ATTACH[results][0]]]
    if row.saving:
        lines += ["    " + line for line in _saving(row, names, edges, wanted, tensors, not_tensors, held, results)]
    return lines


def _edge(name: str, sure: bool) -> str:
    counter = f"{name}_counter" if sure else f"{name}._counter"
    edge = f"{name}._node if {counter} is None or {name}._base is None else edge_of({name})"
    return edge if sure else f"None if {name} is None or not isinstance({name}, Tensor) else {edge}"


def ours(array: str) -> str:
    """The question whether kernels of this process serve an array at once: the CPU's; a follower takes those of any device."""
    return f"(type({array}) is ndarray or (mode > 1 and type({array}) in FOLLOWABLE))"


# The question whether nothing special is going on: following is not, nor is autocast where it leaves the function of this name
# alone.
ORDINARY = "(mode < 2 or mode in FOLLOWED or (mode in CASTING and public_name not in CASTS and (mode := mode & NO_GRAD) < 2))"


def in_tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _saving(row: Any, names: list[str], edges: list[str], wanted: list[int], tensors: set[int], not_tensors: set[int],
            held: bool, results: str) -> list[str]:
    """Lines that save what the formulas of those arguments need that have a history, with the versions of tensors."""
    values, versions, unsure = [], {}, ["True"] * (results == "any")
    for slot, (kind, index, users) in enumerate(row.saving):
        users = [u for u in users if u in wanted]
        name = None if kind == "result" else names[index]
        value = _ATTACH[results][1](index) if kind == "result" else {
            "argument": name, "strides": f"{name}._array.strides", "dtype": f"{name}.dtype",
            "shape": f"{name}._array.shape" if index in tensors else (
                f"tuple([a._array.shape for a in {name}])" if index in row.lists else f"{name}.shape"),
            "needs": "None"}[kind]  # the edges tell
        if users and users != wanted:
            value = f"{value} if {' or '.join([f'{edges[u]} is not None' for u in users])} else None"
        values.append(value if users else "None")
        if users and kind == "argument" and index not in not_tensors:
            if index in tensors:
                versions[slot] = name
            else:  # a number in the place of a tensor counts as one
                unsure.append(f"{name} is not None" if index in row.targets else f"{name}.__class__ not in PLAIN")
        held |= bool(users) and kind == "result"
    lines = [f"node.saved = {in_tuple(values)}"]
    if versions:
        counter = {n: f"{n}_counter" if names.index(n) in wanted else f"{n}._counter" for n in versions.values()}
        marks = [f"0 if {counter[versions[s]]} is None else {counter[versions[s]]}.value" if s in versions else "0"
                 for s in range(len(values))]
        lines += [f"if {' or '.join([f'{c} is not None' for c in counter.values()])}:",
                  f"    if {' or '.join([f'{n}._inference' for n in counter])}:",
                  "        raise RuntimeError(INFERENCE_SAVED)",
                  f"    node.versions = {in_tuple(marks)}"]
    held |= bool(versions)
    if unsure:
        lines += [f"if {' or '.join(dict.fromkeys(unsure))}:", f"    look_over(node, {held})"] if "True" not in unsure else [
            f"look_over(node, {held})"]
    if not held and "True" not in unsure and "release" not in row.node.__dict__:
        lines += ["else:", "    node.release = nothing_to_free"] if unsure else ["node.release = nothing_to_free"]
    return lines


def results(row: Any, names: list[str], sure: Iterable[int], not_tensors: Iterable[int], mode: str, several: bool = False,
            attach: str = "", where: str = "", held: bool = False) -> list[str]:
    """Lines that make the array `made` the tensor `t`, or several of them the tensors `results`, in mode 0 with their node.

    names, sure (the tensors), not_tensors and held: as in `recording`. mode: the variable. where: what else has to be
    true where there is something to record.
    """
    array = "array" if several else "made[0]" if attach == "first" else "made"
    lines, one = [], ["t = new(Tensor)", f"t._array = {array}", "t._node = None"]
    if row.view:
        lines = [f"counter = start_counter({names[0]}) if {names[0]}._counter is None else {names[0]}._counter",
                 f"base = {names[0]} if {names[0]}._base is None else {names[0]}._base"]
        one += ["t._counter, t._base = counter, base", "if counter.value:", "    t._seen = counter.value"]
        one += [f"t._creation = NO_GRAD_VIEW if {mode} else MULTI_OUTPUT"] if several else [
            f"if {mode}:", "    t._creation = NO_GRAD_VIEW",
            f"elif {names[0]}._creation is not None:", f"    t._creation = {names[0]}._creation"]
    else:
        one[-1] = "t._node = t._counter = None"
    lines += one if not several else [
        "results = []", "for array in made:", *["    " + line for line in [*one, "results.append(t)"]]]
    recorded = recording(row, names, sure, not_tensors, held, "many" if several else attach or "one")
    if recorded:
        lines += [f"if {mode} == 0{f' and {where}' if where else ''}:", *["    " + line for line in recorded]]
    return lines


def tensor(row: Any, attach: str = "one") -> Callable[..., Tensor]:
    """The function of (mode, made, *arguments): the array that the row's kernel made as a tensor, in mode 0 with its node.

    attach: "first" for a tuple of arrays, the first of which becomes a tensor that hides the others.
    """
    names = list(row.args)
    not_tensors = range(1, len(names)) if row.view else ()  # of a view: dimensions and sizes
    body = results(row, names, row.sure, not_tensors, "in_mode", attach=attach)
    return function(row.name, ", ".join(["in_mode", "made", *names]), [*body, "return t"], Node=row.node)


def tensors(row: Any) -> Callable[..., tuple[Tensor, ...]]:
    """The function of (mode, made, *arguments): the arrays that the row's kernel made as tensors, in mode 0 with their node."""
    names = list(row.args)
    body = results(row, names, row.targets, range(1, len(names)) if row.view else (), "in_mode", several=True)
    return function(row.name, ", ".join(["in_mode", "made", *names]), [*body, "return tuple(results)"], Node=row.node,
                    without_gradient=row.constant)


def record(row: Any) -> Callable[..., None]:
    """The function of (results, *arguments): gives results that are tensors already their node. It asks about everything."""
    lines = recording(row, list(row.args), (), results="any")
    return function(row.name, ", ".join(["results", *[f"{a}=None" for a in row.args]]), lines or ["pass"], Node=row.node)


# ------------------------------------------------------------------------------------------------------ pointwise
def _device_chars(row: Any, chars: str) -> str:
    """dtypes that need no promotion on other devices, whose kernels compute with half types in float32."""
    return chars + "eE" if row.c is not None and "f" in row.c_kinds and "f" in chars else chars


def of_one(row: Any, *, chars: str, ufunc: bool, fallback: Callable[..., Tensor], tensors: int = 1) -> Callable[..., Tensor]:
    """A pointwise operation of tensors of one dtype, and numbers: plain ones go straight to the kernel, others to the fallback.

    chars: dtypes that need no promotion. ufunc: the kernel is one of NumPy's, which gives scalars for zero-dim arrays and uses
    one thread; there is an `out`. tensors: how many of the arguments are; they have one shape.
    """
    names = ["input", *row.args[1:]]
    arrays, numbers = ["x", "y", "z"][:tensors], names[tensors:]
    values = ", ".join([*arrays, *numbers])
    run = ["elif type(x) is not ndarray:", f"    made = EAGER[type(x)](kernel_name, {values})"]
    if ufunc:
        run += ["elif x.size < LARGE:", f"    made = kernel({values}) if x.ndim else asarray(kernel({values}))",
                "else:", f"    made = large(kernel, {values})"]
    else:
        run += ["else:", f"    made = kernel({values})"]
    types = [f"type({a})" for a in arrays]
    are_tensors = " and ".join([f"({n}.__class__ is Tensor or {n}.__class__ is Parameter)" for n in names[:tensors]])
    alike = "".join([f" and {a}.dtype is x.dtype" for a in arrays[1:]])
    body = ["mode = state.mode",
            f"if {ORDINARY} and {are_tensors}{' and out is None' * ufunc}:",
            *[f"    {a} = {n}._array" for a, n in zip(arrays, names)],
            f"    if (x.dtype.char in chars{alike} and ({' is '.join(types)} is ndarray or "
            f"(mode > 1 and {' and '.join([f'{t} in FOLLOWABLE' for t in types])}))) or ("
            f"mode < 2 and {' is '.join(types)} in EAGER and x.dtype.char in device_chars{alike}):",
            "        if mode > 1:",
            "            mode &= NO_GRAD",
            f"            made = state.follower.call(kernel_name, ({values}{',' * (values == 'x')}))",
            *["        " + line for line in [
                *run, *results(row, names, range(tensors), range(tensors, len(names)), "mode"), "return t"]],
            f"return fallback(row, {in_tuple(names)}, {'out' if ufunc else 'None'})"]
    return function(row.name, ", ".join([*names, *["*, out=None"] * ufunc]), body, row=row, kernel=row.cpu,
                    kernel_name=row.kernel, Node=row.node, chars=chars, fallback=fallback, public_name=row.name,
                    device_chars=_device_chars(row, chars))


def of_two(row: Any, *, chars: str | None, number_chars: str, fallback: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A pointwise operation of two tensors, or of a tensor and a number. chars: as in `of_one`; None: all."""
    known, anywhere = "", ""
    if chars is not None:
        known = " and x.dtype.char in chars"
        anywhere = " and (x.dtype.char in chars or (type(x) is type(y) in EAGER and x.dtype.char in device_chars))"
    served = "mode < 2" if hasattr(row.cpu, "nin") else "type(x) is ndarray"  # NumPy's own functions ask other devices' arrays
    both = "" if served == "mode < 2" else f" and ({served} is type(y) or mode > 1 or type(x) is type(y) in EAGER)"
    names = ["input", "other"]
    body = ["mode = state.mode",
            f"if out is None and {ORDINARY}:",
            "    cls, kind = input.__class__, other.__class__",
            "    if (kind is Tensor or kind is Parameter) and (cls is Tensor or cls is Parameter):",
            "        x, y = input._array, other._array",
            "        made = None",
            "        try:",
            f"            if mode < 2 and suited(x, y){known}:",
            "                made = kernel(x, y)",
            f"            elif x.dtype is y.dtype{anywhere}{both}:",
            "                if mode > 1:",
            "                    if type(x) in FOLLOWABLE and type(y) in FOLLOWABLE:",
            "                        mode &= NO_GRAD",
            "                        made = state.follower.call(kernel_name, (x, y))",
            "                elif type(x) in EAGER:",
            "                    made = EAGER[type(x)](kernel_name, x, y) if type(y) is not PendingArray else None",
            "                else:",
            "                    made = uneven(kernel, x, y)",
            "        except ValueError:",
            "            raise broadcast_error(x.shape, y.shape) from None",
            "        if made is not None:",
            *["            " + line for line in [*results(row, names, [0, 1], (), "mode"), "return t"]],
            "    elif (kind is float or kind is int) and (cls is Tensor or cls is Parameter):",
            "        x = input._array",
            f"        if (x.dtype.char in number_chars and ({served} or (mode > 1 and type(x) in FOLLOWABLE))) or ("
            "mode < 2 and type(x) in EAGER and x.dtype.char in device_numbers):",
            "            if mode > 1:",
            "                mode &= NO_GRAD",
            "                made = state.follower.call(kernel_name, (x, state.follower.literal(other, x.dtype)))",
            "            elif type(x) in EAGER:",
            "                native = FLOAT32 if x.itemsize == 2 else x.dtype",
            "                made = EAGER[type(x)](kernel_name, x, constants.get((other, native)) or constant(other, native))",
            "            else:  # as an array: NumPy takes twice as long over a Python number",
            "                y = constants.get((other, x.dtype)) or constant(other, x.dtype)",
            "                if x.size < LARGE:",
            "                    made = kernel(x, y) if x.size > 1 else kernel(x, y, out=...)",
            "                else:",
            "                    made = large(kernel, x, y)",
            *["            " + line for line in [  # held: PyTorch saves a number as a tensor
                *results(row, names, [0], [1], "mode", held=True), "return t"]],
            "return fallback(row, (input, other), out)"]
    return function(row.name, "input, other, *, out=None", body, row=row, kernel=row.cpu, kernel_name=row.kernel, Node=row.node,
                    chars=chars, number_chars=number_chars, fallback=fallback, public_name=row.name,
                    device_chars=_device_chars(row, chars or ""), device_numbers=_device_chars(row, number_chars))


def in_place(row: Any, *, chars: str | None, recorded: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a pointwise operation: plain tensors without history go straight to the kernel,
    others to `recorded`."""
    untracked = "({0}._node is None and ({0}._counter is None or {0}._base is None))".format
    two = len(row.args) == 2
    names, arrays = (["self", "other"], "x, y") if two else (["self"], "x,")
    if two:
        known, never = "" if chars is None else f" and native.char in {chars!r}", "" if row.kind == "same" else " and False"
        operand = ["y, kind = None, other.__class__",
                 "if kind is Tensor or kind is Parameter:",
                 f"    if native is other._array.dtype{known} and (mode & NO_GRAD or {untracked('other')}):",
                 "        y = other._array",
                 "        if mode > 1 or ((x.base is not None or y.base is not None) and type(x) is ndarray):",
                 "            check_overlap(x, (y,))",
                 f"        if not {ours('y')} and not (mode < 2 and type(x) is type(y)):",
                 "            y = None",
                 "        elif mode > 1 and (native.char not in 'fd' or y.shape != x.shape):",
                 "            y = None",
                 "elif (kind is float or kind is int) and native.char in 'fd':",
                 "    y = constant(other, native) if mode < 2 else number(other, native)",
                 f"elif mode > 1 and kind is int and native.char == 'l'{never}:",
                 "    y = number(other, native)",
                 f"elif kind is int and native.char == 'l' and type(x) is not ndarray and abs(other) < 1 << 62{never}:",
                 "    y = constant(other, native)",
                 "if y is not None:"]
        run = ["else:", "    try:", "        small = x.size < HALF or (x.size < LARGE and native.char not in 'eE')",
               "        kernel(x, y, out=x) if small else large(kernel, x, y, out=x)",
               "    except ValueError:", "        raise inplace_broadcast(x.shape, y.shape) from None"]
    else:
        operand = [f"if native.char in {chars!r}:"]
        run = ["elif x.size < LARGE:", "    x[...] = kernel(x)", "else:", "    large(kernel, x, out=x)"]
    body = ["mode, kind = state.mode, self.__class__",
            f"if {ORDINARY} and (kind is Tensor or kind is Parameter) and not self._inference and (",
            f"        mode & NO_GRAD or {untracked('self')}):",
            "    x = self._array",
            "    native = x.dtype",
            f"    if ({ours('x')} or (mode < 2 and type(x) in INTO)) and x.flags.c_contiguous:",
            *["        " + line for line in operand],
            "            if mode > 1:",
            f"                state.follower.write(x, state.follower.call(kernel_name, ({arrays})))",
            "            elif type(x) is not ndarray:",
            f"                if not INTO[type(x)](x, kernel_name, {arrays.rstrip(',')}):",
            f"                    return recorded({', '.join(names)})",
            *["            " + line for line in [*run, "bump(self)", "return self"]],
            f"return recorded({', '.join(names)})"]
    return function(f"{row.name}_", ", ".join(names), body, kernel=row.cpu, kernel_name=row.kernel, recorded=recorded,
                    public_name=f"{row.name}_")
