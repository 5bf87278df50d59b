"""`gradcheck` and `gradgradcheck`: derivatives as computed, against small differences of the function itself.

The numerical Jacobian comes from moving one element of one input at a time by +-eps (for complex inputs also along the
imaginary axis); the analytical one from one backward pass per element of the outputs. Both are matrices of (elements of
the input) x (elements of the output). For complex numbers a backward pass with gradient v computes v's product with the
conjugate Wirtinger derivative, so both sides are compared for v = 1 and, where the output is complex, v = 1j.
"""

from __future__ import annotations

import itertools
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..creation.factories import tensor, zeros_like
from ..ops.shape.joining import stack
from ..tensors.tensor import Tensor
from . import forward_ad
from .finite_differences import _get_numerical_jacobian, get_analytical_jacobian, get_numerical_jacobian  # noqa: F401
from .finite_differences import iter_tensors as _iter_tensors  # noqa: F401
from .function_tools import UndefinedGrad
from .modes import enable_grad
from .passes import grad as _differentiate


class GradcheckError(RuntimeError):
    """A derivative is wrong; the message says which."""


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False,
              check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
              masked: bool | None = None, check_sparse_nnz: bool | None = None) -> bool:
    """Whether the gradients of func at the inputs agree with finite differences within atol + rtol * |numerical|.

    Inputs should be float64 or complex128. fast_mode compares one random projection of the Jacobians instead of every
    element; masked is accepted and makes no difference to strided tensors.

    >>> x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.exp, x)
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    check = _Check(func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    try:
        with enable_grad():
            check.prepare()
            if not check.something_to_check():
                return True
            if check_backward_ad:
                check.backward_projected() if fast_mode else check.backward()
            if check_forward_ad:
                check.forward_projected() if fast_mode else check.forward()
                if check_undefined_grad:
                    check.undefined_tangents()
                if check_batched_forward_grad:
                    check.batched_tangents()
            if check_backward_ad:
                if check_batched_grad:
                    check.batched()
                check.proportional()
                if check_undefined_grad:
                    check.undefined()
        return True
    except GradcheckError:
        if raise_exception:
            raise
        return False


class _Check:
    """One run of gradcheck: the function, its inputs and outputs, the tolerances."""

    def __init__(self, func, inputs, eps, atol, rtol, nondet_tol, check_dtypes, fast):
        self.func, self.eps, self.atol, self.rtol, self.nondet_tol = func, eps, atol, rtol, nondet_tol
        self.check_dtypes, self.fast = check_dtypes, fast
        self.inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)

    # ------------------------------------------------------------------------------------------------- preparation
    def prepare(self) -> None:
        found = False
        for i, x in enumerate(self.inputs):
            if not isinstance(x, Tensor) or not x.requires_grad:
                continue
            if not (x.dtype.is_floating_point or x.dtype.is_complex):
                continue
            if x.dtype.name not in ("float64", "complex128"):
                warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. "
                              "This check will likely fail if all the inputs are not of double precision floating "
                              "point or complex. ", stacklevel=4)
            if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape)):
                raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                                   "that are non-overlapping to be able to compute the numerical gradients correctly. "
                                   "You should call .contiguous on the input before passing it to gradcheck.")
            found = True
            x.retain_grad()
        if not found:
            raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them "
                             "have requires_grad=True.")
        self.wanted = [i for i, x in enumerate(self.inputs) if isinstance(x, Tensor) and x.requires_grad]
        self.variables = tuple([self.inputs[i] for i in self.wanted])
        self.outputs = self.call(self.inputs)

    def call(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """The differentiable outputs."""
        outs = self.func(*inputs)
        outs = outs if isinstance(outs, (tuple, list)) else (outs,)
        return tuple([o for o in outs if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex())])

    def something_to_check(self) -> bool:
        if any(o.requires_grad for o in self.outputs):
            return True
        for i, column in enumerate(self.numerical_all()):
            for numerical in column:
                if any(abs(v) > 0 for row in numerical for v in row):
                    raise GradcheckError("Numerical gradient for function expected to be zero: the outputs do not require "
                                         f"grad, yet moving input {self.wanted[i]} changes them")
        return False

    # -------------------------------------------------------------------------------------------------- numerical
    def numerical_all(self) -> list[list[list[list[complex]]]]:
        """[input][output] -> matrix of d output / d input by central differences (input elements x output elements).

        A complex input has two rows per element: derivatives along the real and along the imaginary axis.
        """
        found = []
        for i in self.wanted:
            x = self.inputs[i]
            rows: list[list[list[complex]]] = [[] for _ in self.outputs]
            steps = (self.eps, self.eps * 1j) if x.is_complex() else (self.eps,)
            for index in _indices(x.shape):
                for step in steps:
                    for out, row in zip(rows, self.difference(i, index, step)):
                        out.append(row)
            found.append(rows)
        return found

    def difference(self, i: int, index: tuple[int, ...], step: complex) -> list[list[complex]]:
        """(f(x + step) - f(x - step)) / (2 |step|), flattened, per output; x is changed in place and put back."""
        x = self.inputs[i].data
        saved = x[index].item()
        try:
            x[index] = saved + step
            above = [o.detach().clone() for o in self.call(self.inputs)]
            x[index] = saved - step
            below = [o.detach().clone() for o in self.call(self.inputs)]
        finally:
            x[index] = saved
        self.check_alike(above, below, f"on index {index} ")
        return [((a - b) / (2 * self.eps)).reshape(-1).tolist() for a, b in zip(above, below)]

    def check_alike(self, above: list[Tensor], below: list[Tensor], where: str = "") -> None:
        """What an output looks like must not depend on the values of the inputs."""
        for a, b in zip(above, below):
            for name, one, other in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
                if one != other:
                    raise AssertionError(f"Expected `func` to return outputs with the same {name} when inputs are perturbed "
                                         f"{where}by {self.eps}, but got: {name}s {one} and {other}.")

    # -------------------------------------------------------------------------------------------------- analytical
    def pulled(self, o: int, outputs: tuple[Tensor, ...], seed: complex, index: tuple[int, ...]) -> tuple[Any, ...]:
        gradient = zeros_like(outputs[o])
        gradient[index] = seed
        return _differentiate(outputs[o], self.variables, gradient, retain_graph=True, allow_unused=True)

    def check_result(self, g: Any, x: Tensor, i: int) -> None:
        if g is None:
            return
        if g.shape != x.shape:
            raise GradcheckError(f"Analytical gradient has incorrect size: input {i} has {list(x.shape)}, its gradient "
                                 f"{list(g.shape)}")
        if self.check_dtypes and g.dtype is not x.dtype:
            raise GradcheckError(f"Analytical gradient has dtype {g.dtype}, its input {i} has {x.dtype}")

    def backward(self) -> None:
        numerical = self.numerical_all()
        outputs = self.call(self.inputs)
        for seed in (1j, 1.0):
            for o, out in enumerate(outputs):
                if out.requires_grad and (seed == 1.0 or out.is_complex()):
                    self.backward_from(o, outputs, seed, numerical)

    def backward_from(self, o: int, outputs: tuple[Tensor, ...], seed: complex, numerical: Any) -> None:
        """One backward pass per element of an output, started with the seed there and zeros elsewhere."""
        for position, index in enumerate(_indices(outputs[o].shape)):
            first = self.pulled(o, outputs, seed, index)
            again = self.pulled(o, outputs, seed, index)
            for k, (g, h) in enumerate(zip(first, again)):
                x = self.variables[k]
                self.check_result(g, x, self.wanted[k])
                got = _flat(g, x)
                self.reentrant(got, _flat(h, x), o, k)
                expected = _expected(numerical[k][o], position, seed, x.is_complex())
                self.compare(got, expected, o, k, position, seed)

    def reentrant(self, first: list[complex], again: list[complex], o: int, k: int) -> None:
        worst = max((abs(a - b) for a, b in zip(first, again)), default=0.0)
        if worst > self.nondet_tol:
            raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output "
                                 "multiple times gives different values, although analytical gradient matches "
                                 "numerical gradient. The "
                                 f"tolerance for nondeterminism was {self.nondet_tol}, the difference for output {o} with "
                                 f"respect to input {self.wanted[k]} was {worst}.")

    def compare(self, got: list[complex], expected: list[complex], o: int, k: int, position: int, seed: complex,
                mode: str = "backward") -> None:
        for element, (a, n) in enumerate(zip(got, expected)):
            if a == n or (a != a and n != n):
                continue
            if not abs(a - n) <= self.atol + self.rtol * abs(n):
                part, element_of = "imaginary" if seed == 1j else "real", "outputs" if mode == "backward" else "inputs"
                looked_at = self.outputs[o] if mode == "backward" else self.variables[k]
                kind = f"While considering the {part} part of complex {element_of} only, " if looked_at.is_complex() else ""
                mode_text = " computed with forward mode" if mode == "forward" else ""
                raise GradcheckError(
                    f"{kind}Jacobian{mode_text} mismatch for output {o} with respect to input {self.wanted[k]},\n"
                    f"numerical:{_short(expected)}\nanalytical:{_short(got)}\n"
                    f"(first difference: element {element} of the input, element {position} of the output: numerical "
                    f"{n}, analytical {a}; atol={self.atol}, rtol={self.rtol})")

    # ---------------------------------------------------------------------------------------------------- fast mode
    def directions(self, like: Sequence[Tensor]) -> list[Tensor]:
        """Fixed pseudo-random directions (the user's generator is left alone)."""
        made = []
        for k, x in enumerate(like):
            count = x.numel()
            numbers = [((i * 7919 + k * 104729 + 13) % 1009) / 1009 + 0.1 for i in range(count * (1 + x.is_complex()))]
            if x.is_complex():
                numbers = [complex(a, b) for a, b in zip(numbers[:count], numbers[count:])]
            made.append(tensor(numbers, dtype=x.dtype).reshape(x.shape).clone())  # no view: jvp may look at its base
        return made

    def difference_along(self, i: int, direction: Tensor) -> list[Tensor]:
        """Central difference of the outputs along a direction of input i, which is moved in place and put back.

        In place, because the function may read its parameters from elsewhere (a module) than its arguments.
        """
        x = self.inputs[i].data
        saved, step = x.clone(), direction * self.eps
        try:
            x.copy_(saved + step)
            above = [o.detach().clone() for o in self.call(self.inputs)]
            x.copy_(saved - step)
            below = [o.detach().clone() for o in self.call(self.inputs)]
        finally:
            x.copy_(saved)
        self.check_alike(above, below)
        return [(a - b) / (2 * self.eps) for a, b in zip(above, below)]

    def backward_projected(self) -> None:
        """u^T J v for one u and v per output and input; a mismatch is then located by the slow check."""
        outputs = self.call(self.inputs)
        seeds, ways = self.directions(outputs), self.directions(self.variables)
        moved = [self.difference_along(i, way) for i, way in zip(self.wanted, ways)]
        for o, out in enumerate(outputs):
            if not out.requires_grad:
                continue
            grads, again = (_differentiate(out, self.variables, seeds[o], retain_graph=True, allow_unused=True)
                            for _ in range(2))
            for k, (g, h) in enumerate(zip(grads, again)):
                self.check_result(g, self.variables[k], self.wanted[k])
                self.reentrant(_flat(g, self.variables[k]), _flat(h, self.variables[k]), o, k)
                got = 0.0 if g is None else _dot(g, ways[k])
                self.agree(got, _dot(seeds[o], moved[k][o]), o, k)

    def forward_projected(self) -> None:
        outputs = self.call(self.inputs)
        seeds, ways = self.directions(outputs), self.directions(self.variables)
        moved = [self.difference_along(i, way) for i, way in zip(self.wanted, ways)]
        for k, i in enumerate(self.wanted):
            for o, pushed in enumerate(self.pushed(i, ways[k])):
                got = sum((complex(a).conjugate() * b).real for a, b in zip(seeds[o].reshape(-1).tolist(), pushed))
                self.agree(got, _dot(seeds[o], moved[k][o]), o, k, "forward")

    def agree(self, got: float, expected: float, o: int, k: int, mode: str = "backward") -> None:
        size = self.outputs[o].numel() * self.variables[k].numel()
        if abs(got - expected) <= self.atol * max(1, size) + self.rtol * abs(expected):
            return
        self.forward() if mode == "forward" else self.backward()  # names the element
        raise GradcheckError(f"Jacobian mismatch for output {o} with respect to input {self.wanted[k]} along a random "
                             f"direction (fast mode): numerical {expected}, analytical {got}")

    # -------------------------------------------------------------------------------------------------- other checks
    def forward(self) -> None:
        numerical = self.numerical_all()
        for k, i in enumerate(self.wanted):
            x = self.inputs[i]
            row = 0
            for index in _indices(x.shape):
                for step in ((1.0, 1j) if x.is_complex() else (1.0,)):
                    tangent = zeros_like(x.detach())
                    tangent[index] = step
                    for o, got in enumerate(self.pushed(i, tangent)):
                        self.compare(got, numerical[k][o][row], o, k, row, step, "forward")
                    row += 1

    def pushed(self, i: int, tangent: Tensor) -> list[list[complex]]:
        with forward_ad.dual_level():
            duals = list(_detached(self.inputs))
            for j in self.wanted:
                duals[j] = forward_ad.make_dual(duals[j], tangent if j == i else zeros_like(duals[j]))
            found = []
            for out in self.call(duals):
                pushed = forward_ad.unpack_dual(out).tangent
                found.append([0.0] * out.numel() if pushed is None else pushed.detach().reshape(-1).tolist())
            return found

    def batched(self) -> None:
        """Several gradients in one call must equal one call each."""
        outputs = self.call(self.inputs)
        for o, out in enumerate(outputs):
            if not out.requires_grad or not out.numel():
                continue
            seeds = [zeros_like(out) + (0.5 + j) for j in range(2)]
            one = [_differentiate(out, self.variables, s, retain_graph=True, allow_unused=True) for s in seeds]
            both = _differentiate(out, self.variables, stack(seeds), retain_graph=True, allow_unused=True,
                                  is_grads_batched=True)
            for k, together in enumerate(both):
                for j in range(2):
                    a, b = one[j][k], None if together is None else together[j]
                    if (a is None) != (b is None) or (a is not None and not a.allclose(b, self.rtol, self.atol)):
                        raise GradcheckError(f"For output {o} and input {self.wanted[k]}: gradients of a batch differ "
                                             "from those of its entries")

    def undefined_tangents(self) -> None:
        """An input without a tangent must count as one whose tangent is zero."""
        ways = self.directions(self.variables)
        with forward_ad.dual_level():
            duals = list(_detached(self.inputs))
            for i, way in zip(self.wanted, ways):
                duals[i] = forward_ad.make_dual(duals[i], way)
            for i in self.wanted:
                primal, kept = self.inputs[i].detach(), duals[i]
                tangents = []
                for given in (forward_ad.make_dual(primal, zeros_like(primal)), primal):
                    duals[i] = given
                    tangents.append([forward_ad.unpack_dual(o).tangent for o in self.call(duals)])
                duals[i] = kept
                for o, (a, b) in enumerate(zip(*tangents)):
                    if a is not None and b is not None and not a.allclose(b):
                        raise GradcheckError("Mismatch in tangent values for output with index: ", o, " when input: ",
                                             self.inputs[i], " has an undefined tangent value. ", " Got: ", a,
                                             " but expected: ", b)

    def batched_tangents(self) -> None:
        """Several tangents in one call must equal one call each."""
        from ..func import vmap
        for i in self.wanted:
            tangents = [zeros_like(self.inputs[i].detach()) + (0.5 + j) for j in range(2)]
            expected = [stack(shards) for shards in zip(*[self.pushed_tensors(i, t) for t in tangents])]
            try:
                result = vmap(lambda t, i=i: self.pushed_tensors(i, t))(stack(tangents))
            except RuntimeError as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}\n\ngradcheck failed while testing "
                                     "batched gradient computation with forward-mode AD.") from error
            for o, (a, b) in enumerate(zip(result, expected)):
                if not a.allclose(b):
                    raise GradcheckError(f"For output {o} and input {i}:\n\ngradcheck failed while testing batched gradient "
                                         f"computation with forward-mode AD.\n\nGot:\n{a}\n\nExpected:\n{b}")

    def pushed_tensors(self, i: int, tangent: Tensor) -> tuple[Tensor, ...]:
        """The outputs' tangents for one tangent of input i; zeros where there is none."""
        with forward_ad.dual_level():
            duals = list(_detached(self.inputs))
            duals[i] = forward_ad.make_dual(duals[i], tangent)
            pairs = [forward_ad.unpack_dual(o) for o in self.call(duals)]
            return tuple([zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs])

    def proportional(self) -> None:
        """A backward pass with zero gradients must give zeros, of the inputs' kind."""
        outputs = [o for o in self.call(self.inputs) if o.requires_grad]
        grads = _differentiate(outputs, self.variables, [zeros_like(o) for o in outputs], allow_unused=True)
        for g, x in zip(grads, self.variables):
            if g is None:
                continue
            if g.layout != x.layout:
                raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
            if not g.eq(0).all():
                raise GradcheckError("backward not multiplied by grad_output")
            for name, same in (("type", g.dtype is x.dtype), ("device", g.device == x.device), ("size", g.shape == x.shape)):
                if not same:
                    raise GradcheckError(f"grad is incorrect {name}")

    def undefined(self) -> None:
        """Backward must cope with outputs that no gradient reaches, and give zeros or None for them."""
        count = len([o for o in self.outputs if o.requires_grad])
        for silent in (range(count), *([j] for j in range(count) if count > 1)):
            outputs = [o for o in self.call(self.inputs) if o.requires_grad]
            live = [UndefinedGrad()(o) if j in silent else o for j, o in enumerate(outputs)]
            try:
                grads = _differentiate(live, self.variables, [zeros_like(o) for o in live], allow_unused=True)
            except RuntimeError as error:
                warnings.warn("Backwards compatibility: New undefined gradient support checking feature is enabled by "
                              "default, but it may break existing callers of this function. If this is true for you, you "
                              "can call this function with \"check_undefined_grad=False\" to disable the feature",
                              stacklevel=3)
                raise GradcheckError("Expected backward function to handle undefined output grads. Please look at "
                                     "\"Notes about undefined output gradients\" in "
                                     f"\"tools/autograd/derivatives.yaml\" of PyTorch. It failed with: {error}") from error
            for k, g in enumerate(grads):
                if g is not None and any(v != 0 for v in g.detach().reshape(-1).tolist()):
                    raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are "
                                         f"undefined or zero, but the gradient of input {self.wanted[k]} is not")


