"""NumPy in and out of the call: arrays as results, as arguments, under tensors, with every kind of element."""

from __future__ import annotations

import tempfile

import numpy as np

from soundness.world import Thing, around, each, item, put, torch, turns, vec


def array(*values):
    return np.array(values or (1.0, 2.0, 3.0), np.float32)


# ----------------------------------------------------------------------------------------------------------------- results
def result_is_an_array(compile):
    f = compile(lambda x: (x * 2.0).numpy())
    yield [f(vec() * n) for n in range(6)]


def result_is_an_array_over_the_argument(compile):
    f = compile(lambda x: x.numpy())
    for n in range(6):
        x = vec() * n
        f(x)[0] = 9.0
        yield x


def result_is_an_array_over_a_weight(compile):
    box = Thing(weight=vec())
    f = compile(lambda: box.weight.detach().numpy())
    for n in range(6):
        if n == 3:
            box.weight = vec()
        f()[0] += 1.0
        yield box.weight


def result_is_an_array_of_a_configuration(compile):
    box = Thing(gain=2.0)
    return around(compile(lambda x: x.numpy() * box.gain), put(box, gain=3.0))


def result_is_computed_by_numpy(compile):
    f = compile(lambda x: np.tanh(x.numpy()) + np.arange(3))
    return (f(vec() * n) for n in range(6))


def result_is_a_scalar_of_numpy(compile):
    f = compile(lambda x: (type(x.numpy().sum()).__name__, float(x.numpy().max()), x.numpy()[0] == x[0].item()))
    return (f(vec() * n) for n in range(6))


def result_is_an_array_of_objects(compile):
    f = compile(lambda x: np.array([x, None, "text"], dtype=object)[0] * 2.0)
    return (f(vec() * n) for n in range(6))


def result_is_an_array_kept_and_written(compile):
    f = compile(lambda x: (x * 2.0).numpy())
    first = f(vec())
    first[:] = 0.0
    yield from (f(vec()) for _ in range(4))
    yield first


def results_of_both_worlds(compile):
    """A tensor and an array over the same memory."""
    def f(x):
        y = x * 2.0
        return y, y.numpy()
    f = compile(f)
    for n in range(6):
        y, shown = f(vec() * n)
        shown[0] = 9.0
        yield y


# --------------------------------------------------------------------------------------------------------------- arguments
def argument_is_an_array(compile):
    f = compile(lambda a: torch.from_numpy(a) * 2.0)
    return (f(array() * n) for n in range(6))


def argument_is_an_array_written(compile):
    def f(a):
        a += 1.0
        return torch.from_numpy(a) * 2.0
    f, a = compile(f), array()
    for _ in range(6):
        yield f(a), a


def argument_is_an_array_written_through_a_tensor(compile):
    def f(a):
        torch.from_numpy(a).add_(1)
        return a * 2.0
    f, a = compile(f), array()
    for _ in range(6):
        yield f(a), a


def argument_is_an_array_of_other_strides(compile):
    f = compile(lambda x, a: x * torch.from_numpy(a) + a.strides[0])
    wide = np.arange(6, dtype=np.float32)
    return turns(f, (wide[:3], wide[:3], wide[::2], wide[3:], wide[:3]))


def argument_is_an_array_of_each_dtype(compile):
    f = compile(lambda x, a: x * torch.as_tensor(a))
    kinds = np.float32, np.float64, np.int32, np.bool_, np.float32, np.int64, np.uint8, np.float16
    return turns(f, [np.ones(3, kind) for kind in kinds])


def argument_is_a_scalar_of_numpy(compile):
    f = compile(lambda x, n: x * n)
    return turns(f, (np.float64(2.0), np.float64(2.0), np.float32(3.0), np.int64(2), np.bool_(True), np.float64(3), np.int8(2)))


def argument_shares_an_array_that_is_written(compile):
    memory = np.zeros(6, np.float32)

    def f(x):
        y = x * 2.0
        memory[:] += 1.0
        return y + x
    f = compile(f)
    for n in range(8):
        yield f(vec() if n < 4 else torch.from_numpy(memory[n % 3:n % 3 + 3])), memory


# ----------------------------------------------------------------------------------------------------------- held outside
def array_in_a_closure(compile):
    a = array()
    return around(compile(lambda x: x * torch.from_numpy(a)), item(a, 0, 5.0), lambda: a.sort(), lambda: a.fill(2.0))


def array_read_by_item(compile):
    a = array()
    return around(compile(lambda x: x * float(a[0]) + a.item(1) + len(a)), item(a, 0, 5.0), item(a, 1, 0.0))


def array_copied_into_a_tensor(compile):
    a = array()
    return around(compile(lambda x: x * torch.tensor(a)), item(a, 0, 5.0))


