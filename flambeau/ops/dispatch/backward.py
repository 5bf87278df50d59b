"""Backward operations: `gelu_backward(grad_output, self, approximate)` and its kin, which PyTorch's derivatives call.

The names of their arguments say what these are to the forward operation: arguments of it, results, shapes. So the derivative of
the forward operation is a call of the backward one, and what that computes are the formulas of the forward one's row; where the
row has none of these arguments, the forward function is differentiated by autograd itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from ..core.row import ROWS
from .calls import function_named, operation, run_operation
from .overloads import packet
from .rules import Rule, parameters
from .schemas import Schema, is_known, overloads_of

_NAMES = {"_softmax": "_softmax_backward_data", "_log_softmax": "_log_softmax_backward_data"}
# Arguments that the forward operation does not have: what they are to it (False: an option that nobody sets).
_MEANINGS = {"self_or_result": "self", "output": "result0", "out": "result0", "indices": "result1", "buffer": "result1",
             "total_weight": "result1", "logsumexp": "result1", "mean": "result1", "save_mean": "result1", "rstd": "result2",
             "save_invstd": "result2", "train": "training", "input_sizes": "self_shape", "bias_sizes": "bias_shape",
             "input_dtype": "self_dtype", "is_result": False, "self_is_result": False}
_EITHER_SIDE = ("mse_loss", "smooth_l1_loss", "huber_loss")  # input and target may change places


def backward_name(name: str) -> str | None:
    """The backward operation of an operation, if there is one."""
    found = _NAMES.get(name, f"{name.removesuffix('_forward')}_backward")
    return found if is_known(found) else None


def _meanings(backward: Schema, forward: Schema) -> dict[str, Any]:
    """Of the backward operation's arguments behind the gradient, and but for the mask: what they are to the forward one."""
    return {a.name: a.name if a.name in forward.by_name else _MEANINGS[a.name]
            for a in backward.arguments[1:] if a.name != "output_mask"}


def _targets(backward: Schema, forward: Schema) -> tuple[str, ...]:
    """The arguments whose gradients the backward operation gives."""
    return tuple([a.name for a in forward.arguments if a.type == "Tensor"][:len(backward.returns)])


class BackwardRule(Rule):
    """The derivative of an operation that has a backward one."""

    def __init__(self, op: Any):
        self.name = backward_name(op._opname.removesuffix("_") if op._schema.is_mutable else op._opname)
        self.schema = overloads_of(self.name)[0].schema
        self.meanings = _meanings(self.schema, op._schema)
        self.own = _targets(self.schema, op._schema)
        others = tuple(range(1, len(op._schema.returns)))
        super().__init__({}, constant=others if op._opname != "native_group_norm" else (),
                         targets=(*self.own, "target") if op._opname in _EITHER_SIDE else self.own)

    def names(self, needed: Any) -> set[str]:
        return {m for m in self.meanings.values() if m}

    def gradients(self, node: Any, grads: Any, needed: list[str]) -> dict[str, Any]:
        grad = grads[0] if grads.__class__ in (list, tuple) else grads
        given = {name: m and node.value(m) for name, m in self.meanings.items()}
        if "output_mask" in self.schema.by_name:
            given["output_mask"] = [t in needed for t in self.own]
        found = {}
        if any([t in needed for t in self.own]):
            made = self._call(grad, given)
            found = dict(zip(self.own, made if len(self.own) > 1 else [made]))
        if "target" in needed:
            found["target"] = self._call(grad, {**given, "self": given["target"], "target": given["self"]})
        return found

    def _call(self, grad: Tensor, given: dict[str, Any]) -> Any:
        args = [given[a.name] for a in self.schema.positional[1:]]
        return operation(self.name, grad, *args, **{a.name: given[a.name] for a in self.schema.arguments if a.kwarg_only})


