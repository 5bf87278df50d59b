"""Optimizers on a CUDA device make the CPU's steps, each in one launch for all tensors."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import draw

import flambeau as fl

pytestmark = needs_gxx
SHAPES = ((3, 4), (9000,), (), (2, 8192), (0, 3))
RULES = {
    "sgd": lambda p: fl.optim.SGD(p, 0.1), "momentum": lambda p: fl.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: fl.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: fl.optim.Adam(p, 0.1, weight_decay=0.1), "adamw": lambda p: fl.optim.AdamW(p, 0.1, weight_decay=0.1),
    "amsgrad": lambda p: fl.optim.Adam(p, 0.1, amsgrad=True),
    "rmsprop": lambda p: fl.optim.RMSprop(p, 0.1), "centred": lambda p: fl.optim.RMSprop(p, 0.1, momentum=0.9, centered=True),
    "adagrad": lambda p: fl.optim.Adagrad(p, 0.1, lr_decay=0.1), "adadelta": lambda p: fl.optim.Adadelta(p, 1.0),
    "adamax": lambda p: fl.optim.Adamax(p, 0.1), "nadam": lambda p: fl.optim.NAdam(p, 0.1, weight_decay=0.1),
    "radam": lambda p: fl.optim.RAdam(p, 0.1)}


def steps(rule, device, dtype, count=7):
    params = [draw(*shape, seed=i, dtype=dtype).to(device).requires_grad_() for i, shape in enumerate(SHAPES)]
    optimizer = RULES[rule](params)
    for k in range(count):
        for i, p in enumerate(params):
            p.grad = draw(*p.shape, seed=100 * k + i, dtype=dtype).to(device) if k != 3 or i != 1 else None  # one falls behind
        optimizer.step()
    return [p.detach().cpu() for p in params]


@pytest.mark.parametrize("rule", RULES)
def test_same_steps(rule, cuda):
    for on_device, on_cpu in zip(steps(rule, cuda, fl.float32), steps(rule, "cpu", fl.float32)):
        fl.testing.assert_close(on_device, on_cpu, rtol=2e-5, atol=2e-6)  # seven steps, each rounded a little otherwise


def test_parameters_that_start_anywhere(cuda):
    """Some of the arrays are not where runs of 16 bytes start: those are updated one by one."""
    def run(device):
        base, grads = draw(2000).to(device), draw(2000, seed=1).to(device)
        params = [base[k:k + n].detach().requires_grad_() for k, n in ((0, 403), (405, 600), (1010, 17))]
        optimizer = fl.optim.AdamW(params, 0.1)
        for _ in range(3):
            for p, k in zip(params, (0, 405, 1011)):
                p.grad = grads[k:k + p.numel()]
            optimizer.step()
        return [p.detach().cpu() for p in params]
    for on_device, on_cpu in zip(run(cuda), run("cpu")):
        fl.testing.assert_close(on_device, on_cpu, rtol=2e-5, atol=2e-6)


def test_double_and_half(cuda):
    for on_device, on_cpu in zip(steps("adam", cuda, fl.float64), steps("adam", "cpu", fl.float64)):
        fl.testing.assert_close(on_device, on_cpu)
    for i, (on_device, shape) in enumerate(zip(steps("sgd", cuda, fl.bfloat16, 2), SHAPES)):
        expected = draw(*shape, seed=i, dtype=fl.bfloat16)
        for k in range(2):  # as on CUDA in PyTorch, where the rate is not rounded to bfloat16 first
            expected = (expected.float() - 0.1 * draw(*shape, seed=100 * k + i, dtype=fl.bfloat16).float()).bfloat16()
        fl.testing.assert_close(on_device, expected)


def test_one_launch(cuda, monkeypatch):
    from flambeau.backends.cuda import launch, optim
    launches = []

    class Counted(launch.Plan):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            run = self.run
            self.run = lambda *arguments: (launches.append(1), run(*arguments))[1]

    monkeypatch.setattr(optim, "Plan", Counted)
    optim._plan.cache_clear()
    params = [draw(*shape, seed=i).to(cuda).requires_grad_() for i, shape in enumerate(SHAPES)]
    for p in params:
        p.grad = draw(*p.shape, seed=3).to(cuda)
    fl.optim.AdamW(params).step()
    assert len(launches) == 1
    optim._plan.cache_clear()


@pytest.mark.parametrize("order", [1, 2, float("inf")])
def test_clipping(order, cuda):
    made = []
    for device in ("cpu", cuda):
        params = [draw(*shape, seed=i).to(device).requires_grad_() for i, shape in enumerate(SHAPES)]
        for i, p in enumerate(params):
            p.grad = draw(*p.shape, seed=10 + i).to(device)
        norm = fl.nn.utils.clip_grad_norm_(params, 1.5, order)
        assert norm.device.type == params[0].device.type
        made.append([norm.cpu(), *[p.grad.cpu() for p in params]])
    for on_cpu, on_device in zip(*made):
        fl.testing.assert_close(on_device, on_cpu, rtol=1e-5, atol=1e-7)
