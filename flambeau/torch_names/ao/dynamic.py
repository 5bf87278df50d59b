"""Linear layers with integer weights, whose input is quantized as it comes (`torch.ao.nn.quantized.dynamic.Linear`)."""

from __future__ import annotations

from typing import Any

from .. import float16, int64, qint8
from ..autograd.modes import no_grad
from ..creation.factories import tensor, zeros
from ..nn.module import Module
from ..ops.layers.linear import linear
from ..ops.linalg.quantized import Int8Weight, linear_dynamic
from ..quantized_tensors import QuantizedTensor, make, quantize_per_channel, quantize_per_tensor
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor, wrap
from .observers import default_weight_observer


def quantized_weight(weight: Tensor, observer: Any) -> QuantizedTensor:
    """A weight in the integers that an observer finds for it."""
    observer(weight)
    scale, zero_point = observer.calculate_qparams()
    weight = weight.detach().float()
    if scale.numel() == 1 and not hasattr(observer, "ch_axis"):
        return quantize_per_tensor(weight, float(scale), int(zero_point), qint8)
    return quantize_per_channel(weight, scale, zero_point.to(int64), observer.ch_axis, qint8)


class LinearPackedParams(Module):
    """The weight and the bias of a quantized layer, which are one entry of its state dict."""

    def __init__(self, dtype: Any = qint8):
        super().__init__()
        self.dtype = dtype
        if dtype is qint8:
            self.set_weight_bias(make(zeros(1, 1, dtype=_dtypes.int8), qint8, 1.0, 0), None)
        elif dtype is float16:
            self.set_weight_bias(zeros(1, 1), None)
        else:
            raise RuntimeError(f"Unsupported dtype on dynamic quantized linear: {dtype}")

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        """weight: a QuantizedTensor, or floats that are kept in half precision (dtype float16)."""
        quantized = isinstance(weight, QuantizedTensor)
        if quantized is not (self.dtype is qint8):
            raise RuntimeError(f"a layer of dtype {self.dtype} was given a weight of dtype {weight.dtype}")
        held = self.__dict__
        held["_weight"], held["_bias"] = weight if quantized else weight.detach().to(float16), bias
        if not quantized:
            return
        per_channel = weight._axis is not None
        if per_channel and weight._axis != 0:
            raise RuntimeError(f"a weight that is quantized per channel must be so along dimension 0, got {weight._axis}")
        scales = weight._scale if per_channel else tensor([weight._scale], dtype=_dtypes.float64)
        zeros = weight._zero_point if per_channel else tensor([weight._zero_point])
        held["_integers"] = Int8Weight(wrap(weight._array), scales, zeros)

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._weight if self.dtype is qint8 else self._weight.float(), self._bias

    @property
    def _packed_params(self) -> tuple[Any, Any]:
        return self._weight_bias()

    def forward(self, x: Any) -> Any:
        return x

    def apply_to(self, x: Tensor) -> Tensor:
        """The layer's result for x."""
        with no_grad():
            if self.dtype is float16:
                return linear(x, self._weight.float(), self._bias)
            return linear_dynamic(x, self._integers, self._bias)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        names = [prefix + "dtype", prefix + "_packed_params"]
        if all([name in state_dict for name in names]):
            self.dtype = state_dict[names[0]]
            self.set_weight_bias(*state_dict[names[1]])
            state_dict = {k: v for k, v in state_dict.items() if k not in names}
        else:
            missing_keys.extend([name for name in names if name not in state_dict])
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def __deepcopy__(self, memo: Any) -> LinearPackedParams:
        import copy
        made = type(self)(self.dtype)
        made.set_weight_bias(copy.deepcopy(self._weight, memo), copy.deepcopy(self._bias, memo))
        return made

    def __getstate__(self) -> Any:
        return self.dtype, self._weight_bias(), self.training

    def __setstate__(self, state: Any) -> None:
        self.__init__(state[0])
        self.set_weight_bias(*state[1])
        self.training = state[2]

    def __repr__(self) -> str:
        return repr(self._weight_bias())


class Linear(Module):
    """A linear layer whose weight is int8; each input is quantized to 7 bits with the scale that fits it.

    >>> layer = torch.nn.Linear(4, 3)
    >>> torch.ao.nn.quantized.dynamic.Linear.from_float(layer)
    DynamicQuantizedLinear(in_features=4, out_features=3, dtype=torch.qint8, qscheme=torch.per_tensor_affine)
    """

    version = 4

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8):
        super().__init__()
        self.in_features, self.out_features, self.scale, self.zero_point = in_features, out_features, 1.0, 0
        bias = zeros(out_features) if bias_ else None
        self._packed_params = LinearPackedParams(dtype)
        if dtype is qint8:
            self.set_weight_bias(make(zeros(out_features, in_features, dtype=_dtypes.int8), qint8, 1.0, 0), bias)
        else:
            self.set_weight_bias(zeros(out_features, in_features), bias)

    def forward(self, x: Tensor) -> Tensor:
        return self._packed_params.apply_to(x)

    def weight(self) -> Any:
        """The weight: a quantized tensor, or floats."""
        return self._packed_params._weight_bias()[0]

    def bias(self) -> Any:
        return self._packed_params._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        self._packed_params.set_weight_bias(w, b)

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._packed_params._weight_bias()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The layer for a float one, with the weight observer and the dtype of its `qconfig` if it has one."""
        if use_precomputed_fake_quant:
            raise NotImplementedError("dynamic.Linear.from_float: use_precomputed_fake_quant is not implemented in flambeau")
        config = getattr(mod, "qconfig", None)
        observer = default_weight_observer() if config is None or config.weight is None else config.weight()
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, observer.dtype)
        weight = mod.weight.detach().float()
        bias = mod.bias
        if observer.dtype is qint8:
            made.set_weight_bias(quantized_weight(weight, observer), bias)
        else:
            made.set_weight_bias(weight.clamp(-65504.0, 65504.0), bias)
        made.training = mod.training
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"], destination[prefix + "zero_point"] = tensor(self.scale), tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict[prefix + name]))
                state_dict = {k: v for k, v in state_dict.items() if k != prefix + name}
            else:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return text + (f", qscheme={self.weight().qscheme()}" if self._packed_params.dtype is qint8 else "")

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


for _class in (Linear,):
    _class.__module__ = "flambeau.ao.nn.quantized.dynamic"
