"""Random numbers over a mesh: those that one process would draw, whatever the placements. All processes draw the whole tensor
from one sequence, whose start rank 0 chooses, and keep their pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...creation import random as _random
from ...creation.factories import empty, ones
from ...nn import functional as F
from ...ops.random import factories as _draws
from ...tensors.tensor import Tensor
from ..device_mesh import DeviceMesh, current_mesh
from .dispatch import RULES, bound, rule
from .dtensor import DTensor, _cut_whole, as_dtensor, local_of
from .layout import is_partial, normalized
from .placement_types import Placement

__all__ = ["common", "manual_seed", "rand", "randn"]


class common:
    """Inside, the default generator is at the same place on all processes of a mesh (that of its first one)."""

    def __init__(self, mesh: DeviceMesh):
        self.mesh = mesh

    def __enter__(self) -> None:
        if self.mesh.size() > 1:
            seed = _draws.randint(1 << 62, (1,))
            for i, n in enumerate(self.mesh.shape):
                if n > 1:
                    dist.broadcast(seed, group_src=0, group=self.mesh.get_group(i))
            self.before = _random.default_generator.get_state()
            _random.default_generator.manual_seed(int(seed.item()))

    def __exit__(self, *error: Any) -> None:
        if self.mesh.size() > 1:
            _random.default_generator.set_state(self.before)


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """Sets the seed of all processes of a mesh."""
    _random.default_generator.manual_seed(seed)


def _refill(func: Any, args: Any, kwargs: Any) -> Any:
    """An in-place draw (normal_, uniform_, ...): of the whole, of which the target keeps its piece."""
    target = args[0]
    if is_partial(target.placements):
        raise NotImplementedError(f"{func.__name__} on a DTensor with summands is not implemented")
    with common(target.device_mesh) if kwargs.get("generator") is None else no_grad(), no_grad():
        whole = func(empty(target.shape, dtype=target.dtype, device=target.device), *args[1:], **kwargs)
        local_of(target).copy_(_cut_whole(whole, target.device_mesh, target.placements))
    return target


for _name in ("normal_", "uniform_", "random_", "bernoulli_"):
    RULES[_name] = _refill
for _name in ("exponential_", "log_normal_", "cauchy_", "geometric_"):
    RULES[_name] = _refill


@rule
def dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """The same elements are dropped as one process would drop."""
    named = bound(func, args, kwargs, ("input", "p", "training", "inplace"))
    x, p = named["input"], named.get("p", 0.5)
    if not named.get("training", True) or p == 0:
        return x
    if named.get("inplace"):
        raise NotImplementedError("dropout(inplace=True) is not implemented for DTensors in flambeau")
    if is_partial(x.placements):
        raise NotImplementedError("dropout of a DTensor with summands is not implemented: redistribute it first")
    with common(x.device_mesh):
        mask = F.dropout(ones(x.shape, dtype=x.dtype, device=x.device), p)
    return x * as_dtensor(_cut_whole(mask, x.device_mesh, x.placements), x.device_mesh, x.placements, x.shape)


def _drawn(name: str) -> Callable[..., DTensor]:
    def made(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None,
             device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None) -> DTensor:
        mesh = current_mesh() if device_mesh is None else device_mesh
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
        where = normalized(placements, mesh, len(shape))
        with common(mesh):
            whole: Tensor = getattr(_draws, name)(shape, dtype=dtype, device=mesh.device_type)
        return as_dtensor(_cut_whole(whole, mesh, where), mesh, where, shape).requires_grad_(requires_grad)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"torch.{name} over a mesh."
    return made


rand, randn = _drawn("rand"), _drawn("randn")
