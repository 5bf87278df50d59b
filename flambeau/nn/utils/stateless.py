"""Calling a module with other tensors in place of its own: `functional_call`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ...tensors.tensor import Tensor
from ..module import Module

__all__ = ["functional_call"]


def functional_call(module: Module, parameters_and_buffers: Any, args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """Old place of func.functional_call."""
    warnings.warn("`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a "
                  "future version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in "
                  "replacement.", FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(module: Module, parameters_and_buffers: Any, args: Any = None,
                     kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with the given tensors in the place of the parameters and buffers of those names.

    tie_weights: a tensor given for one name also serves for the others that share its parameter. strict: every name
    must be given, and no unknown ones.
    """
    if isinstance(parameters_and_buffers, (tuple, list)):
        given: dict[str, Any] = {}
        if not all(isinstance(d, dict) for d in parameters_and_buffers):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        for part in parameters_and_buffers:
            twice = given.keys() & part.keys()
            if twice:
                raise ValueError(f"{sorted(twice)} appeared in multiple dictionaries; behavior of functional call "
                                 "is ambiguous")
            given.update(part)
    elif isinstance(parameters_and_buffers, dict):
        given = parameters_and_buffers
    else:
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
                         f"{type(parameters_and_buffers)}")
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, given, tie_weights=tie_weights, strict=strict):
        return module(*arguments, **(kwargs or {}))


@contextlib.contextmanager
def _reparametrize_module(module: Module, parameters_and_buffers: dict[str, Any], tie_weights: bool = False,
                          strict: bool = False, stack_weights: bool = False) -> Iterator[None]:
    """Other tensors stand in the module's tables for the length of the block; in-place changes go to them."""
    given = _with_ties(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        _check_names(module, given)
    before = []
    try:
        for name, tensor in given.items():
            if not isinstance(tensor, Tensor) and tensor is not None:
                raise TypeError(f"{tensor} is not an instance of torch.Tensor")
            table, key = _slot(module, name)
            before.append((name, table, key, table.get(key, _ABSENT)))
            table[key] = tensor
        yield
    finally:
        for name, table, key, tensor in reversed(before):
            if key in table and name in parameters_and_buffers:
                parameters_and_buffers[name] = table[key]  # an assignment inside replaced it
            if tensor is _ABSENT:
                del table[key]
            else:
                table[key] = tensor


_ABSENT = object()


def _slot(module: Module, path: str) -> tuple[dict[str, Any], str]:
    """The table of the owner that holds the parameter or buffer of this dotted name."""
    parent, _, name = path.rpartition(".")
    owner = module.get_submodule(parent)
    for table in (owner._parameters, owner._buffers):
        if name in table:
            return table, name
    value = getattr(owner, name, None)
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"{value} is not an instance of torch.Tensor")
    return owner.__dict__, name  # a plain attribute, or one that is there for this call only


def _all_members(module: Module) -> dict[str, Any]:
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def _with_ties(module: Module, given: dict[str, Any]) -> dict[str, Any]:
    """Adds the names that share a tensor with a given one."""
    groups: dict[int, list[str]] = {}
    for name, tensor in _all_members(module).items():
        groups.setdefault(id(tensor), []).append(name)
    result = dict(given)
    for names in groups.values():
        present = [n for n in names if n in given]
        if len({id(given[n]) for n in present}) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(present)}, which are tied. "
                             "Consider using tie_weights=False")
        if present:
            result.update((n, given[present[0]]) for n in names)
    return result


def _check_names(module: Module, given: dict[str, Any]) -> None:
    expected = _all_members(module)
    missing, unexpected = [n for n in expected if n not in given], [n for n in given if n not in expected]
    texts = []
    if unexpected:
        texts.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if missing:
        texts.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
    if texts:
        raise RuntimeError("Error(s) in reparametrizing for {}:\n\t{}".format(module._get_name(), "\n\t".join(texts)))