# ------------------------------------------------------------------------------------------------------------ kernels
@functools.cache
def backward_kernel(name: str) -> Callable[..., Any] | None:
    """What a backward operation computes, on plain tensors; None for other operations."""
    stem = name.removesuffix("_backward")
    forward = next((n for n in (f"{stem}_forward", stem) if is_known(n)), None) if stem != name and is_known(name) else None
    if forward is None:
        return None
    entry, schema = overloads_of(forward)[0], overloads_of(name)[0].schema
    meanings, targets = _meanings(schema, entry.schema), _targets(schema, entry.schema)

    def kernel(grad: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip([a.name for a in schema.positional[1:]], args)), **kwargs}
        known = {meaning: tuple(given[n]) if given[n].__class__ is list else given[n]
                 for n, meaning in meanings.items() if meaning and n in given}
        mask = given.get("output_mask", [True] * len(targets))
        formulas = _formulas(stem, forward, targets, known)
        if formulas is None:
            found = _differentiated(getattr(packet("aten", forward), entry.overload), known, targets, mask, grad)
        else:
            known.update(grad=grad, grads=(grad,))
            asked = [wanted and known.get(t, grad) is not None for t, wanted in zip(targets, mask)]
            found = [f(*[known[n] for n in parameters(f)]) if a else None for f, a in zip(formulas, asked)]
        return found[0] if len(schema.returns) == 1 else tuple(found)

    return kernel


def _formulas(stem: str, forward: str, targets: tuple[str, ...], known: dict[str, Any]) -> list[Callable[..., Any]] | None:
    """The row's formulas, if they can do with what the backward operation is given. A row may have other results behind the
    first than the operation (which tap of a window won, not where it is), and dims that are counted from the front."""
    function_named(forward)  # (rows are entered when their file is imported)
    row = ROWS.get(forward) or ROWS.get(stem.removeprefix("_"))
    if row is None:
        return None
    if "result0" in known:
        known["result"] = known["result0"]
    by_name = {row.args[i]: f for i, f, _ in row.formulas}
    found = [by_name[t] for t in targets if t in by_name]
    usable = {"grad", "grads", *[n for n in known if n not in ("result1", "result2", "self_shape", "dim")]}
    return found if len(found) == len(targets) and all([n in usable for f in found for n in parameters(f)]) else None


def _differentiated(op: Any, known: dict[str, Any], targets: tuple[str, ...], mask: Any, grad: Tensor) -> list[Any]:
    """The gradients of the forward operation, which is run again; an argument of which only the shape is known is zero."""
    def first(*leaves: Any) -> Any:
        made = run_operation(op, {**fixed, **dict(zip(targets, leaves))})
        return made[0] if isinstance(made, (list, tuple)) else made

    fixed = {n: v for n, v in known.items() if n in op._schema.by_name and n not in targets}
    inputs = [known[t] if t in known else grad.new_zeros(known[f"{t}_shape"]) for t in targets]
    return derivative(first, inputs, grad, mask)


def derivative(function: Callable[..., Any], inputs: list[Any], grad: Any, mask: Any = None) -> list[Any]:
    """The gradients of a function of some tensors; mask: of which of them (None: of all)."""
    import flambeau
    create = flambeau.is_grad_enabled() and any([t is not None and t.requires_grad for t in (grad, *inputs)])
    asked = [t is not None and bool(mask is None or mask[i]) for i, t in enumerate(inputs)]
    with flambeau.enable_grad():
        leaves = [None if t is None else _leaf(t, create, asked[i]) for i, t in enumerate(inputs)]
        made = function(*leaves)
        wanted = [t for t, wanted in zip(leaves, asked) if wanted]
        found = iter(flambeau.autograd.grad(made, wanted, grad, allow_unused=True, create_graph=create) if wanted else ())
    return [next(found) if wanted else None for wanted in asked]


def _leaf(tensor: Any, create: bool, asked: bool) -> Any:
    if create and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_(asked)
