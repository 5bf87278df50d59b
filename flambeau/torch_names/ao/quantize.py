"""`quantize_dynamic`: a trained model with its linear layers in int8."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

from .. import float16, qint8, quint8
from ..nn.linear import Linear, NonDynamicallyQuantizableLinear
from ..nn.module import Module
from ..nn.rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from . import dynamic
from .observers import (
    PlaceholderObserver,
    default_dynamic_quant_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """How a layer is quantized: what makes the observers of its input and of its weight."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError("QConfig received observer instance, please pass observer class instead. Use "
                             "MyObserver.with_args(x=1) to override arguments to constructor if needed")
        return super().__new__(cls, activation, weight)


default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(PlaceholderObserver.with_args(dtype=float16, is_dynamic=True),
                                  PlaceholderObserver.with_args(dtype=float16))
_RECURRENT = (LSTM, GRU, LSTMCell, GRUCell, RNNCell)
_MAPPING = {Linear: dynamic.Linear, NonDynamicallyQuantizableLinear: dynamic.Linear}


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """Which layer stands for which in a model that is quantized dynamically."""
    return dict(_MAPPING)


def quantize_dynamic(model: Module, qconfig_spec: Any = None, dtype: Any = qint8, mapping: Any = None,
                     inplace: bool = False) -> Module:
    """The model for inference with weights in int8 (qint8) or half precision (float16); inputs are quantized as they come.

    qconfig_spec: a set of classes, or names, of the layers it is for; or a dict from these to QConfigs. Without it, all linear
    layers. Recurrent layers are not implemented: naming them, or a model that has some with no qconfig_spec, is an error.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    Sequential(
      (0): DynamicQuantizedLinear(in_features=4, out_features=3, dtype=torch.qint8, qscheme=torch.per_tensor_affine)
      (1): ReLU()
    )
    """
    configs = _configs(qconfig_spec, dtype)
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    return _swapped(model, "", None, configs, mapping)


def _configs(spec: Any, dtype: Any) -> dict[Any, QConfig]:
    known = {qint8: default_dynamic_qconfig, float16: float16_dynamic_qconfig}
    if isinstance(spec, dict):
        return spec
    if dtype is quint8:
        raise NotImplementedError("quantize_dynamic: quint8, which is for embeddings, is not implemented in flambeau")
    if dtype not in known:
        what = "with default settings for" if spec is None else "dynamically with dtype"
        raise ValueError(f"Don't know how to quantize {what} {dtype}. Provide full qconfig please")
    return dict.fromkeys((Linear, *_RECURRENT) if spec is None else spec, known[dtype])


def _swapped(module: Module, name: str, inherited: Any, configs: dict[Any, QConfig], mapping: dict[Any, Any]) -> Module:
    """The module, or what stands for it. A name's config holds for all below it; a class's, for its instances."""
    config = configs.get(type(module), configs.get(name, inherited))
    if config is not None and type(module) in _RECURRENT:
        raise NotImplementedError(f"quantize_dynamic: {type(module).__name__} ('{name}') is not implemented in flambeau; name "
                                  "the layers to quantize, as in qconfig_spec={torch.nn.Linear}")
    if config is not None and type(module) in mapping:
        module.qconfig = config
        return mapping[type(module)].from_float(module)
    for key, child in list(module._modules.items()):
        if child is not None:
            made = _swapped(child, f"{name}.{key}" if name else key, config, configs, mapping)
            if made is not child:
                module._modules[key] = made
    return module
