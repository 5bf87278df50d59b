"""The backward pass: counts how many gradients each node waits for, then runs ready nodes, latest first.

No recursion anywhere, so the depth of a graph is limited by memory alone. Gradients for one output add up in `buffers`
until all have come. What a node returns is fitted to what the next node produced in the forward pass (`fit`): summed
over broadcast dimensions and cast, so that derivative formulas need not think of either.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ..backends.batched.arrays import Level, levels_of, marked
from ..backends.cpu.parallel import LARGE
from ..backends.cpu.table import KERNELS
from ..backends.dtypes import COMPLEX
from ..backends.references import HANDED_ON, NAMED
from ..backends.registry import CPU_ARRAY, WINDOWS
from ..creation.factories import empty_like
from ..ops.core.levels import enter, leave
from ..tensors.tensor import Tensor, copy_with_layout
from ..tensors.tensor import _captured_grad as captured_grad
from .node import AccumulateGrad, Edge, Node
from .state import ANOMALY, BATCHED, CAPTURE, DISPATCH, FOLLOW, NO_GRAD, PROFILE, state

_new = object.__new__
_plus = KERNELS["add"]
_accumulate_lock = threading.Lock()


class Task:
    """One backward pass: what is wanted, and what the nodes may ask about it."""

    __slots__ = (
        "__weakref__",
        "accumulate",
        "callbacks",
        "captures",
        "create_graph",
        "found",
        "keep_graph",
        "needed",
        "number",
        "reached",
    )

    def __init__(self, keep_graph: bool, create_graph: bool, inputs: list[tuple[Node, int]] | None, accumulate: bool):
        self.keep_graph, self.create_graph, self.accumulate = keep_graph, create_graph, accumulate
        self.number = _next_number()
        self.callbacks: list[Any] = []
        self.found: dict[tuple[Node, int], Any] = {}
        self.captures: dict[Node, list[int]] | None = None
        self.needed: set[Node] | None = None
        self.reached: dict[Node, int] = {}  # every node of this pass
        if inputs is not None:
            self.captures = {}
            for node, nr in inputs:
                numbers = self.captures.setdefault(node, [])
                if not accumulate:  # else the tensor retains its gradient, and the node runs
                    numbers.append(nr)

    def admit(self, inner: Task) -> None:
        """Another pass is about to start inside of this one: a kind of task that cannot have that raises."""


_tasks = threading.local()
_next_number = itertools.count().__next__


def current_task() -> Task | None:
    stack = getattr(_tasks, "stack", None)
    return stack[-1] if stack else None


def is_running(task: Task | None) -> bool:
    """Whether a pass is under way on this thread."""
    return task is not None and task in getattr(_tasks, "stack", ())


_DEEPEST = 40  # backward passes inside each other on one thread
_keepers = [0]  # blocks of `graphs_kept` that are entered


@contextlib.contextmanager
def graphs_kept() -> Iterator[None]:
    """Inside, no pass frees the graph that it goes through, whatever it was told: another will come the same way."""
    _keepers[0] += 1
    try:
        yield
    finally:
        _keepers[0] -= 1


def _run_in_new_thread(roots: list[tuple[Node, int, Any]], task: Task) -> dict[tuple[Node, int], Any]:
    """Passes inside passes go deeper than Python's recursion limit allows: a new thread has a stack of its own."""
    ours, outcome = dict(state.__dict__), []

    def work() -> None:
        state.mode  # noqa: B018  (lets the thread set up its own state first)
        state.__dict__.update(ours)
        try:
            outcome.append(run(roots, task))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def run(roots: list[tuple[Node, int, Any]], task: Task) -> dict[tuple[Node, int], Any]:
    """Sends the roots' gradients through the graph; returns the captured ones by (node, output)."""
    if _keepers[0]:
        task.keep_graph = True
    waiting = task.reached = _count(roots, task)
    stack = _tasks.__dict__.setdefault("stack", [])
    for outer in stack:
        outer.admit(task)
    before = state.mode
    if state.recorder is not None:
        state.recorder.backward_starts(waiting, task.keep_graph)
    if len(stack) >= _DEEPEST:
        return _run_in_new_thread(roots, task)
    stack.append(task)
    saved_hooks = state.saved_hooks[:]
    state.mode = before & ~NO_GRAD if task.create_graph else before | NO_GRAD
    if Level.alive:
        state.mode |= BATCHED
    try:
        _walk(roots, waiting, task)
        for callback in task.callbacks:
            callback()
    finally:
        state.mode = before
        state.saved_hooks = saved_hooks  # what unpack hooks entered or left is theirs alone
        stack.pop()
    return task.found


