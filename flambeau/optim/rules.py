"""The smaller optimizers, one class each: RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop, ASGD."""

from __future__ import annotations

from typing import Any

from ..creation.factories import full_like, ones_like, zeros_like
from ..ops.pointwise.comparison import maximum
from ._steps import larger, step_number
from .one_by_one import OneByOne, check_betas, decay, decayed
from .optimizer import check, check_floating, check_fused, check_lr, check_range, counter, number


class RMSprop(OneByOne, example="lr=0.1"):
    """Divides the gradient by the root of a running mean of its squares."""

    shaped, kernel = ("square_avg", "momentum_buffer", "grad_avg"), "fused_rmsprop"

    def __init__(self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False):
        check_lr(lr)
        check_range("epsilon value", eps)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        check_range("alpha value", alpha)
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay, capturable=capturable, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable))

    def prepare(self, group, p, state) -> None:
        self.start(p, state, "square_avg", "momentum_buffer" if group["momentum"] > 0 else "",
                   "grad_avg" if group["centered"] else "")

    def numbers(self, group) -> tuple[Any, ...]:
        return (number(group["lr"]), group["alpha"], group["eps"], group["weight_decay"], group["momentum"],
                group["maximize"])

    def one(self, group, p, grad, state) -> None:
        alpha, lr = group["alpha"], number(group["lr"])
        grad = decayed(group, p, grad)
        squares = state["square_avg"]
        squares.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            root = squares.addcmul(mean, mean, value=-1).sqrt_()
        else:
            root = squares.sqrt()
        root = root.add_(group["eps"]) if not group["differentiable"] else root.add(group["eps"])
        if group["momentum"] > 0:
            buffer = state["momentum_buffer"]
            buffer.mul_(group["momentum"]).addcdiv_(grad, root)
            p.add_(buffer, alpha=-lr)
        else:
            p.addcdiv_(grad, root, value=-lr)


class Adagrad(OneByOne, example="lr=0.1"):
    """Divides the gradient by the root of the sum of all its squares so far."""

    shaped, kernel = ("sum",), "fused_adagrad"

    def __init__(self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None):
        check_lr(lr)
        check_range("lr_decay value", lr_decay)
        check_range("weight_decay value", weight_decay)
        check_range("initial_accumulator_value value", initial_accumulator_value)
        check_range("epsilon value", eps)
        check_fused(fused, differentiable, foreach)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, fused=fused))
        for group in self.param_groups:
            for p in group["params"]:
                self.prepare(group, p, self.state[p])

    def prepare(self, group, p, state) -> None:
        start = group["initial_accumulator_value"]
        state["step"] = counter()
        state["sum"] = full_like(p, complex(start, start) if p.is_complex() else start)

    def share_memory(self) -> None:
        """Moves the state into shared memory, for updates from several processes."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def update(self, group, params, grads, states) -> None:
        if group["fused"]:
            check_floating(params[0])
        dense = [i for i, g in enumerate(grads) if not g.is_sparse]
        for i, grad in enumerate(grads):
            if grad.is_sparse:
                self._sparse(group, params[i], grad, states[i])
        if dense:
            super().update(group, *([list_[i] for i in dense] for list_ in (params, grads, states)))

    def _rate(self, group, state) -> float:
        return number(group["lr"]) / (1 + (step_number(state["step"]) - 1) * group["lr_decay"])

    def _sparse(self, group, p, grad, state) -> None:
        """Only the rows that have a gradient are touched."""
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state["step"] += 1
        grad = grad.coalesce()
        rows, values = grad.indices()[0], grad.values()
        values = -values if group["maximize"] else values
        total = state["sum"]
        total.index_add_(0, rows, values * values)
        root = total.index_select(0, rows).sqrt_().add_(group["eps"])
        p.index_add_(0, rows, values / root, alpha=-self._rate(group, state))

    def numbers(self, group) -> tuple[Any, ...]:
        return number(group["lr"]), group["lr_decay"], group["eps"], group["weight_decay"], group["maximize"]

    def one(self, group, p, grad, state) -> None:
        grad = decayed(group, p, grad)
        total = state["sum"]
        total.addcmul_(grad, grad, value=1)
        root = total.sqrt().add(group["eps"]) if group["differentiable"] else total.sqrt().add_(group["eps"])
        p.addcdiv_(grad, root, value=-self._rate(group, state))


class Adadelta(OneByOne, example="lr=1.0"):
    """Steps in units of past steps: the ratio of two running root-mean-squares."""

    shaped, kernel = ("square_avg", "acc_delta"), "fused_adadelta"

    def __init__(self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False):
        check_lr(lr)
        check(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        check_range("epsilon value", eps)
        check_range("weight_decay value", weight_decay)
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      capturable=capturable, foreach=foreach, differentiable=differentiable))

    def numbers(self, group) -> tuple[Any, ...]:
        return number(group["lr"]), group["rho"], group["eps"], group["weight_decay"], group["maximize"]

    def one(self, group, p, grad, state) -> None:
        rho, eps = group["rho"], group["eps"]
        grad = decayed(group, p, grad)
        squares, deltas = state["square_avg"], state["acc_delta"]
        squares.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        root = squares.add(eps).sqrt_()
        delta = deltas.add(eps).sqrt_()
        delta = (delta.clone() if group["differentiable"] else delta).div_(root).mul_(grad)
        deltas.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-number(group["lr"]))


class Adamax(OneByOne, example="lr=0.1"):
    """Adam with the largest recent gradient instead of the mean square."""

    shaped, kernel = ("exp_avg", "exp_inf"), "fused_adamax"

    def __init__(self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False):
        check_lr(lr)
        check_betas(betas, eps, weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))

    def numbers(self, group) -> tuple[Any, ...]:
        return number(group["lr"]), *group["betas"], group["eps"], group["weight_decay"], group["maximize"]

    def one(self, group, p, grad, state) -> None:
        beta1, beta2 = group["betas"]
        grad = decayed(group, p, grad)
        average, largest = state["exp_avg"], state["exp_inf"]
        average.lerp_(grad, 1 - beta1)
        largest.copy_(maximum(largest * beta2, grad.abs() + group["eps"]))
        divisor = largest.clone() if group["differentiable"] else largest
        p.addcdiv_(average, divisor, value=-number(group["lr"]) / (1 - beta1 ** step_number(state["step"])))


class NAdam(OneByOne, example="lr=0.1"):
    """Adam with Nesterov's look-ahead on the mean."""

    shaped, counts, kernel = ("exp_avg", "exp_avg_sq"), ("step", "mu_product"), "fused_nadam"

    def __init__(self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False):
        check_lr(lr)
        check_betas(betas, eps, weight_decay)
        check_range("momentum_decay value", momentum_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))

    def prepare(self, group, p, state) -> None:
        state.update(step=counter(), mu_product=counter() + 1)
        self.start(p, state, *self.shaped)

    def numbers(self, group) -> tuple[Any, ...]:
        return (number(group["lr"]), *group["betas"], group["eps"], group["weight_decay"], group["momentum_decay"],
                group["decoupled_weight_decay"], group["maximize"])

    def one(self, group, p, grad, state) -> None:
        beta1, beta2 = group["betas"]
        lr, step = number(group["lr"]), step_number(state["step"])
        grad = decay(group, p, grad)
        mu = beta1 * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * group["momentum_decay"]))
        state["mu_product"].mul_(mu)
        product = step_number(state["mu_product"])
        average, squares = state["exp_avg"], state["exp_avg_sq"]
        average.lerp_(grad, 1 - beta1)
        squares.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = squares.div(1 - beta2 ** step).sqrt().add(group["eps"])
        p.addcdiv_(grad, root, value=-lr * (1 - mu) / (1 - product))
        p.addcdiv_(average, root, value=-lr * mu_next / (1 - product * mu_next))


