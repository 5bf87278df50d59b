"""The CUDA driver, through ctypes: devices, memory, copies, streams, events, modules.

`machine()` is what everything else here talks to. Tests put another one in its place, which runs kernels on the host (`use`).
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from typing import Any

from ..registry import OutOfMemoryError

_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_MEMORY = 2           # the driver's number for "out of memory"
_ATTRIBUTES = {"capability_major": 75, "capability_minor": 76, "multiprocessors": 16, "threads_per_multiprocessor": 39,
               "warp": 10, "shared_per_block": 97, "l2": 38, "integrated": 18}


class Unavailable(RuntimeError):
    """Why there is no CUDA device here, in one sentence."""


def shared_library(name: str, versions: tuple[int, ...], what: str) -> ctypes.CDLL:
    """One of NVIDIA's libraries: the system's, or the one of a wheel; the first of the versions that is there."""
    files = [f"{name}.so.{version}" for version in versions]
    for place in (*files, f"{name}.so", *[found for folder in sys.path for file in files
                                          for found in glob.glob(os.path.join(folder, "nvidia", "*", "lib", file))]):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(place)
    raise Unavailable(f"NVIDIA's {what} ({name}) was not found: `pip install flambeau[cuda]` brings it")


def blocking() -> bool:
    """Whether each launch is waited for, so that its faults show where it is made: the driver reads this variable, too."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


def where() -> str:
    """", in operation, called at the user's line": the outermost of flambeau's functions on the stack."""
    frame, operation = sys._getframe(1), ""
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        operation, frame = frame.f_code.co_name, frame.f_back
    return "" if frame is None else f", in {operation}, called at {frame.f_code.co_filename}:{frame.f_lineno}"


