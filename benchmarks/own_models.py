"""Models for `models.py` that need no library. Each function gives a model and its inputs; `labels` is what it should give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn


class Blocks3d(nn.Sequential):
    """Two convolutions with norms, as on every level of a UNet."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(nn.Conv3d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
                         nn.Conv3d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())


class UNet3d(nn.Module):
    """Down by pooling, up by transposed convolutions, with the finer level beside the coarser one on the way up."""

    def __init__(self, channels: tuple[int, ...] = (16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList(Blocks3d(i, o) for i, o in pairwise((1, *channels)))
        self.up = nn.ModuleList(nn.ConvTranspose3d(o, i, 2, stride=2) for i, o in pairwise(channels))
        self.join = nn.ModuleList(Blocks3d(2 * i, i) for i in channels[:-1])
        self.last = nn.Conv3d(channels[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        finer = []
        for block in self.down[:-1]:
            finer.append(block(x))
            x = nn.functional.max_pool3d(finer[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(reversed(self.up), reversed(self.join), strict=True):
            x = join(torch.cat([finer.pop(), up(x)], 1))
        return self.last(x)


def unet3d() -> tuple[nn.Module, dict[str, Any]]:
    return UNet3d(), dict(x=torch.randn(1, 1, 32, 64, 64), labels=torch.randn(1, 1, 32, 64, 64))


class Messages(nn.Module):
    """Each node gets the mean of its neighbours' vectors."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        total = x.new_zeros(x.shape).index_add(0, target, x[source])
        count = x.new_zeros(len(x)).index_add(0, target, x.new_ones(len(target))).clamp(min=1)
        return self.own(x) + self.others(total / count[:, None])


class GNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Messages(64, 128), Messages(128, 16)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edges)), edges)


def gnn(nodes: int = 10_000, edges: int = 80_000) -> tuple[nn.Module, dict[str, Any]]:
    return GNN(), dict(x=torch.randn(nodes, 64), edges=torch.randint(0, nodes, (2, edges)),
                       labels=torch.randint(0, 16, (nodes,)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10_000, 128)
        self.lstm = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.tags = nn.Linear(512, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.tags(self.lstm(self.embed(words))[0])


def tagger() -> tuple[nn.Module, dict[str, Any]]:
    return Tagger(), dict(words=torch.randint(0, 10_000, (16, 40)), labels=torch.randint(0, 20, (16, 40)))
