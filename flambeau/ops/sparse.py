"""The names by which ordinary tensors meet sparse ones.

The sparse tensors themselves are in flambeau/torch_names/sparse/, which is imported when the first one is made.
"""

from __future__ import annotations

from typing import Any

from ..creation.factories import arange
from ..tensors.dtypes import int32, int64
from ..tensors.tensor import Tensor
from .core.row import FUNCTIONS, public


@public(method=False, out=False)
def sparse_coo_tensor(*args: Any, **kwargs: Any) -> Tensor:
    """sparse_coo_tensor(indices, values, size=None): a tensor that has values at some places only."""
    from ..sparse import sparse_coo_tensor as made
    return made(*args, **kwargs)


def _to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
               dense_dim: Any = None) -> Tensor:
    """The tensor in coordinate form, or in another sparse layout."""
    from ..sparse import to_sparse
    return to_sparse(self, sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)


public(_to_sparse, name="to_sparse", toplevel=False, out=False, aliases=("to_sparse_coo",))


def _compressing(name: str) -> None:
    """Tensor.to_sparse_<name> and flambeau.sparse_<name>_tensor."""
    if name.startswith("b"):
        def convert(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
            from ..sparse import to_compressed
            return to_compressed(self, name, blocksize, dense_dim)
    else:
        def convert(self: Tensor, dense_dim: int | None = None) -> Tensor:
            from ..sparse import to_compressed
            return to_compressed(self, name, None, dense_dim)

    def construct(*args: Any, **kwargs: Any) -> Tensor:
        from ..sparse import CONSTRUCTORS
        return CONSTRUCTORS[name](*args, **kwargs)

    convert.__doc__ = f"The tensor in the layout sparse_{name}."
    construct.__doc__ = f"sparse_{name}_tensor(compressed indices, plain indices, values, size=None): of layout sparse_{name}."
    public(convert, name=f"to_sparse_{name}", toplevel=False, out=False)
    public(construct, name=f"sparse_{name}_tensor", method=False, out=False)


for _name in ("csr", "csc", "bsr", "bsc"):
    _compressing(_name)


@public(method=False, out=False)
def sparse_compressed_tensor(*args: Any, **kwargs: Any) -> Tensor:
    """sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, layout): of a compressed layout."""
    from ..sparse import sparse_compressed_tensor as made
    return made(*args, **kwargs)


@public(toplevel=False, out=False)
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places that a sparse tensor has, as a sparse tensor.

    >>> torch.tensor([[1.0, 2.0], [3.0, 4.0]]).sparse_mask(torch.eye(2).to_sparse().coalesce()).to_dense()
    tensor([[1., 0.],
            [0., 4.]])
    """
    raise RuntimeError(f"sparse_mask: expected mask to be sparse, got one of layout {mask.layout}")


@public(method=False, out=False, aliases=("dsmm",))
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix.

    >>> sparse = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    >>> torch.dsmm(sparse, torch.ones(2, 2))
    tensor([[2., 2.],
            [0., 0.]])
    """
    if not input.is_sparse and not mat2.is_sparse:
        return FUNCTIONS["mm"](input, mat2)
    from ..sparse import mm
    return mm(input, mat2)


@public(name="_convert_indices_from_coo_to_csr", method=False)
def convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins in a sorted list of row numbers, and where the last one ends."""
    return FUNCTIONS["searchsorted"](input, arange(size + 1, dtype=input.dtype), out_int32=out_int32)


@public(name="_convert_indices_from_csr_to_coo", method=False)
def convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False,
                                    transpose: bool = False) -> Tensor:
    """Rows and columns of the elements, from where the rows begin and the columns; transpose: columns and rows."""
    dtype = int32 if out_int32 else int64
    rows = arange(crow_indices.shape[0] - 1, dtype=dtype).repeat_interleave(crow_indices.diff())
    columns = col_indices.to(dtype)
    return FUNCTIONS["stack"]([columns, rows] if transpose else [rows, columns])


def _of_sparse(name: str, doc: str, toplevel: bool = True, method: bool = False, aliases: tuple[str, ...] = ()) -> None:
    """A function that only sparse tensors have; they take it from their own table before it is called."""
    def refuse(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the 'CPU' backend: it is for sparse "
                                  f"tensors, got one of layout {input.layout}")

    refuse.__doc__ = doc
    public(refuse, name=name, toplevel=toplevel, method=method, aliases=aliases)


_of_sparse("hspmm", """hspmm(mat1, mat2): a sparse times a dense matrix, as a sparse matrix of dense rows.

    >>> torch.hspmm(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse(), torch.ones(2, 2)).to_dense()
    tensor([[2., 2.],
            [0., 0.]])
    """, aliases=("hsmm",))
_of_sparse("smm", """smm(input, mat): a sparse times a dense matrix, as a sparse matrix.

    >>> torch.smm(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse(), torch.ones(2, 2)).to_dense()
    tensor([[2., 2.],
            [0., 0.]])
    """, method=True)
_of_sparse("sspaddmm", """sspaddmm(input, mat1, mat2, *, beta=1, alpha=1): beta * input + alpha * mat1 @ mat2, sparse.

    >>> eye = torch.eye(2).to_sparse()
    >>> torch.sspaddmm(eye, eye, torch.ones(2, 2), alpha=3).to_dense()
    tensor([[4., 3.],
            [3., 4.]])
    """, method=True, aliases=("saddmm",))
_of_sparse("_sparse_broadcast_to", "A sparse tensor repeated along dimensions of length one.")
_of_sparse("sparse_resize_", """sparse_resize_(size, sparse_dim, dense_dim): another size, with room for the elements.

    >>> torch.eye(2).to_sparse().sparse_resize_((3, 4), 2, 0).shape
    torch.Size([3, 4])
    """, toplevel=False, method=True)
_of_sparse("sparse_resize_and_clear_", """sparse_resize_and_clear_(size, sparse_dim, dense_dim): another size and no elements.

    >>> torch.eye(2).to_sparse().sparse_resize_and_clear_((3,), 1, 0).to_dense()
    tensor([0., 0., 0.])
    """, toplevel=False, method=True)
_of_sparse("resize_as_sparse_", """The size of another sparse tensor.

    >>> torch.eye(2).to_sparse().resize_as_sparse_(torch.zeros(3, 3).to_sparse()).shape
    torch.Size([3, 3])
    """, method=True)
