"""Convolutions by cuDNN 9, through ctypes: descriptions and the choice of an algorithm are made once per geometry."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from typing import Any, NamedTuple

import numpy as np

from ...native import calls
from ..dtypes import native
from ..registry import OutOfMemoryError
from . import compile, cublas
from .arrays import windows
from .driver import Unavailable, machine, shared_library
from .launch import library as _launches
from .launch import unrepeatable
from .streams import current

_P, _INT = ctypes.c_void_p, ctypes.c_int
Ints = "tuple[int, ...]"
# The library's numbers: types of elements, orders of dimensions, ways to multiply, a convolution that does not flip its kernel.
_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.float16): 2, native("bfloat16"): 9}
_CHANNELS_FIRST, _CHANNELS_LAST = 0, 1
_DEFAULT_MATH, _TENSOR_MATH, _FMA_MATH = 0, 1, 3
_CROSS_CORRELATION = 1
_DETERMINISTIC = 1
_MOST_ALGORITHMS = 10
_SEARCHED = 4 << 30     # bytes of workspace that a search among algorithms may use
# What each kind of work calls, what it reads (in the order of the library's arguments) and what it writes.
_WORKS = {"forward": ("Forward", "image", "weight", "result"), "input": ("BackwardData", "weight", "result", "image"),
          "weight": ("BackwardFilter", "image", "result", "weight")}


class Geometry(NamedTuple):
    """A convolution of `image` (batch, channels, *size) with `weight`, or one of its gradients (`work`), of two or three
    dimensions. The arrays lie densely, in that order of dimensions or (last) channels last."""

    work: str
    image: Ints
    weight: Ints
    result: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    groups: int
    dtype: np.dtype
    last: bool = False
    tf32: bool = True
    benchmark: bool = False
    deterministic: bool = False


@functools.cache
def library() -> ctypes.CDLL | None:
    """cuDNN: the system's, or the one of a wheel (nvidia-cudnn-cu13, -cu12); None where there is none."""
    for other in (cublas.library, compile.nvrtc):  # it looks for these by name, and finds what is loaded
        with contextlib.suppress(Unavailable):
            other()
    try:
        made = shared_library("libcudnn", (9,), "library of convolutions")
    except Unavailable:
        return None
    made.cudnnGetErrorString.restype, made.cudnnGetVersion.restype = ctypes.c_char_p, ctypes.c_size_t
    return made


def version() -> int | None:
    """As 91900 for 9.19.0; None without the library."""
    lib = library()
    return None if lib is None else lib.cudnnGetVersion()


class _Performance(ctypes.Structure):
    _fields_ = [("algorithm", _INT), ("status", _INT), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
                ("determinism", _INT), ("math", _INT), ("reserved", _INT * 3)]


class Unsupported(RuntimeError):
    """The library has no algorithm for a geometry."""


_REFUSALS = range(3000, 4000)   # the library's answers that it does not support something


def _check(code: int, what: str) -> None:
    if code in _REFUSALS:
        raise Unsupported(f"cuDNN does not support {what} ({code})")
    if code:
        words = library().cudnnGetErrorString(code)
        raise RuntimeError(f"cuDNN error: {(words or b'unknown').decode()} ({code}) from {what}")


class _Handles(threading.local):
    """A thread's handles, one per device: the library wants no two threads at one."""

    def __init__(self) -> None:
        self.made: dict[int, _P] = {}
        self.streams: dict[int, int] = {}

    def of(self, device: int) -> _P:
        machine().activate(device)
        found = self.made.get(device)
        if found is None:
            found = self.made[device] = _P()
            _check(library().cudnnCreate(ctypes.byref(found)), "cudnnCreate")
        stream = current.stream
        if self.streams.get(device) != stream:
            _check(library().cudnnSetStream(found, _P(stream)), "cudnnSetStream")
            self.streams[device] = stream
        return found


_handles = _Handles()


def _ints(values: Any) -> Any:
    return (_INT * len(values))(*values)


