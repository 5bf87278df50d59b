"""Errors that PyTorch's own tests look at: the same type, and a message that PyTorch's regular expressions find."""

import warnings

import numpy as np
import pytest
import torch

import flambeau

# Expressions that raise in PyTorch; the first 40 characters of the message are compared.
RAISING = """
torch.complex(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
torch.complex(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
torch.complex(torch.zeros(2), torch.zeros(2), out=torch.zeros(2, dtype=torch.complex128))
torch.linspace(0, 3, 1.0)
torch.logspace(0, 3, 1.0)
torch.histogramdd(torch.zeros(4, 3), [2, 2])
torch.multinomial(torch.zeros(2 ** 24 + 1, dtype=torch.float16), 1)
torch.narrow_copy(torch.zeros(10), 0, 0, -1)
torch.zeros(2, 3).view(-2, 3)
torch.zeros(2, 3).permute(0, 0)
torch.zeros(2, 3).permute(0)
torch.zeros(2, 4).t().view(torch.float64)
torch.zeros(2, dtype=torch.bool) - torch.ones(2, dtype=torch.bool)
1 - torch.ones(2, dtype=torch.bool)
torch.tensor([1., 2]) << 1
torch.bitwise_and(torch.tensor([1.]), torch.tensor([1.]))
torch.bitwise_not(torch.tensor([1.]))
torch.maximum(torch.ones(2, dtype=torch.complex64), torch.ones(2))
torch.zeros(2, dtype=torch.complex64) > 0
torch.lerp(torch.zeros(2), torch.ones(2, dtype=torch.float64), .5)
torch.isclose(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
torch.arange(6.).index_add(0, torch.tensor([0]), torch.tensor([1]))
torch.cumsum(torch.ones(2), 0, dtype=torch.bool)
torch.cumprod(torch.ones(2), 0, dtype=torch.bool)
torch.broadcast_tensors(torch.zeros(2), torch.zeros(3))
torch.device('foo')
torch.device('cpu', '1')
torch.set_default_dtype('a')
torch.zeros(2, requires_grad=True).__setattr__('requires_grad', 1)
torch.zeros(2, requires_grad=True).__setattr__('grad', torch.ones(2, dtype=torch.int32))
torch.autograd.graph.increment_version(3)
F.linear(torch.zeros(2, 3), torch.zeros(3, 3, dtype=torch.float64))
F.adaptive_avg_pool1d(torch.zeros(1, 2, 3), ())
F.adaptive_max_pool1d(torch.zeros(1, 2, 3), ())
F.adaptive_max_pool1d(torch.zeros(1, 1, 1), (-1,))
F.adaptive_avg_pool2d(torch.zeros(2, 2), (2, 2))
F.adaptive_avg_pool2d(torch.zeros(1, 2, 3, 4), ())
F.adaptive_max_pool2d(torch.zeros(1, 2, 3, 4), ())
F.adaptive_max_pool2d(torch.zeros(1, 1, 1, 1), (-1, 0))
F.adaptive_max_pool3d(torch.zeros(2, 2, 2), (2, 2, 2))
F.max_pool1d(torch.zeros(3, 3, 3), 1, stride=0)
F.max_pool1d(torch.zeros(3, 3, 3), 1, dilation=0)
F.max_pool1d(torch.zeros(2, 2, 2), 5, stride=1)
F.max_pool1d(torch.zeros(0, 1, 49), 0)
F.max_pool2d(torch.zeros(3, 4), 2)
F.max_pool2d(torch.zeros(1, 1, 2, 2), 3)
F.avg_pool3d(torch.zeros(0, 1, 49), 2)
F.conv1d(torch.zeros(1, 1, 4), torch.zeros(1, 2))
F.conv2d(torch.zeros(1, 1, 4, 3), torch.zeros(1, 2, 2), padding='same')
F.conv1d(torch.zeros(2, 2, 4), torch.zeros(2, 2, 2), groups=3)
F.soft_margin_loss(torch.zeros(5, 4), torch.zeros(5))
F.multi_margin_loss(torch.zeros(5, 4), torch.zeros(5, 4))
F.multi_margin_loss(torch.zeros(5, 4), torch.zeros(5))
F.softshrink(torch.zeros(1), -0.5)
F.cosine_similarity(torch.zeros(2, 3), torch.zeros(2, 4))
F.nll_loss(torch.zeros(3), torch.tensor([0, 1]))
F.cross_entropy(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64))
F.cross_entropy(torch.zeros(2, 3), torch.zeros(2))
F.cross_entropy(torch.zeros(4, 2), torch.zeros(5, 2))
F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), weight=torch.ones(2))
F.pad(torch.zeros(2, 3), (1, 1, 1, 1, 1, 1))
F.pad(torch.zeros(2, 3), (1, 1, 1, 1), mode='reflect')
F.interpolate(torch.zeros(1, 1, 4), scale_factor=(2, 2))
F.affine_grid(torch.zeros(2, 2, 3), (1, 1, 2, 2), align_corners=False)
torch.mm(torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool))
torch.pow(torch.tensor([True]), torch.tensor([False]))
torch.div(torch.tensor([True]), torch.tensor([True]), rounding_mode='floor')
torch.div(torch.tensor([True]), torch.tensor([True]), rounding_mode='trunc')
torch.ones(3).masked_fill_(torch.tensor([1, 0, 1]), 1)
torch.ones(3).masked_scatter_(torch.tensor([1, 0, 1]), torch.ones(3))
torch.where(torch.tensor([1., 0.]), torch.ones(2), torch.ones(2))
torch.where(torch.tensor([True]), 1)
torch.ones(4).tensor_split(torch.tensor(2.))
torch.ones(4).tensor_split(torch.ones(2, 2, dtype=torch.int64))
torch.zeros(3, 3).index_copy_(0, torch.tensor([[0]]), torch.ones(1, 3))
torch.zeros(3, 3).index_copy_(0, torch.tensor([0.]), torch.ones(1, 3))
torch.zeros(3, 3).index_add_(0, torch.tensor([0.]), torch.ones(1, 3))
torch.zeros(3, 3).index_fill_(0, torch.tensor([[0]]), 1)
torch.zeros(0).put_(torch.tensor([0]), torch.ones(1))
torch.ones(3).put_(torch.tensor([0]), torch.ones(1, dtype=torch.float64))
torch.repeat_interleave(torch.tensor([1., 2.]))
torch.zeros(2).set_(torch.zeros(3, dtype=torch.float64))
torch.addmm(torch.ones(2), torch.ones(3, 3), torch.ones(3, 3))
torch.linalg.tensorinv(torch.ones(2, 3), ind=0)
torch.linalg.ldl_solve(torch.eye(3), torch.ones(3, dtype=torch.int32), torch.ones(2, 1))
torch.linalg.slogdet(torch.eye(2, dtype=torch.float16))
torch.linalg.matrix_power(torch.eye(2), 1.5)
torch.linalg.vector_norm(torch.ones(3), ord='a')
torch.linalg.pinv(torch.eye(2), rcond=1, rtol=1)
torch.linalg.matrix_rank(torch.eye(2), tol=1, rtol=1)
torch.addcmul(torch.tensor([True]), torch.tensor([True]), torch.tensor([True]))
torch.topk(torch.tensor([True, False]), 1)
torch.isin(torch.tensor([True]), torch.tensor([True]))
torch.isin(torch.tensor([1j]), torch.tensor([1j]))
F.max_pool2d(torch.ones(1, 2, 2, dtype=torch.bool), 2)
F.avg_pool2d(torch.ones(1, 2, 2, dtype=torch.int32), 2)
F.avg_pool3d(torch.ones(1, 2, 2, 2, dtype=torch.bool), 2)
F.adaptive_avg_pool2d(torch.ones(1, 2, 2, dtype=torch.int64), 2)
F.adaptive_max_pool3d(torch.ones(1, 2, 2, 2, dtype=torch.complex64), 2)
F.glu(torch.ones(2, dtype=torch.int64))
torch.use_deterministic_algorithms(3)
torch.use_deterministic_algorithms(True, warn_only=1)
nn.HuberLoss(delta=1j)
nn.BatchNorm1d(10, eps=0.)(torch.zeros(2, 10))
nn.Parameter([1])
""".strip().splitlines()


