"""Kernels as functions of Python's: a plan says which kernel runs on how many threads, a call brings the arrays and numbers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ...native import calls, toolchain
from .driver import machine
from .streams import current

_P = ctypes.c_void_p
_PYTHON = ("PyLong_AsUnsignedLongMask", "PyFloat_AsDouble", "PyLong_AsVoidPtr", "PyErr_Occurred", "Py_IncRef",
           "PyObject_CallFunctionObjArgs", "PyLong_FromLong", "Py_DecRef", "PyDict_GetItemWithError", "PyList_Append",
           "PyObject_SetAttr", "PyObject_GetAttr", "PyErr_Clear", "PyTuple_New", "PyTuple_SetItem")
_NUMBERS = 8   # of 8 bytes each at the head of cuda.c's struct plan
_KINDS = 16
_SHARED = 48 << 10  # bytes of shared memory that every kernel may have


def _failed(code: int | None) -> None:
    if code is None:
        raise TypeError("a kernel got the wrong number of arguments")
    if code >= 20000:
        raise RuntimeError(f"CUDA error: cuDNN answered {code - 20000} to a convolution")
    if code >= 10000:
        raise RuntimeError(f"CUDA error: cuBLASLt answered {code - 10000} to a matrix product")
    machine().check(code, "a kernel's launch")


@functools.cache
def library() -> ctypes.CDLL:
    if not toolchain.knows_python():
        raise NotImplementedError("CUDA needs Linux on x86-64 or aarch64, and an ordinary build of Python")
    made = toolchain.load(toolchain.build((toolchain.HERE / "cuda.c").read_text(), "cuda"))
    found = toolchain.interpreter(*_PYTHON)
    made.fl_cuda_attach((_P * (len(found) + 1))(*found, id(None)), redirecting().fl_graph_launch, _P(machine().activation),
                           ctypes.py_object(_failed))
    return made


@functools.cache
def redirecting() -> ctypes.CDLL:
    """What stands between a launch and the driver (native/cuda_graph.c)."""
    made = toolchain.load(toolchain.build((toolchain.HERE / "cuda_graph.c").read_text(), "cuda_graph"))
    made.fl_graph_attach(_P(machine().launch), _P(machine().node_setter))
    made.fl_graph_redirect.restype = made.fl_graph_launched.restype = ctypes.c_long
    made.fl_graph_redirect.argtypes = [_P, _P, ctypes.c_long]
    return made


def choose_stream(stream: int) -> None:
    """What this thread launches from now on goes to this stream of the current device."""
    current.streams[current.device] = stream
    library().fl_cuda_stream(_P(stream))


@functools.cache
def _told(name: str) -> Callable[..., None]:
    return calls.builtin(library(), name)


def unrepeatable() -> None:
    """Says that a call in whose course this is does not only launch plans, or not the same ones whenever it is made."""
    _told("fl_cuda_spoil")()


def numbers_of(name: str, *places: int) -> None:
    """Says which of a call's arguments are the numbers of its launch, in their order (repeated.py)."""
    _told("fl_cuda_counted")(name, *places)


@functools.cache
def _module(text: str, device: int) -> int:
    machine().activate(device)
    return machine().load(text, device)


@functools.cache
def kernel(text: str, name: str, device: int) -> int:
    """The kernel of that name in a text, built and loaded when it is first needed."""
    return machine().function(_module(text, device), name)


_kept: list[Any] = []


class Plan:
    """A launch that is settled but for the arrays and numbers: `run(*arguments)`. Its memory lives as long as the process:
    native code may have noted it (repeated.py)."""

    def __init__(self, function: int, device: int, blocks: int, threads: int, kinds: str, fixed: bytes = b"", shared: int = 0,
                 otherwise: Plan | None = None):
        """kinds: a letter per argument (cuda.c); fixed: the kernel's first parameter; otherwise: what runs instead where an
        address is not a multiple of 16."""
        head = (ctypes.c_long * _NUMBERS)(function, machine().context(device), blocks, threads, shared, len(kinds), len(fixed),
                                         0 if otherwise is None else ctypes.addressof(otherwise._memory))
        self._memory = ctypes.create_string_buffer(bytes(head) + kinds.encode().ljust(_KINDS, b"\0") + fixed)
        _kept.append(self._memory)
        self.run: Callable[..., Any] = calls.builtin(library(), "fl_cuda_run", ctypes.addressof(self._memory))


@functools.lru_cache(1 << 14)
def plan_of(text: str, name: str, device: int, blocks: int, threads: int, kinds: str, fixed: bytes, shared: int = 0) -> Plan:
    """The plan of a kernel in a text, made once; shared: bytes of shared memory beyond what the text itself names."""
    function = kernel(text, name, device)
    if shared > _SHARED:
        machine().allow_shared(function, shared)
    return Plan(function, device, blocks, threads, kinds, fixed, shared)


@functools.lru_cache(1 << 14)
def launch(text: str, name: str, kinds: str, count: int, fixed: bytes, device: int, otherwise: Plan | None = None,
           each: int = 32) -> Plan:
    """The same with a thread per element, in up to `each` blocks per multiprocessor, which then go on to further elements."""
    blocks = min(-(-count // 256), each * machine().attribute("multiprocessors", device))
    return Plan(kernel(text, name, device), device, blocks, 256, kinds, fixed, otherwise=otherwise)