def _detached(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([x.detach() if isinstance(x, Tensor) else x for x in inputs])


def _flat(grad: Any, like: Tensor) -> list[complex]:
    if grad is None:
        return [0.0] * like.numel()
    return (grad.to_dense() if grad.is_sparse else grad).detach().reshape(-1).tolist()


def _expected(matrix: list[list[complex]], position: int, seed: complex, complex_input: bool) -> list[complex]:
    """What a backward pass with gradient `seed` at one output element should give, from the real derivatives.

    With dx, dy the derivatives along the axes, the gradient is Re(conj(seed) * dx) + 1j * Re(conj(seed) * dy).
    """
    weight = complex(seed).conjugate()
    if not complex_input:
        return [(weight * row[position]).real for row in matrix]
    return [complex((weight * matrix[r][position]).real, (weight * matrix[r + 1][position]).real)
            for r in range(0, len(matrix), 2)]


def _dot(a: Tensor, b: Tensor) -> float:
    """The real inner product of two tensors of one shape."""
    pairs = zip(_flat(a, a), b.reshape(-1).tolist())
    return sum((complex(x).conjugate() * y).real for x, y in pairs)


def _short(values: list[complex], most: int = 12) -> str:
    text = ", ".join(f"{v:.6g}" for v in values[:most])
    return f"[{text}{', ...' if len(values) > most else ''}]"


def _indices(shape: Sequence[int]):
    """All index tuples of a shape, last dimension fastest."""
    return itertools.product(*[range(n) for n in shape])


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
                  atol: float = 1e-5,
                  rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
                  check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """Whether the gradients of func's gradients, by the inputs and grad_outputs, agree with differences.

    >>> x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradgradcheck(torch.exp, x)
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    count = len(inputs)
    grad_outputs = _grad_outputs(func, inputs, grad_outputs, gen_non_contig_grad_outputs)
    if grad_outputs is None:
        return True

    def first(*args: Any) -> tuple[Tensor, ...]:
        given, seeds = args[:count], args[count:]
        given = tuple([x.requires_grad_(True) if _is_fresh(x) and inputs[i].requires_grad else x
                       for i, x in enumerate(given)])
        with enable_grad():
            outs = func(*given)
            outs = outs if isinstance(outs, (tuple, list)) else (outs,)
            outs = [o for o in outs if isinstance(o, Tensor) and o.requires_grad]
            wanted = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
            grads = _differentiate(outs, wanted, seeds, create_graph=True, allow_unused=True)
        return tuple([g for g in grads if g is not None])

    return gradcheck(first, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad,
                     check_grad_dtypes=check_grad_dtypes,
                     check_batched_grad=check_batched_grad, fast_mode=fast_mode, check_forward_ad=check_fwd_over_rev,
                     check_backward_ad=check_rev_over_rev, masked=masked)


def _is_fresh(x: Any) -> bool:
    return isinstance(x, Tensor) and x._node is None


def _grad_outputs(func: Callable[..., Any], inputs: tuple[Any, ...], given: Any, spread: bool) -> tuple[Tensor,
                                                                                                        ...] | None:
    if given is not None:
        return tuple(given) if isinstance(given, (tuple, list)) else (given,)
    outs = func(*inputs)
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    made = []
    for o in outs:
        if isinstance(o, Tensor) and o.requires_grad:
            from ..ops.random.factories import randn
            g = randn(o.shape, dtype=o.dtype)
            made.append((g.repeat_interleave(2, -1)[..., ::2] if spread and g.dim() else g).requires_grad_(True))
    return tuple(made) or None


class _CallableModule(types.ModuleType):
    """PyTorch's `autograd.gradcheck` is a function and the module it lives in: so is ours."""

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
__all__ = ["gradcheck", "gradgradcheck", "GradcheckError"]
