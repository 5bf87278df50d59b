"""The most frequent calls, which go straight to a kernel: what they must leave to the general function."""

from __future__ import annotations

import pytest
import torch
from compare import same
from cuda_host import needs_gxx

import flambeau as fl


def both(call):
    """What the call gives in flambeau and in PyTorch: shapes and strides, or the kind of error."""
    answers = []
    for lib in (fl, torch):
        try:
            made = call(lib)
            answers.append([(tuple(m.shape), m.stride()) for m in (made if isinstance(made, tuple) else (made,))])
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            answers.append(type(error))
    return answers


CALLS = {
    "expand of an int, then of a float": lambda lib: (lib.ones(1, 4).expand(3, 4), lib.ones(1, 4).expand(3.0, 4))[1],
    "expand keeps a size": lambda lib: lib.ones(2, 1, 4).expand(-1, 3, -1),
    "expand to more dimensions": lambda lib: lib.ones(2, 1).expand(5, 2, 3),
    "expand with a leading one": lambda lib: lib.ones(2, 1).expand(1, 2, 3),
    "expand that does not fit": lambda lib: lib.ones(2, 4).expand(3, 4),
    "expand of a transposed": lambda lib: lib.ones(4, 1).t().expand(3, 4),
    "unsqueeze, then by a float": lambda lib: (lib.ones(3, 4).unsqueeze(1), lib.ones(3, 4).unsqueeze(1.0))[1],
    "unsqueeze at the end": lambda lib: lib.ones(3, 4).unsqueeze(-1),
    "unsqueeze out of range": lambda lib: lib.ones(3, 4).unsqueeze(3),
    "unsqueeze of nothing": lambda lib: lib.ones(0, 4).unsqueeze(0),
    "unsqueeze of one": lambda lib: lib.ones(1, 4).unsqueeze(0),
    "cat along the last": lambda lib: lib.cat((lib.ones(2, 3), lib.ones(2, 1)), -1),
    "cat by name": lambda lib: lib.cat(tensors=[lib.ones(2, 3), lib.ones(1, 3)], dim=0),
    "cat of transposed": lambda lib: lib.cat([lib.ones(2, 3).t(), lib.ones(2, 3).t()]),
    "cat with an empty vector": lambda lib: lib.cat([lib.ones(2, 3), lib.ones(0)]),
    "cat that does not fit": lambda lib: lib.cat([lib.ones(2, 3), lib.ones(2, 4)]),
    "cat out of range": lambda lib: lib.cat([lib.ones(2, 3), lib.ones(2, 3)], 2),
    "cat of zero-dim": lambda lib: lib.cat([lib.ones(()), lib.ones(())]),
    "cat of nothing": lambda lib: lib.cat([]),
    "stack in the middle": lambda lib: lib.stack([lib.ones(2, 3), lib.ones(2, 3)], 1),
    "stack at the end, with ones": lambda lib: lib.stack([lib.ones(2, 1), lib.ones(2, 1)], dim=-1),
    "stack that does not fit": lambda lib: lib.stack([lib.ones(2, 3), lib.ones(3, 2)]),
    "stack out of range": lambda lib: lib.stack([lib.ones(2), lib.ones(2)], 2),
    "max over one": lambda lib: tuple(lib.ones(3, 1).max(1)),
    "max out of range": lambda lib: lib.ones(3, 4).max(2),
    "max of transposed by name": lambda lib: tuple(lib.ones(3, 4).t().max(dim=0)),
    "split by a name": lambda lib: lib.ones(5, 2).split(split_size=2, dim=0),
    "chunk": lambda lib: lib.ones(5, 2).chunk(3),
    "chunk along the last": lambda lib: lib.ones(5, 4).chunk(2, -1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_sizes_strides_and_errors(call):
    ours, theirs = both(call)
    assert ours == theirs


def test_values_of_extremes_and_running_sums():
    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
    x[1, 2, 3], x[0, 0] = float("nan"), 1.0
    for dtype in (torch.float32, torch.float64):
        y = fl.from_numpy(x.to(dtype).numpy())
        for dim in (0, 1, -1):
            for name in ("max", "min"):
                wanted, got = getattr(x.to(dtype), name)(dim), getattr(y, name)(dim)
                assert type(got).__name__ == name
                same(wanted.values, got.values)
                same(wanted.indices, got.indices)
            same(x.to(dtype).cumsum(dim), y.cumsum(dim))
            same(x.to(dtype).var(dim), y.var(dim))


def test_gradients_of_joined_tensors():
    for name, dim in (("cat", 1), ("stack", 2)):
        grads = []
        for lib in (fl, torch):
            a, b, c = (lib.arange(6.0).reshape(2, 3).requires_grad_(k != 1) for k in range(3))
            made = getattr(lib, name)([a, b, c], dim)
            (made * lib.arange(float(made.numel())).reshape(made.shape)).sum().backward()
            assert made.grad_fn.name() == f"{name.title()}Backward0"
            assert b.grad is None
            grads.append((a.grad, c.grad))
        for got, wanted in zip(*grads):
            same(wanted, got)


def test_sizes_are_remembered_without_the_tensors():
    """A size may be a tensor; nothing keeps it alive."""
    import weakref
    size = fl.tensor(3)
    seen = weakref.ref(size)
    assert fl.ones(1, 4).expand(size, 4).shape == (3, 4)
    del size
    assert seen() is None


@needs_gxx
def test_two_devices(cuda):
    """A call that mixes devices is refused, not sent to a kernel of one of them."""
    x, there = fl.ones(3, 4), fl.ones(3, 4, device=cuda)
    for call in (lambda: x.masked_fill(there > 0, 1.0), lambda: x.gather(1, there.long()),
                 lambda: fl.nn.functional.linear(x, fl.ones(2, 4), fl.ones(2, device=cuda)),
                 lambda: fl.nn.functional.layer_norm(x, (4,), fl.ones(4), fl.ones(4, device=cuda)),
                 lambda: fl.nn.functional.embedding(there.long(), x), lambda: fl.cat([x, there])):
        with pytest.raises(RuntimeError, match="same device"):
            call()


@needs_gxx
def test_memory_that_is_written_and_read(cuda):
    """Writing to memory that is read at other places is refused on every device."""
    for device in ("cpu", cuda):
        x = fl.ones(8, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        with pytest.raises(RuntimeError, match="single memory location"):
            fl.ones(1, device=device).expand(4).add_(1.0)
        x[4:].add_(x[:4])
        assert x.tolist() == [1.0] * 4 + [2.0] * 4
