"""A stand-in for the CUDA driver that runs kernels on the host (cuda_on_host.h), for tests without a GPU.

The device's memory is shut to everybody but kernels and copies: code that looks at elements of a CUDA array dies at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from flambeau.backends.cuda import driver
from flambeau.backends.cuda.cublas import Matrices
from flambeau.backends.cuda.launch import unrepeatable
from flambeau.backends.cuda.streams import current
from flambeau.backends.registry import OutOfMemoryError
from flambeau.native import toolchain

HERE = Path(__file__).parent
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to build CUDA kernels for the host")
_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t


def built(text: str, name: str) -> Path:
    headers = [p.read_text() for p in (*sorted(toolchain.HERE.glob("*.cuh")), HERE / "cuda_on_host.h")]
    key = hashlib.sha256("\0".join([text, *headers]).encode()).hexdigest()[:32]
    target = toolchain.folder() / f"{name}-{key}.so"
    if not target.exists():
        work = target.with_suffix(f".{time.monotonic_ns()}.cpp")
        work.write_text(text)
        done = subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{toolchain.HERE}", f"-I{HERE}",
                               str(work), "-o", str(work.with_suffix(".so"))], capture_output=True, text=True)
        work.unlink()
        assert done.returncode == 0, done.stderr[-3000:] + text
        work.with_suffix(".so").rename(target)
    return target


class Seen:
    """What a library is told of an array: it does not keep it alive."""

    def __init__(self, array):
        self.address, self.dtype, self.size = array.ctypes.data, array.dtype, array.size
        self.itemsize, self.nbytes = array.itemsize, array.nbytes


class HostProduct:
    """A matrix product by NumPy, over the addresses of the arrays."""

    def __init__(self, machine, geometry):
        self.machine, self.library, self.geometry = machine, machine.library, geometry

    def _matrices(self, array, m):
        size = array.itemsize
        steps = (m.step * size, *((size, m.lead * size) if m.transposed else (m.lead * size, size)))
        raw = (ctypes.c_char * (1 << 40)).from_address(array.address)
        return np.ndarray((m.count, m.rows, m.columns), array.dtype, raw, 0, steps)

    def run(self, *arrays):
        unrepeatable()  # native code sees nothing of this
        self.machine.do(current.stream, lambda seen=[Seen(a) for a in arrays]: self._run(*seen))

    def _run(self, first, second, result, bias=None):
        g = self.geometry
        assert bias is None or g.dtype.kind != "c", "the library adds no bias to complex products"
        self.library.host_open_up()
        try:
            a, b, out = (self._matrices(x, m) for x, m in ((first, g.first), (second, g.second), (result, g.result)))
            wide = np.float64 if g.dtype.kind != "c" else np.complex128
            made = g.alpha * np.matmul(a.astype(wide), b.astype(wide)) + (g.beta * out.astype(wide) if g.beta else 0)
            if bias is not None:
                made = made + self._matrices(bias, Matrices(1, bias.size, bias.size))[0]
            out[...] = made.astype(g.dtype)
        finally:
            self.library.host_shut()


class HostConvolution:
    """What cuDNN does, by NumPy over the addresses of the arrays: a product for each tap of the kernel."""

    def __init__(self, machine, geometry):
        self.machine, self.library, self.geometry = machine, machine.library, geometry

    def _array(self, array, shape):
        """Over the memory, in the order that the geometry says: a kernel that lays arrays out otherwise gets wrong numbers."""
        raw = (ctypes.c_char * array.nbytes).from_address(array.address)
        if not self.geometry.last:
            return np.frombuffer(raw, array.dtype).reshape(shape)
        return np.moveaxis(np.frombuffer(raw, array.dtype).reshape(shape[0], *shape[2:], shape[1]), -1, 1)

    def run(self, *arrays):
        unrepeatable()
        self.machine.do(current.stream, lambda seen=[Seen(a) for a in arrays]: self._run(*seen))

    def _run(self, first, second, out):
        g = self.geometry
        roles = {"forward": ("image", "weight", "result"), "input": ("weight", "result", "image"),
                 "weight": ("image", "result", "weight")}[g.work]
        self.library.host_open_up()
        try:
            own = {role: self._array(x, getattr(g, role)) for role, x in zip(roles, (first, second, out))}
            wide = {role: x.astype(np.float64) for role, x in own.items()}
            wide[roles[2]][...] = 0
            self._taps(g, **wide)
            own[roles[2]][...] = wide[roles[2]].astype(out.dtype)
        finally:
            self.library.host_shut()

    def _taps(self, g, image, weight, result):
        before = [(0, 0), (0, 0)] + [(p, p + s * d * k) for p, s, d, k in zip(g.padding, g.stride, g.dilation, g.weight[2:])]
        padded, each, inner = np.pad(image, before), g.weight[0] // g.groups, g.weight[1]
        for tap in np.ndindex(*g.weight[2:]):
            seen = padded[(..., *[slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, s, o in zip(
                tap, g.dilation, g.stride, g.result[2:])])]
            for n in range(g.groups):
                a, b = slice(n * inner, (n + 1) * inner), slice(n * each, (n + 1) * each)
                at = (b, slice(None), *tap)
                if g.work == "forward":
                    result[:, b] += np.einsum("nc...,oc->no...", seen[:, a], weight[at])
                elif g.work == "input":
                    seen[:, a] += np.einsum("no...,oc->nc...", result[:, b], weight[at])
                else:
                    weight[at] += np.einsum("nczyx,nozyx->oc" if seen.ndim == 5 else "ncyx,noyx->oc", seen[:, a], result[:, b])
        image[...] = padded[(..., *[slice(p, p + n) for p, n in zip(g.padding, g.image[2:])])]


class HostMachine:
    """The driver's part that flambeau uses (backends/cuda/driver.py)."""

    count = 1

    def __init__(self):
        self.library = library = ctypes.CDLL(str(built((HERE / "cuda_host.cpp").read_text(), "cudahost")))
        library.host_allocate.restype = library.host_open.restype = _P
        library.host_open()
        self.launch = ctypes.cast(library.host_launch, _P).value
        self.node_setter = ctypes.cast(library.host_set, _P).value
        self.activation = ctypes.cast(library.host_activate, _P).value
        self.free: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}
        self.limit = 1 << 32
        self.streams, self.capturing, self.later, self.nodes, self.graphs, self.before = 6, None, [], {}, {}, {}
        self.numbers = itertools.count(1)
        library.host_step.restype = library.host_change.restype = _P
        library.host_number.restype = library.host_captured.restype = ctypes.c_long

    def check(self, code, what):
        assert not code, what

    def context(self, device):
        return 1

    def activate(self, device):
        pass

    def name(self, device):
        return "a GPU played by the host"

    def identity(self, device):
        return bytes(range(16))

    def attribute(self, name, device):
        return {"multiprocessors": 2, "warp": 32, "capability_major": 9, "capability_minor": 0}.get(name, 1024)

    def version(self):
        return 13000

    # ------------------------------------------------------------------------------------------------------ memory
    def allocate(self, nbytes):
        if sum(self.sizes.values()) + nbytes > self.limit:
            raise OutOfMemoryError(f"{nbytes} bytes")
        free = self.free.get(nbytes)
        address = free.pop() if free else self.library.host_allocate(_SIZE(nbytes))
        self.sizes[address] = nbytes
        return address

    def release(self, address):
        self.free.setdefault(self.sizes.pop(address), []).append(address)

    def pin(self, nbytes):
        self.pinned = [*getattr(self, "pinned", ()), ctypes.create_string_buffer(nbytes + 64)]
        return -(-ctypes.addressof(self.pinned[-1]) // 64) * 64

    def room(self):
        return self.limit - sum(self.sizes.values()), self.limit

    def seen(self, nbytes):
        self.kept = ctypes.create_string_buffer(nbytes)
        return ctypes.addressof(self.kept)

    def copy(self, to, source, nbytes, stream):
        self.do(stream, lambda: self.library.host_move(_P(to), _P(source), _SIZE(nbytes)))

    upload = download = copy

    def copy_between(self, to, here, source, there, nbytes, stream):
        self.copy(to, source, nbytes, stream)

    def clear(self, to, nbytes, stream):
        self.do(stream, lambda: self.library.host_clear(_P(to), _SIZE(nbytes)))

    # ------------------------------------------------------------------------------------------- streams and events
    def new_stream(self, priority=0):
        self.streams += 1
        return self.streams

    def synchronize(self, stream=None):
        assert stream is None or stream != self.capturing, "a capture waits for the device"

    def is_done(self, stream):
        return True

    def new_event(self, timing):
        return 1

    def end_event(self, event):
        pass

    def record(self, event, stream):
        pass

    wait = record

    def wait_event(self, event):
        pass

    def has_passed(self, event):
        return True

    def between(self, first, last):
        return 0.0

    # ------------------------------------------------------------------------------------------------------ graphs
    def do(self, stream, work):
        """At once; on a stream that is captured, later."""
        if stream == self.capturing:
            self.library.host_note(len(self.later))
            self.later.append(work)
        else:
            work()

    def begin_capture(self, stream):
        assert stream, "the default stream cannot be captured"
        assert self.capturing is None
        self.capturing, self.later, self.names = stream, [], []
        self.library.host_capture(_P(stream))

    def _noted(self):
        """The nodes so far. A node is a number; behind it is what it does."""
        for i in range(len(self.names), self.library.host_captured()):
            step = _P(self.library.host_step(i))
            number = self.library.host_number(step)
            name = len(self.nodes) + 1
            self.nodes[name] = functools.partial(self.library.host_run, step) if number < 0 else self.later[number]
            self.names.append(name)
        return self.names

    def last_node(self, stream):
        assert stream == self.capturing
        return self._noted()[-1] if self._noted() else 0

    def node_before(self, node):
        chain = next(names for names in (self.names, *[n for n, _ in self.graphs.values()]) if node in names)
        return ([0, *chain])[chain.index(node)]

    def end_capture(self, stream):
        assert stream == self.capturing
        names = self._noted()
        self.capturing = None
        self.library.host_capture(None)
        self.graphs[len(self.nodes) + len(self.graphs) + 1] = names, dict.fromkeys(names)
        return next(reversed(self.graphs))

    def rewire(self, graph, cut, tied):
        names, _ = self.graphs[graph]
        before = self.before.setdefault(graph, {n: {b} for b, n in itertools.pairwise(names)})
        for first, second in cut:
            before[second].remove(first)
        for first, second in tied:
            assert names.index(first) < names.index(second)
            before.setdefault(second, set()).add(first)

    def _order(self, graph):
        """Nodes as late as they were noted, as far as their dependencies allow it: what is missing among these shows."""
        left, order, before = self.graphs[graph][0][::-1], {}, self.before.get(graph)
        while left and before is not None:
            order[next(n for n in left if before.get(n, set()) <= order.keys())] = None
            left.remove(next(reversed(order)))
        return list(order) or left[::-1]

    def graph_size(self, graph):
        return len(self.graphs[graph][0])

    def instantiated(self, graph):
        names, _ = self.graphs[graph]
        made = -next(self.numbers)
        self.graphs[made] = names, {n: self.nodes[n] for n in self._order(graph)}
        return made

    def launch_graph(self, made, stream):
        graph, node = ctypes.c_long(), ctypes.c_long()
        while step := self.library.host_change(ctypes.byref(graph), ctypes.byref(node)):
            if graph.value in self.graphs:  # (else it was given up meanwhile)
                self.retarget_to(graph.value, node.value, functools.partial(self.library.host_run, _P(step)))
        for work in self.graphs[made][1].values():
            self.do(stream, work)

    def retarget_to(self, made, node, work):
        assert node in self.graphs[made][1]
        self.graphs[made][1][node] = work

    def retarget(self, made, node, like, device):
        self.retarget_to(made, node, self.nodes[like])

    def end_graph(self, graph):
        self.graphs.pop(graph)
        self.before.pop(graph, None)

    end_instantiated = end_graph

    # ----------------------------------------------------------------------------------------------------- kernels
    def architecture(self, device):
        return "sm_90"

    def load(self, text, device):
        names = re.findall(r"__global__ void (?:__launch_bounds__\([\w, ]+\) )?(\w+)\(", text)
        calls = [f"HOST_KERNEL({name})\n" for name in names]
        return ctypes.CDLL(str(built(f'#include "cuda_on_host.h"\n{text}{"".join(calls)}', "cudakernels")))

    def allow_shared(self, function, nbytes):
        assert nbytes <= 227 << 10, "no multiprocessor has so much"

    def product(self, geometry, device, fast):
        return HostProduct(self, geometry)

    def convolution(self, geometry, device):
        return HostConvolution(self, geometry)

    def function(self, module, name):
        return ctypes.cast(getattr(module, f"run_{name}"), _P).value


@functools.cache
def play() -> HostMachine:
    return HostMachine()


@contextlib.contextmanager
def playing():
    """A block in which there is a CUDA device, played by the host unless the machine has one."""
    try:
        driver.machine()
        yield
    except driver.Unavailable:
        driver.use(play())
        yield
        driver.use(None)
