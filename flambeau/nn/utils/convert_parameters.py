"""Parameters as one long vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ops.shape.joining import cat
from ...tensors.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_param_device(param: Tensor, old_param_device: Any) -> Any:
    """All parameters must be on one device."""
    device = param.device
    if old_param_device is not None and device != old_param_device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters flattened and joined.

    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    torch.Size([9])
    """
    device = None
    vectors = []
    for p in parameters:
        device = _check_param_device(p, device)
        vectors.append(p.view(-1))
    return cat(vectors)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes the parameters views of consecutive vectors of the vector.

    >>> layer = nn.Linear(1, 1)
    >>> nn.utils.vector_to_parameters(torch.tensor([2.0, 3.0]), layer.parameters())
    >>> layer.bias.item()
    3.0
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    device = None
    start = 0
    for p in parameters:
        device = _check_param_device(p, device)
        p.data = vec[start:start + p.numel()].view_as(p).data
        start += p.numel()