def array_of_a_million(compile):
    a = np.zeros(1_000_000, np.float32)
    return around(compile(lambda x: x * (float(a[999_999]) + 2.0)), item(a, 999_999, 1.0), item(a, 0, 1.0))


def array_summed_of_a_million(compile):
    a = np.zeros(1_000_000)
    return around(compile(lambda x: x * (float(a.sum()) + 2.0)), item(a, 123_456, 1.0))


def array_view_of_a_view(compile):
    a = np.arange(10, dtype=np.float32)
    window = a[1:][::2][1:]
    return around(compile(lambda x: x * float(window[0])), item(a, 3, 5.0))


def array_of_another_shape(compile):
    a = np.arange(6.0)
    return around(compile(lambda x: x * a.shape[0] + a.ndim), lambda: a.resize(4, refcheck=False), put(a, shape=(2, 2)))


def array_of_another_dtype(compile):
    box = Thing(a=array())
    return around(compile(lambda x: x * torch.from_numpy(box.a)), put(box, a=np.ones(3)), put(box, a=np.ones(3, np.int64)))


def array_with_names(compile):
    a = np.zeros(2, dtype=[("gain", "f4"), ("bias", "f4")])
    a["gain"] = 2.0
    return around(compile(lambda x: x * float(a["gain"][0]) + float(a["bias"][1])), lambda: a["gain"].fill(3.0),
                  lambda: a["bias"].fill(1.0))


def array_of_objects(compile):
    a = np.array([Thing(gain=2.0), None], dtype=object)
    return around(compile(lambda x: x * a[0].gain), lambda: put(a[0], gain=3.0)(), lambda: item(a, 0, Thing(gain=2.0))())


def array_of_no_dimension(compile):
    a = np.array(2.0)
    return around(compile(lambda x: x * float(a)), item(a, (), 3.0))


def array_masked(compile):
    a = np.ma.masked_array([1.0, 1.0, 1.0], [False, False, True])
    return around(compile(lambda x: x * float(a.sum())), lambda: a.mask.__setitem__(2, False))


def array_in_a_file(compile):
    with tempfile.NamedTemporaryFile() as file:
        a = np.memmap(file.name, np.float32, "w+", shape=(3,))
        a[:] = 2.0
        yield from around(compile(lambda x: x * float(a[1])), item(a, 1, 3.0))


def array_with_a_class_of_its_own(compile):
    class Marked(np.ndarray):
        gain = 2.0
    a = np.ones(3).view(Marked)
    return around(compile(lambda x: x * float(a[0]) * a.gain), put(a, gain=3.0), item(a, 0, 0.5))


def array_walked(compile):
    a = np.array([[1.0, 2.0], [3.0, 4.0]])

    def f(x):
        for row in a:
            for value in row:
                x = x * float(value) + 1
        return x
    return around(compile(f), item(a, (1, 0), 2.0))


def array_in_arithmetic_with_a_tensor(compile):
    a = array()
    return around(compile(lambda x: x + torch.from_numpy(a * 2.0)), item(a, 2, 9.0))


def arrays_compared(compile):
    a, b = array(), array()
    f = compile(lambda x: x * 2.0 if np.array_equal(a, b) else x * 3.0)
    return around(f, item(a, 0, 5.0), item(b, 0, 5.0))


def array_counter_in_the_call(compile):
    count = np.zeros(1, np.int64)

    def f(x):
        count[0] += 1
        return x * int(count[0])
    return around(compile(f), lambda: count.fill(0))


def running_statistics_in_numpy(compile):
    total = np.zeros(3)

    def f(x):
        np.add(total, x.numpy(), out=total)
        return torch.from_numpy(total) + 1
    f = compile(f)
    for n in range(6):
        yield f(vec() * n), total


def table_of_a_function_of_numpy(compile):
    box = Thing(how=np.sin)
    f = compile(lambda x: torch.from_numpy(box.how(x.numpy())))
    return around(f, put(box, how=np.cos), put(box, how=np.vectorize(lambda v: v * 2.0, otypes=[np.float32])))


def gradient_through_a_detour(compile):
    """A function of one's own whose work is done by NumPy."""
    class Detour(torch.autograd.Function):
        gain = 2.0

        @staticmethod
        def forward(ctx, x):
            return torch.from_numpy(x.detach().numpy() * Detour.gain)

        @staticmethod
        def backward(ctx, grad):
            return torch.from_numpy(grad.numpy() * np.float32(Detour.gain))
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        weight.grad = None
        y = Detour.apply(weight * x)
        y.sum().backward()
        return y, weight.grad
    return around(compile(f), put(Detour, gain=3.0))


def list_of_a_tensor(compile):
    kept = []

    def f(x):
        kept.append((x * 2.0).tolist())
        return x * len(kept)
    yield from each(compile(f), vec())
    yield kept
