"""Compressed tensors from lists that are given, and what must be true of these."""

from __future__ import annotations

from typing import Any

from ..tensors import formats
from ..tensors.tensor import Tensor
from .compressed import _NAMES, LAYOUTS, CompressedTensor, make


def _as_indices(value: Any) -> Tensor:
    from ..creation.factories import as_tensor
    from ..tensors.dtypes import int32, int64
    t = as_tensor(value)
    return t.detach() if t.dtype in (int32, int64) else t.to(int64)


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                             layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                             check_invariants: bool | None = None) -> CompressedTensor:
    """A tensor in a compressed layout from its lists; without a size the smallest that holds them."""
    from ..creation.factories import tensor
    if layout not in _NAMES:
        raise RuntimeError(f"sparse_compressed_tensor: expected a sparse compressed layout (sparse_csr, sparse_csc, "
                           f"sparse_bsr, sparse_bsc), got {layout}")
    compressed, plain = _as_indices(compressed_indices), _as_indices(plain_indices)
    v = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    v = v if dtype is None else v.to(dtype)
    name = _NAMES[layout]
    size = _estimated(name, compressed, plain, v) if size is None else tuple(int(n) for n in size)
    from . import check_sparse_tensor_invariants
    _check_shapes(name, compressed, plain, v, size)
    if check_invariants or (check_invariants is None and check_sparse_tensor_invariants.is_enabled()):
        _check_numbers(name, compressed, plain, v, size)
    if requires_grad:
        v = v.detach().requires_grad_()
    return make(layout, compressed, plain, v, size)


def _block(name: str, plain: Tensor, values: Tensor) -> tuple[int, int]:
    return tuple(values.shape[plain.ndim:plain.ndim + 2]) if name.startswith("b") else (1, 1)


def _estimated(name: str, compressed: Tensor, plain: Tensor, values: Tensor) -> tuple[int, ...]:
    high, wide = _block(name, plain, values)
    lines, others = compressed.shape[-1] - 1, int(plain.max()) + 1 if plain.numel() else 0
    down, across = (lines, others) if name.endswith("r") else (others, lines)
    inner = values.shape[plain.ndim + 2 * name.startswith("b"):]
    return (*compressed.shape[:-1], down * high, across * wide, *inner)


def _words(name: str) -> tuple[str, str]:
    return ("crow_indices", "col_indices") if name.endswith("r") else ("ccol_indices", "row_indices")


def _check_shapes(name: str, compressed: Tensor, plain: Tensor, values: Tensor, size: tuple[int, ...]) -> None:
    first, second = _words(name)
    blocks = 2 * name.startswith("b")
    if compressed.ndim < 1 or plain.ndim != compressed.ndim:
        raise RuntimeError(f"{first} and {second} dimensionalities must be equal and positive but got {compressed.ndim} and "
                           f"{plain.ndim}, respectively")
    batch, inner = compressed.ndim - 1, values.ndim - plain.ndim - blocks
    if inner < 0:
        raise RuntimeError(f"values must have dimensionality > sum of batch and block dimensionalities (={batch} + {blocks}) "
                           f"but got {values.ndim}")
    if len(size) != batch + 2 + inner:
        raise RuntimeError(f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + "
                           f"{inner}) but got {len(size)}")
    high, wide = _block(name, plain, values)
    if high and wide and (size[batch] % high or size[batch + 1] % wide):
        raise RuntimeError(f"tensor shape must be divisible by the blocksize {[high, wide]}, got {list(size)}")
    for what, t in ((first, compressed), (second, plain), ("values", values)):
        if tuple(t.shape[:batch]) != size[:batch]:
            raise RuntimeError(f"all batch dimensions of {what} (={list(t.shape[:batch])}) must be equal to those of the "
                               f"tensor (={list(size[:batch])})")
    if values.shape[batch] != plain.shape[-1]:
        raise RuntimeError(f"number of specified elements must be the same in {second} (={plain.shape[-1]}) and values "
                           f"(={values.shape[batch]})")
    if compressed.dtype is not plain.dtype:
        raise RuntimeError(f"{first} and {second} dtype must be same but got {compressed.dtype} and {plain.dtype}")


def _check_numbers(name: str, compressed: Tensor, plain: Tensor, values: Tensor, size: tuple[int, ...]) -> None:
    first, second = _words(name)
    batch, (high, wide) = compressed.ndim - 1, _block(name, plain, values)
    down, across = size[batch] // max(high, 1), size[batch + 1] // max(wide, 1)
    lines, others = (down, across) if name.endswith("r") else (across, down)
    if compressed.shape[-1] != lines + 1:
        raise RuntimeError(f"{first}.shape[-1] must be equal to the number of {'rows' if name.endswith('r') else 'columns'} + "
                           f"1 (={lines + 1}), but got {compressed.shape[-1]}")
    if bool((compressed[..., 0] != 0).any()):
        raise RuntimeError(f"`{first}[..., 0] == 0` is not satisfied.")
    if bool((compressed[..., -1] != plain.shape[-1]).any()):
        raise RuntimeError(f"`{first}[..., -1] == nnz` is not satisfied.")
    steps = compressed.diff(dim=-1)
    if bool(((steps < 0) | (steps > others)).any()):
        raise RuntimeError(f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {'ncols' if name.endswith('r') else 'nrows'}` is "
                           "not satisfied.")
    if plain.numel() and (int(plain.min()) < 0 or int(plain.max()) >= others):
        raise RuntimeError(f"`0 <= {second} < {'ncols' if name.endswith('r') else 'nrows'}` is not satisfied.")
    flat = make(LAYOUTS[name], compressed, plain, values, size)._places()
    line = flat[1] if name.endswith("r") else flat[2]
    same = (line.diff() == 0) & (flat[0].diff() == 0)
    if bool((same & (plain.reshape(-1).diff() <= 0)).any()):
        raise RuntimeError(f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., "
                           f"{'nrows' if name.endswith('r') else 'ncols'} are sorted and distinct along the last dimension "
                           "values` is not satisfied.")


def _of_layout(name: str, compressed: str, plain: str) -> Any:
    def construct(*lists: Any, size: Any = None, **options: Any) -> CompressedTensor:
        names = (compressed, plain, "values", "size")
        given = {**dict(zip(names, lists)), **{k: options.pop(k) for k in names if k in options}}
        if size is not None:
            given["size"] = size
        if missing := [n for n in names[:3] if n not in given]:
            raise TypeError(f"sparse_{name}_tensor() missing required arguments: {', '.join(missing)}")
        layout = getattr(formats, f"sparse_{name}")
        if options.pop("layout", None) not in (None, layout):
            raise RuntimeError(f"sparse_{name}_tensor: the layout is {layout}")
        return sparse_compressed_tensor(*[given.get(n) for n in names], layout=layout, **options)

    construct.__name__ = construct.__qualname__ = f"sparse_{name}_tensor"
    construct.__doc__ = (f"sparse_{name}_tensor({compressed}, {plain}, values, size=None): a tensor of layout sparse_{name} "
                         "from its lists.")
    return construct


CONSTRUCTORS = {name: _of_layout(name, *(("crow_indices", "col_indices") if name.endswith("r") else (
    "ccol_indices", "row_indices"))) for name in LAYOUTS}
