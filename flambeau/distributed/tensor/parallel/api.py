"""`parallelize_module`: which layers are spread, and how."""

from __future__ import annotations

import warnings
from fnmatch import fnmatch
from typing import Any

from ...device_mesh import DeviceMesh, current_mesh
from .style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module: Any, device_mesh: DeviceMesh | None = None,
                       parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None, *,
                       src_data_rank: int | None = 0) -> Any:
    """Applies a style to the module, or a plan of styles to modules inside of it by name ("layers.*.attention.wq").

    src_data_rank: whose parameters everybody gets pieces of; None: each process cuts its own.
    """
    mesh = current_mesh() if device_mesh is None else device_mesh
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module expects a DeviceMesh of one dimension, got {mesh}: take a part of it, as "
                         "mesh['tp']")
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this "
                      "parallelize_module call will do nothing.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError("Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        found = [module] if path == "" else _matching(module, path.split("."))
        if not found:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching", stacklevel=2)
        for inner in found:
            parallelize_module(inner, mesh, style, src_data_rank=src_data_rank)
    return module


def _matching(module: Any, path: list[str]) -> list[Any]:
    """All modules at a path, each part of which may be a pattern."""
    found = [child for name, child in module.named_children() if fnmatch(name, path[0])]
    return found if len(path) == 1 else [deeper for child in found for deeper in _matching(child, path[1:])]