def attempt(package, source):
    names = {"torch": package, "F": package.nn.functional, "nn": package.nn, "np": np}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(source, names)
        except Exception as error:
            return error
    return None


@pytest.mark.parametrize("source", RAISING)
def test_same_error(source):
    theirs, ours = attempt(torch, source), attempt(flambeau, source)
    assert theirs is not None, f"PyTorch does not raise any more: {source}"
    assert isinstance(ours, type(theirs)), f"PyTorch raises {theirs!r}, flambeau {ours!r}"
    wanted = str(theirs).split("\n")[0].removeprefix("torch.")[:40]
    assert wanted in str(ours), f"PyTorch says {theirs}\nflambeau says {ours}"


def test_where_warns_of_bytes():
    with pytest.warns(UserWarning, match="uint8 condition"):
        flambeau.where(flambeau.tensor([1, 0], dtype=flambeau.uint8), flambeau.zeros(2), flambeau.ones(2))


def test_views_of_several_outputs_are_named_as_pytorch_names_them():
    for package in (torch, flambeau):
        x = package.ones(4, requires_grad=True).clone()
        with pytest.raises(RuntimeError, match="Output 0 of Split is a view and is being modified inplace"):
            x.split(2)[0].add_(1)
        with pytest.raises(RuntimeError, match="Output 1 of Unbind is a view"):
            x.unbind()[1].mul_(2)


