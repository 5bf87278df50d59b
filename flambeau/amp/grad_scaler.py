"""GradScaler: keeps float16 gradients from vanishing, by scaling the loss up and the gradients back down."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..creation import factories as creation
from ..ops.lists.scaling import _amp_foreach_non_finite_check_and_unscale_, _amp_update_scale_
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor

__all__ = ["OptState", "GradScaler"]


class OptState(Enum):
    """Where an optimizer stands between two calls of update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update().

    A step with an infinite or nan gradient is left out, and the scale goes down by backoff_factor; after growth_interval
    good steps in a row it goes up by growth_factor.

    >>> scaler = torch.amp.GradScaler("cpu")
    >>> scaler.get_scale()
    65536.0
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled:
            from .. import cuda
            if not cuda.is_available():
                warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
                self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale = init_scale
            self._scale: Tensor | None = None  # made when the first output is scaled
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    def _check_scale_growth_tracker(self, function: str) -> tuple[Tensor, Tensor]:
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(f"Attempted {function} but {name} is None.  This may indicate your script did not "
                                     "use scaler.scale(loss or outputs) earlier in the iteration.")
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, device: Any) -> None:
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale")
        self._scale = creation.full((), self._init_scale, dtype=_dtypes.float32, device=device)
        self._growth_tracker = creation.full((), self._init_growth_tracker, dtype=_dtypes.int32, device=device)

    def scale(self, outputs: Any) -> Any:
        """A tensor, or an iterable of tensors, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return outputs * self._scale
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        made = map(self.scale, outputs)
        return type(outputs)(made) if isinstance(outputs, (list, tuple)) else made

    # --------------------------------------------------------------------------------------------------- gradients
    def _unscale_grads_(self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool) -> dict[Any, Tensor]:
        """Multiplies all gradients; found_inf becomes 1 if one of them is not finite. By device, as PyTorch keeps it."""
        gradients = []
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, Tensor):
                    raise AssertionError(f"expected param to be torch.Tensor, got {type(param).__name__}")
                if param.grad is None:
                    continue
                if not allow_fp16 and param.grad.dtype is _dtypes.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                gradients.append(param.grad._values() if param.grad.is_sparse else param.grad)
        made: dict[Any, Tensor] = {}
        for grad in gradients:
            found = made.get(grad.device)
            if found is None:
                found = made[grad.device] = found_inf if grad.device == found_inf.device else found_inf.to(grad.device)
            _amp_foreach_non_finite_check_and_unscale_(
                [grad], found, inv_scale if grad.device == inv_scale.device else inv_scale.to(grad.device))
        spread = {g.device_mesh: g for g in gradients if hasattr(g, "device_mesh")}  # DTensors: one process looked at a piece
        for grad in spread.values():
            grad._largest_of_all(made[grad.device])
        return made

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimizer's parameters by the scale, so they can be clipped before step()."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        record = self._per_optimizer_states[id(optimizer)]
        if record["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if record["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = self._scale.double().reciprocal().float()
        found = creation.full((), 0.0, dtype=_dtypes.float32, device=self._scale.device)
        record["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, found, False)
        record["stage"] = OptState.UNSCALED

    def _maybe_opt_step(self, optimizer: Any, record: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any([found.item() for found in record["found_inf_per_device"].values()]):
            return None
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step() on unscaled gradients, unless one of them is infinite or nan."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        record = self._per_optimizer_states[id(optimizer)]
        if record["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._delegated(optimizer, record, args, kwargs)
        if record["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not record["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        made = self._maybe_opt_step(optimizer, record, *args, **kwargs)
        record["stage"] = OptState.STEPPED
        return made

    def _delegated(self, optimizer: Any, record: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An optimizer that does the unscaling itself: through a grad_scaler argument, or grad_scale and found_inf."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn("GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In "
                          "the near future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the "
                          "passed optimizer and let the optimizer use them directly.", FutureWarning, stacklevel=3)
            made = optimizer.step(*args, **kwargs, grad_scaler=self)
            record["stage"] = OptState.STEPPED
            return made
        ready = record["stage"] is OptState.READY
        if ready:
            self._check_inf_per_device(optimizer)
        known = getattr(optimizer, "grad_scale", None)
        optimizer.grad_scale = known if not ready else self._scale * (1 if known is None else known)
        optimizer.found_inf = sum(record["found_inf_per_device"].values())
        made = optimizer.step(*args, **kwargs)
        record["stage"] = OptState.STEPPED
        del optimizer.grad_scale, optimizer.found_inf
        return made

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one, found = (creation.full((), value, dtype=_dtypes.float32, device=scale.device) for value in (1.0, 0.0))
        made = self._unscale_grads_(optimizer, one, found, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = made
        return made

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    # ------------------------------------------------------------------------------------------------------- scale
    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Changes the scale by what the optimizers found since the last call, or to a new one."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set_scale(new_scale)
        else:
            found = [f for record in self._per_optimizer_states.values()
                     for f in record["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            for one in found[1:]:
                found[0] = found[0] + one.to(found[0].device)
            _amp_update_scale_(scale, tracker, found[0].to(scale.device), self._growth_factor, self._backoff_factor,
                               self._growth_interval)
        self._per_optimizer_states = defaultdict(_fresh)

    def _set_scale(self, new_scale: float | Tensor) -> None:
        if isinstance(new_scale, float):
            self._scale.fill_(new_scale)
            return
        if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
            raise AssertionError("new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                                 "torch.FloatTensor with requires_grad=False.")
        self._scale.copy_(new_scale)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The scale, or 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        """The factor after growth_interval good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor after growth_interval good steps."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor after a step with infinite gradients."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor after a step with infinite gradients."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of good steps before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the number of good steps before the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    # ---------------------------------------------------------------------------------------------------- saving
    def state_dict(self) -> dict[str, Any]:
        """The scale and its settings; empty if disabled."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                                     "the end after scaler.update().")
            state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._get_growth_tracker(), _scale=None,
                         _growth_tracker=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
