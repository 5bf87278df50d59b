"""Which blocks of a score matrix an attention mask leaves, partly or whole: `BlockMask`, and masks made of rules.

A rule is a function of four indices (batch, head, query, key) that says whether a key is seen. It is asked for all places at
once, with indices that broadcast; where that is not the same as asking for one place after the other, the latter is done.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

from ...creation.factories import arange, tensor, zeros
from ...func.batching import vmap
from ...ops.core.row import FUNCTIONS
from ...tensors.dtypes import int32, int64
from ...tensors.tensor import Tensor

DEFAULT_BLOCK_SIZE = 128
_CHECKS = 8  # places at which a rule that was asked for all at once is asked alone
_trusted: set[Any] = set()  # the code of those that passed: a look at values would end the capture of a compiled call
_NO_ORDER = "BlockMask: an order in which blocks of a gradient are written is not implemented in flambeau"
_PAIRS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
          "full_q_num_blocks", "full_q_indices")


# ---------------------------------------------------------------------------------------------------------------- rules
def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The rule by which every key is seen."""
    return tensor(True, device=batch.device)


def _combined(rules: tuple[Callable, ...], start: bool, combine: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    if not all(callable(rule) for rule in rules):
        raise RuntimeError(f"All inputs should be callable mask_mods: {rules}")

    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = tensor(start, device=b.device)
        for each in rules:
            made = combine(made, each(b, h, q_idx, kv_idx))
        return made

    return rule


def or_masks(*mask_mods: Callable) -> Callable:
    """The rule that holds where any of these does."""
    return _combined(mask_mods, False, lambda x, y: x | y)


def and_masks(*mask_mods: Callable) -> Callable:
    """The rule that holds where all of these do."""
    return _combined(mask_mods, True, lambda x, y: x & y)


def takes_score(function: Callable) -> bool:
    """Whether a function changes scores (five arguments) rather than telling which are seen (four)."""
    count = sum(p.default is inspect.Parameter.empty for p in inspect.signature(function).parameters.values())
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def everywhere(rule: Callable, shape: tuple[int, int, int, int], device: Any, scores: Tensor | None = None) -> Tensor:
    """The rule's answers at all places; it is given the scores first where there are some."""
    indices = [arange(n, device=device) for n in shape]
    first = () if scores is None else (scores,)
    spread = [x.reshape([-1 if i == at else 1 for at in range(4)]) for i, x in enumerate(indices)]
    if all(shape):
        made = _at_once(rule, first, spread, shape)
        if made is not None:
            return made.expand(shape)
    for at in reversed(range(4)):
        rule = vmap(rule, in_dims=(*(0 for _ in first), *(0 if i == at else None for i in range(4))))
    return rule(*first, *indices)


def _at_once(rule: Callable, first: tuple[Tensor, ...], spread: list[Tensor], shape: tuple[int, ...]) -> Tensor | None:
    """One call for all places; None where its answers are not those for the places one by one."""
    try:
        made = rule(*first, *spread)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    if not isinstance(made, Tensor) or made.ndim != 4 or any(n not in (1, full) for n, full in zip(made.shape, shape)):
        return None
    key = _code(rule)
    if key in _trusted:
        return made
    everywhere = made.detach().expand(shape)
    total = math.prod(shape)
    for step in range(min(_CHECKS, total)):
        at, rest = [], step * (total - 1) // max(min(_CHECKS, total) - 1, 1)
        for n in reversed(shape):
            rest, place = divmod(rest, n)
            at.insert(0, place)
        alone = rule(*(x[tuple(at)] for x in first), *(x.reshape(-1)[i] for x, i in zip(spread, at)))
        if alone.ndim or not FUNCTIONS["isclose"](alone.detach(), everywhere[tuple(at)], rtol=1e-4, equal_nan=True):
            return None
    if key is not None:
        _trusted.add(key)
    return made


def _code(rule: Any) -> Any:
    """The code of a function and of those that it encloses; None where there is no telling."""
    if not hasattr(rule, "__code__"):
        return None
    try:
        enclosed = [cell.cell_contents for cell in rule.__closure__ or ()]
    except ValueError:  # a name that is not set yet
        return None
    inner = [f for value in enclosed for f in (value if isinstance(value, (tuple, list)) else [value])]
    codes = [_code(f) for f in inner if callable(f) and f is not rule]
    return None if None in codes else (rule.__code__, *codes)


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """What a rule leaves, as a boolean tensor (B, H, Q_LEN, KV_LEN)."""
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    if takes_score(mod_fn):
        scores = zeros(shape, device=device)
        return ~FUNCTIONS["isneginf"](everywhere(mod_fn, shape, device, scores))
    return everywhere(mod_fn, shape, device)


# --------------------------------------------------------------------------------------------------------------- blocks
def _dense_to_ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has, and which: those it has first."""
    counts = dense.to(_int32()).sum(-1).to(_int32())
    return counts, FUNCTIONS["argsort"](dense.to(_int32()), dim=-1, descending=True, stable=True).to(_int32())


def _ordered_to_dense(counts: Tensor, indices: Tensor) -> Tensor:
    kept = (arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)).to(_int32())
    return FUNCTIONS["zeros_like"](indices).scatter(-1, indices.to(_int64()), kept)


def _int32() -> Any:
    return int32


def _int64() -> Any:
    return int64


def _sliced_mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """The rule of a part of a mask: places are counted anew there, so the whole one's does not fit."""
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


class BlockMask:
    """A rule, with the blocks of keys that each block of queries sees (and the other way round)."""

    dq_write_order = dq_write_order_full = dq_kv_order = dq_kv_order_spt = None  # for PyTorch's CUDA kernels

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
                 full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None, q_num_blocks: Tensor | None,
                 q_indices: Tensor | None, full_q_num_blocks: Tensor | None, full_q_indices: Tensor | None,
                 BLOCK_SIZE: tuple[int, int], mask_mod: Callable):
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
                       full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
                       mask_mod: Callable | None = None, seq_lengths: tuple[int, int] | None = None,
                       compute_q_blocks: bool = True, *, dq_write_order: Tensor | None = None,
                       dq_write_order_full: Tensor | None = None, dq_kv_order: Tensor | bool | None = None) -> BlockMask:
        """From the blocks of keys alone; the queries that see each block are worked out."""
        if dq_write_order is not None or dq_write_order_full is not None or dq_kv_order is not None:
            raise NotImplementedError(_NO_ORDER)
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        turned = [(None, None)] * 2
        if compute_q_blocks:
            turned = [(None, None) if counts is None else _dense_to_ordered(_ordered_to_dense(counts, indices).mT)
                      for counts, indices in ((kv_num_blocks, kv_indices), (full_kv_num_blocks, full_kv_indices))]
        lengths = seq_lengths or (kv_indices.shape[-2] * sizes[0], kv_indices.shape[-1] * sizes[1])
        return cls(lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *turned[0], *turned[1], sizes,
                   mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All that it is made of; flatten: the sizes one by one."""
        blocks = (*(getattr(self, name) for name in _PAIRS), self.dq_write_order, self.dq_write_order_full, self.dq_kv_order,
                  self.dq_kv_order_spt)
        if flatten:
            return (*self.seq_lengths, *blocks, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *blocks, self.BLOCK_SIZE, self.mask_mod)

    def numel(self) -> int:
        """How many scores there would be without it."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """1 for every block in which something is seen."""
        dense = _ordered_to_dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None:
            return dense
        return dense | _ordered_to_dense(self.full_kv_num_blocks, self.full_kv_indices)

    def sparsity(self) -> float:
        """The percentage of scores that lie in blocks which are left out."""
        blocks = self.kv_num_blocks.sum().item()
        if self.full_kv_num_blocks is not None:
            blocks += self.full_kv_num_blocks.sum().item()
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to(self, device: Any) -> BlockMask:
        """The same on another device."""
        moved = [None if (t := getattr(self, name)) is None else t.to(device) for name in _PAIRS]
        return BlockMask(self.seq_lengths, *moved, self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        given = index if isinstance(index, tuple) else (index,)
        padded = (*given, slice(None), slice(None), slice(None))[:3]
        sizes = self.kv_num_blocks.shape[:3]
        kept = tuple(slice(i % n, i % n + 1) if isinstance(i, int) and -n <= i < n else i for i, n in zip(padded, sizes))
        parts = [None if (t := getattr(self, name)) is None else t[kept] for name in _PAIRS[:4]]
        return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced_mask_mod,
                                        seq_lengths=self.seq_lengths, compute_q_blocks=self.q_indices is not None)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left corner, for shorter sequences."""
        rows, columns = (-(-n // size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE))
        parts: list[Any] = []
        for counts, indices in ((self.kv_num_blocks, self.kv_indices), (self.full_kv_num_blocks, self.full_kv_indices)):
            dense = None if counts is None else _ordered_to_dense(counts, indices)[..., :rows, :columns]
            parts += (None, None) if dense is None else _dense_to_ordered(dense)
        return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod,
                                        seq_lengths=(new_q_len, new_kv_len))

    # ------------------------------------------------------------------------------------------------------ printing
    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of each batch and head: full, partly full and empty squares."""
        dense = self.to_dense()
        *batch, rows, columns = dense.shape
        wanted = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [max(1, -(-n // most)) if most > 0 else 1 for n, most in zip((rows, columns), wanted)]
        pictures = []
        for count, at in enumerate(itertools.product(*map(range, batch))):
            if count == limit:
                pictures += ["...", "To print out more, set BlockMask.to_string(limit=N)",
                             "You can also index (BlockMask[batch, head]) to choose a specific batch or head"]
                break
            lines = ["".join(_square(dense[at][r:r + steps[0], c:c + steps[1]]) * 2 for c in range(0, columns, steps[1]))
                     for r in range(0, rows, steps[0])]
            pictures.append("\n".join([str(at), *lines, ""]))
        return "\n".join(pictures)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        sizes = [f"    {name}={None if (t := getattr(self, name)) is None else t.shape},\n" for name in _PAIRS]
        rule = getattr(self.mask_mod, "__name__", self.mask_mod)
        return (f"BlockMask(\n{''.join(sizes)}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
                f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={rule}\n)")


def _square(part: Tensor) -> str:
    share = part.float().mean().item()
    return "█" if share == 1 else " " if share == 0 else "░"


def create_block_mask(mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
                      BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE, _compile: bool = False,
                      separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
                      dq_kv_order: bool = True) -> BlockMask:
    """The blocks that a rule leaves. None for B or H: the rule does not depend on it."""
    if compute_dq_write_order:
        raise NotImplementedError(_NO_ORDER)
    if takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype.name != "bool":
        raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
    rows, columns = (-(-n // size) for n, size in zip((Q_LEN, KV_LEN), sizes))
    padded = FUNCTIONS["constant_pad_nd"](mask, (0, columns * sizes[1] - KV_LEN, 0, rows * sizes[0] - Q_LEN), False)
    seen = padded.reshape(*mask.shape[:2], rows, sizes[0], columns, sizes[1]).sum((3, 5))
    full = seen == sizes[0] * sizes[1]
    partial = (seen > 0) & ~full if separate_full_blocks else seen > 0
    full_blocks = _dense_to_ordered(full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(*_dense_to_ordered(partial), *full_blocks, BLOCK_SIZE=sizes, mask_mod=mask_mod,
                                    seq_lengths=(Q_LEN, KV_LEN))