def _count(roots, task: Task) -> dict[Node, int]:
    """How many gradients each reachable node waits for."""
    waiting: dict[Node, int] = {node: 0 for node, _, _ in roots}
    stack = list(waiting)
    known = waiting.get
    while stack:
        for target in stack.pop().next:
            if target is not None:
                if target.__class__ is Edge:
                    target = target.node
                count = known(target)
                if count is None:
                    waiting[target] = 1
                    stack.append(target)
                else:
                    waiting[target] = count + 1
    if task.captures is not None:
        task.needed = _needed(roots, task.captures)
        if task.accumulate:
            task.needed.update(task.captures)
    return waiting


def _needed(roots, captures: dict[Node, list[int]]) -> set[Node]:
    """The nodes on some path from a root to a captured node: only those need to run."""
    needed: set[Node] = set()
    state_of: dict[Node, bool] = {}
    stack: list[tuple[Node, bool]] = [(node, False) for node, _, _ in roots]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            for target in node.next:
                if target is not None:
                    target = target.node if target.__class__ is Edge else target
                    if target in needed or target in captures:
                        needed.add(node)
                        break
        elif node not in state_of:
            state_of[node] = True
            stack.append((node, True))
            for target in node.next:
                if target is not None:
                    stack.append((target.node if target.__class__ is Edge else target, False))
    return needed


def _started(roots: Any, waiting: dict[Node, int], buffers: dict[Node, Any]) -> list[tuple[int, Node]]:
    """Hands the roots their gradients; the heap of those that wait for no others."""
    heap: list[tuple[int, Node]] = []
    for node, nr, grad in roots:
        if state.mode & BATCHED:
            grad = _with_batches(grad, getattr(node.meta(nr)[0], "levels", ()))
        _add(buffers, node, nr, grad)
        if not waiting.get(node) and all(entry[1] is not node for entry in heap):
            heapq.heappush(heap, (-node.sequence, node))
    roots.clear()
    return heap


def _walk(roots, waiting: dict[Node, int], task: Task) -> None:
    """The hot loop. `buffers` holds a node's gradient (a list when it has several outputs) until it is complete."""
    buffers: dict[Node, Any] = {}
    heap = _started(roots, waiting, buffers)
    selective, keep_graph = task.captures is not None, task.keep_graph
    unwatched = not state.mode & (ANOMALY | PROFILE)
    add_to_leaf = accumulate if not state.mode & PROFILE else state.profiler.accumulate
    bare = state.mode == NO_GRAD  # nothing special going on, and this pass is not recorded
    batched = state.mode & BATCHED  # gradients may be batched where what they belong to is not, and `fit` has to look
    push, pop, take, known = heapq.heappush, heapq.heappop, buffers.pop, buffers.get
    grad = None
    while heap:
        node = pop(heap)[1]
        while node is not None:  # runs down a chain without the heap while nothing else is ready
            grads = take(node, None)
            hooks = node.hooks
            if hooks is not None:
                if grads is None:
                    _hooks_without_gradient(task, node)
                else:
                    grads = _run_hooks(node, grads) if not selective else _run_selected_hooks(task, node, grads)
            edges = node.next
            if not edges and node.is_leaf_node:
                if selective:
                    _capture(task, node, grads)
                if grads is not None and task.accumulate and (not selective or node in task.captures):
                    add_to_leaf(node, grads, task.create_graph)
                break
            if (selective and not _capture(task, node, grads)) or (grads is None and not node.runs_without_gradient):
                results = None
            elif hooks is None and unwatched:
                results = node.apply(grads)
                if not keep_graph:
                    node.release()
            else:
                results = _evaluate(node, grads, task)
            following = None
            index = 0
            for target in edges:
                if target is not None:
                    kind = target.__class__
                    if kind is Edge:
                        nr, target = target.nr, target.node
                    else:
                        nr = 0
                    if results is not None:
                        grad = results[index]
                        if grad is not None:
                            if kind is AccumulateGrad:
                                own = target._variable()
                                own = target._array if own is None else own._array
                                array = grad._array
                                if array.shape != own.shape or array.dtype is not own.dtype or batched:
                                    shape = marked(own) if batched else own.shape
                                    grad = fit(grad, shape, _leaf_dtype(target, array), node, index)
                                del own
                            elif target.outputs is None:
                                array = grad._array
                                if array.shape != target.shape or array.dtype is not target.dtype or batched:
                                    grad = fit(grad, target.shape, target.dtype, node, index)
                            else:
                                _add(buffers, target, nr, fit(grad, *target.outputs[nr], node, index))
                                grad = None
                            if grad is not None:
                                old = known(target)
                                buffers[target] = grad if old is None else _sum(old, grad) if bare else _total(old, grad)
                                del old
                    left = waiting[target] - 1
                    if left:
                        waiting[target] = left
                    elif following is None and not heap:
                        following = target
                    else:
                        push(heap, (-target.sequence, target))
                index += 1
            if following is not None and heap:
                push(heap, (-following.sequence, following))
                following = None
            # What this node produced lives on in the buffers alone: AccumulateGrad may then take it over.
            grads = results = grad = array = None
            node = following
    _flush_callbacks(task)


