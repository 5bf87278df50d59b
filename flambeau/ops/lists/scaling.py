"""What `amp.GradScaler` does to gradients and to its scale, in place; on a device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.modes import no_grad
from ...autograd.views import written
from ...backends import registry
from ...tensors.tensor import Tensor


def _on_device(tensor: Tensor) -> Any:
    """The CUDA backend where the tensor is there, else None."""
    backend = registry.backend_of(tensor._array)
    return backend.on(tensor.device.index) if backend.NAME == "cuda" else None


def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies tensors by inv_scale; found_inf becomes 1 if an element of one is not finite."""
    for name, value in (("inv_scale", inv_scale), ("found_inf", found_inf)):
        if value.numel() != 1:
            raise RuntimeError(f"{name} must be a 1-element tensor.")
    factor: float | None = None
    with no_grad():
        for grad in self:
            backend = _on_device(grad)
            if backend is not None:
                backend.call("amp_unscale", (grad._array, found_inf._array, inv_scale._array))
                written(grad)
                continue
            factor = inv_scale.item() if factor is None else factor
            if not bool(grad.isfinite().all()):
                found_inf.fill_(1.0)
            if factor != 1.0:
                grad.mul_(factor)


def _amp_update_scale_(self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float,
                       scale_backoff_factor: float, growth_interval: int) -> Tensor:
    """Lowers the scale where found_inf is 1; raises it after growth_interval calls in a row where it was not."""
    backend = _on_device(self)
    if backend is not None:
        backend.call("amp_update_scale", (self._array, growth_tracker._array, found_inf._array, scale_growth_factor,
                                          scale_backoff_factor, growth_interval))
        written(self)
        written(growth_tracker)
        return self
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.fill_(0)
    elif growth_tracker.item() + 1 == growth_interval:
        grown = self * scale_growth_factor
        if bool(grown.isfinite()):
            self.copy_(grown)
        growth_tracker.fill_(0)
    else:
        growth_tracker.add_(1)
    return self
