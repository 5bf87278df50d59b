"""Tensors that share memory, are replaced, change their kind; what Python can ask of them; writing in place."""

from __future__ import annotations

import copy

import numpy as np

from soundness.world import Thing, around, each, item, nn, put, torch, turns, vec


# ----------------------------------------------------------------------------------------------------------- shared memory
def shares(compile, alias):
    """A call reads its argument before and after it writes to a buffer; from the fourth call on they are one memory."""
    buffer = torch.zeros(3)

    @compile
    def f(x):
        y = x * 2.0
        buffer.add_(1)
        return y + x
    for n in range(8):
        yield f(vec() if n < 4 or n == 6 else alias(buffer)), buffer


def argument_is_a_detached_buffer(compile):
    return shares(compile, lambda buffer: buffer.detach())


def argument_is_the_data_of_a_buffer(compile):
    return shares(compile, lambda buffer: buffer.data)


def argument_is_made_from_an_array_over_a_buffer(compile):
    return shares(compile, lambda buffer: torch.from_numpy(buffer.numpy()))


def argument_is_a_tensor_of_an_array(compile):
    return shares(compile, lambda buffer: torch.as_tensor(buffer.numpy()))


def argument_is_a_buffer_in_other_strides(compile):
    return shares(compile, lambda buffer: buffer.as_strided((3,), (1,)))


def argument_is_a_buffer_from_its_storage(compile):
    return shares(compile, lambda buffer: torch.empty(0).set_(buffer.untyped_storage(), 0, (3,), (1,)))


