"""What code that runs inside a backward pass may ask about it (PyTorch: functions of the compiled module)."""

from __future__ import annotations

import heapq
import sys
from typing import Any

from . import engine as _engine
from .function_context import BackwardCFunction
from .node import Edge, Node, graph_node, shown_node


def graph_task_id() -> int:
    """The number of this thread's innermost backward pass; -1 outside of one."""
    task = _engine.current_task()
    return -1 if task is None else task.number


def autograd_node() -> Any:
    """The node that is being run. Looked up on the stack, so that the engine need not keep a note of it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _engine._walk.__code__:
            return shown_node(frame.f_locals["node"])
        frame = frame.f_back
    return None


def will_execute(node: Any) -> bool:
    """Whether the backward pass that is under way runs this grad_fn."""
    if not isinstance(node, (Node, BackwardCFunction)):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    task = _engine.current_task()
    if task is None:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    node = graph_node(node)
    if not _runs(task, node):
        return False
    if task.captures is not None and not task.accumulate and node.is_leaf_node:
        raise RuntimeError("A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). "
                           "This is currently not supported.")
    return True


def execution_order() -> list[Any]:
    """The nodes of the backward pass that is under way, in the order in which they run."""
    from .variable import is_multithreading_enabled
    task = _engine.current_task()
    if task is None:
        raise RuntimeError("_current_graph_task_execution_order should only be called during the backward pass")
    if is_multithreading_enabled():
        raise RuntimeError("get_current_graph_task_execution_order expects the current backward to be executed with "
                           "multithreading disabled, e.g. by running:\n\n>>> with "
                           "torch.autograd.set_multithreading_enabled(False):\n...     torch.autograd.grad(...)\n")
    waiting = dict.fromkeys(task.reached, 0)
    for node in task.reached:
        for target in _targets(node):
            waiting[target] += 1
    ready = [(-node.sequence, node) for node, count in waiting.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        node = heapq.heappop(ready)[1]
        if _runs(task, node):
            order.append(shown_node(node))
        for target in _targets(node):
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (-target.sequence, target))
    return order


def _runs(task: Any, node: Node) -> bool:
    if task.captures is None:
        return node in task.reached
    return node in task.needed or (node in task.captures and node in task.reached)


def _targets(node: Node) -> list[Node]:
    return [edge.node if edge.__class__ is Edge else edge for edge in node.next if edge is not None]
