"""The state of a generator of a device: a seed, and how many words its streams have given. (Kernels: random.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .arrays import NotRecordable
from .launch import unrepeatable
from .streams import current

SEED, OFFSET = 0, 1  # places in the words


class Engine:
    """What a generator holds (cpu/random/engine.py is the CPU's). The words stay on the host: they travel with each launch."""

    def __init__(self) -> None:
        self.words = np.array([67280421310721, 0], np.uint64)  # the seed that PyTorch starts from

    @property
    def initial_seed(self) -> int:
        return int(self.words[SEED])

    def seed(self, seed: int) -> None:
        self.words[:] = seed & 0xFFFFFFFFFFFFFFFF, 0

    def get_state(self) -> ndarray:
        """16 bytes, as PyTorch has them: the seed, then the offset."""
        return self.words.view(np.uint8).copy()

    def set_state(self, state: ndarray) -> None:
        if state.size != 16:
            raise RuntimeError("RNG state is wrong size")
        words = np.ascontiguousarray(state).view(np.uint64)
        check_offset(int(words[OFFSET]))
        self.words[:] = words


def check_offset(offset: int) -> None:
    if offset % 4:
        raise RuntimeError("offset must be a multiple of 4")


def advance(words: Any, used: int) -> tuple[int, int]:
    """(seed, offset) of a draw that takes so many words of each stream; the next one starts behind them."""
    if current.capture is not None and not current.capture.live:
        raise NotRecordable("random numbers inside of torch.cuda.graph are not implemented: each launch would draw the same. "
                            "flambeau.compile makes graphs that draw as the plain call does")
    unrepeatable()
    seed, offset = int(words[SEED]), int(words[OFFSET])
    words[OFFSET] = offset + -(-used // 4) * 4
    return seed, offset
