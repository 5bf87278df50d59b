"""Every schedule gives PyTorch's rates, momenta and state, step by step."""

import warnings

import pytest
import torch

import flambeau
from flambeau.tensors.parameter import Parameter

CASES = {
    "LambdaLR": lambda S, o: S.LambdaLR(o, lambda e: 0.9**e),
    "LambdaLR-list": lambda S, o: S.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "MultiplicativeLR": lambda S, o: S.MultiplicativeLR(o, lambda e: 0.95),
    "StepLR": lambda S, o: S.StepLR(o, 3),
    "MultiStepLR": lambda S, o: S.MultiStepLR(o, [2, 5, 5], 0.3),
    "ConstantLR": lambda S, o: S.ConstantLR(o),
    "LinearLR": lambda S, o: S.LinearLR(o),
    "ExponentialLR": lambda S, o: S.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda S, o: S.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingLR": lambda S, o: S.CosineAnnealingLR(o, 4, 0.01),
    "CosineAnnealingWarmRestarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda S, o: S.CyclicLR(o, 0.01, 0.1, 3, mode="triangular2"),
    "CyclicLR-exp": lambda S, o: S.CyclicLR(o, 0.01, 0.1, 3, 2, mode="exp_range", gamma=0.9),
    "OneCycleLR": lambda S, o: S.OneCycleLR(o, 0.3, 12),
    "OneCycleLR-three": lambda S, o: S.OneCycleLR(o, [0.3, 0.2], epochs=4, steps_per_epoch=3, three_phase=True,
                                                  anneal_strategy="linear"),
    "SequentialLR": lambda S, o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [3]),
    "SequentialLR-warmup": lambda S, o: S.SequentialLR(o, [S.LinearLR(o, total_iters=3), S.CosineAnnealingLR(o, 5)], [4]),
    "ChainedScheduler": lambda S, o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)]),
}


def optimizer(mod, kind):
    make = torch.nn.Parameter if mod is torch else Parameter
    groups = [{"params": [make(mod.ones(2))]}, {"params": [make(mod.ones(3))], "lr": 0.5}]
    return mod.optim.SGD(groups, lr=0.1, momentum=0.9) if kind == "SGD" else mod.optim.Adam(groups, lr=0.1)


def rates(opt):
    return [(g["lr"], g.get("momentum"), g.get("betas")) for g in opt.param_groups]


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [] if x is None else [x]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", CASES)
def test_rates_match(name, kind):
    seen = []
    for mod in (torch, flambeau):
        opt = optimizer(mod, kind)
        sched = CASES[name](mod.optim.lr_scheduler, opt)
        path = [rates(opt)]
        for _ in range(10):
            opt.step()
            sched.step()
            path.append([rates(opt), sched.get_last_lr()])
        seen.append((flat(path), set(sched.state_dict())))
    assert seen[1][0] == pytest.approx(seen[0][0], rel=1e-12)
    assert seen[1][1] == seen[0][1], "state_dict keys"


@pytest.mark.parametrize("name", CASES)
def test_state_dict_resumes(name):
    opt = optimizer(flambeau, "SGD")
    sched = CASES[name](flambeau.optim.lr_scheduler, opt)
    for _ in range(4):
        opt.step()
        sched.step()
    other = optimizer(flambeau, "SGD")
    resumed = CASES[name](flambeau.optim.lr_scheduler, other)
    resumed.load_state_dict(sched.state_dict())
    other.load_state_dict(opt.state_dict())
    for _ in range(4):
        opt.step(), sched.step()
        other.step(), resumed.step()
        assert flat(rates(other)) == pytest.approx(flat(rates(opt)))


def test_plateau_matches():
    seen = []
    for mod in (torch, flambeau):
        opt = optimizer(mod, "SGD")
        sched = mod.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1, cooldown=1, factor=0.5, min_lr=[0.01, 0.2])
        path = []
        for value in (3, 2, 2, 2, 2, 2, 1.9999999, 2, 2, 5, 5, 5):
            sched.step(value)
            path.append(rates(opt))
        seen.append(flat(path))
    assert seen[1] == pytest.approx(seen[0])


@pytest.mark.parametrize("build, error", [
    (lambda S, o: S.StepLR("optimizer", 3), TypeError),
    (lambda S, o: S.ConstantLR(o, 2.0), ValueError),
    (lambda S, o: S.LinearLR(o, 0.0), ValueError),
    (lambda S, o: S.LambdaLR(o, [lambda e: 1]), ValueError),
    (lambda S, o: S.SequentialLR(o, [S.ConstantLR(o)], [1]), ValueError),
    (lambda S, o: S.OneCycleLR(o, 0.1), ValueError),
    (lambda S, o: S.ReduceLROnPlateau(o, factor=1.0), ValueError),
    (lambda S, o: S.ReduceLROnPlateau(o, mode="up"), ValueError),
    (lambda S, o: S.CosineAnnealingWarmRestarts(o, 0), ValueError),
    (lambda S, o: S.StepLR(o, 3, last_epoch=2), KeyError),
])
def test_bad_arguments_raise_as_in_pytorch(build, error):
    for mod in (torch, flambeau):
        with pytest.raises(error):
            build(mod.optim.lr_scheduler, optimizer(mod, "SGD"))


def test_wrong_order_warns():
    opt = optimizer(flambeau, "SGD")
    sched = flambeau.optim.lr_scheduler.StepLR(opt, 2)
    with pytest.warns(UserWarning, match="lr_scheduler.step"):
        sched.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.step()
        sched.step()
