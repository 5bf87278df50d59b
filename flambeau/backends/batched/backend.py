"""What the rest of flambeau asks of the backend of batched arrays."""

from __future__ import annotations

from typing import Any

from .. import registry
from . import elementwise, indexing, layers, linalg, losses, products, reductions, views  # noqa: F401  (their rules)
from .arrays import INPLACE, BatchedArray, example, innermost, levels_of
from .table import call, inside
from .views import leave as removed

__all__ = ["call", "removed"]
ARRAY = BatchedArray
NAME = "batched"


def device_of(array: Any) -> Any:
    inner = innermost(array)
    return registry.backend_of(inner).device_of(inner)


# ----------------------------------------------------------------------------------------------------- new arrays
class Maker:
    """Makes new arrays that are batched as another one is (`x.new_zeros`...)."""

    def __init__(self, x: Any):
        self.x, self.NAME, self.behind = x, NAME, registry.backend_of(innermost(x))

    def _over(self, make: Any) -> Any:
        levels = levels_of(self.x)[::-1]  # what the innermost level wraps has its batch first behind all outer ones
        array = make(tuple([level.size for level in levels]))
        for level in levels:
            array = BatchedArray(level, array)
        return array

    def empty(self, shape: Any, dtype: Any) -> Any:
        return self._over(lambda sizes: self.behind.empty((*sizes, *shape), dtype))

    def zeros(self, shape: Any, dtype: Any) -> Any:
        return self._over(lambda sizes: self.behind.zeros((*sizes, *shape), dtype))

    def full(self, shape: Any, dtype: Any, value: Any) -> Any:
        return self._over(lambda sizes: self.behind.full((*sizes, *shape), dtype, value))

    def ordered(self, shape: Any, order: Any, dtype: Any) -> Any:
        many = len(levels_of(self.x))
        return self._over(lambda sizes: self.behind.ordered(
            (*sizes, *shape), (*range(many), *[o + many for o in order]), dtype))

    def fill(self, target: Any, value: Any) -> None:
        fill(target, value)

    def like(self, x: Any, dtype: Any) -> Any:
        return like(x, dtype)


def like(x: Any, dtype: Any) -> Any:
    return BatchedArray(x.level, registry.backend_of(x.examples).like(x.examples, dtype))


def empty_like(x: Any) -> Any:
    return like(x, x.dtype)


def copy(x: Any, dtype: Any = None) -> Any:
    return BatchedArray(x.level, registry.backend_of(x.examples).copy(x.examples, dtype))


def copy_with_layout(source: Any, like_: Any) -> Any:
    out = like(source, source.dtype)
    write(out, source)
    return out


def write(target: Any, source: Any) -> None:
    """target[...] = source; a batched value does not fit into a tensor that is not."""
    if source.__class__ is BatchedArray and source.level.number > target.level.number:
        raise RuntimeError(INPLACE)
    goal = target.examples
    if hasattr(source, "shape"):
        source = inside(source, target.level, target.ndim)
    registry.backend_of(goal).write(goal, source)


def fill(target: Any, value: Any) -> None:
    registry.backend_of(target.examples).fill(target.examples, value)


def from_cpu(array: Any) -> Any:
    return array


def to_cpu(array: Any) -> Any:
    return array


# ------------------------------------------------------------------------------------------------------- geometry
def strides(x: Any) -> tuple[int, ...]:
    return registry.cpu.strides(example(x))


def is_contiguous(x: Any) -> bool:
    return registry.cpu.is_contiguous(example(x))


def storage_offset(x: Any) -> int:
    return registry.cpu.storage_offset(innermost(x))


def address(x: Any) -> int:
    return registry.cpu.address(innermost(x))


def as_strided(x: Any, shape: Any, stride: Any, offset: int) -> Any:
    return call("as_strided", (x, shape, stride, offset))


def storage_bytes(x: Any) -> Any:
    raise RuntimeError("vmap: a tensor inside of vmap has no storage of its own")


def settled(x: Any) -> Any:
    return x


def resized(x: Any, *args: Any) -> Any:
    raise RuntimeError("vmap: resizing a tensor inside of vmap is not possible")


def is_shared(x: Any) -> bool:
    return False


def cast(array: Any, native: Any) -> Any:
    return array.astype(native)


def reshaped(x: Any, shape: Any) -> Any:
    return x.reshape(shape)


def asarray(value: Any, dtype: Any = None) -> Any:
    return registry.cpu.asarray(value, dtype)

