"""Products with weights of few bits: int8 and int4 weights, and layers that quantize their input as it comes."""

from __future__ import annotations

from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from ..core.row import Row, public
from ..pointwise.arithmetic import refuse
from ..rules import products

_FLOATS = (_dtypes.float32, _dtypes.bfloat16, _dtypes.float16)
_GROUPS = (32, 64, 128, 256)
_eight = Row("weight_int8pack_mm", "self mat2 scales", shape=products.by_few_bits, node="NotImplemented",
             backward=dict(self=refuse("_weight_int8pack_mm"), scales=refuse("_weight_int8pack_mm")))
_four = Row("weight_int4pack_mm", "self mat2 group scales", shape=products.by_few_bits, node="NotImplemented",
            backward=dict(self=refuse("_weight_int4pack_mm_for_cpu"), scales=refuse("_weight_int4pack_mm_for_cpu")))
_pack = Row("int4_packed", "self", shape=products.nibbles)
_dynamic = Row("linear_dynamic", "self weight sizes scales zero_points bias reduce_range", shape=products.by_few_bits)


def _check_input(name: str, input: Tensor, of: str) -> None:
    if input.dtype not in _FLOATS:
        raise RuntimeError(f"{name} : expect {of} to be either 32-bit or 16-bit float tensor.")
    if input.ndim != 2:
        raise RuntimeError(f"{name} : expect {of} to be 2D tensor.")
    if input.stride(1) != 1 and input.shape[1] > 1:
        raise RuntimeError(f"{name} : {of} must be contiguous on the last dimension.")


@public(name="_weight_int8pack_mm", method=False, toplevel=False, out=False)
def _weight_int8pack_mm(input: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """input @ (mat2 * scales[:, None]).T for a weight mat2 (N, K) of int8 with a scale per row, without making it float.

    >>> weight = torch.tensor([[1, -2], [4, 0]], dtype=torch.int8)
    >>> torch._weight_int8pack_mm(torch.ones(1, 2), weight, torch.tensor([0.5, 0.25]))
    tensor([[-0.5000,  1.0000]])
    """
    name = "_weight_int8pack_mm_cpu"
    _check_input(name, input, "A")
    if mat2.dtype is not _dtypes.int8:
        raise RuntimeError(f"{name} : expect B to be int8 tensor.")
    if not mat2.is_contiguous():
        raise RuntimeError(f"{name} : expect B to be contiguous.")
    if mat2.ndim != 2 or mat2.shape[1] != input.shape[1]:
        raise RuntimeError(f"{name} : expect B.size(1) == {input.shape[1]}, got a weight of {list(mat2.shape)}")
    if scales.ndim != 1 or scales.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"{name} : expect scales to be 1d tensor with size {mat2.shape[0]}, got {list(scales.shape)}")
    _same(input, scales)
    return _eight(input, mat2, scales)


def _same(input: Tensor, scales: Tensor) -> None:
    if scales.dtype is not input.dtype:
        raise RuntimeError(f"expected scalar type {input.dtype.word} but found {scales.dtype.word}: scales have the dtype "
                           "of the input")


@public(name="_convert_weight_to_int4pack_for_cpu", method=False, toplevel=False, out=False)
def _convert_weight_to_int4pack_for_cpu(input: Tensor, innerKTiles: int) -> Tensor:
    """A weight (N, K) of numbers 0 to 15 in int32 as bytes (N, K / 2), for `_weight_int4pack_mm_for_cpu`.

    The order of the bytes is flambeau's own (in PyTorch it depends on the processor): pack a weight where it is used.

    >>> torch._convert_weight_to_int4pack_for_cpu(torch.ones(16, 32, dtype=torch.int32), 1).shape
    torch.Size([16, 16])
    """
    name = "_convert_weight_to_int4pack_cpu"
    if input.ndim != 2:
        raise RuntimeError(f"{name} : expect weight to be 2D tensor.")
    if input.dtype is not _dtypes.int32:
        raise RuntimeError(f"{name} : expect weight to be kInt.")
    if input.shape[0] % 16:
        raise RuntimeError(f"{name} : expect N to be dividable by 16, got {input.shape[0]}")
    if input.shape[1] % 2:
        raise RuntimeError(f"_convert_weight_to_int4pack: expect K to be dividable by 2, got {input.shape[1]}")
    return _pack(input)


