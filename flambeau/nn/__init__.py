"""Neural networks: modules, containers, layers, losses, and what initialises and changes them.

Only Module, the containers and the parameters are imported at once. The layers' files are imported when one of their
names is first asked for, so that `import flambeau.nn` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..complete import show_complete
from .containers import Container, Identity, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .module import Module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

# file -> the public names it defines
_LAYERS = {
    "linear": "Linear Bilinear LazyLinear NonDynamicallyQuantizableLinear",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
            "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    "norm": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d "
            "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d "
            "LayerNorm GroupNorm RMSNorm LocalResponseNorm CrossMapLRN2d",
    "pooling": "MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d AvgPool2d AvgPool3d "
               "FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
               "AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "activation": "Threshold ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU CELU SELU GLU "
                  "GELU Hardshrink LeakyReLU LogSigmoid Softplus Softshrink PReLU Softsign Tanhshrink Softmin Softmax "
                  "Softmax2d LogSoftmax",
    "attention_layer": "MultiheadAttention",
    "loss": "L1Loss NLLLoss NLLLoss2d PoissonNLLLoss GaussianNLLLoss KLDivLoss MSELoss BCELoss BCEWithLogitsLoss "
            "HingeEmbeddingLoss MultiLabelMarginLoss SmoothL1Loss HuberLoss SoftMarginLoss CrossEntropyLoss "
            "MultiLabelSoftMarginLoss CosineEmbeddingLoss MarginRankingLoss MultiMarginLoss TripletMarginLoss "
            "TripletMarginWithDistanceLoss CTCLoss LinearCrossEntropyLoss LinearCrossEntropyOptions",
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "rnn": "RNNBase RNN LSTM GRU RNNCellBase RNNCell LSTMCell GRUCell",
    "transformer": "TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer Transformer",
    "embedding": "Embedding EmbeddingBag",
    "dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "padding": "ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d "
               "ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d CircularPad1d "
               "CircularPad2d CircularPad3d",
    "upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    "shuffle": "PixelShuffle PixelUnshuffle ChannelShuffle",
    "distance": "PairwiseDistance CosineSimilarity",
    "fold": "Fold Unfold",
    "flatten": "Flatten Unflatten",
    "parallel": "DataParallel",
}
_WHERE = {name: file for file, names in _LAYERS.items() for name in names.split()}
_SUBMODULES = ("functional", "init", "utils", "modules", "parameter", "attention", "grad", "common_types",
               "_reduction", "lazy", *_LAYERS, "quantized", "quantizable", "qat", "intrinsic")

__all__ = ["Module", "Container", "Identity", "Sequential", "ModuleList", "ModuleDict", "ParameterList",
           "ParameterDict", "Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "factory_kwargs", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'flambeau.nn' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *(n for n in globals() if n.startswith("__"))})


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The device, dtype and memory_format among a layer's keyword arguments, as creation functions take them.

    They can also be given as one dictionary, `factory_kwargs={"device": ...}`.

    >>> nn.factory_kwargs({"dtype": torch.float64})
    {'dtype': torch.float64}
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    if not kwargs.keys() <= simple | {"factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {kwargs.keys() - (simple | {'factory_kwargs'})}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in simple & kwargs.keys():
        if name in made:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        made[name] = kwargs[name]
    return made


show_complete(__name__)