class Descriptions:
    """What the library is told about a geometry. Needs no device."""

    def __init__(self, g: Geometry):
        self.library, self.made = library(), []
        kind = _TYPES[g.dtype]
        self.image, self.result = self._tensor(g.image, kind, g.last), self._tensor(g.result, kind, g.last)
        self.weight = self._new("Filter")
        _check(library().cudnnSetFilterNdDescriptor(self.weight, kind, _CHANNELS_LAST if g.last else _CHANNELS_FIRST,
                                                    len(g.weight), _ints(g.weight)), "cudnnSetFilterNdDescriptor")
        self.convolution = self._new("Convolution")
        _check(library().cudnnSetConvolutionNdDescriptor(
            self.convolution, len(g.stride), _ints(g.padding), _ints(g.stride), _ints(g.dilation), _CROSS_CORRELATION,
            1 if g.dtype.char == "d" else 0), "cudnnSetConvolutionNdDescriptor")
        _check(library().cudnnSetConvolutionGroupCount(self.convolution, g.groups), "cudnnSetConvolutionGroupCount")
        self.math = (_TENSOR_MATH if g.dtype.itemsize == 2 else
                     _FMA_MATH if g.dtype.char == "f" and not g.tf32 else _DEFAULT_MATH)
        self.multiply_by(self.math)

    def multiply_by(self, math: int) -> None:
        _check(library().cudnnSetConvolutionMathType(self.convolution, math), "cudnnSetConvolutionMathType")

    def _new(self, kind: str) -> _P:
        made = _P()
        _check(getattr(library(), f"cudnnCreate{kind}Descriptor")(ctypes.byref(made)), f"cudnnCreate{kind}Descriptor")
        self.made.append((kind, made))
        return made

    def _tensor(self, shape: Ints, kind: int, last: bool) -> _P:
        made = self._new("Tensor")
        order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
        steps, step = [0] * len(shape), 1
        for d in reversed(order):
            steps[d], step = step, step * shape[d]
        _check(library().cudnnSetTensorNdDescriptor(made, kind, len(shape), _ints(shape), _ints(steps)),
               "cudnnSetTensorNdDescriptor")
        return made

    def __del__(self) -> None:
        for kind, made in self.made:
            getattr(self.library, f"cudnnDestroy{kind}Descriptor")(made)


class _Call(ctypes.Structure):
    """As cuda.c has it."""

    _fields_ = [(name, _P) for name in ("convolve", "context", "handle", "first", "second", "description", "result", "one",
                                        "zero")] + [("algorithm", ctypes.c_long), ("size", ctypes.c_size_t)]


_kept: list[Any] = []  # what native code may have noted


@functools.cache
def _stream_handle(device: int, stream: int) -> _P:
    machine().activate(device)
    made = _P()
    _check(library().cudnnCreate(ctypes.byref(made)), "cudnnCreate")
    _check(library().cudnnSetStream(made, _P(stream)), "cudnnSetStream")
    return made


