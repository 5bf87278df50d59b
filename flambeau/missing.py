"""Names of PyTorch's that flambeau does not have, each with the reason it gives when called."""

from __future__ import annotations

from typing import Any

from .tensor import Tensor

_SPARSE = "sparse tensors are not implemented"
_QUANTIZED = "quantized tensors are not implemented"
_NAMED = "named dimensions are not implemented"
_METHODS = {
    _SPARSE: "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce is_coalesced "
             "indices "
             "values crow_indices col_indices ccol_indices row_indices sparse_dim dense_dim sparse_mask sparse_resize_ "
             "sparse_resize_and_clear_ resize_as_sparse_ smm sspaddmm _nnz _indices _values",
    _QUANTIZED: "dequantize int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points "
                "q_per_channel_axis "
                "qscheme",
    _NAMED: "rename rename_ refine_names align_to align_as",
    "nested tensors are not implemented": "to_padded_tensor",
    "no such device": "xpu ipu mtia record_stream to_mkldnn",
    "it was removed from PyTorch too": "reinforce",
}
FUNCTIONS = {
    _SPARSE: "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor "
             "sparse_compressed_tensor smm spmm hspmm sspaddmm saddmm dsmm hsmm",
    _QUANTIZED: "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize int_repr q_scale "
                "q_zero_point "
                "q_per_channel_scales q_per_channel_zero_points q_per_channel_axis fake_quantize_per_tensor_affine "
                "fake_quantize_per_channel_affine empty_quantized",
}


def refusal(name: str, reason: str) -> Any:
    """A function that raises NotImplementedError with its reason."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: {reason} in flambeau")

    function.__name__, function.__doc__ = name, f"Not available: {reason}."
    return function


def missing_functions() -> dict[str, Any]:
    return {name: refusal(name, reason) for reason, names in FUNCTIONS.items() for name in names.split()}


def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """A strided tensor is dense already."""
    return self if dtype is None else self.to(dtype)


Tensor.to_dense = to_dense
for _reason, _names in _METHODS.items():
    for _name in _names.split():
        if not hasattr(Tensor, _name):
            setattr(Tensor, _name, refusal(f"Tensor.{_name}", _reason))
