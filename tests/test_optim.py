"""Optimizers follow PyTorch's path, keep its state format, and leave everything as it was when something is wrong."""

import copy
import pickle

import numpy as np
import pytest
import torch

import flambeau
from flambeau.tensors.parameter import Parameter

CONFIGS = [
    ("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3, maximize=True)),
    ("Adam", {}), ("Adam", dict(amsgrad=True, weight_decay=0.1, maximize=True)), ("AdamW", {}), ("AdamW", dict(amsgrad=True)),
    ("NAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)), ("RAdam", dict(lr=0.01)),
    ("Adamax", dict(weight_decay=0.1)),
    ("Adagrad", dict(lr_decay=0.1, initial_accumulator_value=0.2)), ("Adadelta", dict(weight_decay=0.1)),
    ("RMSprop", dict(momentum=0.5, centered=True)), ("RMSprop", dict(weight_decay=0.1)), ("Rprop", {}),
    ("ASGD", dict(t0=2, weight_decay=0.1)), ("Adafactor", dict(weight_decay=0.1)), ("Muon", {}),
]
IDS = [f"{n}-{'-'.join(k)}" for n, k in CONFIGS]


def parameter(mod, array):
    return (torch.nn.Parameter if mod is torch else Parameter)(mod.from_numpy(array.copy()))


def problem(mod, name, dtype=np.float32):
    rng = np.random.RandomState(0)
    shapes = [(4, 3), (3, 4)] if name == "Muon" else [(4, 3), (3,), (2, 2, 2)]
    return [parameter(mod, rng.standard_normal(s).astype(dtype)) for s in shapes]


def train(mod, params, opt, steps):
    path = []
    for i in range(steps):
        opt.zero_grad()
        sum(((p * (1 + i % 3)) ** 2).sum() + p.sin().sum() for p in params).backward()
        opt.step()
        path.append([p.detach().numpy().copy() for p in params])
    return path


@pytest.mark.parametrize("name, options", CONFIGS, ids=IDS)
def test_path_matches_pytorch(name, options):
    paths = []
    for mod in (torch, flambeau):
        params = problem(mod, name)
        paths.append(train(mod, params, getattr(mod.optim, name)(params, **options), 8))
    tolerance = dict(rtol=1e-2, atol=1e-3) if name == "Muon" else dict(rtol=2e-5, atol=1e-6)  # Muon works in bfloat16
    for theirs, ours in zip(*paths):
        for e, g in zip(theirs, ours):
            np.testing.assert_allclose(g, e, **tolerance)


@pytest.mark.parametrize("name, options", CONFIGS, ids=IDS)
def test_state_dict_crosses_over_from_pytorch(name, options):
    """PyTorch's state after 3 steps, loaded into ours, continues as PyTorch's."""
    theirs = problem(torch, name, np.float64)
    opt = getattr(torch.optim, name)(theirs, **options)
    train(torch, theirs, opt, 3)
    ours = [parameter(flambeau, p.detach().numpy()) for p in theirs]
    mine = getattr(flambeau.optim, name)(ours, **options)

    def convert(x):
        if isinstance(x, torch.Tensor):
            return flambeau.from_numpy(x.numpy().copy())
        if isinstance(x, dict):
            return {k: convert(v) for k, v in x.items()}
        return type(x)(map(convert, x)) if isinstance(x, (list, tuple)) else x

    saved = convert(opt.state_dict())
    mine.load_state_dict(saved)
    assert set(mine.state_dict()["param_groups"][0]) == set(opt.state_dict()["param_groups"][0])
    for e, g in zip(train(torch, theirs, opt, 3)[-1], train(flambeau, ours, mine, 3)[-1]):
        np.testing.assert_allclose(g, e, **(dict(rtol=1e-2, atol=1e-3) if name == "Muon" else dict(rtol=1e-9)))


@pytest.mark.parametrize("name, options", [c for c in CONFIGS if c[0] not in ("Adafactor", "Muon")],
                         ids=[i for i in IDS if not i.startswith(("Adafactor", "Muon"))])
def test_complex_parameters(name, options):
    ends = []
    for mod in (torch, flambeau):
        rng = np.random.RandomState(1)
        p = parameter(mod, rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2)))
        opt = getattr(mod.optim, name)([p], **options)
        for _ in range(4):
            opt.zero_grad()
            (p.abs() ** 2).sum().backward()
            opt.step()
        ends.append(p.detach().numpy())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop"])