@public(name="_weight_int4pack_mm_for_cpu", method=False, toplevel=False, out=False)
def _weight_int4pack_mm_for_cpu(input: Tensor, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor) -> Tensor:
    """input @ w.T for a packed 4-bit weight: w = (q - 8) * scale + zero, with qScaleAndZeros (K / qGroupSize, N, 2).

    >>> packed = torch._convert_weight_to_int4pack_for_cpu(torch.full((16, 32), 9, dtype=torch.int32), 1)
    >>> torch._weight_int4pack_mm_for_cpu(torch.ones(1, 32), packed, 32, torch.ones(1, 16, 2))[0, :2]
    tensor([64., 64.])
    """
    name = "_weight_int4pack_mm_cpu"
    _check_input(name, input, "A")
    if mat2.dtype is not _dtypes.uint8:
        raise RuntimeError(f"{name} : expect B to be uint8 tensor.")
    if not mat2.is_contiguous():
        raise RuntimeError(f"{name} : expect B to be contiguous.")
    if mat2.ndim != 2 or mat2.shape[1] * 2 != input.shape[1]:
        raise RuntimeError(f"{name} : expect B.size(1) to be K / 2 = {input.shape[1] // 2}, got a weight of {list(mat2.shape)}")
    if qGroupSize not in _GROUPS:
        raise RuntimeError(f"{name}: expect qGroupSize to be 32, 64, 128 or 256, got {qGroupSize}")
    groups = -(-input.shape[1] // qGroupSize)
    if qScaleAndZeros.ndim != 3 or qScaleAndZeros.shape[0] < groups or tuple(qScaleAndZeros.shape[1:]) != (mat2.shape[0], 2):
        raise RuntimeError(f"{name}: expect qScaleAndZeros to be 3d tensor with sizes [:, {mat2.shape[0]}, 2] and {groups} "
                           f"groups, got {list(qScaleAndZeros.shape)}")
    _same(input, qScaleAndZeros)
    return _four(input, mat2, qGroupSize, qScaleAndZeros)


class Int8Weight:
    """The integers of a weight (N, K) with what a product with them takes, found once: scales and zero points of the rows."""

    def __init__(self, integers: Tensor, scales: Tensor, zero_points: Tensor):
        count = integers.shape[0]
        self.integers, self.sizes = integers.contiguous(), integers.sum(1).to(_dtypes.int32)
        self.scales = scales.to(_dtypes.float32).expand(count).contiguous()
        self.zeros = zero_points.to(_dtypes.int32).expand(count).contiguous() if bool(zero_points.any()) else None


def linear_dynamic(input: Tensor, weight: Int8Weight, bias: Tensor | None, reduce_range: bool = True) -> Tensor:
    """input @ w.T + bias, for w = (integers - zeros) * scales; the input is quantized with a scale that fits it."""
    if input.ndim < 2:
        raise RuntimeError("The dimension of input tensor should be larger than or equal to 2")
    if input.dtype is not _dtypes.float32:
        raise RuntimeError(f"expected scalar type Float but found {input.dtype.word}")
    if input.shape[-1] != weight.integers.shape[1]:
        raise RuntimeError(f"The number of rows in the packB should be equal to K: {input.shape[-1]}, but the weight has "
                           f"{weight.integers.shape[1]} input features")
    return _dynamic(input, weight.integers, weight.sizes, weight.scales, weight.zeros, bias, reduce_range)

