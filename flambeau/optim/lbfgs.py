"""L-BFGS: a quasi-Newton method that remembers the last few steps, with an optional strong-Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.modes import enable_grad, no_grad
from ..ops.pointwise.complex import view_as_real
from ..ops.shape.joining import cat
from .optimizer import Optimizer, check_lr


class LBFGS(Optimizer):
    """Minimises a closure; one `step` runs up to `max_iter` iterations. Takes a single group of parameters.

    >>> w = torch.tensor([5.0], requires_grad=True)
    >>> optimizer = torch.optim.LBFGS([w])
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 2) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> abs(w.item() - 2) < 1e-3
    True
    """

    def __init__(self, params: Any, lr: Any = 1, max_iter: int = 20, max_eval: int | None = None,
                 tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None):
        check_lr(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad,
                                      tolerance_change=tolerance_change, history_size=history_size,
                                      line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    # ------------------------------------------------------------------------------ all parameters as one vector
    def _flat_grad(self) -> Any:
        vectors = []
        for p in self._params:
            g = p.new_zeros(p.shape) if p.grad is None else p.grad.to_dense() if p.grad.is_sparse else p.grad
            vectors.append((view_as_real(g) if g.is_complex() else g).reshape(-1))
        return cat(vectors, 0)

    def _move(self, distance: float, direction: Any) -> None:
        offset = 0
        for p in self._params:
            p = view_as_real(p) if p.is_complex() else p
            n = p.numel()
            p.add_(direction[offset:offset + n].view_as(p), alpha=distance)
            offset += n

    def _restore(self, saved: list[Any]) -> None:
        for p, value in zip(self._params, saved):
            p.copy_(value)

    def _at(self, closure: Callable, start: list[Any], distance: float, direction: Any) -> tuple[float, Any]:
        """Loss and gradient a distance along the direction; the parameters end where they began."""
        self._move(distance, direction)
        loss = float(closure())
        grad = self._flat_grad()
        self._restore(start)
        return loss, grad

    # ------------------------------------------------------------------------------------------------ the method
    @no_grad()
    def step(self, closure: Callable) -> Any:
        """Runs the closure and improves the parameters; returns the first loss."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        lr, max_iter, tolerance = group["lr"], group["max_iter"], group["tolerance_change"]
        lr = lr.item() if hasattr(lr, "item") else lr

        def evaluate():
            with enable_grad():
                return closure()

        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = evaluate()
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max().item() <= group["tolerance_grad"]:
            return first_loss
        direction, distance = state.get("d"), state.get("t")
        previous_grad, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, max_iter + 1):
            state["n_iter"] += 1
            direction = self._direction(state, group["history_size"], grad, previous_grad, direction, distance)
            previous_grad, previous_loss = grad.clone(), loss
            distance = min(1.0, 1.0 / grad.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
            slope = grad.dot(direction).item()
            if slope > -tolerance:
                break
            used = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [p.clone() for p in self._params]
                loss, grad, distance, used = strong_wolfe(
                    lambda t, d: self._at(evaluate, start, t, d), distance, direction, loss, grad, slope)  # noqa: B023
                self._move(distance, direction)
                converged = grad.abs().max().item() <= group["tolerance_grad"]
            else:
                self._move(distance, direction)
                converged = False
                if iteration != max_iter:
                    loss = float(evaluate())
                    grad = self._flat_grad()
                    converged = grad.abs().max().item() <= group["tolerance_grad"]
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (iteration == max_iter or evaluations >= group["max_eval"] or converged
                    or direction.mul(distance).abs().max().item() <= tolerance or abs(loss - previous_loss) < tolerance):
                break
        state.update(d=direction, t=distance, prev_flat_grad=previous_grad, prev_loss=previous_loss)
        return first_loss

    @staticmethod
    def _direction(state: dict[str, Any], history: int, grad: Any, previous_grad: Any, direction: Any, distance: Any) -> Any:
        """The gradient times the approximate inverse Hessian, by the two-loop recursion over remembered steps."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1, al=[None] * history)
            return grad.neg()
        changes, steps, ratios = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = grad.sub(previous_grad), direction.mul(distance)
        curvature = change.dot(step).item()
        if curvature > 1e-10:
            if len(changes) == history:
                for memory in (changes, steps, ratios):
                    memory.pop(0)
            changes.append(change)
            steps.append(step)
            ratios.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change).item()
        weights = state.setdefault("al", [None] * history)
        q = grad.neg()
        for i in reversed(range(len(changes))):
            weights[i] = steps[i].dot(q).item() * ratios[i]
            q.add_(changes[i], alpha=-weights[i])
        r = q.mul(state["H_diag"])
        for i in range(len(changes)):
            r.add_(steps[i], alpha=weights[i] - changes[i].dot(r).item() * ratios[i])
        return r


def strong_wolfe(evaluate: Callable, t: float, d: Any, loss: float, grad: Any, slope: float, c1: float = 1e-4,
                 c2: float = 0.9, tolerance_change: float = 1e-9, max_ls: int = 25):
    """(loss, gradient, distance, evaluations) at a point that satisfies the strong Wolfe conditions.

    First steps out until a bracket holds such a point, then narrows it with cubic interpolation.
    """
    largest = d.abs().max().item()
    origin_loss, origin_slope = loss, slope
    new_loss, new_grad = evaluate(t, d)
    evaluations, new_slope = 1, new_grad.dot(d).item()
    old = (0.0, loss, grad, slope)
    bracket: list[tuple[float, float, Any, float]] = []
    done = False
    tries = 0
    while tries < max_ls:
        here = (t, new_loss, new_grad.clone(), new_slope)
        if new_loss > origin_loss + c1 * t * origin_slope or (tries > 1 and new_loss >= old[1]):
            bracket = [old, here]
            break
        if abs(new_slope) <= -c2 * origin_slope:
            bracket, done = [here], True
            break
        if new_slope >= 0:
            bracket = [old, here]
            break
        low, high = t + 0.01 * (t - old[0]), t * 10
        farther = cubic(old[0], old[1], old[3], t, new_loss, new_slope, bounds=(low, high))
        old, t = here, farther
        new_loss, new_grad = evaluate(t, d)
        evaluations += 1
        new_slope = new_grad.dot(d).item()
        tries += 1
    else:
        bracket = [(0.0, loss, grad, slope), (t, new_loss, new_grad, new_slope)]
    lazy = False
    best, worst = (0, 1) if len(bracket) == 1 or bracket[0][1] <= bracket[1][1] else (1, 0)
    while not done and tries < max_ls:
        a, b = bracket
        if abs(b[0] - a[0]) * largest < tolerance_change:
            break
        t = cubic(a[0], a[1], a[3], b[0], b[1], b[3])
        low, high = min(a[0], b[0]), max(a[0], b[0])
        margin = 0.1 * (high - low)
        if min(high - t, t - low) < margin:  # too near an end: once may be, twice in a row is not progress
            if lazy or t >= high or t <= low:
                t = high - margin if abs(t - high) < abs(t - low) else low + margin
                lazy = False
            else:
                lazy = True
        else:
            lazy = False
        new_loss, new_grad = evaluate(t, d)
        evaluations += 1
        new_slope = new_grad.dot(d).item()
        tries += 1
        here = (t, new_loss, new_grad.clone(), new_slope)
        if new_loss > origin_loss + c1 * t * origin_slope or new_loss >= bracket[best][1]:
            bracket[worst] = here
            best, worst = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new_slope) <= -c2 * origin_slope:
                done = True
            elif new_slope * (bracket[worst][0] - bracket[best][0]) >= 0:
                bracket[worst] = bracket[best]
            bracket[best] = here
    t, loss, grad, _ = bracket[best if len(bracket) > 1 else 0]
    return loss, grad, t, evaluations


def cubic(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with given slopes is least, kept within the bounds."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = square ** 0.5
    if x1 <= x2:
        least = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        least = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(least, low), high)