def _capture(task: Task, node: Node, grads: Any) -> bool:
    """Notes a gradient that was asked for; tells whether the node still has to run."""
    numbers = task.captures.get(node)
    if numbers is not None and grads is not None:
        for nr in numbers:
            if (node, nr) not in task.found:
                task.found[node, nr] = grads[nr] if node.outputs is not None else grads
    return node in task.needed


def _flush_callbacks(task: Task) -> None:
    callbacks, task.callbacks = task.callbacks, []
    for callback in callbacks:
        callback()


def _sum(a: Any, b: Any) -> Any:
    """a + b where nothing is recorded: small plain tensors without the way through an operation."""
    x, y = a._array, b._array
    if a.__class__ is Tensor is b.__class__ and 1 < x.size < LARGE and type(x) is CPU_ARRAY is type(y):
        return _bare(_plus(x, y))
    return _total(a, b)


def _total(a: Any, b: Any) -> Any:
    return b + a if a.is_sparse and state.mode & NO_GRAD else a + b


def _bare(array: Any) -> Any:
    made = _new(Tensor)
    made._array, made._node, made._counter = array, None, None
    return made


def _add(buffers: dict[Node, Any], node: Node, nr: int, grad: Any) -> None:
    if node.outputs is None:
        old = buffers.get(node)
        buffers[node] = grad if old is None else old + grad
    else:
        slots = buffers.setdefault(node, [None] * len(node.outputs))
        slots[nr] = grad if slots[nr] is None else slots[nr] + grad


def _evaluate(node: Node, grads: Any, task: Task):
    if grads is None:
        grads = node._nothing_arrived()
    if state.mode & PROFILE:
        return state.profiler.node(node, grads, _evaluated, task)
    return _evaluated(node, grads, task)


def _evaluated(node: Node, grads: Any, task: Task):
    if state.mode & ANOMALY:
        from .anomaly import evaluate
        results = evaluate(node, grads)
    else:
        if node.hooks is not None and node.hooks.pre:
            grads = _pre_hooks(node, grads)
        results = node.apply(grads)
    if node.hooks is not None and node.hooks.post:
        results = _post_hooks(node, results, grads)
    if not task.keep_graph:
        node.release()
    return results


def _run_selected_hooks(task: Task, node: Node, grads: Any) -> Any:
    """The hooks of a node when only some gradients were asked for.

    One off the way to them has none run. What is captured half-way is, as in PyTorch, the gradient before its hooks.
    """
    if node in task.needed:
        _capture(task, node, list(grads) if node.outputs is not None else grads)
        return _run_hooks(node, grads)
    return _run_hooks(node, grads) if node in task.captures else grads


def _hooks_without_gradient(task: Task, node: Node) -> None:
    """The hooks of a node that no gradient reached: they are called with None."""
    if task.captures is None or node in task.needed or node in task.captures:
        _run_hooks(node, None if node.outputs is None else [None] * len(node.outputs))


def _run_hooks(node: Node, grads: Any) -> Any:
    """Tensor hooks in order of registration, then the gradients that tensors asked to retain."""
    hooks = node.hooks
    several = node.outputs is not None
    for nr, hook in list(hooks.tensor.values()):
        grad = grads[nr] if several else grads
        replaced = hook(grad)
        if replaced is not None:
            _check_hook(replaced, grad, hook)
            if several:
                grads[nr] = replaced
            else:
                grads = replaced
    for nr, reference in hooks.retain.items():
        tensor, grad = reference(), grads[nr] if several else grads
        if tensor is None or grad is None:
            continue
        edge = tensor._node
        if (edge.node if edge.__class__ is Edge else edge) is node:  # else it was changed in place since
            tensor._grad = grad.clone() if tensor._grad is None else tensor._grad + grad
    return grads


