"""Automatic differentiation: `backward`, `grad`, the modes, custom functions and the open graph."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .engine import Task, run
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from .node import AccumulateGrad, Edge, Node
from .views import edge_of

_LAZY = {"Function": "function", "functional": None, "forward_ad": None, "graph": None, "gradcheck": None,
         "gradgradcheck": "gradcheck", "detect_anomaly": "anomaly", "set_detect_anomaly": "anomaly",
         "anomaly_mode": None, "function": None, "Variable": "variable", "variable": None, "profiler": None,
         "set_multithreading_enabled": "variable", "grad_mode": None}
__all__ = ["backward", "grad", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "Node", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'flambeau.autograd' has no attribute '{name}'")
    module = importlib.import_module(f".{_LAZY[name] or name}", __name__)
    value = getattr(module, name) if _LAZY[name] or hasattr(module, name) and name in ("gradcheck",) else module
    globals()[name] = value
    return value


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradient of the tensors to the `.grad` of the leaves (or of `inputs`).

    grad_tensors: the gradient of each tensor; may be left out for those of one element.
    """
    if grad_variables is not None:
        import warnings
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. "
                               "Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    edges = None
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        edges = [_input_edge(t) for t in inputs]
    roots = _roots(_as_tuple(tensors), _as_tuple(grad_tensors) if grad_tensors is not None else None, create_graph,
                   "backward")
    keep = create_graph if retain_graph is None else retain_graph
    task = Task(keep, create_graph, edges, True)
    found = run(roots, task)
    if inputs is not None:
        for t, (node, nr) in zip(inputs, edges):
            if not node.is_leaf_node and (node, nr) in found and isinstance(t, _tensor()):
                new = found[node, nr]
                t._grad = new if t._grad is None else t._grad + new


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """The gradients of the outputs with respect to the inputs, without touching any `.grad`.

    is_grads_batched: the first dimension of each grad_output numbers independent gradients.
    """
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                         "allow_unused=False.")
    if allow_unused is None:
        allow_unused = materialize_grads
    if not only_inputs:
        import warnings
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient "
                      "for other parts of the graph, please use torch.autograd.backward.", FutureWarning, stacklevel=2)
    given = _as_tuple(grad_outputs) if grad_outputs is not None else None
    if is_grads_batched:
        return _batched_grad(outputs, inputs, given, retain_graph, create_graph, allow_unused, materialize_grads)
    keep = create_graph if retain_graph is None else retain_graph
    edges = [_input_edge(t) for t in inputs]
    roots = _roots(outputs, given, create_graph, "grad")
    found = run(roots, Task(keep, create_graph, edges, False))
    results = []
    for t, edge in zip(inputs, edges):
        g = found.get(edge)
        if g is None:
            if not allow_unused:
                raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph. Set "
                                   "allow_unused=True if this is the desired behavior.")
            if materialize_grads:
                from ..creation import zeros_like
                g = zeros_like(t, requires_grad=create_graph)
        results.append(g)
    return tuple(results)


def _batched_grad(outputs, inputs, given, retain_graph, create_graph, allow_unused, materialize_grads):
    from ..ops.shape import stack
    if given is None or any(g is None for g in given):
        raise RuntimeError("grad: is_grads_batched=True needs grad_outputs with a leading batch dimension")
    count = len(given[0])
    keep = create_graph if retain_graph is None else retain_graph
    per_row = [grad(outputs, inputs, [g[i] for g in given], keep or i + 1 < count, create_graph, True, allow_unused, False,
                    materialize_grads) for i in range(count)]
    return tuple(None if column[0] is None else stack(list(column)) for column in zip(*per_row))


def _tensor():
    from ..tensor import Tensor
    return Tensor


def _as_tuple(value: Any) -> tuple[Any, ...]:
    from .graph import GradientEdge
    if isinstance(value, _tensor()) or isinstance(value, GradientEdge) or value is None:
        return (value,)
    return tuple(value)


def _input_edge(t: Any) -> tuple[Node, int]:
    from .graph import GradientEdge
    if isinstance(t, GradientEdge):
        return t.node, t.output_nr
    edge = edge_of(t)
    if edge is None:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)


def _roots(outputs: Sequence[Any], given: Sequence[Any] | None, create_graph: bool, caller: str):
    from ..creation import ones_like
    from .graph import GradientEdge
    if given is not None and len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    roots = []
    for i, out in enumerate(outputs):
        g = given[i] if given is not None else None
        if isinstance(out, GradientEdge):
            if g is None:
                raise RuntimeError("grad can be implicitly created only for scalar outputs, not for a GradientEdge")
            roots.append((out.node, out.output_nr, g))
            continue
        edge = edge_of(out)
        if edge is None:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if out.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs, got a tensor of shape "
                                   f"{list(out.shape)}: pass its gradient, or reduce it (say with sum())")
            if not (out.is_floating_point() or out.is_complex()):
                raise RuntimeError(f"grad can be computed only for real scalar outputs but got {out.dtype}")
            if out.is_complex():
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
            g = ones_like(out)
        elif not isinstance(g, _tensor()):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        else:
            if g._array.shape != out._array.shape:
                raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
                                   f"shape of {out.shape}.")
            if out.is_complex() != g.is_complex():
                raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. "
                                   f"Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a "
                                   f"dtype of {out.dtype}.")
            if g.dtype is not out.dtype:
                g = g.to(out.dtype)
        node, nr = (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)
        roots.append((node, nr, g))
    return roots


def is_leaf_edge(node: Node) -> bool:
    return isinstance(node, AccumulateGrad)
