"""`torch.autograd.functional`: derivatives of Python functions of tensors.

`inputs` is a tensor or a tuple of tensors; results have the same structure. With create_graph the results can be
differentiated again; with strict, an input that an output does not depend on is an error instead of a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..creation.factories import eye, ones_like, zeros_like
from ..ops.shape.joining import stack
from ..tensors.tensor import Tensor
from . import forward_ad
from .modes import enable_grad
from .passes import grad
from .passes import grad as _differentiate


# ------------------------------------------------------------------------------------------------ arguments and results
def _tuple(value: Any, argument: str | None = None, function: str | None = None) -> tuple[bool, tuple[Any, ...]]:
    """(was a tuple, as a tuple), checked."""
    several = isinstance(value, tuple)
    values = value if several else (value,)
    for i, v in enumerate(values):
        if isinstance(v, Tensor):
            continue
        where = f"the value at index {i}" if several else "the given value"
        if argument:
            raise TypeError(f"The {argument} given to {function} must be either a Tensor or a tuple of Tensors but "
                            f"{where} has type {type(v)}.")
        raise TypeError(f"The {function} must return either a Tensor or a tuple of Tensors but {where} has type {type(v)}.")
    return several, values


def _untuple(values: tuple[Any, ...], several: bool) -> Any:
    return values if several else values[0]


def _prepare(inputs: tuple[Tensor, ...], create_graph: bool, need_graph: bool) -> tuple[Tensor, ...]:
    """The inputs as the function sees them: joined to the user's graph, or leaves of our own."""
    return tuple([x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_(need_graph)
                  for x in inputs])


def _finish(values: Any, create_graph: bool) -> Any:
    if isinstance(values, tuple):
        return tuple([_finish(v, create_graph) for v in values])
    return values if create_graph else values.detach()


def _check_v(v: tuple[Any, ...], other: tuple[Any, ...], several: bool) -> None:
    if len(v) != len(other):
        if several:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(other)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(v, other)):
        if a.shape != b.shape:
            entry = f"Entry {i} in " if several else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {b.shape} but got {a.shape}.")


def _check_strict(outputs: tuple[Tensor, ...], strict: bool) -> None:
    if strict:
        for i, out in enumerate(outputs):
            if not out.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. The outputs "
                                   "must be computed in a differentiable manner from the input when running in strict mode.")


def _check_scalar(outputs: tuple[Tensor, ...], several: bool, name: str) -> None:
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")


