"""CUDA graphs: work that is written down once and then done again by one launch.

While a `Capture` is on, what this thread asks of the device goes to a stream that notes it instead of doing it. Memory comes
from a pool that is the graph's own: pieces that die are used again by what comes later in the same graph, and by nobody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from numpy import ndarray

from . import memory
from .arrays import CudaArray, NotRecordable, at_address, upload
from .branches import Part, untie
from .driver import machine
from .launch import choose_stream, library, redirecting
from .memory import Block
from .streams import current


@functools.cache
def _side_stream(machine_: Any, device: int, stream: int) -> int:
    """The stream that notes what would go to another one. (Libraries keep workspaces by stream: graphs that are launched on two
    streams must not share them.)"""
    machine_.activate(device)
    return machine_.new_stream()


def _hear(capture: Capture) -> None:
    """From now on a capture is asked for memory: native code shall not take it from where it took the last."""
    current.capture = capture
    library().fl_cuda_homeless()


class Pool:
    """The memory of a graph, or of several that are never launched at the same time."""

    def __init__(self) -> None:
        self._memory = memory.of(current.device)
        self._home = self._memory.pool(current.stream)

    def block(self, nbytes: int, exactly: bool = False) -> Block:
        return self._memory.block_of(self._home, nbytes, exactly)

    def __del__(self) -> None:
        self._memory.end_pool(self._home)


class Capture:
    """A block whose work on the device is written down. `graph` is what became of it.

    live: whether what runs now runs again on the host at each launch (numbers that change); other work must not depend on them.
    """

    live = False

    def __init__(self, pool: Pool):
        if current.capture is not None:
            raise RuntimeError("CUDA graphs cannot be captured inside of one another")
        self.pool, self.device, self.launched_on = pool, current.device, current.stream
        self.stream = _side_stream(machine(), self.device, self.launched_on)
        self.known: dict[Any, Any] = {}                # what kernels keep on the device for the same work again
        self.held: list[Any] = []                      # memory that the graph reads, and that nobody else may keep

    def block(self, nbytes: int) -> Block:
        return self.pool.block(nbytes)

    def upload(self, source: ndarray) -> CudaArray:
        """What the host knows now, in memory that nothing in the graph writes."""
        with self.paused():
            made = upload(source)
        self.held.append(made)
        return made

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A block whose work is done at once, and whose memory is everybody's."""
        current.capture = None
        choose_stream(self.launched_on)
        try:
            yield
        finally:
            choose_stream(self.stream)
            _hear(self)

    def __enter__(self) -> Capture:
        machine().activate(self.device)
        machine().begin_capture(self.stream)
        _hear(self)
        choose_stream(self.stream)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        current.capture = None
        choose_stream(self.launched_on)
        self.last = machine().last_node(self.stream) if kind is None else 0
        graph = machine().end_capture(self.stream)
        if kind is not None:
            if graph:
                machine().end_graph(graph)
            return
        if not graph:
            raise NotRecordable("operation failed due to a previous error during capture")
        self.graph = Graph(graph, self)


class Again(Capture):
    """The same work with other numbers, for `Graph.retarget`: memory is where it was."""

    live = True

    def __init__(self, graph: Graph, taken: list[tuple[int, int]]):
        super().__init__(graph.pool)
        self.known, self._taken = graph.known, iter(taken)

    def block(self, nbytes: int) -> Block:
        address, size = next(self._taken)
        if size != nbytes:
            raise NotRecordable("work asked for other memory than before")
        return at_address(address, nbytes)


class Redirected(Again):
    """The same again where it is nothing but kernels of our own: their launches themselves set the nodes, without another graph
    in between. It can be entered many times."""

    def __init__(self, graph: Graph, taken: list[tuple[int, int]], nodes: list[int]):
        super().__init__(graph, taken)
        graph.prepare()
        self._pieces, self._graph = taken, graph
        self._nodes, self._count = (ctypes.c_void_p * max(len(nodes), 1))(*nodes), len(nodes)
        self._at = ctypes.addressof(self._nodes)
        self._redirect = redirecting().fl_graph_redirect

    def __enter__(self) -> Redirected:
        self._taken, self.held, self._done = iter(self._pieces), [], 0
        _hear(self)
        self._redirect(self._graph.made, self._at, self._count)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._done += self._redirect(None, None, 0)
        current.capture = None
        if kind is None and self._done != self._count:
            raise NotRecordable("work has other parts than before")

    def upload(self, source: ndarray) -> CudaArray:
        """Something that is usually kept on the device (a table of addresses) has to come from the host again."""
        self._done += self._redirect(None, None, 0)
        current.capture = None
        try:
            made = upload(source)
        finally:
            _hear(self)
            self._redirect(self._graph.made, self._at + 8 * self._done, self._count - self._done)
        self.held.append(made)
        return made


class Graph:
    """Work that can be launched again and again."""

    def __init__(self, graph: int, capture: Capture):
        self._graph, self.made, self._other = graph, 0, 0
        self.pool, self.held, self.device, self._last = capture.pool, capture.held, capture.device, capture.last
        self.known = capture.known
        self.size = machine().graph_size(graph)
        self._machine = machine()

    def prepare(self) -> None:
        if not self.made:
            machine().activate(self.device)
            self.made = machine().instantiated(self._graph)

    def alternate(self) -> None:
        """From now on another instance is launched, all of whose changing nodes the caller sets. The last one may still be
        running: an instance that is changed meanwhile begins only when the device has told the host that it is done."""
        self.made, self._other = self._other, self.made
        self.prepare()

    def launch(self) -> None:
        """On the current stream."""
        self.prepare()
        if self.size:
            machine().launch_graph(self.made, current.stream)

    def untie(self, parts: list[Part]) -> None:
        """Lets operations run at the same time where they do not touch the same memory. parts: all that was captured."""
        untie(self._graph, parts)

    def retarget(self, nodes: list[int], others: Graph) -> None:
        """Puts the work of another graph, node by node, in the place of some nodes of this one."""
        self.prepare()
        found = _back(others._last, 0)
        if len(found) != len(nodes):
            raise NotRecordable("work has other parts than before")
        for node, like in zip(nodes, found):
            machine().retarget(self.made, node, like, self.device)

    def __del__(self) -> None:
        if getattr(self, "_machine", None) is not None:
            for made in filter(None, (self.made, self._other)):
                self._machine.end_instantiated(made)
            self._machine.end_graph(self._graph)


def last_node(capture: Capture) -> int:
    return machine().last_node(capture.stream)


def nodes_since(capture: Capture, node: int) -> list[int]:
    """The nodes that a capture has made after one, in their order."""
    return _back(machine().last_node(capture.stream), node)


def _back(last: int, first: int) -> list[int]:
    found = []
    while last != first:
        if not last:
            raise NotRecordable("a library put work into a graph that is not one after the other")
        found.append(last)
        last = machine().node_before(last)
    return found[::-1]


def launches() -> int:
    """How many kernels of our own this thread has launched so far."""
    return redirecting().fl_graph_launched()
