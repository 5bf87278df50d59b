"""Small models whose graphs the tests of viz look at."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Tied(nn.Module):
    """Blocks between an embedding and a head that share their weight."""

    def __init__(self, words: int = 11, width: int = 8, blocks: int = 2):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tied_step():
    """(model, a function that computes the loss of a step)."""
    torch.manual_seed(0)
    model = Tied()
    x, y = torch.randint(0, 11, (3, 5)), torch.randint(0, 11, (15,))

    def step():
        logits = model(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1), y)  # the line of the loss

    return model, step