class RAdam(OneByOne, example="lr=0.1"):
    """Adam that waits with the division until the mean of squares can be trusted."""

    shaped, kernel = ("exp_avg", "exp_avg_sq"), "fused_radam"

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False):
        check_lr(lr)
        check_betas(betas, eps, weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      foreach=foreach, capturable=capturable,
                                      decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    def numbers(self, group) -> tuple[Any, ...]:
        return (number(group["lr"]), *group["betas"], group["eps"], group["weight_decay"], group["decoupled_weight_decay"],
                group["maximize"])

    def one(self, group, p, grad, state) -> None:
        beta1, beta2 = group["betas"]
        lr, step = number(group["lr"]), step_number(state["step"])
        grad = decay(group, p, grad)
        average, squares = state["exp_avg"], state["exp_avg_sq"]
        average.lerp_(grad, 1 - beta1)
        squares.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        correction2 = 1 - beta2 ** step
        corrected = average / (1 - beta1 ** step)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2 ** step / correction2
        if length > 5.0:
            ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            corrected = corrected * lr * (correction2 ** 0.5 / (squares.sqrt() + group["eps"])) * ratio ** 0.5
            p.add_(corrected, alpha=-1.0)
        else:
            p.add_(corrected * lr, alpha=-1.0)


class Rprop(OneByOne, example="lr=0.1"):
    """Uses the signs of the gradient only: a step grows while the sign stays and shrinks when it turns."""

    shaped = ("prev", "step_size")

    def __init__(self, params: Any, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False):
        check_lr(lr)
        check(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    def prepare(self, group, p, state) -> None:
        lr = number(group["lr"])
        state.update(step=counter(), prev=zeros_like(p), step_size=full_like(p, complex(lr, lr) if p.is_complex() else lr))

    def one(self, group, p, grad, state) -> None:
        smaller, larger = group["etas"]
        previous, size = state["prev"], state["step_size"]
        sign = grad.mul(previous.clone() if group["differentiable"] else previous).sign()
        factor = ones_like(sign).masked_fill_(sign > 0, larger).masked_fill_(sign < 0, smaller)
        size.mul_(factor).clamp_(*group["step_sizes"])
        grad = grad.masked_fill(sign < 0, 0)
        p.addcmul_(grad.sign(), size, value=-1)
        previous.copy_(grad)


class ASGD(OneByOne, example="lr=0.1"):
    """SGD that also keeps the average of the parameters."""

    shaped = ("ax",)

    def __init__(self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
                 weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False):
        check_lr(lr)
        check_range("weight_decay value", weight_decay)
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize, differentiable=differentiable,
                                      capturable=capturable))

    def prepare(self, group, p, state) -> None:
        state.update(step=counter(), eta=counter() + number(group["lr"]), mu=counter() + 1, ax=zeros_like(p))

    def one(self, group, p, grad, state) -> None:
        grad = decayed(group, p, grad)
        eta, step, lr = step_number(state["eta"]), step_number(state["step"]), number(group["lr"])
        p.mul_(1 - group["lambd"] * eta)
        p.add_(grad, alpha=-eta)
        state["ax"].lerp_(p, step_number(state["mu"]))  # that is p itself while mu is one
        state["eta"].fill_(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
        state["mu"].fill_(1 / larger(1, step - group["t0"]))
