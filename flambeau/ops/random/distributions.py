"""Random numbers of named distributions: `tensor.normal_()` and its kin in place, `bernoulli(p)` and its kin as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.state import FORWARD_AD, looked_at, state
from ...autograd.views import check_inplace, edge_of, written
from ...backends import registry
from ...backends.cpu.random import draws as _cpu
from ...backends.cpu.random import kernels as _kernels
from ...creation.like import zeros_like
from ...creation.options import _side, check_options, element_type, finish, read_size, scalar
from ...creation.random import Generator, call, check_real, default_generator, draw, fresh, source_of
from ...tensors import dtypes as _dtypes
from ...tensors.parameter import Parameter
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core.overrides import STAND_INS
from ..core.row import FUNCTIONS, NO_RECORD, Row, _type_word, alias_of, check_writable, public, store
from ..pointwise.families import broadcast_error, untracked
from .factories import c_word, check_range, contiguous_floats, limits_of


# ------------------------------------------------------------------------------------------- distributions, in place
def _zeros(grad: Tensor) -> Tensor:
    return zeros_like(grad)


def _history(node: str) -> Row:
    """A row that replaces a tensor by drawn values: nothing of the old value is left, so its gradient is zero."""
    return Row(f"draw_{node}", "self values", kernel="drawn", node=node, backward={"self": lambda grad: _zeros(grad)})


_HISTORIES = {name: _history(node) for name, node in {
    "uniform_": "UniformBackward0", "normal_": "NormalBackward0", "random_": "RandomBackward2",
    "random_to": "RandomBackward1",
    "random_from": "RandomBackward0", "exponential_": "ExponentialBackward0", "geometric_": "GeometricBackward0",
    "cauchy_": "CauchyBackward0", "log_normal_": "LogNormalBackward0", "bernoulli_": "BernoulliBackward2",
    "bernoulli_tensor": "BernoulliBackward1"}.items()}


def _refill(self: Tensor, name: str, generator: Any, kernel: str, *args: Any) -> Tensor:
    """Overwrites a tensor with draws; the arguments are already checked."""
    check_inplace(self)
    check_writable(self)
    source = source_of(name.rstrip("_"), generator)
    if edge_of(self) is not None and not state.mode & NO_RECORD:
        fresh = draw(registry.backend_of(self._array).like(self._array, self._array.dtype), source, kernel, *args)
        return store(self, _HISTORIES[name](alias_of(self), fresh))  # (with the tangent of that)
    draw(self._array, source, kernel, *args, keep=True)
    written(self)
    if state.mode & FORWARD_AD:  # draws do not depend on what was there
        from ...autograd.forward_mode import copied
        copied(self, ())
    return self


method = {"toplevel": False, "out": False}


def _number(name: str, argument: str, value: Any) -> float:
    value = scalar(name, argument, value)
    if value.__class__ is complex:
        raise TypeError(f"{name}(): argument '{argument}' must be a real number, not complex")
    return float(value)


@public(**method, name="uniform_")
def uniform_(self, from_=0, to=1, *, generator=None, **named) -> Tensor:
    """Fills with uniform numbers of [from, to)."""
    low, high = _number("uniform_", "from", named.pop("from", from_)), _number("uniform_", "to", to)
    if named:
        raise TypeError(f"uniform_() got an unexpected keyword argument '{next(iter(named))}'")
    d = self.dtype
    check_real("check_uniform_bounds", d)
    _, most = limits_of(d)
    for word, value in (("from", low), ("to", high)):
        if not -most <= value <= most:
            raise RuntimeError(f"{word} is out of bounds for {c_word(d)}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > most:
        raise RuntimeError(f"uniform_ expects to-from <= std::numeric_limits<{c_word(d)}>::max(), but found "
                           f"to={high:g} and from={low:g} which result in to-from to exceed the limit")
    return _refill(self, "uniform_", generator, "draw_uniform", low, high)


def _check_std(std: float) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")


@public(**method, name="normal_")
def normal_(self, mean=0, std=1, *, generator=None) -> Tensor:
    """Fills with normal numbers."""
    centre, width = _number("normal_", "mean", mean), _number("normal_", "std", std)
    _check_std(width)
    check_real("normal_kernel_cpu", self.dtype)
    contiguous = registry.backend_of(self._array).is_contiguous(self._array)
    return _refill(self, "normal_", generator, "draw_normal", centre, width, contiguous)


def _refilled(general: Callable, draw: Callable, sound: Callable[[float, float], bool]) -> None:
    """In front of uniform_ and normal_: a plain float32 tensor without history, by no numbers or two sound ones."""
    def fast(*args, **options):
        mode = state.mode
        if not options and (len(args) == 1 or len(args) == 3) and mode < 2 and args[0].__class__ in _OURS:
            self, (first, second) = args[0], args[1:] or (0.0, 1.0)
            if first.__class__ in _REAL and second.__class__ in _REAL and sound(first, second) and contiguous_floats(self) and (
                    (mode or untracked(self)) and not self._inference and self._array.flags.writeable):
                x = self._array
                with default_generator._lock:
                    draw(default_generator._engine.words, x.shape, x.dtype, float(first), float(second), out=x)
                written(self)
                return self
        return general(*args, **options)

    functools.update_wrapper(fast, general)
    STAND_INS[general] = fast
    setattr(Tensor, general.__name__, fast)


_OURS, _REAL = frozenset((Tensor, Parameter)), frozenset((float, int))
_refilled(uniform_, _kernels.draw_uniform, lambda low, high: -1e37 < low <= high < 1e37)
_refilled(normal_, _kernels.draw_normal, lambda mean, std: -1e37 < mean < 1e37 and 0 <= std < 1e37)
_ALL = object()  # stands for an argument that was not given, where None means "up to the largest number"


@public(**method, name="random_")
def random_(self, from_=None, to=_ALL, *, generator=None, **named) -> Tensor:
    """Fills with integers: random_() over the whole range, random_(to), or random_(from, to)."""
    low = named.pop("from", from_)
    if named:
        raise TypeError(f"random_() got an unexpected keyword argument '{next(iter(named))}'")
    if to is _ALL and from_ is not None:
        low, to, which = 0, from_, "random_to"
    elif low is None:
        low, which = 0, "random_to"
    else:
        which = "random_from"
    if to is _ALL and not low:
        if self.dtype.is_complex:
            raise NotImplementedError(f'"random_kernel_cpu" not implemented for \'{_type_word(self.dtype)}\'')
        return _refill(self, "random_", generator, "draw_full")
    first, last = _side("random_", "from", low), None if to is None or to is _ALL else _side("random_", "to", to)
    check_range(first, last, self.dtype)
    return _refill(self, which, generator, "draw_int", first, last)


def _continuous(name: str, d: _dtypes.dtype) -> None:
    if not d.is_floating_point:
        raise RuntimeError(f"{name} distribution is a continuous probability distribution. dtype must be a floating "
                           f"point but you specified {_type_word(d)}")


@public(**method, name="exponential_")
def exponential_(self, lambd=1, *, generator=None) -> Tensor:
    """Fills with numbers of the exponential distribution of rate lambd."""
    rate = _number("exponential_", "lambd", lambd)
    _continuous("Exponential", self.dtype)
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    return _refill(self, "exponential_", generator, "draw_exponential", rate)


@public(**method, name="geometric_")
def geometric_(self, p, *, generator=None) -> Tensor:
    """Fills with how many trials of probability p it took to succeed.

    >>> torch.empty(3).geometric_(0.5).min() >= 1
    tensor(True)
    """
    chance = _number("geometric_", "p", p)
    if not 0 < chance < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={chance:g}")
    if self.dtype.is_complex or self.dtype is _dtypes.bool_:
        raise NotImplementedError(f'"geometric_cpu" not implemented for \'{_type_word(self.dtype)}\'')
    return _refill(self, "geometric_", generator, "draw_geometric", chance)


@public(**method, name="cauchy_")
def cauchy_(self, median=0, sigma=1, *, generator=None) -> Tensor:
    """Fills with numbers of the Cauchy distribution.

    >>> torch.empty(2).cauchy_().shape
    torch.Size([2])
    """
    centre, width = _number("cauchy_", "median", median), _number("cauchy_", "sigma", sigma)
    _continuous("Cauchy", self.dtype)
    if not width > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={width:g}")
    return _refill(self, "cauchy_", generator, "draw_cauchy", centre, width)


@public(**method, name="log_normal_")
def log_normal_(self, mean=1, std=2, *, generator=None) -> Tensor:
    """Fills with the exponentials of normal numbers.

    >>> bool((torch.empty(3).log_normal_() > 0).all())
    True
    """
    centre, width = _number("log_normal_", "mean", mean), _number("log_normal_", "std", std)
    if not width > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={width:g}")
    check_real("log_normal_cpu", self.dtype, complex_ok=False)
    return _refill(self, "log_normal_", generator, "draw_log_normal", centre, width)


def _check_chance(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")


def _chances(p: Tensor) -> Any:
    check_real("bernoulli_tensor_cpu_p_", p.dtype, complex_ok=False)
    return p._array


@public(**method, name="bernoulli_")
def bernoulli_(self, p=0.5, *, generator=None) -> Tensor:
    """Fills with ones of probability p (a number, or a tensor of numbers) and zeros."""
    if self.dtype.is_complex:
        raise NotImplementedError(f'"bernoulli_scalar_cpu_" not implemented for \'{_type_word(self.dtype)}\'')
    if isinstance(p, Tensor):
        return _refill(self, "bernoulli_tensor", generator, "draw_bernoulli", _chances(p.expand(self.shape)))
    chance = _number("bernoulli_", "p", p)
    _check_chance(chance)
    return _refill(self, "bernoulli_", generator, "draw_bernoulli", chance)


# ---------------------------------------------------------------------------------------- distributions as functions
_bernoulli_row = Row("bernoulli", "self values", safe=True, kernel="drawn", shape=rules.drawn,
                     backward={"self": lambda grad: _zeros(grad)})
_poisson_row = Row("poisson", "self values", kernel="drawn", backward={"self": lambda grad: _zeros(grad)})
_not_differentiable = Row("binomial", "count prob values", safe=True, batch="drawn", kernel="drawn_third", shape=rules.drawn,
                          node="NotImplemented",
                          backward={
    "count": lambda grad: _refuse("binomial"), "prob": lambda grad: _refuse("binomial")})
_normal_rows = {
    "mean": Row("normal_mean", "mean std values", kernel="drawn_third", node="NormalBackward1",
                backward={"mean": lambda grad, mean_shape: _summed(grad, mean_shape)}),
    "std": Row("normal_std", "mean std values", kernel="drawn_third", node="NormalBackward2",
               backward={"std": lambda grad, std_shape: _summed(grad, std_shape)}),
    "both": Row("normal_both", "mean std values", kernel="drawn_third", node="NormalBackward3",
                backward={"mean": lambda grad, mean_shape: _summed(grad, mean_shape),
                          "std": lambda grad, std_shape: _summed(grad, std_shape)})}


def _summed(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    return grad.new_zeros(shape)


def _refuse(name: str) -> Tensor:
    raise NotImplementedError(f"derivative for aten::{name} is not implemented: what it draws is not differentiable")


@public
def bernoulli(input, p=None, *, generator=None) -> Tensor:
    """Ones with the probabilities in `input` (or all with probability p), else zeros."""
    mode = state.mode
    if p is generator is None and mode < 2 and contiguous_floats(input) and (mode or untracked(input)):
        x = input._array
        with default_generator._lock:
            return wrap(_kernels.draw_bernoulli(default_generator._engine.words, x.shape, x.dtype, x))
    source = source_of("bernoulli", generator)
    x = input._array
    if p is not None:
        chance = _number("bernoulli", "p", p)
        _check_chance(chance)
        made = draw(registry.backend_of(x).like(x, x.dtype), source, "draw_bernoulli", chance)
    else:
        chances = _chances(input)
        made = draw(registry.maker(x).empty(x.shape, x.dtype), source, "draw_bernoulli", chances)
    return _bernoulli_row(input, made)


@public
def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False,
           pin_memory=False) -> Tensor:
    """Normal numbers: of one mean and deviation in a given size, or of a mean or deviation for each element."""
    source = source_of("normal", generator)
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    if size is not None or not tensors:
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: a size is needed when neither mean "
                            "nor std is a Tensor")
        centre, width = _number("normal", "mean", mean), _number("normal", "std", std)
        _check_std(width)
        check_options("normal", layout, pin_memory)
        d = element_type(dtype, "normal") or _dtypes.get_default_dtype()
        check_real("normal_kernel_cpu", d)
        shape = read_size("normal", tuple(size) if isinstance(size, (tuple, list)) else (size,))
        return finish(fresh(shape, d.native, device, source, "draw_normal", centre, width), requires_grad)
    return _normal_of(mean, std, source, tensors)


def _normal_of(mean: Any, std: Any, source: Generator, tensors: list[Tensor]) -> Tensor:
    for t in tensors:
        check_real("normal_kernel_cpu", t.dtype)
    if not isinstance(std, Tensor):
        _check_std(_number("normal", "std", std))
    elif std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    else:
        looked_at(std._array, "deviations of random numbers were checked")
        if type(std._array) is registry.CPU_ARRAY and _cpu.any_negative(std._array):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    try:
        shape = broadcast_shapes(*[t._array.shape for t in tensors])
    except RuntimeError:
        raise broadcast_error(*[t._array.shape for t in tensors]) from None
    first = tensors[0]
    native = first._array.dtype
    values = [v._array if isinstance(v, Tensor) else float(v) for v in (mean, std)]
    made = draw(registry.maker(first._array).empty(shape, native), source, "draw_normal", *values)
    which = "both" if len(tensors) == 2 else "mean" if isinstance(mean, Tensor) else "std"
    return _normal_rows[which](mean, std, made)


@public
def poisson(input, generator=None) -> Tensor:
    """Counts of the Poisson distribution with the rates in `input`."""
    check_real("poisson_cpu", input.dtype, complex_ok=False)
    return _poisson_row(input, _sampled(input, source_of("poisson", generator), "draw_poisson"))


def _sampled(input: Tensor, source: Generator, kernel: str, *args: Any) -> Any:
    x = registry.pending.resolved(input._array)
    if registry.backend_of(x).NAME not in ("cpu", "cuda", "batched"):
        return registry.backend_of(x).empty(x.shape, x.dtype)
    return call(source, kernel, x, *args)


@public(method=False)
def binomial(count, prob, generator=None) -> Tensor:
    """How many of `count` trials of probability `prob` succeed."""
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {_type_word(prob.dtype)} but expected {_type_word(count.dtype)}")
    check_real("binomial_cpu", count.dtype, complex_ok=False)
    return _not_differentiable(count, prob, _sampled(count, source_of("binomial", generator), "draw_binomial", prob._array))


@public(out="exact apart")
def multinomial(input, num_samples, replacement=False, *, generator=None) -> Tensor:
    """Indices drawn with the weights in `input` (each row by itself)."""
    x = registry.pending.resolved(input._array)
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {_type_word(input.dtype)}")
    if x.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    count = _side("multinomial", "num_samples", num_samples)
    if count <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if x.shape[-1] > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if not replacement and count > x.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    backend = registry.backend_of(x)
    shape = (*x.shape[:-1], count)
    if backend.NAME not in ("cpu", "cuda", "batched") or 0 in shape:
        return wrap(backend.empty(shape, _dtypes.int64.native))
    looked_at(x, "the weights of a draw were checked")
    if type(x) is registry.CPU_ARRAY:
        problem = _cpu.multinomial_problem(x)
        if problem:
            raise RuntimeError(problem)
    return wrap(call(source_of("multinomial", generator), "draw_multinomial", x, count, replacement))


def _standard_gamma(self, generator=None) -> Tensor:
    """Samples of the gamma distributions of shape `self` and rate 1, differentiable in `self`."""
    check_real("_standard_gamma_cpu", self.dtype, complex_ok=False)
    from . import sampling
    return sampling.standard_gamma(self, wrap(_sampled(self, source_of("_standard_gamma", generator), "draw_gamma")))


def _sample_dirichlet(self, generator=None) -> Tensor:
    """Samples of the Dirichlet distributions with concentrations along the last dimension, differentiable in them."""
    check_real("dirichlet", self.dtype, complex_ok=False)
    from . import sampling
    return sampling.sample_dirichlet(self, wrap(_sampled(self, source_of("_sample_dirichlet", generator), "draw_dirichlet")))


def _standard_gamma_grad(self, output) -> Tensor:
    from . import sampling
    return sampling.standard_gamma_grad(self, output)


def _dirichlet_grad(x, alpha, total) -> Tensor:
    from . import sampling
    return sampling.dirichlet_grad(x, alpha, total)


for _function in (_standard_gamma, _sample_dirichlet, _standard_gamma_grad, _dirichlet_grad):
    FUNCTIONS[_function.__name__] = _function
