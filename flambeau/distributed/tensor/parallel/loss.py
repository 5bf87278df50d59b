"""The loss of logits whose classes are in pieces: cross entropy without gathering them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ....creation.factories import full, ones_like
from ....nn import _reduction
from ....tensors.tensor import Tensor
from .. import dispatch
from ..dtensor import DTensor, as_dtensor, local_of
from ..layout import local_geometry
from ..placement_types import Partial, Replicate, Shard

__all__ = ["loss_parallel"]

_entered = [0]  # blocks of loss_parallel


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside, `cross_entropy` works on logits that are cut along the classes: what travels is two numbers per sample, not the
    logits. Target and weight may be plain tensors, the same on all processes; the loss is a replicated DTensor.

    Targets that are probabilities, label smoothing, and logits that are cut along samples, too, are computed from whole logits.

    >>> dist.init_process_group("gloo", rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> logits = dist.tensor.distribute_tensor(torch.zeros(2, 4), mesh, [dist.tensor.Shard(1)])
    >>> with dist.tensor.parallel.loss_parallel():
    ...     print(torch.nn.functional.cross_entropy(logits, torch.tensor([0, 3])).full_tensor())
    tensor(1.3863)
    >>> dist.destroy_process_group()
    """
    _entered[0] += 1
    dispatch.REPLICATING.append("cross_entropy")
    try:
        yield
    finally:
        dispatch.REPLICATING.remove("cross_entropy")
        _entered[0] -= 1


@dispatch.rule
def cross_entropy(func: Any, args: Any, kwargs: Any) -> Any:
    named = dispatch.bound(func, args, kwargs, ("input", "target", "weight", "size_average", "ignore_index", "reduce",
                                                "reduction", "label_smoothing"))
    logits, target = named["input"], named["target"]
    cut = [p for p in logits.placements if not isinstance(p, Replicate)]
    classes = 0 if logits.ndim == 1 else 1
    if (not _entered[0] or cut != [Shard(classes)] or target.is_floating_point() or named.get("label_smoothing", 0.0)
            or named.get("size_average") is not None or named.get("reduce") is not None):
        return dispatch.everywhere(func, args, kwargs)
    if target.shape != (*logits.shape[:classes], *logits.shape[classes + 1:]):
        return dispatch.everywhere(func, args, kwargs)  # which says what is wrong
    return _from_pieces(logits, _whole(target), _whole(named.get("weight")), classes, named.get("ignore_index", -100),
                        named.get("reduction", "mean"))


def _whole(x: Any) -> Tensor | None:
    return x if x is None else x.full_tensor() if isinstance(x, DTensor) else x


def _from_pieces(logits: DTensor, target: Tensor, weight: Tensor | None, classes: int, ignore_index: int,
                 reduction: str) -> DTensor:
    """log p of the target: its logit, which one process has, less the logarithm of a sum to which all contribute."""
    mesh, placements = logits.device_mesh, logits.placements
    bad = ((target < 0) | (target >= logits.shape[classes])) & (target != ignore_index)
    if bad.any():
        raise IndexError(f"Target {target[bad][0].item()} is out of bounds.")
    x = local_of(logits)
    added = [Partial() if isinstance(p, Shard) else p for p in placements]
    rest = (*logits.shape[:classes], *logits.shape[classes + 1:])

    def everywhere(piece: Tensor, op: str = "sum") -> Tensor:
        summands = as_dtensor(piece, mesh, [Partial(op) if p.is_partial() else p for p in added], rest)
        return local_of(dispatch.without_partial(summands))

    own, start = [sizes[classes] for sizes in local_geometry(logits.shape, mesh, placements)]
    largest = everywhere(x.detach().amax(classes) if own else full(rest, float("-inf"), dtype=x.dtype, device=x.device), "max")
    total = everywhere((x - largest.unsqueeze(classes)).exp().sum(classes))
    place = target - start
    foreign = (place < 0) | (place >= own)
    if own:
        picked = x.gather(classes, place.masked_fill(foreign, 0).unsqueeze(classes)).squeeze(classes).masked_fill(foreign, 0)
    else:
        picked = x.sum(classes)
    each = total.log() + largest - everywhere(picked)
    counts = target != ignore_index
    weights = ones_like(each) if weight is None else weight.to(each.dtype)[target.masked_fill(~counts, 0)]
    weights = weights.masked_fill(~counts, 0)
    loss = each.masked_fill(~counts, 0) * weights
    if _reduction.get_enum(reduction):
        loss = loss.sum() if reduction == "sum" else loss.sum() / weights.sum()
    return as_dtensor(loss, mesh, [Replicate()] * mesh.ndim, loss.shape)