def _check_hook(value: Any, grad: Any, hook: Any) -> None:
    name = getattr(hook, "__name__", type(hook).__name__)
    if grad is None:
        raise RuntimeError(f"can't replace a None gradient with a non-None value (hook '{name}')")
    if not hasattr(value, "_array"):
        raise TypeError(f"expected Variable, but hook returned '{type(value).__name__}': hook '{name}' must return a "
                        "Tensor or None")
    if value._array.shape != grad._array.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value: expected {list(grad.shape)}, got "
                           f"{list(value.shape)}")
    if value._array.dtype != grad._array.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {grad.type()} got {value.type()})")


def _pre_hooks(node: Node, grads: Any) -> Any:
    several = node.outputs is not None
    for hook in list(node.hooks.pre.values()):
        given = tuple(grads) if several else (grads,)
        replaced = hook(given)
        if replaced is not None:
            replaced = _checked_tuple(replaced, given, hook)
            grads = list(replaced) if several else replaced[0]
    return grads


def _checked_tuple(replaced: Any, given: tuple[Any, ...], hook: Any) -> tuple[Any, ...]:
    """What a hook of a node returned, which must be gradients of the kind that it was given."""
    replaced = replaced if isinstance(replaced, tuple) else (replaced,)
    if len(replaced) != len(given):
        raise RuntimeError(f"hook '{getattr(hook, '__name__', type(hook).__name__)}' has returned an incorrect number of "
                           f"values (got {len(replaced)}, but expected {len(given)})")
    for new, old in zip(replaced, given):
        if new is not None and new is not old:
            _check_hook(new, old, hook)
    return replaced


def _post_hooks(node: Node, results: Any, grads: Any) -> Any:
    outputs = tuple(grads) if node.outputs is not None else (grads,)
    results, shown = list(results), node._shown()
    given = tuple([results[i] if node.next[i] is not None or node.ctx is not None else None for i in shown])
    for hook in list(node.hooks.post.values()):
        replaced = hook(given, outputs)
        if replaced is not None:
            given = _checked_tuple(replaced, given, hook)
    for i, result in zip(shown, given):
        results[i] = result
    return tuple(results)


def fit(grad: Any, shape: tuple[int, ...], dtype: Any, node: Node, index: int) -> Any:
    """A gradient made to match what it belongs to: summed over broadcast dimensions, cast to the dtype."""
    got = grad._array
    if state.mode & BATCHED and type(got) not in WINDOWS:
        grad = _without_batches(grad, getattr(shape, "levels", ()))
        got = grad._array
    if got.shape != shape:
        if not _expandable(shape, got.shape):
            raise RuntimeError(f"Function {node.name()} returned an invalid gradient at index {index} - got "
                               f"{list(got.shape)} but expected shape compatible with {list(shape)}")
        grad = grad.sum_to_size(shape)
    if grad._array.dtype != dtype:
        if grad.is_complex() and dtype.kind not in COMPLEX:
            grad = grad.real
        from ..tensors.dtypes import BY_NUM
        grad = grad.to(BY_NUM[dtype.num])
    return grad


def _without_batches(grad: Any, levels: tuple[Any, ...]) -> Any:
    """A gradient summed over the batches of the calls of vmap that are over and in which its tensor was not batched.

    In a call that is under way, each example has a gradient of its own.
    """
    known = (*levels, *state.levels)
    for level in levels_of(grad._array):
        if level not in known:
            grad = leave(grad, 0, level).sum(0)
    return grad


def _with_batches(grad: Any, levels: tuple[Any, ...]) -> Any:
    """A gradient that is batched as the result is: formulas write into tensors that are made like it."""
    known = levels_of(grad._array)
    for level in levels:
        if level not in known:
            grad = enter(grad.unsqueeze(0).expand((level.size, *grad.shape)), 0, level)
    return grad


def _leaf_dtype(node: AccumulateGrad, array: Any) -> Any:
    """The dtype in which a leaf wants a gradient: its own, unless `grad_dtype` was set (accumulate() sees to that one)."""
    leaf = node._variable()
    return node.dtype if leaf is None or not leaf._has_grad_dtype else array.dtype


