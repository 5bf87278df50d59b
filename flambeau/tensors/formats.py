"""Layouts and memory formats: the names PyTorch programs pass around."""

from __future__ import annotations


class _Named:
    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return _by_name, (self.name,)


class layout(_Named):
    """How a tensor keeps its elements: `torch.strided` (all of them), or one of the sparse ones.

    >>> torch.ones(2).layout, torch.eye(2).to_sparse().layout
    (torch.strided, torch.sparse_coo)
    """

    __slots__ = ()


class memory_format(_Named):
    """In which order a tensor's elements lie in memory: `torch.contiguous_format`, `torch.channels_last` and so on.

    >>> torch.ones(1, 2, 3, 3).contiguous(memory_format=torch.channels_last).stride()
    (18, 1, 6, 2)
    """

    __slots__ = ()


def _by_name(name: str):
    return globals()[name]


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
