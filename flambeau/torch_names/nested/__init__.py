"""`torch.nested`: batches of tensors whose sizes differ (tensor.py), and what operations do with them (operations.py)."""

from __future__ import annotations

from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors import formats
from ..tensors.tensor import Tensor
from . import operations  # noqa: F401
from .tensor import NestedTensor, Ragged, jagged, of_parts

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def _tensors(given: Any, dtype: Any, device: Any) -> list[Tensor]:
    from ..creation.factories import as_tensor
    if not isinstance(given, (list, tuple)):
        raise TypeError("Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor")
    return [as_tensor(t, dtype=dtype, device=device) for t in given]


def nested_tensor(tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> NestedTensor:
    """A nested tensor with copies of the tensors (or lists of numbers) of a list.

    >>> torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).values()
    tensor([1., 1., 1., 1., 1.])
    """
    if pin_memory:
        raise NotImplementedError("nested_tensor: pin_memory=True is not implemented")
    made = of_parts([t.detach() for t in _tensors(tensor_list, dtype, device)], layout)
    return made.requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """A nested tensor of the tensors of a list, or of the entries of a tensor, through which gradients flow.

    >>> torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)]).size(0)
    2
    """
    if isinstance(ts, NestedTensor):
        return ts
    if isinstance(ts, Tensor):
        ts = list(ts.unbind(0))
    return of_parts(_tensors(ts, dtype, device), layout)


def nested_tensor_from_jagged(values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None,
                              jagged_dim: int | None = None, min_seqlen: int | None = None,
                              max_seqlen: int | None = None) -> NestedTensor:
    """A jagged tensor over values that lie one after the other along jagged_dim - 1, from where each part begins, how long each
    is, or both.

    >>> torch.nested.nested_tensor_from_jagged(torch.arange(5), torch.tensor([0, 2, 5])).unbind()
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = FUNCTIONS["cat"]([lengths.new_zeros(1), lengths.cumsum(0)]), None
    ragged = Ragged(offsets, lengths)
    for name, given, found in (("min_seqlen", min_seqlen, min(ragged.counts, default=0)),
                               ("max_seqlen", max_seqlen, max(ragged.counts, default=0))):
        if given is not None and given != found:
            raise RuntimeError(f"nested_tensor_from_jagged(): {name} is {given}, but the parts say {found}")
    return jagged(values, ragged, 1 if jagged_dim is None else jagged_dim)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = formats.strided) -> NestedTensor:
    """A nested tensor of pieces of the entries of a tensor: each from its own start on, and of its own length.

    >>> x = torch.arange(6).view(2, 3)
    >>> torch.nested.narrow(x, 1, torch.tensor([0, 1]), torch.tensor([1, 2]), layout=torch.jagged).unbind()
    (tensor([0]), tensor([4, 5]))
    """
    if not isinstance(start, (int, Tensor)) or not isinstance(length, (int, Tensor)):
        raise RuntimeError("start and length must be numbers or tensors")
    if dim != 1:
        raise RuntimeError(f"nested.narrow: only supported along dim 1, got {dim}")
    count = tensor.shape[0]
    starts = [start] * count if isinstance(start, int) else start.tolist()
    lengths = [length] * count if isinstance(length, int) else length.tolist()
    return of_parts([tensor[i].narrow(0, s, n) for i, (s, n) in enumerate(zip(starts, lengths))], layout, 1)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of each entry of a tensor where a mask is True, as a jagged tensor.

    >>> torch.nested.masked_select(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[True, True], [False, True]])).unbind()
    (tensor([1, 2]), tensor([4]))
    """
    if tensor.layout is not formats.strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}")
    mask = mask.expand(tensor.shape)
    counts = mask.reshape(mask.shape[0], -1).sum(1)
    offsets = FUNCTIONS["cat"]([counts.new_zeros(1), counts.cumsum(0)])
    return jagged(tensor[mask], Ragged(offsets))


def to_padded_tensor(input: Any, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
    """An ordinary tensor of a nested one, filled up with `padding` to the largest sizes or to output_size.

    >>> torch.nested.to_padded_tensor(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), 0.0)
    tensor([[1., 0.],
            [1., 1.]])
    """
    made = input.to_padded_tensor(padding, output_size)
    return made if out is None else out.copy_(made)
