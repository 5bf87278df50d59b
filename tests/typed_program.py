"""A program as a careful user would write it: `mypy --strict` and pyright accept it (tests/test_typing.py)."""

from __future__ import annotations

from collections.abc import Iterator

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn, optim
from flambeau.utils.data import DataLoader, Dataset, TensorDataset


class Block(nn.Module):
    def __init__(self, width: int, rate: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(rate)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.first(self.norm(x)))
        change: Tensor = self.drop(self.second(hidden))  # what a module gives is Any, as in PyTorch
        return x + self.scale * change


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


def batches(data: Dataset[tuple[Tensor, ...]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from DataLoader(data, batch_size=size, shuffle=True)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    guess: Tensor = model(x).argmax(dim=1)
    return float((guess == y).float().mean())


def train(steps: int = 5) -> list[float]:
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    model = nn.Sequential(nn.Linear(8, 16), Block(16), nn.Linear(16, 3))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    @torch.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses: list[float] = []
    for _ in range(steps):
        for xs, ys in batches(TensorDataset(x, y), 32):
            losses.append(step(xs, ys).item())
        schedule.step()
    largest, where = x.max(dim=1)
    top = torch.topk(x, 2)
    assert largest.shape == where.shape == top.values[:, 0].shape
    table = torch.cat([x, x @ x.T], dim=1).sum(0, keepdim=True)
    assert table.dtype == torch.float32 and table.shape[1] == 72 and table.device.type == "cpu"
    weight = next(iter(model.parameters()))
    if weight.grad is not None:
        assert weight.grad.norm() >= 0
    with torch.inference_mode():
        assert 0 <= accuracy(model, x, y) <= 1
    torch.save(model.state_dict(), "typed.pt")
    model.load_state_dict(torch.load("typed.pt"))
    return losses


if __name__ == "__main__":
    print(train())
