"""Names of PyTorch's that flambeau does not have, each with the reason it gives when called."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from .tensors.dtypes import dtype
from .tensors.tensor import Tensor

_SPARSE = "sparse tensors are not implemented"
_QUANTIZED = "this operation on quantized tensors is not implemented"
_NAMED = "named dimensions are not implemented"
_METHODS = {
    _SPARSE: "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce is_coalesced indices "
             "values crow_indices col_indices ccol_indices row_indices sparse_dim dense_dim sparse_mask "
             "_nnz _indices _values",
    _NAMED: "rename rename_ refine_names align_to align_as",
    "the tensor is not nested": "to_padded_tensor",
    "no such device": "xpu ipu mtia to_mkldnn",
    "it was removed from PyTorch too": "reinforce",
    "it is an internal function of PyTorch's": """index slice_inverse _lazy_clone _nested_tensor_size _nested_tensor_strides
        _nested_tensor_storage_offsets _philox_normal_ _philox_uniform_ _addmm_activation _sparse_mask_projection _to_dense
        _coalesced_ _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _autocast_to_reduced_precision
        _autocast_to_full_precision""",
}
FUNCTIONS = {
    _SPARSE: "indices_copy values_copy crow_indices_copy col_indices_copy ccol_indices_copy row_indices_copy",
    _QUANTIZED: "empty_quantized choose_qparams_optimized fused_moving_avg_obs_fake_quant "
                "quantized_batch_norm quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell "
                "quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell "
                "quantized_rnn_tanh_cell _empty_affine_quantized _empty_per_channel_affine_quantized",
    _NAMED: "align_tensors",
    "kernels of other libraries (cuDNN, MIOpen, oneDNN, FBGEMM) are not part of it":
        "cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu "
        "cudnn_convolution_transpose cudnn_grid_sampler miopen_batch_norm miopen_convolution miopen_convolution_add_relu "
        "miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn "
        "mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d "
        "mkldnn_rnn_layer fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
        "fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 "
        "fbgemm_pack_quantized_matrix",
    "batch norm over several processes is not implemented":
        "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
        "batch_norm_gather_stats_with_counts batch_norm_stats",
    "TorchScript is not implemented": "import_ir_module import_ir_module_from_buffer parse_ir parse_schema "
                                      "parse_type_comment merge_type_from_type_comment unify_type_list",
    "it is an internal function of PyTorch's": "slice_inverse native_norm _rowwise_prune _fused_rms_norm",
    "products of 8-bit and 4-bit matrices are not implemented": "_scaled_mm _scaled_mm_v2 _scaled_grouped_mm "
                                                                "_scaled_grouped_mm_v2 _weight_int4pack_mm",
    "programs with symbolic sizes are not implemented": "sym_constrain_range sym_constrain_range_for_size sym_fresh_size",
}


def refusal(name: str, reason: str) -> Any:
    """A function that raises NotImplementedError with its reason."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: {reason} in flambeau")

    function.__name__, function.__doc__ = name, f"Not available: {reason}."
    return function


def refused(space: str, reason: str, names: str) -> dict[str, Any]:
    """Names that can be imported and derived from; calling one, or making an object, raises NotImplementedError."""
    def one(name: str) -> type:
        def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{space}.{name}: {reason} in flambeau")

        return type(name, (), {"__new__": refuse, "__module__": f"flambeau.{space}", "__doc__": f"Not available: {reason}."})

    return {name: one(name) for name in names.split()}


def refused_modules(package: str, reason: str, table: dict[str, str]) -> dict[str, Any]:
    """Modules below a package that can be imported and whose names refuse to be used: submodule -> names."""
    made = {}
    for inner, names in table.items():
        module = made[inner] = ModuleType(f"{package}.{inner}", f"Not available: {reason}.")
        module.__path__ = []  # modules below it are found by name alone
        module.__all__ = [name for name in names.split() if not name.startswith("_")]
        module.__dict__.update(refused(module.__name__.removeprefix("flambeau."), reason, names))
        sys.modules[module.__name__] = module
        parent, _, name = module.__name__.rpartition(".")
        setattr(sys.modules[parent], name, module)
    return made


def missing_functions() -> dict[str, Any]:
    """All that the top level refuses: functions, dtypes and quantization schemes."""
    functions = {name: refusal(name, reason) for reason, names in FUNCTIONS.items() for name in names.split()}
    return {**functions, **{name: MissingDtype(name) for name in _DTYPES.split()},
            "qscheme": qscheme, **{name: qscheme(name) for name in _SCHEMES.split()}}


_DTYPES = """bit bits16 bits1x8 bits2x4 bits4x2 bits8 float4_e2m1fn_x2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 qint32 qint8 quint2x4 quint4x2
    quint8"""
_SCHEMES = """per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine
    per_tensor_symmetric"""


_LIMITS = {"float8_e4m3fnuz": (-240.0, 240.0, 2.0**-3, 2.0**-7), "float8_e5m2fnuz": (-57344.0, 57344.0, 2.0**-3, 2.0**-15),
           "float8_e8m0fnu": (2.0**-127, 2.0**127, 1.0, 2.0**-127)}  # the least, the greatest, eps, the least normal number


class MissingDtype(dtype):
    """A dtype of PyTorch's that can be named and compared here, but that no tensor can have."""

    __slots__ = ()

    def __init__(self, name: str):
        self.name = name
        self.category, self.rank, self.itemsize, self.letter = 0, 0, 1, ""
        self.is_floating_point, self.is_complex = name.startswith("float"), name.startswith("complex")
        self.is_signed = not name.startswith(("uint", "quint", "bit"))

    @property
    def native(self) -> Any:
        raise NotImplementedError(f"flambeau has no tensors of dtype torch.{self.name}")

    def limits(self) -> Any:
        """Facts of formats that are known though no tensor has them."""
        least, most, eps, tiny = _LIMITS[self.name]
        return SimpleNamespace(min=least, max=most, eps=eps, tiny=tiny, smallest_normal=tiny)

    def __reduce__(self) -> Any:
        return _missing_dtype, (self.name,)


def _missing_dtype(name: str) -> Any:
    return getattr(sys.modules[__package__], name)


class qscheme:
    """The name of a way to quantize.

    >>> torch.per_tensor_affine
    torch.per_tensor_affine
    """

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """A strided tensor is dense already.

    >>> torch.eye(2).to_sparse().to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    return self if dtype is None else self.to(dtype)


Tensor.to_dense = to_dense
for _reason, _names in _METHODS.items():
    for _name in _names.split():
        if not hasattr(Tensor, _name):
            setattr(Tensor, _name, refusal(f"Tensor.{_name}", _reason))
