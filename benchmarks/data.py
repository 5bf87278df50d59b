"""Data loading against PyTorch, in one interleaved run: time per batch with 0 and 2 workers.

    python benchmarks/data.py            # everything
    python benchmarks/data.py tensors    # one group: tensors, images, epochs

The workers of both sides live through the whole run (persistent_workers), one side working at a time; `epochs` measures
an epoch with its own workers, from their start to their end. Prints a Markdown table.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import onednn  # noqa: F401  (before torch)
import torch
import torch.utils.data
from harness import Report

import flambeau
import flambeau.utils.data

PAIR = {"flambeau": flambeau, "torch": torch}


def epoch_seconds(loader: Any) -> float:
    """The time of one pass, as a training loop would see it."""
    start = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - start


def per_batch(make: Callable[[Any], Any], rounds: int) -> tuple[float, float]:
    """Seconds per batch of flambeau and torch: the best of several passes, in turns."""
    loaders = {name: make(mod) for name, mod in PAIR.items()}
    best = dict.fromkeys(loaders, float("inf"))
    for loader in loaders.values():
        epoch_seconds(loader)
    gc.collect()
    for _ in range(rounds):
        for name, loader in loaders.items():
            best[name] = min(best[name], epoch_seconds(loader) / len(loader))
    return best["flambeau"], best["torch"]


def tensor_dataset(mod: Any, size: int = 20000) -> Any:
    return mod.utils.data.TensorDataset(mod.rand(size, 64), mod.arange(size))


class Images:
    """A picture and its label for each index, with a little work: scale, shift, flip."""

    def __init__(self, mod: Any, size: int = 2048):
        self.mod = mod
        self.raw = mod.randint(0, 256, (size, 3, 32, 32), dtype=mod.uint8)
        self.mean = mod.tensor([0.49, 0.48, 0.45]).view(3, 1, 1)
        self.std = mod.tensor([0.25, 0.24, 0.26]).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = (self.raw[index].float() / 255 - self.mean) / self.std
        return (image.flip(-1) if index % 2 else image), index % 10


def loader(mod: Any, dataset: Any, workers: int, **options: Any) -> Any:
    return mod.utils.data.DataLoader(dataset, shuffle=True, num_workers=workers, **options)


def tensors(report: Report) -> None:
    for workers in (0, 2):
        report.row(f"TensorDataset 20000x64, batch 64, {workers} workers", *per_batch(
            lambda m, w=workers: loader(m, tensor_dataset(m), w, batch_size=64, persistent_workers=w > 0), 12), 1.0)


def images(report: Report) -> None:
    for workers in (0, 2):
        report.row(f"images 3x32x32, batch 32, {workers} workers", *per_batch(
            lambda m, w=workers: loader(m, Images(m), w, batch_size=32, persistent_workers=w > 0), 12), 1.0)


def epochs(report: Report) -> None:
    report.row("TensorDataset, 2 workers, started and ended each epoch", *per_batch(
        lambda m: loader(m, tensor_dataset(m), 2, batch_size=64), 6), 1.0)
    report.row("images, 2 workers, started and ended each epoch", *per_batch(
        lambda m: loader(m, Images(m), 2, batch_size=32), 6), 1.0)


GROUPS = {"tensors": tensors, "images": images, "epochs": epochs}


def main() -> None:
    report = Report()
    for name in sys.argv[1:] or GROUPS:
        GROUPS[name](report)


if __name__ == "__main__":
    main()