def _expandable(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(a == b or a == 1 for a, b in zip(reversed(small), reversed(large)))


def accumulate(node: AccumulateGrad, grad: Any, create_graph: bool) -> None:
    """Adds to the leaf's `.grad`; a fresh gradient that nobody else holds is taken over without a copy."""
    tensor = node._variable()
    hooks = node.hooks
    if hooks is not None:
        if hooks.pre:
            grad = _pre_hooks(node, grad)
        if tensor is None and hooks.accumulated:
            tensor = node.variable
    if tensor is None:
        return
    if state.mode & BATCHED and len(levels_of(grad._array)) > len(levels_of(tensor._array)):
        raise RuntimeError("backward() called inside a functorch transform. This is not supported, please use functorch.grad "
                           "or functorch.vjp instead or call backward() outside of functorch transforms.")
    if tensor._has_grad_dtype and tensor._grad_dtype is not None:
        grad = grad.to(tensor._grad_dtype)
    if state.mode & CAPTURE:
        captured_grad(tensor, "grad_touched")
    old = tensor._grad
    if grad.is_sparse or (old is not None and old.is_sparse):
        if old is None:
            tensor._grad = grad.detach()
        elif old.is_sparse and grad.is_sparse and not create_graph:
            old._take(old + grad)  # whoever holds the gradient sees the sum, as with a dense one
        else:
            tensor._grad = old + grad
    elif old is None and tensor._has_grad_dtype:
        tensor._grad = grad.clone() if create_graph else grad.detach().clone()
    elif old is None and (state.mode & DISPATCH or grad._dispatches) and not create_graph:
        ours = _is_ours(grad, tensor)
        tensor._grad = _shown_taken(grad, tensor, ours)
    elif old is None:
        if create_graph:
            tensor._grad = _recorded_copy(grad, tensor)
        else:
            tensor._grad = _bare(grad._array) if _is_ours(grad, tensor) else _copy_like(grad, tensor)
    elif create_graph:
        tensor._grad = old + grad
    else:
        with _accumulate_lock:
            tensor._grad.add_(grad)
    if hooks is not None:
        for hook in list(hooks.accumulated.values()):
            returned = hook(tensor)
            if returned is not None and returned is not tensor:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        for hook in list(hooks.post.values()):
            hook((), (grad,))


_FRESH = NAMED + 2 * HANDED_ON


def _is_ours(grad: Any, tensor: Any) -> bool:
    """Whether the gradient's memory is seen by nobody but the engine, and laid out like the leaf's.

    A fresh gradient has one name in the walk, which hands it to accumulate() and here; one reference more means that a hook,
    a user or another edge also holds it. Its array: by the tensor, and here.
    """
    array = grad._array
    if state.mode & FOLLOW:
        return sys.getrefcount(grad) <= _FRESH and grad._counter is None and array.strides == tensor._array.strides and (
            state.follower.alone(array, 2))
    if sys.getrefcount(grad) > _FRESH or sys.getrefcount(array) > 1 + NAMED:
        return False
    if grad._counter is not None or array.strides != tensor._array.strides:
        return False
    base = array.base
    if type(base) is CPU_ARRAY and base.nbytes == array.nbytes and sys.getrefcount(base) <= 1 + NAMED:
        base = base.base  # all of another array, in another shape
    return base is None or (sys.getrefcount(base) <= 1 + NAMED and type(base).__name__ == "Block")


def _recorded_copy(grad: Any, tensor: Any) -> Any:
    """A copy that is itself part of the graph: changing `.grad` must not change what the graph still needs."""
    return empty_like(tensor.detach()).copy_(grad)


def _shown_taken(grad: Any, tensor: Any, ours: bool) -> Any:
    """A leaf's first gradient where somebody looks on: by the operations that PyTorch takes it over, or copies it, with.

    PyTorch takes over any gradient that is laid out as the leaf is; whether others see its memory, too, is not shown.
    """
    if grad.stride() != tensor.stride() or sys.getrefcount(grad) > 4:
        return grad.clone() if 0 in tensor.stride() else grad.new_empty_strided(tensor.size(), tensor.stride()).copy_(grad)
    made = grad.detach()
    if not ours and type(made._array) in WINDOWS:
        made = _copy_like(made, tensor)
    return made


def _copy_like(grad: Any, tensor: Any) -> Any:
    return copy_with_layout(grad, tensor)
