"""Tensors with a conjugate or negative bit, as PyTorch's dispatcher shows them to modes and subclasses.

Parts and conjugates are `_conj`, `_neg_view`, `view_as_real` and `select`. An operation that does not know of the bits gets
clones, which have none; what it wrote to a clone is copied back.
"""

from __future__ import annotations

from typing import Any

from ...tensors.tensor import Tensor
from .calls import below, tensors_in
from .calls import operation as op
from .derivatives import rule
from .lowering import lowered

# Operations that read tensors as they are, besides views: the products know of conjugates.
_COPIES = ("clone", "copy_", "_conj_physical")
_SHAPES = ("empty_like", "full_like", "_unsafe_view")
_PRODUCTS = ("mm", "bmm", "dot", "vdot")
_SUMS = ("addmm", "baddbmm")

rule("_conj", self=lambda grad: op("_conj", grad) if grad.is_complex() else grad)
rule("_conj_physical", self=lambda grad: op("_conj_physical", grad) if grad.is_complex() else grad)
rule("_neg_view", self=lambda grad: op("neg", grad))


@lowered("conj")
def conj(input: Tensor) -> Tensor:
    return op("_conj", input) if input.is_complex() else input


@lowered("conj_physical")
def conj_physical(input: Tensor, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    return op("_conj_physical", input) if input.is_complex() else input


@lowered("resolve_conj")
def resolve_conj(input: Tensor) -> Tensor:
    return op("clone", input) if input.is_conj() else input


@lowered("resolve_neg")
def resolve_neg(input: Tensor) -> Tensor:
    return op("clone", input) if input.is_neg() else input


@lowered("real")
def real(input: Tensor) -> Tensor:
    if not input.is_complex():
        return input
    return op("select", op("view_as_real", op("_conj", input) if input.is_conj() else input), -1, 0)


@lowered("imag")
def imag(input: Tensor) -> Any:
    if not input.is_complex():
        return NotImplemented
    if input.is_conj():
        return op("select", op("_neg_view", op("view_as_real", op("_conj", input))), -1, 1)
    return op("select", op("view_as_real", input), -1, 1)


def _keeps(operation: Any, tensors: list[Tensor]) -> bool:
    """Whether an operation takes tensors with their bits."""
    if operation._schema.is_view or operation._opname in _COPIES or operation._opname in _SHAPES:
        return True
    return operation._opname in (*_PRODUCTS, *_SUMS) and not any([t.is_neg() for t in tensors])


def resolved(operation: Any, values: dict[str, Any], tensors: list[Tensor]) -> tuple[bool, Any]:
    """(True, what an operation gives that had to be called with clones), else (False, None)."""
    if not any([t.is_conj() or t.is_neg() for t in tensors]) or _keeps(operation, tensors):
        return False, None
    clones: dict[int, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor) and (value.is_conj() or value.is_neg()):
            return clones.setdefault(id(value), op("clone", value))
        return [plain(v) for v in value] if value.__class__ in (list, tuple) else value

    given = {name: plain(value) for name, value in values.items()}
    result = below(operation, given, list(tensors_in(given.values())))
    for argument in operation._schema.arguments:
        target = values.get(argument.name)
        if argument.is_write and isinstance(target, Tensor) and id(target) in clones:
            op("copy_", target, clones[id(target)])
    return True, result
