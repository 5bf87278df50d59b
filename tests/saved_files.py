"""Saves with one library, loads with the other, and compares bit by bit."""

from __future__ import annotations

import io
from collections import OrderedDict

import torch

import flambeau

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float8_e4m3fn",
          "float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def raw(tensor):
    """A tensor's elements as bytes, whatever the library and dtype."""
    tensor = tensor.detach().contiguous()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
        return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return tensor._array.tobytes()


def same_bits(a, b):
    """Asserts that two objects of the two libraries say the same, to the bit and to the place in memory."""
    if isinstance(a, (torch.Tensor, flambeau.Tensor)):
        assert isinstance(b, (torch.Tensor, flambeau.Tensor))
        names = (str(a.dtype), tuple(a.shape), a.requires_grad, str(a.device))
        assert names == (str(b.dtype), tuple(b.shape), b.requires_grad, str(b.device))
        assert a.stride() == b.stride()
        assert isinstance(a, (torch.nn.Parameter, flambeau.nn.Parameter)) == isinstance(
            b, (torch.nn.Parameter, flambeau.nn.Parameter))
        if a.device.type != "meta":
            assert a.storage_offset() == b.storage_offset()
            assert raw(a) == raw(b)
        return
    if isinstance(a, dict):
        assert type(a) is type(b) and list(map(str, a)) == list(map(str, b))
        for x, y in zip(a.values(), b.values()):
            same_bits(x, y)
        if isinstance(a, OrderedDict):
            same_bits(getattr(a, "_metadata", 0), getattr(b, "_metadata", 0))
        return
    if isinstance(a, (list, tuple)) and not isinstance(a, (torch.Size, flambeau.Size)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same_bits(x, y)
        return
    assert str(a) == str(b)
    assert type(a).__name__ == type(b).__name__


def saved(library, obj, **kwargs):
    file = io.BytesIO()
    library.save(obj, file, **kwargs)
    file.seek(0)
    return file


def all_ways(make, *, save_args=None, **load_args):
    """The object through each pair of writer and reader."""
    for writer in (torch, flambeau):
        for reader in (torch, flambeau):
            if writer is torch and reader is torch:
                continue
            yield make(writer), reader.load(saved(writer, make(writer), **(save_args or {})), **load_args)


def module_state(t):
    t.manual_seed(0)
    return t.nn.Sequential(OrderedDict(a=t.nn.Linear(3, 4), b=t.nn.BatchNorm1d(4))).state_dict()


class Point:
    def __init__(self, x):
        self.x = x
