"""The NumPy kernels of backends/cpu once more, over CuPy: what has no kernel of its own on the device runs there all the same.

Every CPU kernel has a form in NumPy's words, for machines without a C compiler, and CuPy has those words for arrays on a
device. So the modules of backends/cpu are loaded a second time, under another name, with CuPy in NumPy's place and without
native code. CuPy refuses to mix its arrays with the host's: nothing goes over the host in silence.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray

from .. import facts
from ..cpu import arrays as _arrays
from ..cpu import memory as _memory
from ..cpu import parallel as _parallel
from ..cpu.pointwise import loops as _loops
from ..geometry import RUNS
from .arrays import CudaArray, NotRecordable, device_index, windows
from .backend import copied
from .driver import machine
from .memory import Block, Pages
from .numpy_words import Like, cupy, numpy_words
from .streams import current

_HERE = os.path.dirname(os.path.abspath(_arrays.__file__))
_REAL = __package__.rpartition(".")[0] + ".cpu"
_NAME = __package__.rpartition(".")[0] + ".cpu_over_cupy"  # as deep as the real one: relative imports mean the same


# ----------------------------------------------------------------------------------------------------------- modules
def _unsplit(count: int, work: Any) -> None:
    work(0, count)


def _run(kernel: Any, *args: Any, out: Any = None) -> Any:
    if out is None:
        return kernel(*args)
    cupy().copyto(out, kernel(*args), casting="unsafe")
    return out


def _into(out: Any, source: Any) -> None:
    out[...] = cupy().asarray(source).astype(out.dtype)


def _restride(x: Any, shape: Any, stride: Any, skip: int = 0) -> Any:
    start = x.data + skip * x.itemsize
    return cupy().ndarray(tuple(shape), x.dtype, start, [s * x.itemsize for s in stride])


def _empty(shape: Any, dtype: Any) -> Any:
    return cupy().empty(shape, dtype)


def _substitutes() -> dict[str, Any]:
    from ... import native

    def same(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        return function

    return {
        "native": Like("native", native, library=lambda name: None, postponed=lambda *args: False),
        "facts": Like("facts", facts, enter=lambda *args: None),
        "memory": Like("memory", _memory, empty=_empty, like=lambda x, dtype=None: cupy().empty_like(x, dtype),
                        window=lambda x, shape, strides: cupy().ndarray(shape, x.dtype, x.data, strides),
                        is_writable=lambda x: True),
        "parallel": Like("parallel", _parallel, large=_run, split=_unsplit, native=same, native_from_two=same, copy_into=_into,
                          LARGE=1 << 62, SPLIT=1 << 62, copied=lambda x: x.copy(), get_num_threads=lambda: 1),
        "arrays": Like("arrays", _arrays, asarray=cupy().asarray, restride=_restride, cast_into=_into,
                        settled=lambda x: x, is_contiguous=lambda x: x.flags.c_contiguous)}


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs a file of backends/cpu with the substitutes in the places of what it imports."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _NAME and not name.startswith(_NAME + "."):
            return None
        place = os.path.join(_HERE, *name[len(_NAME) + 1:].split("."))
        folder = os.path.isdir(place)
        file = os.path.join(place, "__init__.py") if folder else place + ".py"
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file),
                                                      submodule_search_locations=[place] if folder else None)


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """`import` in those files."""
    if not level:
        return numpy_words() if name == "numpy" else builtins.__import__(name, globals, locals, fromlist)
    substitutes = _all_substitutes()
    words = name.split(".") if name else []
    if words and words[-1] in substitutes:
        return substitutes[words[-1]]
    if not name and any([f in substitutes for f in fromlist]):  # from . import memory, table
        package = importlib.util.resolve_name("." * level, globals["__package__"])
        return Like(package, **{f: substitutes[f] if f in substitutes else importlib.import_module(f"{package}.{f}")
                                 for f in fromlist})
    return builtins.__import__(name, globals, locals, fromlist, level)


_all_substitutes = functools.cache(_substitutes)


@functools.cache
def _table() -> Any:
    sys.meta_path.insert(0, _Finder())
    importlib.import_module(f"{_NAME}.kernels")
    return importlib.import_module(f"{_NAME}.table")


@functools.cache
def _kernel(name: str) -> Any:
    """The kernel of this name over CuPy; None where its module, or CuPy, is not to be had."""
    from ..cpu.table import KERNELS
    host = KERNELS.get(name)
    if host is None or cupy() is None:
        return None
    table = _table()
    module = getattr(host, "__module__", "") or ""
    if name not in table.KERNELS and module.startswith(_REAL + "."):
        importlib.import_module(_NAME + module[len(_REAL):])
    return table.KERNELS.get(name) or (_expressed(name) if name in _loops.kernels() else None)


def _expressed(name: str) -> Any:
    """A kernel that is nothing but the expression in its row."""
    function = importlib.import_module(f"{_NAME}.pointwise.expressed").function

    def call(x: Any, *rest: Any) -> Any:
        e = _loops.expression(name, (x, *rest))
        made = function(e.args, e.c)(x, *rest)
        return made if _loops.result_is_bool(name) else made.astype(x.dtype, copy=False)

    return call


# -------------------------------------------------------------------------------------------------------------- calls
def _given(value: Any) -> Any:
    if type(value) is CudaArray:
        block = windows.owner(value)
        memory = cupy().cuda.UnownedMemory(block.ctypes.data, block.nbytes, block, device_index(value))
        start = cupy().cuda.MemoryPointer(memory, value.ctypes.data - block.ctypes.data)
        return cupy().ndarray(value.shape, value.dtype, start, value.strides)
    if isinstance(value, ndarray) and not value.ndim:  # a number of the host's
        return cupy().asarray(value)
    return value.__class__([_given(v) for v in value]) if value.__class__ in (list, tuple) else value


def _taken(made: Any, held: list[Any], rule: Any = None) -> Any:
    """What CuPy made as an array of ours: a view of ours stays one, all else is copied, laid out as the shape rule says."""
    if made.__class__ in (list, tuple):
        rules = rule if rule.__class__ is list and len(rule) == len(made) else [None] * len(made)
        return made.__class__([_taken(m, held, r) for m, r in zip(made, rules)])
    if isinstance(made, (ndarray, numpy.generic)):
        raise TypeError("a kernel made an array of the host's")
    if not isinstance(made, cupy().ndarray):
        return made
    if not made.size:
        return windows.empty(made.shape, made.dtype)
    for block in held:
        if block.nbytes and block.ctypes.data <= made.data.ptr < block.ctypes.data + block.nbytes:
            return windows.over(block, made.shape, made.dtype, made.data.ptr - block.ctypes.data, made.strides)
    borrowed = windows.over(_borrowed(made), made.shape, made.dtype, 0, made.strides)
    if rule is None or rule.__class__ is list or tuple(rule[0]) != made.shape:
        return copied(borrowed, windows.like(_sized(made), made.dtype))
    return copied(borrowed, windows.by_rule(rule))


def _sized(made: Any) -> ndarray:
    """The geometry of an array, over nothing."""
    return numpy.lib.stride_tricks.as_strided(numpy.empty(1, made.dtype), made.shape, made.strides)


def _borrowed(made: Any) -> Block:
    import ctypes
    span = sum((n - 1) * abs(s) for n, s in zip(made.shape, made.strides)) + made.itemsize
    raw = numpy.frombuffer((ctypes.c_char * span).from_address(made.data.ptr), numpy.uint8).view(Pages)
    block = raw.view(Block)
    block.kept = made
    return block


def run(name: str, args: tuple[Any, ...]) -> Any:
    """The kernel by CuPy; NotImplemented where that cannot be."""
    kernel = _kernel(name)
    if kernel is None:
        return NotImplemented
    if current.capture is not None:
        raise NotRecordable(f"'{name}' runs over CuPy, whose memory a CUDA graph cannot keep")
    blocks: list[Any] = []

    def collect(value: Any) -> None:
        if type(value) is CudaArray:
            blocks.append(windows.owner(value))
        elif value.__class__ in (list, tuple):
            for v in value:
                collect(v)
    collect(args)
    machine().activate(current.device)
    with cupy().cuda.ExternalStream(current.stream) if current.stream else cupy().cuda.Stream.null:
        made = kernel(*[_given(a) for a in args])
    rule = facts.SHAPES.get(name)
    known = rule is not None and rule is not RUNS and name not in facts.DYNAMIC
    return _taken(made, blocks, rule(*args) if known else None)