def argument_is_a_part_of_a_buffer(compile):
    buffer = torch.zeros(6)

    @compile
    def f(x):
        y = x * 2.0
        buffer.add_(1)
        return y + x
    for n in range(9):
        yield f((vec(), buffer[:3], buffer[2:5], buffer[::2], vec())[n // 2]), buffer


def argument_is_an_expanded_buffer(compile):
    buffer = torch.zeros(1)

    @compile
    def f(x):
        y = x * 2.0
        buffer.add_(1)
        return y + x
    return (f(vec() if n < 4 else buffer.expand(3)) for n in range(8))


def argument_is_a_parameter(compile):
    net = nn.Linear(3, 1, bias=False)

    @compile
    def f(x):
        with torch.no_grad():
            y = x * 2.0
            net.weight.add_(1)
            return y + x
    for n in range(8):
        yield f(vec()[None] if n < 4 else net.weight), net.weight


def argument_is_a_gradient(compile):
    weight = torch.ones(3, requires_grad=True)

    @compile
    def f(x):
        y = x * 2.0
        (weight * 3.0).sum().backward()
        return y + x
    for n in range(8):
        yield f(vec() if n < 4 else weight.grad), weight.grad


def arguments_overlap(compile):
    memory = torch.arange(8.0)

    @compile
    def f(a, b):
        y = b * 2.0
        a.add_(1)
        return y + b
    for n in range(9):
        shift = (4, 1, 0)[n // 3]
        yield f(memory[0:3], memory[shift:shift + 3]), memory


def arguments_are_a_matrix_and_its_transpose(compile):
    @compile
    def f(a, b):
        a.add_(1)
        return a * b
    for n in range(8):
        m = torch.arange(9.0).reshape(3, 3)
        yield f(m, m.t() if n % 4 > 1 else m.t().clone()), m


def buffers_become_one(compile):
    box = Thing(a=torch.zeros(3), b=torch.ones(3))

    def f(x):
        y = box.b * 2.0
        box.a.add_(1)
        return y + box.b + x
    return around(compile(f), lambda: put(box, b=box.a)(), lambda: put(box, b=torch.ones(3))(),
                  lambda: put(box, b=box.a.view(3))())


def buffers_become_one_by_data(compile):
    a, b = torch.zeros(3), torch.ones(3)

    def f(x):
        y = b * 2.0
        a.add_(1)
        return y + b + x
    return around(compile(f), put(b, data=a.data), put(b, data=torch.ones(3)))


def array_over_a_buffer_written(compile):
    buffer = torch.zeros(3)
    shown = buffer.numpy()
    return around(compile(lambda x: x + buffer), lambda: shown.fill(1.0), item(shown, 0, 5.0))


def array_under_a_tensor_written_in_the_call(compile):
    array = np.zeros(3, np.float32)
    tensor = torch.from_numpy(array)

    def f(x):
        array[0] += 1.0
        return x + tensor
    f = compile(f)
    for n in range(6):
        yield f(vec()), tensor
        tensor.add_(n % 2)


def memory_of_a_bytearray(compile):
    raw = bytearray(12)
    tensor = torch.frombuffer(raw, dtype=torch.float32)
    change = lambda: raw.__setitem__(slice(0, 4), np.float32(2.0).tobytes())
    return around(compile(lambda x: x + tensor), change)


def views_that_overlap(compile):
    memory = torch.arange(6.0)
    a, b = memory[:4], memory[2:]

    def f(x):
        a.mul_(0.5)
        b.add_(1)
        return a + b + x.sum()
    yield from each(compile(f), vec())
    yield memory


def view_taken_before_and_after(compile):
    box = Thing(base=torch.zeros(6))
    box.part = box.base[1:4]

    def f(x):
        box.part.add_(x)
        return box.base * 2.0
    return around(compile(f), lambda: put(box, part=box.base[3:6])(), lambda: put(box, base=torch.zeros(6))())


def complex_and_its_parts(compile):
    z = torch.zeros(3, dtype=torch.complex64)
    parts = torch.view_as_real(z)

    def f(x):
        parts[:, 0].add_(x)
        return (z * z).real + z.imag
    return around(compile(f), lambda: parts[:, 1].fill_(2.0))


# -------------------------------------------------------------------------------------------------------- other tensors
def tensor_replaced_by_an_equal_one(compile):
    box = Thing(weight=torch.ones(3) * 2)

    def change():
        box.weight = box.weight.clone()
    return around(compile(lambda x: x * box.weight), change, lambda: box.weight.add_(1))


def tensors_exchanged(compile):
    box = Thing(a=torch.full((3,), 2.0), b=torch.full((3,), 3.0))

    def change():
        box.a, box.b = box.b, box.a
    return around(compile(lambda x: x * box.a - box.b), change, change)


def tensor_with_other_data(compile):
    weight = torch.ones(3)
    return around(compile(lambda x: x * weight), put(weight, data=torch.full((3,), 3.0)),
                  put(weight, data=torch.full((1,), 2.0)), put(weight, data=torch.ones(3, dtype=torch.float64)))


def tensor_of_another_shape(compile):
    box = Thing(weight=torch.ones(3))
    return around(compile(lambda x: x * box.weight), put(box, weight=torch.ones(2, 3)), put(box, weight=torch.ones(())),
                  put(box, weight=torch.ones(3)))


def tensor_of_another_dtype(compile):
    box = Thing(weight=torch.ones(3))
    return around(compile(lambda x: x * box.weight), put(box, weight=torch.ones(3, dtype=torch.float64)),
                  put(box, weight=torch.ones(3, dtype=torch.int64)), put(box, weight=torch.ones(3, dtype=torch.bool)))


def tensor_of_other_strides(compile):
    wide = torch.arange(6.0)
    box = Thing(weight=wide[:3])
    return around(compile(lambda x: x * box.weight), put(box, weight=wide[::2]), put(box, weight=wide[3:]),
                  put(box, weight=wide[:1].expand(3)))


def tensor_resized(compile):
    weight = torch.ones(1)
    return around(compile(lambda x: x * weight), lambda: weight.resize_(3).fill_(3.0))


def tensor_that_wants_a_gradient(compile):
    weight = torch.ones(3)
    f = compile(lambda x: x * weight)
    return around(f, lambda: weight.requires_grad_(), lambda: weight.requires_grad_(False))


def tensor_that_becomes_a_leaf(compile):
    base = torch.ones(3, requires_grad=True)
    box = Thing(weight=base * 2)
    return around(compile(lambda x: (x * box.weight, box.weight.is_leaf)), lambda: box.weight.detach_())


def tensor_asked_but_not_read(compile):
    other = torch.zeros(2)
    f = compile(lambda x: x * len(other) + other.requires_grad + other.dim())
    return around(f, put(other, data=torch.zeros(4)), lambda: other.requires_grad_(), put(other, data=torch.zeros(4, 1)))


def tensor_asked_for_its_address(compile):
    box = Thing(a=torch.zeros(3), b=torch.zeros(3))
    f = compile(lambda x: x * 3.0 if box.a.data_ptr() == box.b.data_ptr() else x * 2.0)
    return around(f, lambda: put(box, b=box.a.view(3))(), lambda: put(box, b=torch.zeros(3))())


def tensor_asked_for_its_version(compile):
    weight = torch.zeros(3)

    def f(x):
        weight.add_(1)
        return x * weight._version
    return around(compile(f), lambda: weight.mul_(1))


def tensor_asked_for_its_gradient(compile):
    weight = torch.ones(3, requires_grad=True)
    f = compile(lambda x: x * 2.0 if weight.grad is None else x * weight.grad)
    return around(f, lambda: (weight * 3.0).sum().backward(), lambda: weight.grad.add_(1), put(weight, grad=None))


def tensor_asked_for_a_name(compile):
    weight = torch.ones(3)
    f = compile(lambda x: x * getattr(weight, "gain", 2.0))
    return around(f, put(weight, gain=3.0), lambda: delattr(weight, "gain"))


def tensor_as_a_key(compile):
    a, b = vec(), vec()
    table, box = {a: 2.0, b: 3.0}, Thing(key=a)
    return around(compile(lambda x: x * table[box.key]), put(box, key=b), item(table, b, 2.0))


def scalar_tensor_filled(compile):
    gain = torch.tensor(2.0)
    return around(compile(lambda x: x * gain), lambda: gain.fill_(3.0), lambda: gain.fill_(-0.0))


def integer_tensor_as_an_index(compile):
    rows, which = torch.arange(12.0).reshape(4, 3), torch.tensor([1])
    return around(compile(lambda x: x + rows[which]), lambda: which.fill_(2), put(which, data=torch.tensor([0, 3])))


def mask_written(compile):
    mask = torch.tensor([True, False, True])
    return around(compile(lambda x: torch.where(mask, x, -x)), lambda: mask.logical_not_())


def sparse_tensor(compile):
    box = Thing(m=torch.eye(3).to_sparse())
    return around(compile(lambda x: torch.sparse.mm(box.m, x[:, None])), lambda: put(box, m=(torch.eye(3) * 2).to_sparse())())


def tensor_subclass(compile):
    class Marked(torch.Tensor):
        gain = 2.0
    x = vec().as_subclass(Marked)
    f = compile(lambda y: x * y * x.gain)
    return around(lambda y: (f(y), type(f(y)) is Marked), put(x, gain=3.0))


def tensor_subclass_that_counts(compile):
    class Counted(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Counted.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})
    x = vec().as_subclass(Counted)

    def f(y):
        return x * y
    f = compile(f)
    for _ in range(5):
        before = Counted.calls
        y = f(vec())
        yield y.as_subclass(torch.Tensor), Counted.calls - before


# ------------------------------------------------------------------------------------------------------- writing in place
def argument_written(compile):
    f = compile(lambda x: x.mul_(2.0) is x)
    for n in range(6):
        x = vec() * n
        yield f(x), x, x._version


def argument_written_and_given_back(compile):
    f = compile(lambda x: x.add_(1))
    x = vec()
    for _ in range(6):
        y = f(x)
        yield y is x, x


def argument_written_through_a_view(compile):
    def f(x):
        x[1:].add_(1)
        x.view(3, 1)[0] = 7.0
        return x * 2.0
    f = compile(f)
    for n in range(6):
        x = vec() * n
        yield f(x), x


def argument_of_a_graph_written(compile):
    def f(x):
        y = x * 2.0
        y.mul_(3.0)
        y[0] = 0.0
        return y.sum()
    f = compile(f)
    for n in range(6):
        x = (vec() * n).requires_grad_()
        f(x).backward()
        yield x.grad


def attribute_added_to(compile):
    """`box.total += x` writes into the tensor that others hold too."""
    box = Thing(total=torch.zeros(3))
    others = box.total

    def f(x):
        box.total += x
        return box.total * 2.0
    f = compile(f)
    for n in range(8):
        if n == 4:
            box.total = torch.zeros(3)
        yield f(vec()), box.total, others


def name_bound_to_a_new_tensor(compile):
    total = torch.zeros(3)

    def f(x):
        nonlocal total
        total = total + x
        return total * 2.0
    f, first = compile(f), total
    for _ in range(6):
        yield f(vec()), total, first


def written_by_position(compile):
    memory = torch.zeros(6, 3)

    @compile
    def f(x, n):
        memory[n] = x
        return memory[: n + 1].sum(0)
    for n in (0, 1, 2, 3, 1, 5):
        yield f(vec(), n), memory


def written_by_a_mask(compile):
    memory = torch.zeros(3)

    def f(x, mask):
        memory[mask] = x[mask]
        memory.masked_fill_(~mask, -1.0)
        return memory * 2.0
    masks = [torch.tensor(m) for m in ([True, False, True], [True, True, True], [False, False, False])]
    return turns(compile(f), masks * 2)


def written_by_out(compile):
    out = torch.zeros(3)

    def f(x):
        return torch.mul(x, 2.0, out=out)
    f = compile(f)
    for n in range(6):
        yield f(vec() * n) is out, out


def written_with_its_own_values(compile):
    memory = vec()

    def f(x):
        memory[1:] = memory[:-1].clone()
        memory[0] = x[0] + memory[2]
        return memory * 2.0
    yield from each(compile(f), vec())
    yield memory


def ring_buffer(compile):
    box = Thing(memory=torch.zeros(3, 3), at=0)

    def f(x):
        box.memory[box.at % 3] = x
        box.at += 1
        return box.memory.sum(0)
    f = compile(f)
    for n in range(8):
        yield f(vec() * n), box.memory, box.at


def zeroed_outside(compile):
    total = torch.zeros(3)
    return around(compile(lambda x: total.add_(x) * 2.0), total.zero_)


def copied_between_buffers(compile):
    a, b = torch.zeros(3), torch.ones(3)

    def f(x):
        a.copy_(b)
        b.copy_(a + x)
        return a * b
    yield from around(compile(f), b.zero_)
    yield a, b


def deep_copies_made_in_the_call(compile):
    weight = torch.ones(3)
    kept = []

    def f(x):
        kept.append(copy.deepcopy(weight))
        weight.add_(x)
        return weight * 2.0
    yield from each(compile(f), vec())
    yield kept
