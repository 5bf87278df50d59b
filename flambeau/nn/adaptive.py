"""An output layer for many classes: the frequent ones get a full softmax, the rest clusters of smaller ones."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from . import functional as F
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]
_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes below cutoffs[0] are in the head; each further cluster is reached through one class of the head.

    Shapes: (batch, in_features) and (batch).

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
    >>> layer(torch.randn(4, 8), torch.tensor([0, 6, 12, 19])).output.shape
    torch.Size([4])
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
                 head_bias: bool = False, device: Any = None, dtype: Any = None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(cutoffs) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1 or (
                len(set(cutoffs)) != len(cutoffs) or any(int(c) != c for c in cutoffs)):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                             "where each value is between 1 and n_classes-1")
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        options = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner = int(in_features // (div_value ** (i + 1)))
            outputs = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, inner, bias=False, **options),
                                        Linear(inner, outputs, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Resets all linear layers."""
        self.head.reset_parameters()
        for to_inner, to_outputs in self.tail:
            to_inner.reset_parameters()
            to_outputs.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        dims = target_.dim()
        if dims == 1:
            if input_.size(0) != target_.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError("1D target tensor expects 2D input tensors, but found inputs with size", input_.size())
        elif dims == 0:
            if input_.dim() != 1:
                raise RuntimeError("0D target tensor expects 1D input tensors, but found inputs with size", input_.size())
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = dims > 0
        x, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        used, output = 0, x.new_empty(target.size(0))
        in_head = target.new_empty(target.size(0))
        bounds = [0, *self.cutoffs]
        for i in range(len(bounds) - 1):
            low, high = bounds[i], bounds[i + 1]
            rows = ((target >= low) & (target < high)).nonzero().squeeze(-1)
            if rows.numel() == 0:
                continue
            if i == 0:
                in_head.index_copy_(0, rows, target[rows])
            else:
                relative = target[rows] - low
                cluster = F.log_softmax(self.tail[i - 1](x.index_select(0, rows)), dim=1)
                in_head.index_fill_(0, rows, self.shortlist_size + i - 1)
                output = output.index_copy(0, rows, cluster.gather(1, relative.unsqueeze(1)).squeeze(1))
            used += rows.numel()
        if used != target.size(0):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{target.min().item()}, {target.max().item()}] were found. ")
        head = F.log_softmax(self.head(x), dim=1)
        clustered = target >= self.shortlist_size
        output = FUNCTIONS["where"](clustered, output, output.new_zeros(()))
        output = output + head.gather(1, in_head.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        out = input.new_empty((head_output.size(0), self.n_classes))
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, :self.shortlist_size]]
        for i in range(self.n_clusters):
            cluster = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(cluster + head[:, self.shortlist_size + i].unsqueeze(1))
        return FUNCTIONS["cat"](parts, 1) if out.numel() else out

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class; the clusters are only computed where the head points to them."""
        head = self.head(input)
        output = head.argmax(dim=1)
        in_tail = ~(output < self.shortlist_size)
        if not in_tail.any().item():
            return output
        if in_tail.all().item():
            return self._get_full_log_prob(input, head).argmax(dim=1)
        rows = in_tail
        output[rows] = self._get_full_log_prob(input[rows], head[rows]).argmax(dim=1)
        return output
