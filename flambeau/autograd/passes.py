"""`backward` and `grad`: from tensors to the roots of a backward pass, and from what it found to results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..backends.dtypes import COMPLEX
from ..creation.factories import ones_like, zeros_like
from ..ops.core import overrides as _overrides
from ..settings import is_warn_always_enabled
from ..tensors.dtypes import BY_NUM
from ..tensors.formats import preserve_format
from ..tensors.tensor import Size, Tensor
from .engine import Task, run
from .errors import no_history_error, not_scalar_error, which
from .node import Edge, GradientEdge, Node, graph_node
from .state import DISPATCH, state
from .views import history_of


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradient of the tensors to the `.grad` of the leaves (or of `inputs`).

    grad_tensors: the gradient of each tensor; may be left out for those of one element.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> torch.autograd.backward([x ** 2])
    >>> x.grad
    tensor([6.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                               "`backward()`. Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    tensors = _as_tuple(tensors)
    edges = None
    if create_graph:
        _warn_of_cycle()
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        edges = [_input_edge(t) for t in inputs]
        for t in inputs:
            if isinstance(t, Tensor):
                t.retain_grad()
    if state.transforms:
        raise RuntimeError(_INSIDE)
    roots = _roots(tensors, None if grad_tensors is None else _as_tuple(grad_tensors))
    run(roots, Task(create_graph if retain_graph is None else retain_graph, create_graph, edges, True))


def _warn_of_cycle() -> None:
    """Once: a `.grad` with a graph refers to its parameter, which refers to the `.grad`."""
    if not _warned or is_warn_always_enabled():
        _warned.append(True)
        warnings.warn("Using backward() with create_graph=True will create a reference cycle between the parameter and its "
                      "gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to "
                      "avoid this. If you have to use this function, make sure to reset the .grad fields of your parameters "
                      "to None after use to break the cycle and avoid the leak.", stacklevel=3)


_warned: list[bool] = []
_INSIDE = ("backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp "
           "instead or call backward() outside of functorch transforms.")


def tensor_backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                    inputs: Any = None) -> None:
    """Adds d(self)/d(leaf) to the `.grad` of every leaf of the graph (or of `inputs`)."""
    if _overrides.active:
        done, _ = _overrides.dispatch(Tensor.backward, (self,), dict(gradient=gradient, retain_graph=retain_graph,
                                                                     create_graph=create_graph, inputs=inputs), (self,))
        if done:
            return
    if inputs is not None:
        backward(self, gradient, retain_graph, create_graph, inputs=inputs)
        return
    if create_graph:
        _warn_of_cycle()
    if state.transforms:
        raise RuntimeError(_INSIDE)
    run([_root(self, gradient, 0)],
        Task(create_graph if retain_graph is None else retain_graph, create_graph, None, True))


tensor_backward.__name__ = "backward"
tensor_backward.__qualname__ = "Tensor.backward"
Tensor.backward = tensor_backward


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """The gradients of the outputs with respect to the inputs, without touching any `.grad`.

    is_grads_batched: the first dimension of each grad_output numbers independent gradients.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> torch.autograd.grad(x ** 2, x)
    (tensor([6.]),)
    """
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if _overrides.active:
        done, value = _overrides.dispatch(grad, (outputs, inputs), dict(
            grad_outputs=grad_outputs, retain_graph=retain_graph, create_graph=create_graph, only_inputs=only_inputs,
            allow_unused=allow_unused, is_grads_batched=is_grads_batched, materialize_grads=materialize_grads),
            (*outputs, *inputs))
        if done:
            return value
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                         "allow_unused=False.")
    if allow_unused is None:
        allow_unused = materialize_grads
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate "
                      "gradient for other parts of the graph, please use "
                      "torch.autograd.backward.", FutureWarning, stacklevel=2)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    given = _as_tuple(grad_outputs) if grad_outputs is not None else None
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched_grad(outputs, inputs, given, keep, create_graph, allow_unused, materialize_grads)
    edges = [_input_edge(t) for t in inputs]
    found = run(_roots(outputs, given), Task(keep, create_graph, edges, False))
    results = []
    for i, (t, edge) in enumerate(zip(inputs, edges)):
        g = found.get(edge)
        if g is None:
            if not allow_unused:
                raise RuntimeError(f"The differentiated Tensor at index {i} appears to not have been used in the "
                                   "graph. Set allow_unused=True if this is the desired behavior." + which(t))
            if materialize_grads:
                if isinstance(t, GradientEdge):
                    raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
                g = zeros_like(t, requires_grad=create_graph)
        elif g._node is None and 0 in g.stride():
            g = g.contiguous()  # a mean's gradient is one number for all: the caller may want to write into it
        results.append(g)
    return tuple(results)


def _batched_grad(outputs, inputs, given, keep, create_graph, allow_unused, materialize_grads):
    """One pass for all rows of the batch, under vmap."""
    from ..func.batching import vmap
    for i, g in enumerate(given or [None]):
        out = outputs[i]
        if g is None or not g.dim():
            raise ValueError(f"grad: with is_grads_batched=True grad_outputs[{i}] must have a leading batch dimension, got "
                             + ("None" if g is None else "a 0-d tensor"))
        if isinstance(out, Tensor) and g.shape[1:] != out.shape:
            raise RuntimeError("If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
                               "the batch dimension. The sizes of the remaining dimensions are expected to match the "
                               f"shape of corresponding output, but a mismatch was detected: grad_output[{i}] has a shape of "
                               f"{g.shape} and output[{i}] has a shape of {out.shape}.")
    there: list[bool] = []

    def row(*gradients: Any) -> tuple[Any, ...]:
        found = grad(outputs, inputs, list(gradients), keep, create_graph, True, allow_unused, False, materialize_grads)
        there[:] = [g is not None for g in found]
        return tuple([g for g in found if g is not None])

    made = iter(vmap(row, randomness="different")(*given))
    return tuple([next(made) if known else None for known in there])


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (Tensor, GradientEdge)) or value is None:
        return (value,)
    return tuple(value)


def _input_edge(t: Any) -> tuple[Node, int]:
    if isinstance(t, GradientEdge):
        return graph_node(t.node), t.output_nr
    if not isinstance(t, Tensor):
        raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__}")
    edge = history_of(t)
    if edge is None:
        raise RuntimeError("One of the differentiated Tensors does not require grad" + which(t))
    return (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)


def _roots(outputs: Sequence[Any], given: Sequence[Any] | None) -> list[tuple[Node, int, Tensor]]:
    if given is None:
        return [_root(out, None, i) for i, out in enumerate(outputs)]
    if len(given) < len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return [_root(out, g, i) for i, (out, g) in enumerate(zip(outputs, given))]


def _root(out: Any, g: Any, i: int) -> tuple[Node, int, Tensor]:
    """(node, output number, gradient) that backward starts from."""
    if isinstance(out, GradientEdge):
        return _root_of_edge(graph_node(out.node), out.output_nr, g, i)
    if not isinstance(out, Tensor):
        raise AssertionError(f"Expected output to be a torch.Tensor, got {type(out).__name__}")
    edge = history_of(out)
    if edge is None:
        raise no_history_error(out, i)
    if g is None:
        g = _implicit(out)
    else:
        g = _checked(g, out.shape, out.dtype, i)
    return (edge.node, edge.nr, g) if edge.__class__ is Edge else (edge, 0, g)


def _root_of_edge(node: Node, nr: int, g: Any, i: int) -> tuple[Node, int, Tensor]:
    shape, dtype = node.meta(nr)
    if g is not None:
        g = _checked(g, Size(shape), BY_NUM[dtype.num], i)
    else:
        if any(n != 1 for n in shape):
            raise not_scalar_error(shape)
        from ..creation.factories import ones
        g = ones(shape, dtype=BY_NUM[dtype.num])
    return node, nr, g


def _implicit(out: Tensor) -> Tensor:
    array = out._array
    if array.size != 1:
        raise not_scalar_error(out.shape)
    if array.dtype.kind in COMPLEX:
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
    if state.mode & DISPATCH:  # as PyTorch's engine calls it
        return ones_like(out, memory_format=preserve_format)
    return ones_like(out)


def _checked(g: Any, shape: Size, dtype: Any, i: int) -> Tensor:
    """The gradient given for output i, in the output's dtype."""
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if g._array.shape != tuple(shape):
        raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                           f"{shape}.")
    if g.dtype is not dtype:
        if g.dtype.is_complex != dtype.is_complex:
            raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. "
                               f"Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a "
                               f"dtype of {dtype}.")
        g = g.to(dtype)
    return g
