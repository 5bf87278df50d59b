"""A small network that reads handwritten digits (8x8 pixels; examples/data/README.md names their source)."""

from __future__ import annotations

import gzip
from pathlib import Path

from .. import Tensor, frombuffer, nn, no_grad, optim, randint, randperm, uint8
from ..nn import functional as F
from .demo import Task

STEPS = 1500
BATCH, TRAIN = 128, 1500


def make(steps: int) -> Task:
    """The model, its data and its optimizer for so many steps."""
    raw = bytearray(gzip.decompress((Path(__file__).parent / "data" / "digits.bin.gz").read_bytes()))
    table = frombuffer(raw, dtype=uint8).view(-1, 65)
    table = table[randperm(len(table))]
    images, labels = table[:, :64].float() / 16, table[:, 64].long()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    def batch() -> tuple[Tensor, Tensor]:
        pick = randint(0, TRAIN, (BATCH,))
        return images[pick], labels[pick]

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    def ending() -> str:
        with no_grad():
            found = model(images[TRAIN:]).argmax(1)
        right = (found == labels[TRAIN:]).float().mean().item()
        drawn = images[TRAIN].view(8, 8).tolist()
        rows = ["".join(2 * " .:-=+*#%@"[min(9, int(v * 10))] for v in row) for row in drawn]
        return (f"{right:.1%} of {len(images) - TRAIN} images that it never saw are read rightly. It takes this for a "
                f"{int(found[0])}:\n" + "\n".join(rows))

    return Task(f"A network of {sum(p.numel() for p in model.parameters()):,} weights learns to read {TRAIN} images of digits.",
                model, optimizer, optim.lr_scheduler.StepLR(optimizer, max(1, steps // 2), 0.3), batch, loss_of, "image",
                BATCH, ending)
