"""CUDA graphs by hand: work that is written down in a block and done again by `replay`.

`flambeau.compile` makes graphs by itself, with random numbers and optimizers in them, too.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

from .devices import current, machine, synchronize
from .memory import empty_cache
from .streams import Stream, StreamContext

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

_numbers = itertools.count(1)
_pools: Any = weakref.WeakValueDictionary()   # handle -> the memory that graphs share


class CUDAGraph:
    """Work of the device that `replay` does again, on the memory that it was captured with."""

    def __init__(self, keep_graph: bool = False):
        machine("CUDAGraph")
        self._capture: Any = None
        self._graph: Any = None
        self._pool: Any = None
        self._keep = keep_graph

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        """From here on the current stream's work is written down. Memory comes from a pool that the graph keeps.

        Errors are those of capture_error_mode="relaxed" whatever it says: other threads go on undisturbed.
        """
        from ..backends.cuda import graphs
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError("Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                               f"{capture_error_mode}")
        if not current().stream:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                               "replay them on the default stream.)")
        if self._graph is not None or self._capture is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
                               "instance.")
        handle = graph_pool_handle() if pool is None else tuple(pool)
        found = _pools.get(handle)
        self._pool = _pools[handle] = found if found is not None else graphs.Pool()
        self._handle = handle
        capture = graphs.Capture(self._pool)
        capture.__enter__()
        self._capture = capture

    def capture_end(self) -> None:
        """The work since `capture_begin` is the graph."""
        capture, self._capture = self._capture, None
        if capture is None:
            raise RuntimeError("capture_end() was called without capture_begin()")
        capture.__exit__(None, None, None)
        self._graph = capture.graph
        if not self._keep:
            self._graph.prepare()

    def _give_up(self, kind: Any, error: Any, trace: Any) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.__exit__(kind, error, trace)

    def _captured(self, what: str) -> Any:
        if self._graph is None:
            raise RuntimeError(f"Called CUDAGraph::{what} without a preceding successful capture.")
        return self._graph

    def instantiate(self) -> None:
        """Makes it ready for `replay`, which else does that the first time."""
        self._captured("instantiate").prepare()

    def replay(self) -> None:
        """Does the work again, on the current stream."""
        self._captured("replay").launch()

    def reset(self) -> None:
        """Forgets the graph; its memory goes back when no tensor of it is left."""
        self._graph = self._pool = None

    def pool(self) -> tuple[int, int]:
        """A name of its memory, which further graphs can share that are never replayed at the same time."""
        self._captured("pool")
        return self._handle

    def register_generator_state(self, generator: Any) -> None:
        raise NotImplementedError("flambeau.cuda.CUDAGraph.register_generator_state: random numbers inside of a graph made by "
                                  "hand are not implemented; flambeau.compile draws as the plain call does")

    def debug_dump(self, debug_path: str) -> None:
        raise NotImplementedError("flambeau.cuda.CUDAGraph.debug_dump is not implemented")

    enable_debug_mode = raw_cuda_graph = raw_cuda_graph_exec = debug_dump


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share: the argument `pool` of their captures."""
    return 0, next(_numbers)


def is_current_stream_capturing() -> bool:
    """Whether this thread's work is being written down as a CUDA graph."""
    return current().capture is not None


class graph:
    """A block whose work on the device becomes `cuda_graph`, on a stream of its own."""

    default_capture_stream: Stream | None = None

    def __init__(self, cuda_graph: CUDAGraph, pool: tuple[int, int] | None = None, stream: Stream | None = None,
                 capture_error_mode: str = "global"):
        if stream is None:
            stream = graph.default_capture_stream = graph.default_capture_stream or Stream()
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = stream
        self._block = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        self._block.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._block.__exit__()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph._give_up(kind, error, trace)
        finally:
            self._block.__exit__()


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
                           pool: tuple[int, int] | None = None) -> Any:
    """Functions or modules whose forward and backward passes run as CUDA graphs: `flambeau.compile` of each, called with its
    sample arguments until its graph is there. (A gradient may be unused in any case; each has memory of its own.)"""
    from .. import compile as compiled
    if pool is not None:
        raise NotImplementedError("make_graphed_callables(pool=...): each callable's graphs have memory of their own")
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    made = []
    for function, args in zip(callables, sample_args, strict=True):
        if hasattr(function, "_forward_hooks"):  # a module
            if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
                raise RuntimeError("Modules must not have hooks registered at the time they are passed. However, registering "
                                   "hooks on modules after passing them through make_graphed_callables is allowed.")
            ready = function.forward = compiled(function.forward)
            made.append(function)
        else:
            ready = compiled(function)
            made.append(ready)
        for _ in range(num_warmup_iters):
            ready(*args)
    synchronize()
    return made[0] if single else tuple(made)