def test_differentiable_step(name):
    """With differentiable=True a gradient flows through the update to what the gradient was computed from."""
    grads = []
    for mod in (torch, flambeau):
        start = mod.tensor([1.0, 2.0], dtype=mod.float64, requires_grad=True)
        p = start.clone()
        g = mod.tensor([0.3, -0.2], dtype=mod.float64, requires_grad=True)
        p.grad = g * 2
        opt = getattr(mod.optim, name)([p], lr=0.1, differentiable=True)
        opt.step()
        (p ** 2).sum().backward()
        grads.append((start.grad.numpy(), g.grad.numpy()))
    for e, v in zip(*grads):
        np.testing.assert_allclose(v, e, rtol=1e-9)


def test_groups_defaults_and_repr():
    texts = []
    for mod in (torch, flambeau):
        a, b = parameter(mod, np.ones(2, "f4")), parameter(mod, np.ones(3, "f4"))
        opt = mod.optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.1)
        opt.add_param_group({"params": [parameter(mod, np.ones(1, "f4"))], "momentum": 0.5})
        texts.append(repr(opt))
        assert [g["lr"] for g in opt.param_groups] == [0.1, 1.0, 0.1]
    assert texts[1] == texts[0]


@pytest.mark.parametrize("build, error", [
    (lambda m, p: m.optim.SGD([], lr=0.1), ValueError),
    (lambda m, p: m.optim.SGD(p, lr=0.1), TypeError),
    (lambda m, p: m.optim.SGD([1], lr=0.1), TypeError),
    (lambda m, p: m.optim.SGD([p], lr=-1), ValueError),
    (lambda m, p: m.optim.SGD([p], lr=0.1, nesterov=True), ValueError),
    (lambda m, p: m.optim.SGD([p * 2], lr=0.1), ValueError),
    (lambda m, p: m.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1), ValueError),
    (lambda m, p: m.optim.SGD([{"params": {p}}], lr=0.1), TypeError),
    (lambda m, p: m.optim.Adam([p], betas=(1.0, 0.9)), ValueError),
    (lambda m, p: m.optim.Adam([p], eps=-1), ValueError),
    (lambda m, p: m.optim.Muon([p]), ValueError),
    (lambda m, p: m.optim.Rprop([p], etas=(2, 1.2)), ValueError),
    (lambda m, p: m.optim.SGD([p], lr=0.1).load_state_dict({"state": {}, "param_groups": []}), ValueError),
    (lambda m, p: m.optim.SGD([p], lr=0.1).load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]}), ValueError),
])
def test_errors(build, error):
    for mod in (torch, flambeau):
        with pytest.raises(error):
            build(mod, parameter(mod, np.ones(3, "f4")))


def test_hooks_run_around_step():
    calls = []
    p = parameter(flambeau, np.ones(2, "f4"))
    opt = flambeau.optim.SGD([p], lr=0.1)
    pre = opt.register_step_pre_hook(lambda o, a, k: calls.append("pre"))
    opt.register_step_post_hook(lambda o, a, k: calls.append("post"))
    opt.step()
    pre.remove()
    opt.step()
    assert calls == ["pre", "post", "post"]


def test_step_enters_no_graph_and_counts_versions():
    p = parameter(flambeau, np.ones(2, "f4"))
    opt = flambeau.optim.Adam([p], lr=0.1)
    y = (p * p).sum()
    y.backward()
    before = p._version
    opt.step()
    assert p.is_leaf and p.grad_fn is None and p._version > before
    z = p * p
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_pickle_and_deepcopy():
    p = parameter(flambeau, np.ones(2, "f4"))
    opt = flambeau.optim.SGD([p], lr=0.1, momentum=0.9)
    (p * p).sum().backward()
    opt.step()
    for again in (pickle.loads(pickle.dumps(opt)), copy.deepcopy(opt)):
        q = again.param_groups[0]["params"][0]
        assert q is not p and np.allclose(again.state[q]["momentum_buffer"].numpy(), opt.state[p]["momentum_buffer"].numpy())


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_follows_pytorch_down_the_banana(search):
    seen = []
    for mod in (torch, flambeau):
        x = parameter(mod, np.array([-1.5, 2.0]))
        opt = mod.optim.LBFGS([x], line_search_fn=search, max_iter=10)

        def closure():
            opt.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss
        seen.append([opt.step(closure).item() for _ in range(4)] + x.tolist() + [opt.state[x]["func_evals"]])
    assert seen[1] == pytest.approx(seen[0], rel=1e-6)
