"""flambeau: PyTorch's semantics and names, Python all the way down."""

# ruff: noqa: E402  (the collector rests while the package is imported)

from __future__ import annotations

import gc as _gc

_collecting = _gc.isenabled()
_gc.disable()  # an import makes many objects and no garbage: looking for some takes a tenth of its time

import builtins as _builtins
import importlib as _importlib
import math as _math
from typing import Any

__path__.append(__path__[0] + "/torch_names")  # what is there only because PyTorch has the name

# The order matters: operations first, then what is built on them.
# isort: off
from .tensors import dtypes as _dtypes
from . import ops  # noqa: F401
from .creation import factories as _creation
from .creation import legacy as _legacy
from .creation import random as _random
from .tensors import interop as _interop
from . import missing as _missing
from . import settings as _settings
from .tensors import methods as _tensor_methods  # noqa: F401
from .ops import rare as _rare  # noqa: F401
from .autograd import hooks as _hooks  # noqa: F401  (gives Tensor register_hook and retain_grad)
from .autograd import passes as _passes  # noqa: F401  (gives Tensor backward)
from .ops.core import overrides as _overrides
from .ops.core import examples as _examples
from . import compat as _compat  # noqa: F401  (answers `import torch...` where torch means flambeau)
# isort: on
from .autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .ops.core.row import FUNCTIONS as _FUNCTIONS
from .tensors.device import device
from .tensors.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .tensors.formats import *  # noqa: F403
from .tensors.parameter import Parameter as _Parameter  # noqa: F401
from .tensors.shapes import broadcast_shapes as _broadcast_shapes
from .tensors.tensor import Size, Tensor, is_tensor

__version__ = "0.1.0"

_overrides.finish()
globals().update(_missing.missing_functions())
globals().update(_FUNCTIONS)
globals().update(_dtypes.ALIASES)
globals().update({name: getattr(_creation, name) for name in _creation.__all__})
globals().update({name: getattr(_legacy, name) for name in _legacy.__all__})
globals().update({name: getattr(_random, name) for name in _random.__all__})
globals().update({name: getattr(_interop, name) for name in _interop.__all__})
globals().update({name: getattr(_settings, name) for name in _settings.__all__})

inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
newaxis = None
legacy_contiguous_format = contiguous_format  # noqa: F405
PRIVATE_OPS = ("unique_dim",)

# Imported when first asked for: what a program does not use costs nothing at start.
_LAZY = frozenset("""
    autograd linalg fft special nn optim utils testing overrides return_types random signal masked types serialization
    compiler amp cuda backends distributions func jit sparse version multiprocessing _C _tensor_str storage viz profiler
    hub quasirandom distributed onnx package quantization ao export fx library monitor accelerator cpu futures nested mps xpu
    _dynamo _inductor __future__ torch_version _VF functional _tensor _utils mtia __config__ array_api""".split())
# Where single names live, module by module.
_HOMES = {
    "autograd.anomaly": "is_anomaly_enabled is_anomaly_check_nan_enabled set_anomaly_enabled",
    "tensors.printing": "set_printoptions get_printoptions",
    "tensors.storage": "UntypedStorage TypedStorage FloatStorage DoubleStorage HalfStorage BFloat16Storage "
               "LongStorage IntStorage ShortStorage CharStorage ByteStorage BoolStorage Storage "
               "ComplexFloatStorage ComplexDoubleStorage StorageBase from_file",
    "serialization": "save load",
    "compiler": "compile",
    "_compile": "_disable_dynamo",
    "func.batching": "vmap",
    "func.control_flow": "cond while_loop",
    "jit": "fork wait ScriptFunction ScriptModule CompilationUnit",
    "serialization.file_reader": "PyTorchFileReader",
    "_C": "AnyType AwaitType BoolType ClassType ComplexType DeviceObjType DictType EnumType FloatType FutureType IntType "
          "InterfaceType ListType NoneType NumberType OptionalType PyObjectType RRefType StreamObjType StringType SymBoolType "
          "SymIntType TensorType TupleType Type UnionType ScriptObject",
    "checks": "_assert _check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_type _check_value "
              "_check_with _check_tensor_all_with _assert_async _assert_scalar _assert_tensor_metadata "
              "_functional_assert_async",
    "futures": "Future",
    "ops.dispatch.overloads": "Tag",
    "streams": "Stream Event",
    "ops.core.overrides": "DisableTorchFunction DisableTorchFunctionSubclass",
    "losses_by_number":
        "binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity hinge_embedding_loss "
        "kl_div margin_ranking_loss pairwise_distance pdist poisson_nll_loss "
        "segment_reduce _segment_reduce triplet_margin_loss",
    "ops.layers.losses": "ctc_loss",
    "ops.lists.scaling": "_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_",
    "ops.linalg.grouped": "_grouped_mm",
    "ops.linalg.quantized": "_weight_int8pack_mm _convert_weight_to_int4pack_for_cpu _weight_int4pack_mm_for_cpu",
    "quantized_tensors": "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic fake_quantize_per_tensor_affine "
                         "fake_quantize_per_channel_affine _make_per_tensor_quantized_tensor "
                         "_make_per_channel_quantized_tensor",
    "ops.layers.rnn": "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell",
    "amp": "autocast GradScaler",
    "amp.autocast_mode": "is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype "
                         "is_autocast_cpu_enabled set_autocast_cpu_enabled get_autocast_cpu_dtype "
                         "set_autocast_cpu_dtype get_autocast_gpu_dtype set_autocast_gpu_dtype "
                         "is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache "
                         "autocast_increment_nesting autocast_decrement_nesting",
    "ops.layers.layer_functions":
        "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution "
        "max_pool1d max_pool1d_with_indices max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d "
        "adaptive_max_pool1d batch_norm native_batch_norm instance_norm layer_norm native_layer_norm "
        "batch_norm_update_stats group_norm native_group_norm rms_norm pixel_shuffle pixel_unshuffle "
        "channel_shuffle native_channel_shuffle grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator",
}
_ELSEWHERE = {name: home for home, names in _HOMES.items() for name in names.split()}


