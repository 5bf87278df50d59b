"""`torch.ao`: quantization and pruning of models.

What is there: `quantize_dynamic` with its layer and configurations (quantize.py, dynamic.py), and observers (observers.py). All
other names can be imported, and refuse to be used.
"""

from __future__ import annotations

import sys

from ..missing import refused_modules

_REASON = "this part of quantization is not implemented"
_LAYERS = """Linear Conv1d Conv2d Conv3d ReLU6 BatchNorm2d Embedding EmbeddingBag LSTM LSTMCell GRU GRUCell FloatFunctional
    FXFloatFunctional QFunctional Quantize DeQuantize LeakyReLU Sigmoid Softmax Hardswish InstanceNorm2d LayerNorm GroupNorm"""
_FUSED = """ConvReLU1d ConvReLU2d ConvReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d LinearReLU
    LinearBn1d BNReLU2d BNReLU3d"""
_QUANTIZATION = """ABC QuantStub DeQuantStub QuantWrapper QConfig QConfigMapping FakeQuantize FakeQuantizeBase
    FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize HistogramObserver MinMaxObserver MovingAverageMinMaxObserver
    MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver
    RecordingObserver add_quant_dequant convert convert_dynamic_jit default_dynamic_qconfig default_fake_quant
    default_observer default_per_channel_qconfig default_qat_qconfig default_qconfig default_weight_observer
    disable_fake_quant disable_observer enable_fake_quant enable_observer float16_dynamic_qconfig fuse_modules
    fuse_modules_qat get_default_qat_qconfig get_default_qconfig get_default_qconfig_mapping get_default_qat_qconfig_mapping
    get_observer_state_dict load_observer_state_dict per_channel_dynamic_qconfig prepare prepare_qat propagate_qconfig_
    default_dynamic_qat_qconfig default_dynamic_quant_observer default_embedding_qat_qconfig QuantType
    default_symmetric_qnnpack_qat_qconfig float_qparams_weight_only_qconfig default_weight_fake_quant
    quantize quantize_dynamic quantize_dynamic_jit quantize_jit quantize_qat script_qconfig swap_module"""
refused_modules(__name__, _REASON, {
    "quantization": _QUANTIZATION,
    "quantization.quantize_fx": "prepare_fx prepare_qat_fx convert_fx convert_to_reference_fx fuse_fx",
    "quantization.observer": _QUANTIZATION,
    "quantization.fake_quantize": _QUANTIZATION,
    "quantization.qconfig": _QUANTIZATION,
    "quantization.qconfig_mapping": _QUANTIZATION,
    "quantization.quantize": _QUANTIZATION,
    "quantization.stubs": _QUANTIZATION,
    "quantization.fuse_modules": _QUANTIZATION,
    "nn": "",
    "nn.quantized": _LAYERS + " MaxPool2d",
    "nn.quantized.dynamic": _LAYERS,
    "nn.quantized.modules": _LAYERS,
    "nn.quantized.functional": "linear conv1d conv2d conv3d",
    "nn.quantizable": "LSTM LSTMCell MultiheadAttention",
    "nn.quantizable.modules": "LSTM LSTMCell MultiheadAttention",
    "nn.qat": "Linear Conv1d Conv2d Conv3d Embedding EmbeddingBag",
    "nn.qat.modules": "Linear Conv1d Conv2d Conv3d Embedding EmbeddingBag",
    "nn.intrinsic": _FUSED + " _FusedModule",
    "nn.intrinsic.qat": _FUSED,
    "nn.intrinsic.quantized": _FUSED,
    "nn.intrinsic.quantized.dynamic": _FUSED,
    "pruning": "BaseSparsifier WeightNormSparsifier NearlyDiagonalSparsifier BaseScheduler LambdaSL CubicSL FakeSparsity "
               "fqn_to_module module_to_fqn get_dynamic_sparse_quantized_mapping get_static_sparse_quantized_mapping",
    "quantization.quantization_mappings": "get_default_dynamic_quant_module_mappings get_default_qconfig_propagation_list "
                                          "get_default_qat_module_mappings get_default_static_quant_module_mappings",
    "ns": "",
    "ns.fx": "",
    "ns.fx.ns_types": "NSSingleResultValuesType NSSubgraph",
    "ns._numeric_suite": "compare_weights compare_model_outputs compare_model_stub",
})


def _complete() -> None:
    """Puts what there is in the place of what refuses."""
    from . import dynamic, observers, quantize
    quantization = vars(observers) | vars(quantize)
    known = sys.modules[f"{__name__}.quantization"].__dict__
    wanted = [name for name in quantization if (name[:2] != "__" and name in known) or name in _MORE.split()]
    for inner in ("", ".observer", ".qconfig", ".quantize", ".quantization_mappings"):
        module = sys.modules[f"{__name__}.quantization{inner}"]
        module.__dict__.update({name: quantization[name] for name in wanted if not inner or name in module.__dict__ or (
            inner == ".observer" and name in vars(observers))})
    for inner in ("dynamic", "dynamic.modules", "dynamic.modules.linear"):
        module = sys.modules.get(f"{__name__}.nn.quantized.{inner}")
        if module is not None:
            module.Linear = dynamic.Linear


_MORE = """default_per_channel_weight_observer default_placeholder_observer UniformQuantizationObserverBase
    get_default_dynamic_quant_module_mappings"""
_complete()
