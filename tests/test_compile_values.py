"""Compiled functions whose shapes depend on values, that call NumPy, vmap or torch.func: they give what the plain call
gives, at each call; with fullgraph=True too, for none of it is a reason to refuse a function."""

import numpy as np
import pytest
from compiled import programs, same_seen

import flambeau as torch

INPUTS = [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -2.0, 3.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0],
          [-1.0, -2.0, -3.0, -4.0], [5.0, 6.0], [4.0, -5.0, 6.0], [-1.0, 2.0, -3.0]]


def shown(value):
    """A value as data that nothing can change any more; arrays stay apart from tensors."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), value.requires_grad, value.detach().numpy().copy()
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.copy()
    if isinstance(value, np.generic):
        return "number", str(value.dtype), value.item()
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(shown, value)]
    return value


def play(build, wrap, given):
    np.random.seed(0)
    torch.manual_seed(0)
    fn = wrap(build())
    found = []
    for values in INPUTS:
        x = given(values)
        found.append([shown(fn(x)), shown(x), float(np.random.get_state()[1][:8].sum())])
    return found, fn


def check(build, given=torch.tensor, stays=None):
    expected, _ = play(build, lambda f: f, given)
    for options in ({}, {"fullgraph": True}):
        got, fn = play(build, lambda f: torch.compile(f, **options), given)
        same_seen(expected, got, 1e-5, f"call {options}")
        assert stays is None or bool(programs(fn)) is stays, fn._compiled.reasons


# ---------------------------------------------------------------------------------------------- shapes that depend on values
def put_numbers(x):
    y = x * 2
    y[x > 0] = torch.arange(float((x > 0).sum().item()))
    return y


def sliced(x):
    n = int(x.abs().max())
    return torch.arange(n), x[:max(1, n % 3)]


def added(x):
    y = x.clone()
    y[y < 1] += 3
    return y


def packed(x):
    kept = x[x != 0]
    return torch.zeros(len(x)).masked_scatter(x != 0, kept * 2), torch.bincount(x.abs().long())


SHAPES = {
    "nonzero": lambda x: (torch.nonzero(x > 0) * 2, torch.nonzero(x, as_tuple=True), torch.argwhere(x < 0), x + 1),
    "masked_select": lambda x: torch.masked_select(x * 2, x > 0) + 1,
    "a mask": lambda x: (x * 2)[x > 0].sum() + x,
    "where": lambda x: torch.where(x > 0)[0] + 1,
    "unique": lambda x: torch.unique((x > 0).long() + 1, return_counts=True),
    "item": lambda x: x * x.sum().item() + float(x[0]) - int(x[1]),
    "tolist": lambda x: [x + v for v in (x * 2).tolist()],
    "repeat_interleave": lambda x: torch.repeat_interleave(x * 2, (x > 0).long() + 1),
    "as many as are chosen": put_numbers,
    "slices": sliced,
    "chosen and added to": added,
    "packed": packed,
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_depend_on_values(name):
    check(lambda: SHAPES[name], stays=False)


# -------------------------------------------------------------------------------------------------- masked assignment
PLACES = [((3, 4, 5), 0, 1), ((3, 4, 5), 1, 1), ((3, 4, 5), 2, 1), ((3, 4, 5), 0, 2), ((3, 4, 5), 1, 2), ((3, 4, 5), 0, 3),
          ((4,), 0, 0)]


@pytest.mark.parametrize(("shape", "at", "dims"), PLACES)
def test_one_value_by_a_mask_is_part_of_the_program(shape, at, dims):
    before, behind = shape[:at], shape[at + dims:]
    key = lambda m: (slice(None),) * at + (m,)

    def step(x, m, v):
        y = x * 2
        y[key(m)] = 7.0
        z, put = x.clone().requires_grad_(), v.clone().requires_grad_()
        w = z * 1
        w[key(m)] = put
        (w * x).sum().backward()
        return y + 1, w.detach(), z.grad, put.grad

    make = np.random.RandomState(0)
    for put in dict.fromkeys([(), (1, *behind), (*before, 1, *behind), behind[1:], behind, (1,) * (len(shape) - dims + 1)]):
        fn = torch.compile(step, fullgraph=True)
        for share in (0.5, 0.0, 1.0, 0.7):
            x, v = (torch.tensor(np.asarray(make.randn(*s), "f4")) for s in (shape, put))
            m = torch.tensor(np.asarray(make.rand(*shape[at:at + dims]) < share))
            same_seen(shown(step(x, m, v)), shown(fn(x, m, v)), 1e-5, f"{put} {share}")
        assert programs(fn) == (1 if dims else 0), fn._compiled.reasons  # a mask without dimensions is looked at


def test_a_mask_of_bytes_is_a_mask():
    f = lambda x, m: x.clone().index_put((m,), torch.tensor(3.0))
    with pytest.warns(UserWarning, match="uint8"):
        fn = torch.compile(f)
        for bits in ([1, 0, 1], [0, 0, 1], [1, 1, 1]):
            m = torch.tensor(bits, dtype=torch.uint8)
            assert torch.equal(fn(torch.ones(3), m), f(torch.ones(3), m))


# --------------------------------------------------------------------------------------------------------------- NumPy
BUFFER = np.zeros(2, "f4")


def written_through(x):
    y = x + 1
    a = y.numpy()
    z = y * 2
    a[0] = 100
    w = y * 2
    y += 1
    return y, z, w, a, torch.from_numpy(a * 2)


def written_into(x):
    a = np.zeros(2, "f4")
    t = torch.from_numpy(a)
    t += x[0]
    b = a * 2
    a[1] = 5
    u = t * 2
    t.mul_(3)
    return u, b, a


def outside():
    BUFFER[:] = 0
    tensor = torch.from_numpy(BUFFER)

    def f(x):
        BUFFER[0] += 1
        y = tensor * x[0]
        tensor.add_(x[0])
        return y, tensor + 1, BUFFER.copy(), BUFFER.sum()
    return f


def slope(x):
    v = x.clone().requires_grad_()
    (v * v).sum().backward()
    return np.float32(2) * v.grad.numpy(), torch.tensor(v.detach().numpy() * 2)


def generating():
    rng = np.random.default_rng(3)
    return lambda x: (x + float(rng.random()), x * float(np.random.rand()), torch.from_numpy(np.random.randn(3)),
                      np.random.randint(9))


NUMPY = {
    "there and back": lambda: lambda x: torch.from_numpy(np.sin((x * 2).numpy())) + 1,
    "functions of tensors": lambda: lambda x: (
        np.sin(x * 2), np.mean(x), np.dot(x, x), np.concatenate([x, x]), np.where(x > 0, x, 0)),
    "arrays of tensors": lambda: lambda x: (np.array(x), np.asarray(x * 2) + 1, (x * 3).numpy()),
    "numbers": lambda: lambda x: (x * np.float64(2.5), np.float32(2) * x, x + np.ones(len(x), "f4"), x.sum() + np.pi),
    "written through": lambda: written_through,
    "written into": lambda: written_into,
    "memory from outside": outside,
    "gradients": lambda: slope,
    "random numbers": generating,
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_inside(name):
    check(NUMPY[name])


ARRAYS = {
    "given and returned": lambda a: np.sum(a * 2) + a,
    "made a tensor": lambda a: (torch.from_numpy(a) * 2 + 1, torch.as_tensor(a) + torch.tensor(a)),
    "changed": lambda a: (torch.from_numpy(a).add_(1), a * 2),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_as_arguments(name):
    check(lambda: ARRAYS[name], given=lambda values: np.array(values, "f4"))


# ------------------------------------------------------------------------------------------------------------ torch.func
def closing_over():
    scale = [1.0]

    def f(x):
        scale[0] += 1
        w = x.cos()
        return torch.vmap(lambda a: (a * w).sum() * scale[0])(x.expand(4, -1).clone())
    return f


def with_weight():
    w = torch.ones(1, requires_grad=True)

    def f(x):
        w.data += 1
        return torch.vmap(torch.func.grad(lambda a, b: (a * b * w.detach()).sum()), (0, None))(x.expand(2, -1) * 2, x)
    return f


FUNC = {
    "vmap": closing_over,
    "vmap of grad": with_weight,
    "grad": lambda: lambda x: torch.func.grad(lambda a: (a ** 3).sum() * len(x))(x),
    "jacobians": lambda: lambda x: (torch.func.jacrev(lambda a: a.sin() * x)(x), torch.func.jacfwd(torch.exp)(x),
                                    torch.func.hessian(lambda a: (a ** 3).sum())(x)),
    "values and gradients": lambda: lambda x: torch.func.grad_and_value(lambda a: a.prod())(x),
    "vjp and jvp": lambda: lambda x: (torch.func.vjp(torch.sin, x)[1](x), torch.func.jvp(torch.sin, (x,), (x,))),
}


@pytest.mark.parametrize("name", FUNC)
def test_transforms_inside(name):
    check(FUNC[name])