class Machine:
    """The driver of this machine. Addresses and handles are plain numbers."""

    def __init__(self) -> None:
        try:
            self.library = library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise Unavailable("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
                              "driver") from None
        self.process = os.getpid()
        self._contexts: dict[int, int] = {}
        self._attributes: dict[tuple[str, int], int] = {}
        code = library.cuInit(0)
        if code:
            raise Unavailable(f"the NVIDIA driver does not start: {self.words(code)}")
        count = ctypes.c_int()
        self.check(library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
        if not count.value:
            raise Unavailable("No CUDA GPUs are available")
        self.count = count.value
        self.launch = ctypes.cast(library.cuLaunchKernel, _P).value
        self.node_setter = ctypes.cast(library.cuGraphExecKernelNodeSetParams_v2, _P).value
        self.activation = ctypes.cast(library.cuCtxSetCurrent, _P).value

    def words(self, code: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def check(self, code: int, what: str) -> None:
        if code:
            self._here()
            noticed, late = where(), "" if blocking() else (
                " Faults of kernels are noticed late: CUDA_LAUNCH_BLOCKING=1 shows the operation and the line")
            raise RuntimeError(f"CUDA error: {self.words(code)} ({what}{noticed}).{late}")

    def _here(self) -> None:
        if self.process != os.getpid():
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
                               "the 'spawn' start method")

    def _made(self, what: str, *args: Any) -> int:
        """The handle or address that a function of the driver gives."""
        made = _P()
        self.check(getattr(self.library, what)(ctypes.byref(made), *args), what)
        return made.value or 0

    # ----------------------------------------------------------------------------------------------------- devices
    def context(self, device: int) -> int:
        self._here()
        found = self._contexts.get(device)
        if found is None:
            found = self._contexts[device] = self._made("cuDevicePrimaryCtxRetain", device)
        return found

    def activate(self, device: int) -> None:
        """Makes a device the one that this thread's next calls are about."""
        self.check(self.library.cuCtxSetCurrent(_P(self.context(device))), "cuCtxSetCurrent")

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.check(self.library.cuDeviceGetName(text, 256, device), "cuDeviceGetName")
        return text.value.decode()

    def identity(self, device: int) -> bytes:
        """Sixteen bytes that no other device has, on any machine."""
        made = ctypes.create_string_buffer(16)
        self.check(self.library.cuDeviceGetUuid_v2(made, device), "cuDeviceGetUuid")
        return made.raw

    def attribute(self, name: str, device: int) -> int:
        found = self._attributes.get((name, device))
        if found is None:
            value = ctypes.c_int()
            self.check(self.library.cuDeviceGetAttribute(ctypes.byref(value), _ATTRIBUTES[name], device), name)
            found = self._attributes[name, device] = value.value
        return found

    def version(self) -> int:
        """The highest version of CUDA that the driver takes: 13000 is 13.0."""
        value = ctypes.c_int()
        self.check(self.library.cuDriverGetVersion(ctypes.byref(value)), "cuDriverGetVersion")
        return value.value

    # ------------------------------------------------------------------------------------------------------ memory
    def allocate(self, nbytes: int) -> int:
        made = _P()
        code = self.library.cuMemAlloc_v2(ctypes.byref(made), _SIZE(nbytes))
        if code == _MEMORY:
            raise OutOfMemoryError(f"{nbytes} bytes")
        self.check(code, "cuMemAlloc")
        return made.value or 0

    def release(self, address: int) -> None:
        self.check(self.library.cuMemFree_v2(_P(address)), "cuMemFree")

    def pin(self, nbytes: int) -> int:
        """Page-locked memory of the host, which every device can copy from."""
        return self._made("cuMemHostAlloc", _SIZE(nbytes), 1)

    def room(self) -> tuple[int, int]:
        """(bytes free, bytes in all) of the active device."""
        free, total = _SIZE(), _SIZE()
        self.check(self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value, total.value

    def seen(self, nbytes: int) -> int:
        """Memory of the host, empty, that every device writes to under the same address."""
        made = self._made("cuMemHostAlloc", _SIZE(nbytes), 3)  # of all contexts, and mapped
        ctypes.memset(made, 0, nbytes)
        return made

    def upload(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.check(self.library.cuMemcpyHtoDAsync_v2(_P(to), _P(source), _SIZE(nbytes), _P(stream)), "a copy to the device")

    def download(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.check(self.library.cuMemcpyDtoHAsync_v2(_P(to), _P(source), _SIZE(nbytes), _P(stream)), "a copy from the device")

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.check(self.library.cuMemcpyDtoDAsync_v2(_P(to), _P(source), _SIZE(nbytes), _P(stream)), "a copy on the device")

    def copy_between(self, to: int, here: int, source: int, there: int, nbytes: int, stream: int) -> None:
        """From one device to another."""
        self.activate(here)
        self.check(self.library.cuMemcpyPeerAsync(_P(to), _P(self.context(here)), _P(source), _P(self.context(there)),
                                                  _SIZE(nbytes), _P(stream)), "a copy between devices")

    def clear(self, to: int, nbytes: int, stream: int) -> None:
        self.check(self.library.cuMemsetD8Async(_P(to), 0, _SIZE(nbytes), _P(stream)), "cuMemset")

    # ------------------------------------------------------------------------------------------- streams and events
    def new_stream(self, priority: int = 0) -> int:
        return self._made("cuStreamCreateWithPriority", 1, priority)  # 1: it does not wait for the default stream

    def synchronize(self, stream: int | None = None) -> None:
        if stream is None:
            self.check(self.library.cuCtxSynchronize(), "an earlier kernel")
        else:
            self.check(self.library.cuStreamSynchronize(_P(stream)), "an earlier kernel")

    def is_done(self, stream: int) -> bool:
        return self._is_done("cuStreamQuery", stream)

    def new_event(self, timing: bool) -> int:
        return self._made("cuEventCreate", 0 if timing else 2)

    def end_event(self, event: int) -> None:
        self.library.cuEventDestroy_v2(_P(event))

    def record(self, event: int, stream: int) -> None:
        self.check(self.library.cuEventRecord(_P(event), _P(stream)), "cuEventRecord")

    def wait(self, stream: int, event: int) -> None:
        self.check(self.library.cuStreamWaitEvent(_P(stream), _P(event), 0), "cuStreamWaitEvent")

    def wait_event(self, event: int) -> None:
        self.check(self.library.cuEventSynchronize(_P(event)), "an earlier kernel")

    def has_passed(self, event: int) -> bool:
        return self._is_done("cuEventQuery", event)

    def _is_done(self, what: str, handle: int) -> bool:
        code = getattr(self.library, what)(_P(handle))
        if code == 600:  # not ready
            return False
        self.check(code, what)
        return True

    def between(self, first: int, last: int) -> float:
        """Milliseconds from one event to another."""
        value = ctypes.c_float()
        self.check(self.library.cuEventElapsedTime(ctypes.byref(value), _P(first), _P(last)), "cuEventElapsedTime")
        return value.value

    # ----------------------------------------------------------------------------------------------------- kernels
    def architecture(self, device: int) -> str:
        return f"sm_{self.attribute('capability_major', device)}{self.attribute('capability_minor', device)}"

    def load(self, text: str, device: int) -> int:
        """A module of kernels from their text."""
        from .compile import cubin, target
        image = cubin(text, target(text, self.architecture(device)))
        return self._made("cuModuleLoadData", image)

    def function(self, module: int, name: str) -> int:
        return self._made("cuModuleGetFunction", _P(module), name.encode())

    def allow_shared(self, function: int, nbytes: int) -> None:
        """Lets a kernel have so much shared memory: more than every kernel may."""
        self.check(self.library.cuFuncSetAttribute(_P(function), 8, nbytes), "cuFuncSetAttribute")

    # ------------------------------------------------------------------------------------------------------ graphs
    def begin_capture(self, stream: int) -> None:
        """From now on a stream's work is written down as a graph instead of being done."""
        self.check(self.library.cuStreamBeginCapture_v2(_P(stream), 2), "cuStreamBeginCapture")  # 2: all else goes on as ever

    def end_capture(self, stream: int) -> int:
        """The graph; 0 where something that cannot be written down has spoilt it."""
        made = _P()
        return (made.value or 0) if not self.library.cuStreamEndCapture(_P(stream), ctypes.byref(made)) else 0

    def last_node(self, stream: int) -> int:
        """The node that what comes next in a capture waits for: 0 at the beginning, or where there are several."""
        status, number, graph, nodes, count = ctypes.c_int(), ctypes.c_uint64(), _P(), ctypes.POINTER(_P)(), _SIZE()
        made = map(ctypes.byref, (status, number, graph, nodes, count))
        self.check(self.library.cuStreamGetCaptureInfo_v2(_P(stream), *made), "cuStreamGetCaptureInfo")
        return (nodes[0] or 0) if count.value == 1 else 0

    def node_before(self, node: int) -> int:
        """The node that a node of a graph waits for: 0 if there is none, or several."""
        nodes, edges, count = (_P * 2)(), ctypes.create_string_buffer(64), _SIZE(2)
        self.check(self.library.cuGraphNodeGetDependencies_v2(_P(node), nodes, edges, ctypes.byref(count)),
                   "cuGraphNodeGetDependencies")
        return (nodes[0] or 0) if count.value == 1 else 0

    def rewire(self, graph: int, cut: list[tuple[int, int]], tied: list[tuple[int, int]]) -> None:
        """Takes pairs (a node, one that waits for it) out of a graph, and puts others in."""
        kinds = b"".join([self._dependency(before, node) for before, node in cut])
        for name, pairs, edges in (("Remove", cut, kinds), ("Add", tied, None)):
            if pairs:
                nodes = [(_P * len(pairs))(*some) for some in zip(*pairs)]
                self.check(getattr(self.library, f"cuGraph{name}Dependencies_v2")(_P(graph), *nodes, edges, _SIZE(len(pairs))),
                           f"cuGraph{name}Dependencies")

    def _dependency(self, before: int, node: int) -> bytes:
        """How a node waits for the one before it (libraries have kinds of their own)."""
        nodes, edges, count = (_P * 2)(), ctypes.create_string_buffer(16), _SIZE(2)
        self.check(self.library.cuGraphNodeGetDependencies_v2(_P(node), nodes, edges, ctypes.byref(count)),
                   "cuGraphNodeGetDependencies")
        at = nodes[:count.value].index(before)
        return edges.raw[8 * at:8 * at + 8]

    def graph_size(self, graph: int) -> int:
        """How many nodes a graph has."""
        count = _SIZE()
        self.check(self.library.cuGraphGetNodes(_P(graph), None, ctypes.byref(count)), "cuGraphGetNodes")
        return count.value

    def instantiated(self, graph: int) -> int:
        return self._made("cuGraphInstantiateWithFlags", _P(graph), ctypes.c_uint64(0))

    def launch_graph(self, made: int, stream: int) -> None:
        self.check(self.library.cuGraphLaunch(_P(made), _P(stream)), "cuGraphLaunch")

    def retarget(self, made: int, node: int, like: int, device: int) -> None:
        """From the next launch on, a node of an instantiated graph does what a node of another graph does."""
        kind, values = ctypes.c_int(), ctypes.create_string_buffer(256)
        self.check(self.library.cuGraphNodeGetType(_P(like), ctypes.byref(kind)), "cuGraphNodeGetType")
        if kind.value == 0:    # a kernel
            self.check(self.library.cuGraphKernelNodeGetParams_v2(_P(like), values), "cuGraphKernelNodeGetParams")
            self.check(self.library.cuGraphExecKernelNodeSetParams_v2(_P(made), _P(node), values),
                       "cuGraphExecKernelNodeSetParams")
        elif kind.value == 1:  # a copy
            self.check(self.library.cuGraphMemcpyNodeGetParams(_P(like), values), "cuGraphMemcpyNodeGetParams")
            self.check(self.library.cuGraphExecMemcpyNodeSetParams(_P(made), _P(node), values, _P(self.context(device))),
                       "cuGraphExecMemcpyNodeSetParams")
        elif kind.value != 2:  # zeros: always the same
            raise RuntimeError(f"a node of kind {kind.value} in a CUDA graph cannot be changed")

    def end_graph(self, graph: int) -> None:
        self.library.cuGraphDestroy(_P(graph))

    def end_instantiated(self, made: int) -> None:
        self.library.cuGraphExecDestroy(_P(made))

    # -------------------------------------------------------------------------------------------------- libraries
    def product(self, geometry: Any, device: int, fast: bool) -> Any:
        from .cublas import product
        return product(geometry, device, fast)

    def convolution(self, geometry: Any, device: int) -> Any:
        """None where cuDNN is not installed."""
        from .cudnn import convolution
        return convolution(geometry, device)


_machine: Any = None


def machine() -> Any:
    """The machine; raises `Unavailable`."""
    global _machine
    if _machine is None:
        _machine = Machine()
    return _machine


def use(other: Any) -> None:
    """Puts another machine in the place of the driver; None: none has been looked for yet."""
    global _machine
    _machine = other
