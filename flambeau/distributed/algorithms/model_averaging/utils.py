"""The mean of parameters over the processes of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .... import distributed as dist
from ....autograd.modes import no_grad
from ....ops.shape.joining import cat
from ....tensors.parameter import Parameter

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterator[Parameter], process_group: Any) -> None:
    """Gives all parameters their mean over the group. They travel as one tensor per dtype."""
    group = dist.group.WORLD if process_group is None else process_group
    if dist.get_rank(group) < 0:
        return
    kinds: dict[Any, list[Parameter]] = {}
    for p in params:
        kinds.setdefault((p.dtype, p.device), []).append(p)
    with no_grad():
        for found in kinds.values():
            flat = cat([p.detach().reshape(-1) for p in found]) / dist.get_world_size(group)
            dist.all_reduce(flat, group=group)
            for p, piece in zip(found, flat.split([p.numel() for p in found])):
                p.copy_(piece.view(p.shape))


def get_params_to_average(params: Iterable[Parameter] | Iterable[dict[str, Any]]) -> list[Parameter]:
    """The parameters, or those of an optimizer's groups, that have a gradient."""
    found: list[Parameter] = []
    for each in params:
        if isinstance(each, dict):
            found += each["params"]
        elif isinstance(each, Parameter):
            found.append(each)
        else:
            raise NotImplementedError(f"Parameter input of type {type(each)} is not supported")
    return [p for p in found if p.grad is not None]


def average_parameters_or_parameter_groups(params: Iterable[Parameter] | Iterable[dict[str, Any]], process_group: Any) -> None:
    """`average_parameters` of those that have a gradient."""
    average_parameters(iter(get_params_to_average(params)), process_group)
