"""Sequences of different lengths in one batch: padded, or packed so that no step is wasted on padding."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from ...creation.factories import arange, empty_like, tensor
from ...ops.shape.joining import cat, stack
from ...tensors.dtypes import int64
from ...tensors.tensor import Tensor

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence",
           "unpad_sequence", "pack_sequence", "unpack_sequence"]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """A batch of sequences step by step: `data` holds the first `batch_sizes[0]` rows of step 0, then those of 1...

    Longer sequences come first; sorted_indices says which they were. Made by pack_padded_sequence and pack_sequence.
    """

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None):
        return super().__new__(cls, *_packed_arguments(data, batch_sizes, sorted_indices, unsorted_indices))

    def _with(self, data: Tensor, move: Any = None) -> PackedSequence:
        if data is self.data:
            return self
        move = move or (lambda t: t)
        indices = [None if t is None else move(t) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def pin_memory(self) -> PackedSequence:
        """The same in page-locked memory."""
        return self._with(self.data.pin_memory(), lambda t: t.pin_memory())

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data in another dtype or on another device (the indices follow to the device)."""
        data = self.data.to(*args, **kwargs)
        return self._with(data, lambda t: t.to(data.device))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a GPU."""
        return self.to(*args, **{"device": "cuda", **kwargs})

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same in main memory."""
        return self.to(*args, device="cpu", **kwargs)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()


def _in_dtype(name: str) -> Any:
    def convert(self: PackedSequence) -> PackedSequence:
        return self._with(getattr(self.data, name)())

    convert.__name__, convert.__qualname__ = name, f"PackedSequence.{name}"
    convert.__doc__ = f"The same with the data of Tensor.{name}()."
    return convert


for _name in ("double", "float", "half", "long", "int", "short", "char", "byte"):
    setattr(PackedSequence, _name, _in_dtype(_name))


def _packed_arguments(data: Any, batch_sizes: Any, sorted_indices: Any, unsorted_indices: Any) -> tuple[Any, ...]:
    if unsorted_indices is None:
        unsorted_indices = invert_permutation(sorted_indices)
    if batch_sizes is not None:
        if batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                             "manually. They should be instantiated by functions like pack_sequence and "
                             "pack_padded_sequence in nn.utils.rnn.")
        return data, batch_sizes, sorted_indices, unsorted_indices
    if not (isinstance(data, (list, tuple)) and len(data) == 2):
        raise AssertionError("Expected data to be a list or tuple of length 2")
    return data[0], data[1], sorted_indices, unsorted_indices


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another one."""
    if permutation is None:
        return None
    result = empty_like(permutation)
    result.scatter_(0, permutation, arange(0, permutation.numel(), device=permutation.device))
    return result


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs a padded batch of shape (steps, batch, *), or (batch, steps, *) with batch_first.

    enforce_sorted: the lengths are decreasing already; otherwise the batch is sorted first.
    """
    if not isinstance(lengths, Tensor):
        lengths = tensor(list(lengths), dtype=int64)
    else:
        lengths = lengths.to(dtype=int64, device="cpu")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    data, batch_sizes = _pack(input.transpose(0, 1) if batch_first else input, lengths)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def _pack(input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(rows of the steps, how many in each step); the lengths decrease."""
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if lengths.dim() != 1:
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
                           f"{lengths.device.type} Long tensor")
    steps, batch = input.size(0), input.size(1)
    counts = lengths.tolist()
    if len(counts) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={batch})")
    if counts[-1] <= 0 or min(counts) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in pairwise(counts)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
                           "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
                           "requirement if you do not need ONNX exportability.")
    sizes = _sizes(counts)
    rows = [t * batch + b for t, size in enumerate(sizes[:steps]) for b in range(size)]
    flat = input.reshape(steps * batch, *input.shape[2:])
    return flat.index_select(0, tensor(rows, device=input.device)), tensor(sizes)


def _sizes(lengths: list[int]) -> list[int]:
    """How many of the (decreasing) lengths reach each step."""
    sizes, alive = [], len(lengths)
    for step in range(lengths[0] if lengths else 0):
        while lengths[alive - 1] <= step:
            alive -= 1
        sizes.append(alive)
    return sizes


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """Undoes pack_padded_sequence: (the padded batch, the lengths)."""
    data, batch_sizes = sequence.data, sequence.batch_sizes.tolist()
    steps = len(batch_sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but "
                             f"got total_length={total_length} and max sequence length being {steps}")
        steps = total_length
    batch = batch_sizes[0]
    rows = tensor([t * batch + b for t, size in enumerate(batch_sizes) for b in range(size)], device=data.device)
    flat = data.new_full((steps * batch, *data.shape[1:]), padding_value).index_copy(0, rows, data)
    padded = flat.view(steps, batch, *data.shape[1:])
    lengths = tensor([sum(size > b for size in batch_sizes) for b in range(batch)])
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences of shape (length, *) as one batch: (longest, batch, *), or (batch, longest, *) with batch_first."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    sequences = sequences.unbind(0) if isinstance(sequences, Tensor) else tuple(sequences)
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest = max(s.size(0) for s in sequences)
    trailing = sequences[0].shape[1:]
    rows = []
    for s in sequences:
        if s.shape[1:] != trailing:
            differing = next(i for i, (a, b) in enumerate(zip(trailing, s.shape[1:])) if a != b)
            raise RuntimeError(f"The size of tensor a ({trailing[differing]}) must match the size of tensor b "
                               f"({s.shape[1:][differing]}) at non-singleton dimension {differing + 1}")
        missing = longest - s.size(0)
        if missing:
            filler = s.new_full((missing, *trailing), padding_value)
            s = cat([s, filler] if padding_side == "right" else [filler, s])
        rows.append(s)
    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Undoes pad_sequence."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[:length] for sequence, length in zip(padded_sequences, lengths.tolist())]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences of shape (length, *)."""
    lengths = tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undoes pack_sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def get_packed_sequence(data: Tensor, batch_sizes: Tensor, sorted_indices: Any,
                        unsorted_indices: Any) -> PackedSequence:
    """A PackedSequence from its four parts."""
    return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
