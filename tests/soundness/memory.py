"""Tensors whose geometry and kind a call changes, and memory that is read and written past the tensor."""

from __future__ import annotations

import array

import numpy as np

from soundness.world import Thing, around, each, nn, torch, vec


# ------------------------------------------------------------------------------------ geometry and kind changed by the call
def changing(compile, change, make=vec):
    """A held tensor and an argument that the call changes; outside they are put back."""
    box = Thing(held=make())

    def f(x):
        change(box.held)
        change(x)
        return x * 2.0
    f = compile(f)
    for n in range(7):
        if n % 3 == 2:
            box.held = make()
        x = make()
        y = f(x)
        yield y, x, box.held, tuple(x.stride()), x.is_leaf
        if n < 4:
            box.held = make()


def dimension_added_in_place(compile):
    return changing(compile, lambda t: t.unsqueeze_(0))


def dimension_dropped_in_place(compile):
    return changing(compile, lambda t: t.squeeze_(), lambda: torch.ones(1, 3))


def transposed_in_place(compile):
    return changing(compile, lambda t: t.t_(), lambda: torch.arange(6.0).reshape(2, 3))


def gradient_wanted_in_place(compile):
    return changing(compile, lambda t: t.requires_grad_())


def gradient_not_wanted_in_place(compile):
    return changing(compile, lambda t: t.requires_grad_(False), lambda: vec().requires_grad_())


def detached_in_place(compile):
    return changing(compile, lambda t: t.detach_(), lambda: vec().requires_grad_() * 2.0)


def data_replaced_in_the_call(compile):
    return changing(compile, lambda t: setattr(t, "data", t.data * 3.0))


def attribute_of_a_tensor_set(compile):
    box = Thing(held=vec())

    def f(x):
        box.held.seen = getattr(box.held, "seen", 0) + 1
        x.mark = True
        return x * box.held.seen
    f = compile(f)
    for n in range(6):
        if n == 3:
            box.held = vec()
        x = vec()
        yield f(x), x.mark, box.held.seen


def gradient_field_set(compile):
    weight = vec().requires_grad_()

    def f(x):
        if weight.grad is None:
            weight.grad = x.detach().clone()
        else:
            weight.grad += 1
        return weight.grad * 2.0
    f = compile(f)
    for n in range(7):
        if n == 4:
            weight.grad = None
        yield f(vec()), weight.grad


def layers_converted_in_the_call(compile):
    net = nn.Linear(3, 1)
    kinds = [torch.float32, torch.float64]

    def f(x):
        net.to(kinds[len(seen) % 2])
        seen.append(1)
        return net(x.to(net.weight.dtype))
    seen = []
    yield from each(compile(f), vec())
    yield str(net.weight.dtype)


# -------------------------------------------------------------------------------------------- memory read past the tensor
def looked(compile, held, memory):
    """The call writes a tensor and then reads its memory by another way, which was made before."""
    def f(x):
        held.add_(1)
        return x * float(memory[0])
    f = compile(f)
    for _ in range(7):
        yield f(vec()), held


def array_over_a_tensor_read(compile):
    held = torch.zeros(3)
    return looked(compile, held, held.numpy())


def part_of_an_array_read(compile):
    held = torch.zeros(3)
    return looked(compile, held, held.numpy()[1:][::-1])


def memory_view_read(compile):
    held = torch.zeros(3)
    return looked(compile, held, memoryview(held.numpy()))


def view_of_a_tensor_read(compile):
    held = torch.zeros(3)
    return looked(compile, held, held.view(3, 1)[1:, 0].numpy())


def array_under_a_tensor_read(compile):
    under = np.zeros(3, np.float32)
    return looked(compile, torch.from_numpy(under), under)


def buffer_under_a_tensor_read(compile):
    under = array.array("f", [0.0] * 3)
    return looked(compile, torch.frombuffer(under, dtype=torch.float32), under)


def storage_read(compile):
    held = torch.zeros(3)
    return looked(compile, held, held.untyped_storage())


def array_made_in_the_call_read_later(compile):
    """An array over a result, read after more was written to it."""
    kept = []

    def f(x):
        y = x * 2.0
        kept.append(y.numpy())
        y.add_(1)
        return float(kept[-1][0]), y
    f = compile(f)
    for n in range(6):
        yield f(vec() * n)
    yield kept


def memory_written_past_the_tensor(compile):
    a = np.zeros(3, np.float32)
    t = torch.from_numpy(a)

    def f(x):
        y = x + t
        a[0] += 1.0
        return y, x + t
    return around(compile(f), lambda: a.fill(0.0))