def _grads(outputs: Any, inputs: tuple[Tensor, ...], given: Any = None, create_graph: bool = False) -> tuple[Any, ...]:
    """autograd.grad that knows outputs without history: they just contribute nothing."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given = (None,) * len(outputs) if given is None else given
    pairs = [(o, g) for o, g in zip(outputs, given) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    outs, gradients = zip(*pairs)
    return _differentiate(outs, inputs, gradients, create_graph=create_graph, retain_graph=True, allow_unused=True)


def _fill(grads: tuple[Any, ...], like: tuple[Tensor, ...], strict: bool, create_graph: bool, stage: str) -> tuple[Any,
                                                                                                                   ...]:
    """Zeros where there is no gradient; in strict mode an error that says which part is independent."""
    made = []
    for i, (g, ref) in enumerate(zip(grads, like)):
        if g is None:
            if strict:
                raise RuntimeError(_INDEPENDENT[stage].format(i=i))
            g = zeros_like(ref)
        elif strict and create_graph and not g.requires_grad and stage in ("back", "back_trick"):
            raise RuntimeError(f"The jacobian of the user-provided function is independent of input {i}. This is not allowed "
                               "in strict mode when create_graph=True.")
        made.append(g)
    return tuple(made)


def _check_curved(jacobians: tuple[Tensor, ...], strict: bool) -> None:
    """In strict mode the first derivatives must depend on the inputs, or there is no second one."""
    for i, jac in enumerate(jacobians if strict else ()):
        if not jac.requires_grad:
            raise RuntimeError(_LINEAR.format(i=i))


_LINEAR = ("While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is "
           "independent of the input. This is not allowed in strict mode: the function must be twice differentiable, which "
           "a linear one is not in a way that depends on its input.")
_INDEPENDENT = {
    "back": "The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using "
                  "the double backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {i}. This is not allowed in "
                   "strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in the grad_jacobian. "
                         "This is not allowed in strict mode as it prevents from using the double backward trick to "
                         "replace forward mode AD.",
}


# ------------------------------------------------------------------------------------------------------ products
class _Call:
    """A call of the user's function: its inputs, its results, and what comes of the derivatives."""

    def __init__(self, name: str, func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool):
        self.name, self.func, self.create_graph, self.strict = name, func, create_graph, strict
        self.several, inputs = _tuple(inputs, "inputs", name)
        self.inputs = _prepare(inputs, create_graph, True)

    def run(self) -> tuple[Tensor, ...]:
        self.outs_several, self.outputs = _tuple(self.func(*self.inputs), "outputs of the user-provided function", self.name)
        _check_strict(self.outputs, self.strict)
        return self.outputs

    def vector(self, v: Any, like: tuple[Tensor, ...], several: bool, whose: str) -> Any:
        """v as a tuple of tensors like these; None where it may be left out."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise RuntimeError(f"The vector v can only be None if the {whose} a single Tensor with a single element.")
            return None
        v = _prepare(_tuple(v, "v", self.name)[1], self.create_graph, False)
        _check_v(v, like, several)
        return v

    def direction(self, v: Any) -> Any:
        return self.vector(v, self.inputs, self.several, "input to the user-provided function is")

    def slope(self) -> tuple[Any, ...]:
        """The first derivatives of a function with one element as its result."""
        _check_scalar(self.run(), self.outs_several, self.name)
        jac = _fill(_grads(self.outputs, self.inputs, create_graph=True), self.inputs, self.strict, False, "back")
        _check_curved(jac, self.strict)
        return jac

    def grads(self, outputs: Any, inputs: tuple[Tensor, ...], given: Any, like: tuple[Tensor, ...], stage: str) -> Any:
        made = _grads(outputs, inputs, given, self.create_graph)
        return _fill(made, like, self.strict, self.create_graph, stage)

    def results(self, grads: tuple[Any, ...], several: bool) -> tuple[Any, Any]:
        outputs, grads = (_finish(values, self.create_graph) for values in (self.outputs, grads))
        return _untuple(outputs, self.outs_several), _untuple(grads, several)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), v^T J).

    >>> torch.autograd.functional.vjp(lambda x: x ** 2, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        call = _Call("vjp", func, inputs, create_graph, strict)
        outputs = call.run()
        v = call.vector(v, outputs, call.outs_several, "user-provided function returns")
        grads = call.grads(outputs, call.inputs, v, call.inputs, "back")
    return call.results(grads, call.several)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), J v).

    >>> torch.autograd.functional.jvp(lambda x: x ** 2, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        call = _Call("jvp", func, inputs, create_graph, strict)
        v = call.direction(v)
        outputs = call.run()
        # J^T u is linear in u: its derivative with respect to u, applied to v, is J v.
        u = tuple([zeros_like(out, requires_grad=True) for out in outputs])
        pulled = _fill(_grads(outputs, call.inputs, u, create_graph=True), call.inputs, strict, False, "back")
        grads = call.grads(pulled, u, v if v is not None else _ones(pulled), outputs, "back_trick")
    return call.results(grads, call.outs_several)


def _ones(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([ones_like(t) for t in tensors])


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), v^T H) of a function with one element as its result.

    >>> torch.autograd.functional.vhp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor(9.), tensor([6., 0.]))
    """
    with enable_grad():
        call = _Call("vhp", func, inputs, create_graph, strict)
        v = call.direction(v)
        jac = call.slope()
        grads = call.grads(jac, call.inputs, v if v is not None else _ones(jac), call.inputs, "double_back")
    return call.results(grads, call.several)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), H v) of a function with one element as its result.

    >>> torch.autograd.functional.hvp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor(9.), tensor([6., 0.]))
    """
    with enable_grad():
        call = _Call("hvp", func, inputs, create_graph, strict)
        v = call.direction(v)
        jac = call.slope()
        u = tuple([zeros_like(x, requires_grad=True) for x in call.inputs])
        pulled = _fill(_grads(jac, call.inputs, u, create_graph=True), call.inputs, strict, create_graph, "double_back")
        grads = call.grads(pulled, u, v if v is not None else _ones(pulled), call.inputs, "double_back_trick")
    return call.results(grads, call.several)


# ------------------------------------------------------------------------------------------------------ matrices
def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """All partial derivatives: result[i][j] has the shape of output i followed by that of input j.

    vectorize: all rows in one pass, under vmap; otherwise one after the other. strategy "forward-mode" goes column by column.

    >>> torch.autograd.functional.jacobian(lambda x: x ** 2, torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function '
                             'has more '
                             'outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to '
                             'use '
                             '"reverse-mode".')
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError("torch.autograd.functional.jacobian: `create_graph=True` and "
                                      "`strategy=\"forward-mode\"` are not supported together (yet). Please either "
                                      "set `create_graph=False` or `strategy=\"reverse-mode\"`.")
        if not vectorize:
            raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
                                      "implemented for `vectorize=True`.")
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
                           "together. Please either set `strict=False` or `vectorize=False`.")
    if strategy == "forward-mode":
        return _jacobian_forward(func, inputs)
    with enable_grad():
        call = _Call("jacobian", func, inputs, create_graph, strict)
        rows = tuple([_all_rows(out, call.inputs, create_graph) if vectorize and out.requires_grad and out.numel() > 1 else
                      _rows(out, i, call.inputs, create_graph, strict) for i, out in enumerate(call.run())])
        rows = _finish(rows, create_graph)
    return _untuple(tuple([_untuple(r, call.several) for r in rows]), call.outs_several)


