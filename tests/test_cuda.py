"""Tensors on a CUDA device, beside the same on the CPU. Without a GPU the host plays one (cuda_host.py)."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_host import needs_gxx

import flambeau as fl
from flambeau.backends.cuda import backend

pytestmark = needs_gxx
FLOATS = (fl.float32, fl.float64, fl.bfloat16, fl.float16)
DTYPES = (*FLOATS, fl.int8, fl.int16, fl.int32, fl.int64, fl.uint8, fl.bool)


def agree(function, *tensors, device="cuda"):
    """The same values, dtypes, shapes and strides on the device as on the CPU."""
    wanted = function(*tensors)
    got = function(*[t.to(device) if isinstance(t, fl.Tensor) else t for t in tensors])
    for w, g in zip(*[r if isinstance(r, (tuple, list)) else (r,) for r in (wanted, got)], strict=True):
        assert g.device == fl.device("cuda", 0)
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        fl.testing.assert_close(g.cpu(), w, equal_nan=True)


def draw(*shape, dtype=fl.float32, seed=0):
    made = fl.from_numpy(np.asarray(np.random.default_rng(seed).normal(size=shape) * 3))
    return made.to(dtype)


# ------------------------------------------------------------------------------------------------------------ memory
def test_there_and_back(cuda):
    for dtype in (*DTYPES, fl.complex64, fl.complex128):
        x = draw(3, 4, dtype=dtype)
        there = x.to(cuda)
        assert there.is_cuda
        assert str(there.device) == "cuda:0"
        assert there.to(cuda) is there
        assert there.to("cuda:0") is there
        fl.testing.assert_close(there.cpu(), x)
    x = draw(3, 4, 5).permute(2, 0, 1)
    assert x.to(cuda).stride() == x.stride()
    fl.testing.assert_close(x[:, 1:, ::2].to(cuda).cpu(), x[:, 1:, ::2])


def test_new_tensors(cuda):
    for made in (lambda d: fl.zeros(3, 4, device=d), lambda d: fl.ones(5, dtype=fl.int64, device=d),
                 lambda d: fl.full((2, 3), 2.5, device=d), lambda d: fl.arange(2, 11, 3, device=d),
                 lambda d: fl.eye(3, device=d), lambda d: fl.linspace(0, 1, 5, device=d),
                 lambda d: fl.tensor([[1.0, 2.0], [3.0, 4.0]], device=d)):
        there = made(cuda)
        assert there.is_cuda
        fl.testing.assert_close(there.cpu(), made("cpu"))
    x = fl.empty(0, 3, device=cuda)
    assert x.shape == (0, 3)
    assert (x + 1).shape == (0, 3)


def test_the_host_does_not_see_elements(cuda):
    x = draw(3).to(cuda)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*cuda:0 and cpu"):
        x + draw(3)
    fl.testing.assert_close((x + draw()).cpu(), draw(3) + draw())  # a zero-dim CPU tensor may join any device
    with pytest.raises(NotImplementedError, match="no CUDA kernel for 'that_nobody_wrote' of float32"):
        backend.call("that_nobody_wrote", (x._array,))
    assert x[1].item() == draw(3)[1].item()
    assert x.tolist() == draw(3).tolist()
    assert "device='cuda:0'" in repr(x)


def test_memory_is_used_again(cuda):
    from flambeau.backends.cuda import memory
    pool = memory.of(0)
    before = pool.allocated
    x = fl.empty(1 << 20, device=cuda)
    address = x.data_ptr()
    assert pool.allocated - before == 4 << 20
    view = x[10:]
    del x
    assert pool.allocated - before == 4 << 20
    del view
    assert pool.allocated == before
    assert fl.empty(1 << 20, device=cuda).data_ptr() == address
    pool.release()
    assert pool.reserved >= pool.allocated


# --------------------------------------------------------------------------------------------------------- pointwise
@pytest.mark.parametrize("name", ["exp", "sin", "sqrt", "abs", "neg", "relu", "sigmoid", "tanh", "floor", "erf", "log1p",
                                  "isnan", "sign", "square"])
def test_of_one(name, cuda):
    agree(getattr(fl, name), draw(4, 5, 6))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "atan2", "lt", "ge", "eq", "fmod", "remainder"])
def test_of_two(name, cuda):
    agree(getattr(fl, name), draw(4, 5, 6), draw(5, 1, seed=1))


def test_layouts(cuda):
    x = draw(4, 5, 6)
    for view in (lambda x: x, lambda x: x.transpose(0, 2), lambda x: x[:, 1:4, ::2], lambda x: x.flip(1), lambda x: x[..., :1],
                 lambda x: x[0], lambda x: x.expand(2, 4, 5, 6), lambda x: x.reshape(-1)[1:], lambda x: x.reshape(-1)[3:80:7]):
        agree(lambda x, v=view: v(x) * 2 + v(x), x)
    long = draw(100_001)
    agree(lambda x: x + 1, long)
    agree(lambda x: x[1:] * x[:-1], long)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype, cuda):
    x, y = draw(4, 33, dtype=dtype), draw(33, seed=1, dtype=dtype)
    agree(lambda x, y: x + y, x, y)
    agree(lambda x: x.to(fl.float32), x)
    agree(lambda x: x.to(dtype), draw(4, 33).abs())
    agree(lambda x: x.sum(1), x)
    agree(lambda x, y: fl.where(x > y, x, y), x, y)


# --------------------------------------------------------------------------------------------------------- reductions
def test_folds(cuda):
    x = draw(4, 5, 6)
    for dims in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        for keep in (False, True):
            agree(lambda x, d=dims, k=keep: (x.sum(d, keepdim=k), x.mean(d, keepdim=k), x.amax(d, keepdim=k)), x)
    agree(lambda x: (x.sum(), x.mean(), x.amin(), x.norm(), x.norm(1)), x)
    agree(lambda x: (x[:, ::2, 1:].sum(1), x[:, ::2, 1:].sum()), x)
    agree(lambda x: (x.sum(0), x.sum(1), x.sum()), draw(300, 1000, dtype=fl.float64))
    agree(lambda x: (x.sum(0), x.sum(1), x.sum()), draw(300, 1000).abs())  # nothing cancels: single precision will do
    x[2, 3, 4] = float("nan")
    agree(lambda x: x.amax(2), x)


# -------------------------------------------------------------------------------------------------------------- moves
@pytest.mark.parametrize("move", [
    lambda x: fl.cat([x, x * 2], 1), lambda x: fl.stack([x, x * 2], 1), lambda x: x.flip(0, 2), lambda x: x.roll(2, 1),
    lambda x: x.roll(7), lambda x: fl.nn.functional.pad(x, (1, 2, 0, 1), value=3.0), lambda x: x.repeat(2, 1, 3),
    lambda x: x.transpose(0, 1).contiguous(), lambda x: x.clone(), lambda x: x[1, :, 2:5] * 2, lambda x: x.unbind(1),
    lambda x: x.split(2, 2), lambda x: x.clamp(-1, 1)])
def test_moves(move, cuda):
    agree(move, draw(4, 5, 6))


def test_in_place(cuda):
    def change(x):
        x = x.clone()
        x.add_(1)
        x *= 2
        x[0] = 5
        x[1].zero_()
        x[:, 3:].copy_(x[:, :2])
        return x.mul_(x[0].clone())
    agree(change, draw(4, 5, 6))


# ----------------------------------------------------------------------------------------------------------- autograd
def test_gradients(cuda):
    def loss(x, w):
        return ((x * w - 1).tanh() ** 2).mean() + (x / (1 + w.exp())).sum()

    x, w = draw(4, 5, 6), draw(6, seed=1)
    grads = []
    for device in ("cpu", cuda):
        a, b = x.to(device).detach().requires_grad_(), w.to(device).detach().requires_grad_()
        loss(a, b).backward()
        grads.append((a.grad.cpu(), b.grad.cpu()))
    for on_cpu, on_device in zip(*grads):
        fl.testing.assert_close(on_device, on_cpu)


def test_gradients_cross_devices(cuda):
    x = draw(3).requires_grad_()
    (x.to(cuda) * 2).sum().backward()
    assert x.grad.device.type == "cpu"
    fl.testing.assert_close(x.grad, fl.full((3,), 2.0))
    assert type((x.to(cuda)).grad_fn).__name__ == "ToCopyBackward0"


# ----------------------------------------------------------------------------------------------------------- products
@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.complex64])
def test_products(dtype, cuda):
    a, b = draw(3, 4, dtype=dtype), draw(4, 5, seed=1, dtype=dtype)
    agree(lambda a, b: (a @ b, a.T.contiguous().T @ b, a[::2] @ b[:, ::2], b.T @ a.T), a, b)
    agree(lambda a, v: (a @ v, v @ v), a, draw(4, seed=2, dtype=dtype))
    agree(lambda a, b: a @ b, draw(6, 3, 4, dtype=dtype), draw(6, 4, 2, seed=1, dtype=dtype))
    agree(lambda a, b: a @ b, draw(2, 3, 3, 4, dtype=dtype), draw(4, 2, seed=1, dtype=dtype))
    agree(lambda c, a, b: (fl.addmm(c, a, b), fl.addmm(c, a, b, beta=0.5, alpha=2), fl.addmm(c, a, b, beta=0)),
          draw(5, seed=3, dtype=dtype), a, b)
    agree(lambda a, b: a @ b, draw(3, 0, dtype=dtype), draw(0, 5, dtype=dtype))


def test_linear_and_its_gradients(cuda):
    made = []
    for device in ("cpu", cuda):
        x, w, b = (t.to(device).detach().requires_grad_() for t in (draw(2, 7, 4), draw(5, 4, seed=1), draw(5, seed=2)))
        y = fl.nn.functional.linear(x, w, b)
        y.tanh().sum().backward()
        made.append([t.detach().cpu() for t in (y, x.grad, w.grad, b.grad)])
    for on_cpu, on_device in zip(*made):
        fl.testing.assert_close(on_device, on_cpu)


def test_complex_copies(cuda):
    agree(lambda x: (x.to(fl.complex64), x.to(fl.complex128)), draw(3, 4))
    agree(lambda z: (z.to(fl.complex128), z.T.contiguous(), z[:, ::2].clone()), draw(3, 4, dtype=fl.complex64))


def test_powers_by_numbers(cuda):
    for exponent in (2, 3, 0.5, -1, 2):  # each has an expression of its own
        agree(lambda x, e=exponent: x ** e, draw(3, 4).abs() + 1)


# ----------------------------------------------------------------------------------------------------------- compile
def test_compiled_functions_tell_devices_apart(cuda):
    compiled = fl.compile(lambda x: (x * 2).tanh().sum())
    x = draw(4, 5)
    wanted = (x * 2).tanh().sum()
    for _ in range(4):
        for device in ("cpu", cuda, "meta"):
            made = compiled(x.to(device))
            assert made.device.type == device
            if device != "meta":
                fl.testing.assert_close(made.cpu(), wanted)


def test_compiled_steps_run_on_the_device(cuda):
    curves = []
    for compiled in (False, True):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(4, 8), fl.nn.Tanh(), fl.nn.Linear(8, 2)).to(cuda)
        optimizer = fl.optim.SGD(model.parameters(), 0.1)
        x = draw(3, 4).to(cuda)

        def step(model=model, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = fl.compile(step) if compiled else step
        curves.append([step().item() for _ in range(5)])
    assert curves[0] == curves[1]
    assert curves[0][-1] < curves[0][0]