class Convolution:
    """A convolution that is settled but for the arrays: `run(first, second, out)`, in the order of `_WORKS`."""

    def __init__(self, geometry: Geometry, device: int):
        self.geometry, self.device = geometry, device
        self.name, *roles = _WORKS[geometry.work]
        self.descriptions = Descriptions(geometry)
        self.roles = [getattr(self.descriptions, role) for role in roles]
        number = ctypes.c_double if geometry.dtype.char == "d" else ctypes.c_float
        self.one, self.zero = number(1), number(0)
        self.function = getattr(library(), f"cudnnConvolution{self.name}")
        self.chosen: _Performance | None = None
        self.refused: set[int] = set()
        self.hopeless: Unsupported | None = None
        self.proven = False
        self._calls: dict[int, Any] = {}

    def run(self, first: Any, second: Any, out: Any) -> None:
        """Raises Unsupported where there is no algorithm."""
        if self.hopeless is not None:
            raise self.hopeless
        handle = None if self.proven else _handles.of(self.device)
        while True:
            if self.chosen is None:
                try:
                    self.chosen = self._choice(handle, first, second, out)
                except Unsupported as refusal:
                    self.hopeless = refusal
                    raise
            if self.proven:
                return self._again(first, second, out)
            unrepeatable()
            code = self._called(handle, self.chosen, first, second, out)
            if not code:
                self.proven = True
                return
            if code not in _REFUSALS:
                _check(code, f"cudnnConvolution{self.name} of {self.geometry}")
            self.refused.add(self.chosen.algorithm)  # listed, but not taken after all
            self.chosen = None

    def _again(self, first: Any, second: Any, out: Any) -> None:
        """By native code, which may note it: with a handle of the stream's own, which only those use who hold Python's lock."""
        stream = current.stream
        if stream not in self._calls:
            made, names = _Call(), ("first", "second", "result")
            made.convolve, made.context = ctypes.cast(self.function, _P), machine().context(self.device)
            made.handle, made.description = _stream_handle(self.device, stream), self.descriptions.convolution
            for name, role in zip(names, self.roles):
                setattr(made, name, role)
            made.one, made.zero = ctypes.addressof(self.one), ctypes.addressof(self.zero)
            made.algorithm, made.size = self.chosen.algorithm, self.chosen.memory
            self._calls[stream] = made, calls.builtin(_launches(), "fl_cuda_convolve", ctypes.addressof(made))
            _kept.append((made, self))
        size = self.chosen.memory
        self._calls[stream][1](first, second, out, *((windows.storage(size),) if size else ()))

    def _called(self, handle: _P, chosen: _Performance, first: Any, second: Any, out: Any) -> int:
        a, b, c = self.roles
        size = chosen.memory
        workspace = windows.storage(size) if size else None
        return self.function(
            handle, ctypes.byref(self.one), a, _P(first.ctypes.data), b, _P(second.ctypes.data), self.descriptions.convolution,
            chosen.algorithm, _P(workspace.ctypes.data if size else None), ctypes.c_size_t(size), ctypes.byref(self.zero), c,
            _P(out.ctypes.data))

    def _choice(self, handle: _P, *arrays: Any) -> _Performance:
        """The first algorithm in the library's order (in the order of their times: benchmark) for which there is memory."""
        found = self._listed(handle)
        if self.geometry.benchmark and len(found) > 1:
            found = self._timed(handle, found, arrays) or found
        for one in found:
            try:
                if one.memory:
                    windows.storage(one.memory)
            except OutOfMemoryError:
                continue
            self.descriptions.multiply_by(_FMA_MATH if self.descriptions.math == _FMA_MATH else one.math)
            return one
        if found:
            raise OutOfMemoryError(f"CUDA out of memory: no algorithm of cuDNN for {self.geometry} finds room to work in")
        raise Unsupported(f"cuDNN has no algorithm for {self.geometry}")

    def _usable(self, found: Any, count: Any) -> list[_Performance]:
        return [one for one in found[:count.value] if one.status == 0 and one.algorithm not in self.refused and (
            one.determinism == _DETERMINISTIC or not self.geometry.deterministic)]

    def _listed(self, handle: _P) -> list[_Performance]:
        found, count, (a, b, c) = (_Performance * _MOST_ALGORITHMS)(), _INT(), self.roles
        name = f"cudnnGetConvolution{self.name}Algorithm_v7"
        _check(getattr(library(), name)(handle, a, b, self.descriptions.convolution, c, _MOST_ALGORITHMS, ctypes.byref(count),
                                        found), f"{name} of {self.geometry}")
        return self._usable(found, count)

    def _timed(self, handle: _P, listed: list[_Performance], arrays: Any) -> list[_Performance]:
        size = min(max([one.memory for one in listed]), _SEARCHED)
        while True:
            try:
                workspace = windows.storage(size) if size else None
                break
            except OutOfMemoryError:
                size //= 2
        found, count, (a, b, c) = (_Performance * _MOST_ALGORITHMS)(), _INT(), self.roles
        first, second, out = [_P(x.ctypes.data) for x in arrays]
        name = f"cudnnFindConvolution{self.name}AlgorithmEx"
        _check(getattr(library(), name)(
            handle, a, first, b, second, self.descriptions.convolution, c, out, _MOST_ALGORITHMS, ctypes.byref(count), found,
            _P(workspace.ctypes.data if size else None), ctypes.c_size_t(size)), name)
        return self._usable(found, count)


@functools.lru_cache(4096)
def _convolution(geometry: Geometry, device: int) -> Convolution:
    return Convolution(geometry, device)


def convolution(geometry: Geometry, device: int) -> Convolution | None:
    """None where cuDNN is not installed."""
    return None if library() is None else _convolution(geometry, device)