def _rows(out: Tensor, i: int, inputs: tuple[Tensor, ...], create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    """d(out)/d(each input), one backward pass per element of the output."""
    columns: list[list[Tensor]] = [[] for _ in inputs]
    flat = out.reshape(-1)
    for j in range(out.numel()):
        grads = _grads(flat[j], inputs, create_graph=create_graph)
        for k, (g, x) in enumerate(zip(grads, inputs)):
            if g is None:
                if strict:
                    raise RuntimeError(f"Output {i} of the user-provided function is independent of input {k}. This "
                                       "is not allowed in strict mode.")
                g = zeros_like(x)
            elif strict and create_graph and not g.requires_grad:
                raise RuntimeError("The jacobian of the user-provided function is independent of input "
                                   f"{k}. This is not allowed in strict mode when create_graph=True.")
            columns[k].append(g)
    if not out.numel():
        return tuple([x.new_zeros((*out.shape, *x.shape)) for x in inputs])
    return tuple([stack(c).reshape((*out.shape, *x.shape)) for c, x in zip(columns, inputs)])


def _all_rows(out: Tensor, inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """d(out)/d(each input), one backward pass for all elements of the output."""
    n = out.numel()
    units = eye(n, dtype=out.dtype).reshape((n, *out.shape))
    grads = grad([out], inputs, [units], retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True)
    return tuple([x.new_zeros((*out.shape, *x.shape)) if g is None else g.reshape((*out.shape, *x.shape))
                  for g, x in zip(grads, inputs)])


def _jacobian_forward(func: Callable[..., Any], inputs: Any) -> Any:
    """One dual number per element of the inputs."""
    several, inputs = _tuple(inputs, "inputs", "jacobian")
    inputs = tuple([x.detach() for x in inputs])
    outs_several, blocks = True, None
    for k, x in enumerate(inputs):
        for j in range(x.numel()):
            direction = x.new_zeros((x.numel(),))
            direction[j] = 1
            with forward_ad.dual_level():
                duals = [forward_ad.make_dual(y, direction.reshape(x.shape) if m == k else zeros_like(y))
                         for m, y in enumerate(inputs)]
                outs_several, outputs = _tuple(func(*duals), "outputs of the user-provided function", "jacobian")
                if blocks is None:
                    blocks = [[[] for _ in inputs] for _ in outputs]
                for i, out in enumerate(outputs):
                    primal, tangent = forward_ad.unpack_dual(out)
                    blocks[i][k].append((zeros_like(primal) if tangent is None else tangent).detach())
    if blocks is None:
        return jacobian(func, _untuple(inputs, several))
    rows = tuple([tuple([_columns(c, x, stack) for c, x in zip(block, inputs)]) for block in blocks])
    return _untuple(tuple([_untuple(r, several) for r in rows]), outs_several)


def _columns(tangents: list[Tensor], x: Tensor, stack: Any) -> Tensor:
    out = tangents[0]
    return stack(tangents, -1).reshape((*out.shape, *x.shape))


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """All second derivatives of a function with one element as its result.

    >>> torch.autograd.functional.hessian(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    if outer_jacobian_strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    several, inputs = _tuple(inputs, "inputs", "hessian")

    def checked(*args: Tensor) -> Tensor:
        out = func(*args)
        outs_several, outs = _tuple(out, "outputs of the user-provided function", "hessian")
        _check_scalar(outs, outs_several, "hessian")
        _check_strict(outs, strict)
        return out.reshape(())

    def first(*args: Tensor) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            args = tuple([x.requires_grad_(True) if x._node is None else x for x in args])
        jac = jacobian(checked, args, create_graph=True)
        _check_curved(jac, strict)
        return jac

    if outer_jacobian_strategy == "forward-mode":
        result = jacobian(first, inputs, vectorize=True, strategy="forward-mode")
    else:
        result = jacobian(first, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize)
    return _untuple(tuple([_untuple(r, several) for r in result]), several)


__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]
