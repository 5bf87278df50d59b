"""SparseAdam: Adam for sparse gradients. Rows without a gradient keep their values and their averages."""

from __future__ import annotations

from typing import Any

from ..creation.factories import zeros_like
from ..ops.index.embedding import adam_rows
from ._steps import counted
from .optimizer import Optimizer, check, check_lr, check_range, number


class SparseAdam(Optimizer):
    """Adam whose step touches only the rows that have a gradient.

    >>> table = nn.Embedding(4, 2, sparse=True)
    >>> optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
    >>> table(torch.tensor([1])).sum().backward()
    >>> optimizer.step()
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False):
        check_lr(lr)
        check(number(lr) > 0.0, f"Invalid learning rate: {lr}")
        check(eps > 0.0, f"Invalid epsilon value: {eps}")
        check_range("beta parameter at index 0", betas[0], 0, 1)
        check_range("beta parameter at index 1", betas[1], 0, 1)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        placed = [([g, i], p) for g, group in enumerate(self.param_groups) for i, p in enumerate(group["params"])]
        sparse = [place for place, p in placed if p.is_sparse]
        check(not sparse, f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        numbers = [place for place, p in placed if p.is_complex()]
        check(not numbers, f"Complex params at indices {numbers}: SparseAdam does not support complex parameters")

    def prepare(self, group, p, state) -> None:
        state["step"] = 0
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)

    def _step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not p.grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        super()._step()

    def update(self, group, params, grads, states) -> None:
        beta1, beta2 = group["betas"]
        for p, grad, state in zip(params, grads, states):
            step = counted(state, "step")
            rate = number(group["lr"]) * (1 - beta2 ** step) ** 0.5 / (1 - beta1 ** step)
            self._one(p, grad, state, beta1, beta2, rate, group)

    def _one(self, p, grad, state, beta1, beta2, rate, group) -> None:
        if grad.sparse_dim() == 1 and grad._nnz() and adam_rows(
                p, state["exp_avg"], state["exp_avg_sq"], grad._indices()[0], grad._values(), rate, beta1, beta2, group["eps"],
                group["maximize"]):
            return
        grad = grad.coalesce()
        values = -grad.values() if group["maximize"] else grad.values()
        if not values.numel():
            return
        place, tables = _rows(grad, p, state["exp_avg"], state["exp_avg_sq"])
        table, average, squares = tables
        # Rows of a coalesced gradient are unique, so each is read, changed and put back: no search for repeats.
        mean, square = average.index_select(0, place), squares.index_select(0, place)
        mean = values.sub(mean).mul_(1 - beta1).add_(mean)
        square = values.pow(2).sub_(square).mul_(1 - beta2).add_(square)
        average.index_copy_(0, place, mean)
        squares.index_copy_(0, place, square)
        change = mean.div_(square.sqrt_().add_(group["eps"]))
        table.index_copy_(0, place, table.index_select(0, place).add_(change, alpha=-rate))


def _rows(grad, *tensors):
    """(row numbers, the tensors seen as tables of such rows), for any number of sparse dimensions."""
    indices, n = grad.indices(), grad.sparse_dim()
    place = indices[0]
    for d in range(1, n):
        place = place * grad.shape[d] + indices[d]
    return place, tensors if n == 1 else [t.view(-1, *t.shape[n:]) for t in tensors]
