"""Small models trained on a CUDA device and on the CPU give the same losses. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import draw

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn

pytestmark = needs_gxx


class Attention(nn.Module):
    """Written out in tensor operations."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(fl.ones(length, length, device=x.device).tril() == 0, float("-inf"))
        return self.out((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width))


class Text(nn.Module):
    """One block of a GPT."""

    def __init__(self, words=17, width=16, length=8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.attention, self.first, self.second = Attention(width, 4), nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow, self.head = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, words)

    def forward(self, x):
        x = self.words(x) + self.places(fl.arange(x.shape[1], device=x.device))
        x = x + self.attention(self.first(x))
        return self.head(x + self.narrow(F.gelu(self.wide(self.second(x))))).flatten(0, 1)


def images():
    return nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(48, 10))


def numbers():
    return nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10), nn.LogSoftmax(1))


CASES = {"text": (Text, (fl.arange(24) * 5 % 17).reshape(3, 8), fl.arange(24) * 7 % 17, F.cross_entropy),
         "images": (images, draw(4, 3, 4, 4), fl.arange(4), F.cross_entropy),
         "numbers": (numbers, draw(6, 20), fl.arange(6), F.nll_loss)}


@pytest.mark.parametrize("name", CASES)
def test_training(name, cuda):
    make, x, target, loss = CASES[name]
    seen = []
    for device in ("cpu", cuda):
        fl.manual_seed(0)
        model, losses = make().to(device), []
        for _ in range(3):
            made = loss(model(x.to(device)), target.to(device))
            made.backward()
            with fl.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
                    p.grad = None
            losses.append(made.item())
        seen.append((fl.tensor(losses), *[t.cpu() for t in model.state_dict().values()]))
    for on_cpu, on_device in zip(*seen, strict=True):
        fl.testing.assert_close(on_device, on_cpu, rtol=1e-4, atol=1e-5)
