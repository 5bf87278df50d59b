"""Whether tensors of one call show the same memory: what `torch._subclasses.fake_utils` asks."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from ..utils._pytree import tree_leaves


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _storages(values: Any) -> list[int]:
    """Where the memory of each tensor begins; tensors without any are left out."""
    return [t.untyped_storage().data_ptr() for t in _tensors(values) if t.layout.name == "strided" and t.numel()]


def outputs_alias_inputs(outputs: Any, inputs: Any) -> bool:
    return not set(_storages(outputs)).isdisjoint(_storages(inputs))


def outputs_are_inputs(outputs: Any, inputs: Any) -> bool:
    given = {id(t) for t in _tensors(inputs)}
    return any(id(t) in given for t in _tensors(outputs))


def output_alias_each_other(outputs: Any) -> bool:
    storages = _storages(outputs)
    return len(set(storages)) < len(storages)