def test_inference_tensors_cannot_be_saved():
    for package in (torch, flambeau):
        with package.inference_mode():
            a = package.ones(2)
        with pytest.raises(RuntimeError, match="Please do not use Tensors created in inference mode"):
            a * package.ones(2, requires_grad=True)


def _optimizer_errors(framework):
    """What optimizers and schedulers refuse."""
    nn, optim = framework.nn, framework.optim
    one, two = nn.Parameter(framework.ones(2)), nn.Parameter(framework.ones(2))
    square = nn.Parameter(framework.ones(2, 2, dtype=framework.complex64))
    square.grad = framework.ones_like(square)
    a, b = framework.tensor(0.9), framework.tensor(0.99)
    yield lambda: optim.Adam([one], lr=framework.tensor(0.1), foreach=True)
    yield lambda: optim.AdamW([one], betas=(a, 0.99))
    yield lambda: optim.Adam([one], betas=(a, b), foreach=True)
    yield lambda: optim.SGD([("a", one)], lr=0.1).add_param_group({"params": [two]})
    yield lambda: optim.SGD([one], lr=0.1).add_param_group({"params": [("b", two)]})
    yield lambda: optim.lr_scheduler.SequentialLR(optim.SGD([one], lr=0.1), [], [])
    yield lambda: optim.lr_scheduler.ChainedScheduler([])
    yield optim.Muon([square]).step


def test_optimizers_refuse_what_pytorch_refuses():
    for ours, theirs in zip(_optimizer_errors(flambeau), _optimizer_errors(torch), strict=True):
        with pytest.raises((ValueError, RuntimeError)) as expected:
            theirs()
        with pytest.raises(expected.type) as found:
            ours()
        assert str(found.value) == str(expected.value)


def test_schedules_in_a_row_count_their_steps():
    seen = []
    for framework in (flambeau, torch):
        schedules = framework.optim.lr_scheduler
        optimizer = framework.optim.SGD([framework.nn.Parameter(framework.ones(2))], lr=0.1)
        parts = [schedules.ConstantLR(optimizer, 0.5, 2), schedules.ExponentialLR(optimizer, 0.9)]
        whole = schedules.SequentialLR(optimizer, parts, [2])
        seen.append([])
        for _ in range(5):
            optimizer.step()
            whole.step()
            seen[-1].append([p._step_count for p in parts] + [whole.last_epoch, whole.get_last_lr()])
    assert seen[0] == seen[1]