class MissingName(AttributeError, NotImplementedError):
    """A name of PyTorch's that flambeau does not have. (An AttributeError, so that hasattr says no.)

    >>> try:
    ...     torch.no_such_name
    ... except AttributeError as error:
    ...     print(type(error).__name__)
    MissingName
    """


def __getattr__(name: str) -> Any:
    if name == "torch":  # PyTorch is found inside itself, too
        return _importlib.import_module(__package__)
    if name in _FUNCTIONS:  # an operation that was defined later
        return _FUNCTIONS[name]
    home = "ops.lists.foreach" if name.startswith("_foreach_") else _ELSEWHERE.get(name)
    if home is None and name not in _LAZY and not (name.startswith("_") and _is_internal(name)):
        raise MissingName(f"module 'flambeau' has no attribute '{name}' (if PyTorch has one: it is not implemented)")
    try:
        value = _importlib.import_module(f".{home or name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{home or name}":
            raise
        raise MissingName(f"module 'flambeau' has no attribute '{name}': this part is not implemented") from None
    if home is not None:
        if not hasattr(value, name):
            raise MissingName(f"module 'flambeau' has no attribute '{name}': not implemented in flambeau.{home}")
        value = getattr(value, name)
        _examples.attach_to(name, value)
    globals()[name] = value
    return value


def _is_internal(name: str) -> bool:
    """Whether PyTorch has a private module of that name."""
    from .internals import HOMES
    return name in HOMES


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_ELSEWHERE})


def typename(obj: Any) -> str:
    """The dotted name of an object's type, as PyTorch's tools print it."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)  # classes and functions are named themselves
    module = getattr(named, "__module__", None)
    return f"{module}.{named.__qualname__}" if module and module != "builtins" else named.__qualname__


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of the given ones broadcast to."""
    for shape in shapes:
        if not isinstance(shape, (_builtins.int, tuple, list)):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}")
    return Size(_broadcast_shapes(*shapes))


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The functions of the array API standard for tensors (flambeau/array_api), as SciPy and scikit-learn ask for them."""
    from . import array_api
    return array_api.namespace(api_version)


Tensor.__array_namespace__ = _array_namespace

_examples.attach(globals())
for _public in (Tensor, Size, device, dtype, finfo, iinfo, _random.Generator):
    _public.__module__ = __name__  # where a user finds it, and how it prints

__all__ = ["Tensor", "Size", "is_tensor", "device", "dtype", "finfo", "iinfo", "can_cast", "promote_types",
           "get_default_dtype", "set_default_dtype", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode",
           "is_grad_enabled", "is_inference_mode_enabled", "broadcast_shapes", "typename", "inf", "nan", "pi", "e",
           "newaxis", *_FUNCTIONS, *_creation.__all__, *_legacy.__all__, *_random.__all__, *_interop.__all__,
           *_settings.__all__]

if _collecting:
    if not _gc.get_freeze_count():  # all that is there counts as old: the collector would start by going through it
        _gc.freeze()
        _gc.unfreeze()
    _gc.enable()
