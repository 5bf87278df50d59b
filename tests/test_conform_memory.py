"""Writes whose source shares memory with what is written: the same are refused as in PyTorch, and the same only warn."""

import warnings

import pytest
import torch

import flambeau

WRITES = {
    "index_add, source": lambda t, x, i: x.index_add_(0, i, x[:3]),
    "index_add, to itself": lambda t, x, i: i.index_add_(0, i.clone(), i),
    "index_add, expanded": lambda t, x, i: x[:1].expand(6).index_add_(0, i, x[:3].clone()),
    "index_copy, source": lambda t, x, i: x.index_copy_(0, i, x[:3]),
    "index_fill, index": lambda t, x, i: i.index_fill_(0, i, 0),
    "index_fill, expanded": lambda t, x, i: x[:1].expand(6).index_fill_(0, i, 1.0),
    "index_put, value": lambda t, x, i: x.index_put_((i,), x[0]),
    "index_put, expanded": lambda t, x, i: x[:1].expand(6).index_put_((i,), t.ones(3)),
    "assignment": lambda t, x, i: x.__setitem__(i, x[3:]),
    "assignment of a copy": lambda t, x, i: x.__setitem__(i, x[3:].clone()),
    "scatter, source": lambda t, x, i: x.scatter_(0, i, x[:3]),
    "scatter, index": lambda t, x, i: i.scatter_(0, i, i.clone()),
    "scatter_add, source": lambda t, x, i: x.scatter_add_(0, i, x[:3]),
    "masked_fill, expanded": lambda t, x, i: x[:1].expand(6).masked_fill_(x > 0, 1.0),
    "masked_scatter, expanded": lambda t, x, i: x[:1].expand(6).masked_scatter_(x > 0, x.clone()),
    "disjoint parts": lambda t, x, i: x[:3].index_add_(0, i, x[3:]),
}


def outcome(package, write):
    x, i = package.arange(6.0), package.tensor([2, 1, 0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            write(package, x, i)
        except RuntimeError as error:
            return str(error)[:60], bool(said)
    return x.tolist(), i.tolist(), bool([w for w in said if "expanded tensors" in str(w.message)])


@pytest.mark.parametrize("name", WRITES)
def test_same_as_pytorch(name):
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        assert outcome(torch, WRITES[name]) == outcome(flambeau, WRITES[name])
    finally:
        torch.set_warn_always(before)
