"""What spawned processes run in the tests: in a file that does not import torch, so that they start quickly."""

from __future__ import annotations

import os
import signal
from typing import Any

import flambeau
from flambeau.utils.data import Dataset


class Squares(Dataset):
    """Numbers and their squares as tensors of some size; hooks for what goes wrong."""

    def __init__(self, n: int = 20, size: int = 2000, action: Any = None):
        self.n, self.size, self.action = n, size, action

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if self.action is not None:
            self.action(index)
        return flambeau.full((self.size,), float(index)), index * index


def add_one(tasks: Any, answers: Any, shared: Any) -> None:
    x = tasks.get()
    x += 1
    shared.mul_(3)
    answers.put(x)
    tasks.get()


def fail_second(i: int, what: str) -> None:
    if i == 1:
        raise ValueError(what)
    signal.pause()


def leave(i: int) -> None:
    os._exit(4)
