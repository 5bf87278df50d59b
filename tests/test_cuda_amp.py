"""autocast and GradScaler on a CUDA device. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx

import flambeau as fl

pytestmark = needs_gxx


def test_precision_by_device(cuda):
    there, here = fl.ones(2, 2, device=cuda), fl.ones(2, 2)
    with fl.autocast("cuda"):
        assert (there @ there).dtype is fl.float16
        assert (here @ here).dtype is fl.float32
        assert fl.is_autocast_enabled("cuda")
        assert not fl.is_autocast_enabled("cpu")
    with fl.autocast("cuda", dtype=fl.bfloat16):
        assert (there @ there).dtype is fl.bfloat16
        with fl.autocast("cpu"):
            assert (here @ here).dtype is fl.bfloat16
            assert (there @ there).dtype is fl.bfloat16
        with fl.autocast("cuda", enabled=False):
            assert (there @ there).dtype is fl.float32
    with fl.autocast("cpu"):
        assert (there @ there).dtype is fl.float32
    assert (there @ there).dtype is fl.float32


@pytest.mark.parametrize("function", [fl.exp, fl.sum, lambda x: x.sum(), lambda x: x ** 2.5, fl.log1p,
                                      lambda x: 2 ** x, lambda x: x.norm()])
def test_delicate_functions_in_single_precision(function, cuda):
    x = fl.ones(4, 4, device=cuda, dtype=fl.float16)
    with fl.autocast("cuda"):
        assert function(x).dtype is fl.float32
        assert (x + x).dtype is fl.float16
    with fl.autocast("cpu"):
        assert fl.exp(x).dtype is fl.float16


def test_unsafe_functions_are_refused(cuda):
    x = fl.full((3,), 0.5, device=cuda)
    with fl.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        fl.nn.functional.binary_cross_entropy(x, x)


def test_gradients_come_back_in_full_precision(cuda):
    layer = fl.nn.Linear(3, 2).cuda()
    with fl.autocast("cuda", dtype=fl.bfloat16):
        out = layer(fl.ones(4, 3, device=cuda))
    assert out.dtype is fl.bfloat16
    out.float().sum().backward()
    assert layer.weight.grad.dtype is fl.float32
    fl.testing.assert_close(layer.weight.grad.cpu(), fl.full((2, 3), 4.0))


@pytest.mark.parametrize("dtype", [fl.float32, fl.float16, fl.bfloat16, fl.float64])
def test_unscale(dtype, cuda):
    for device in ("cpu", cuda):
        grads = [fl.tensor([1.0, -2.0], dtype=dtype, device=device), fl.ones(3, 4, dtype=dtype, device=device).t()[:, ::2]]
        found, inverse = fl.zeros((), device=device), fl.tensor(0.5, device=device)
        fl._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        assert (found.item(), grads[0].tolist(), grads[1].cpu().sum().item()) == (0, [0.5, -1.0], 4.0)
        for bad in ("inf", "-inf", "nan"):
            found.fill_(0)
            worst = fl.tensor([1.0, float(bad)], dtype=dtype, device=device)
            fl._amp_foreach_non_finite_check_and_unscale_([worst], found, inverse)
            assert found.item() == 1


def test_update_of_the_scale(cuda):
    for device in ("cpu", cuda):
        scale, good = fl.tensor(1024.0, device=device), fl.tensor(0, dtype=fl.int32, device=device)
        seen = []
        for found in (0, 0, 1, 0, 0, 0):
            fl._amp_update_scale_(scale, good, fl.tensor(float(found), device=device), 2.0, 0.5, 2)
            seen.append((scale.item(), good.item()))
        assert seen == [(1024, 1), (2048, 0), (1024, 0), (1024, 1), (2048, 0), (2048, 1)]
        scale.fill_(3e38)
        fl._amp_update_scale_(scale, good, fl.tensor(0.0, device=device), 2.0, 0.5, 2)
        assert scale.item() < 3.1e38  # it does not grow beyond what there is


class Descent(fl.optim.Optimizer):
    """Plain gradient descent by operations that every device has."""

    def __init__(self, params):
        super().__init__(params, {})

    @fl.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * 0.1)


def test_scaler(cuda):
    layer = fl.nn.Linear(3, 2).cuda()
    optimizer, scaler = Descent(layer.parameters()), fl.amp.GradScaler("cuda", init_scale=1024.0)
    assert scaler.is_enabled()
    before = layer.weight.detach().cpu().clone()
    with fl.autocast("cuda"):
        loss = layer(fl.ones(1, 3, device=cuda)).sum()
    scaler.scale(loss).backward()
    fl.testing.assert_close(layer.weight.grad.cpu(), fl.full((2, 3), 1024.0))
    scaler.unscale_(optimizer)
    fl.testing.assert_close(layer.weight.grad.cpu(), fl.ones(2, 3))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1024.0
    fl.testing.assert_close(layer.weight.detach().cpu(), before - 0.1)
    layer.zero_grad()
    scaler.scale(layer(fl.full((1, 3), float("inf"), device=cuda)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    fl.testing.assert_close(layer.weight.detach().cpu(), before - 0.1)
    assert scaler._scale.is_cuda
    other = fl.amp.GradScaler("cuda")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 512.0
