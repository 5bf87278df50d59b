"""Images of compiled convolutional nets lie channels last on a CUDA device; what a caller sees is as without."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def device(cuda):
    """Every test is on a CUDA device."""


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.short(x))


def net(*more):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), *more, Block(8, 8, 1), Block(8, 12, 2))


MODELS = {
    "blocks": net,
    "a mask of random numbers": lambda: net(nn.Dropout(0.5)),
    "pooling": lambda: net(nn.MaxPool2d(2)),
    "a window of another shape": lambda: net(nn.Flatten(2), nn.Linear(36, 36), nn.Unflatten(2, (6, 6))),
}


def steps(model, wrap, half):
    """Losses, an image that the caller gets, and parameters after some steps."""
    torch.manual_seed(1)
    model = model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = torch.randn(4, 3, 6, 6).cuda(), torch.randint(0, 12, (4,)).cuda()

    @wrap
    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            image = model(x)
            loss = F.cross_entropy(image.mean((2, 3)), y)
        loss.backward()
        optimizer.step()
        return loss, image

    torch.manual_seed(2)
    seen = []
    for _ in range(4):
        loss, image = step()
        assert image.is_contiguous()
        seen += [loss, image.detach().float()]
    return step, [t.cpu() for t in (*seen, *model.parameters(), *model.buffers())]


def orders(step):
    """How often images lie in each order between the operations of a compiled step."""
    (program,) = [plan.program for plans in step._compiled.plans.values() for plan in plans]
    assert program.graph is not None, program.refused
    images = [v for op in program.ops for v in op.writes if len(v.shape) == 4 and v.shape[0] == 4 and v.shape[2] > 1]
    return sum(v.strides[1] == 1 for v in images), sum(v.contiguous for v in images)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_steps(name, half):
    step, got = steps(MODELS[name], torch.compile, half)
    _, wanted = steps(MODELS[name], lambda f: f, half)
    for g, w in zip(got, wanted, strict=True):
        torch.testing.assert_close(g, w, **(dict(rtol=2e-2, atol=2e-2) if half else dict(rtol=1e-4, atol=1e-5)))
    last, first = orders(step)
    assert last > 2
    if name == "blocks" and not half:
        assert first == 6  # in the last block, whose result the caller gets


def test_single_precision_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    step, _ = steps(MODELS["blocks"], torch.compile, False)
    assert orders(step)[0] == 0
