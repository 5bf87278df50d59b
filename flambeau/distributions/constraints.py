"""Where a parameter or a value may lie. A constraint's `check(value)` says for each event whether it holds.

Lower-case names are the constraints to use: instances where nothing is left open (`positive`), classes where bounds are
(`greater_than(2)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor, finfo, full
from .. import cat as _join
from .. import stack as _pile
from ..linalg import cholesky_ex, eigvalsh

__all__ = ["Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
           "greater_than_eq", "independent", "integer_interval", "interval", "half_open_interval", "is_dependent",
           "less_than", "lower_cholesky", "lower_triangular", "MixtureSameFamilyConstraint", "multinomial",
           "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_semidefinite", "positive_definite",
           "positive_integer", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval"]


class Constraint:
    """A region of values. event_dim: how many of the last dimensions are one value together."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event of `value` is inside: a tensor without the event dimensions."""
        raise NotImplementedError(f"{type(self).__name__} does not implement check")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"

    _shown: tuple[str, ...] = ()


class _Dependent(Constraint):
    """Stands for a constraint that depends on other values, as the support of Uniform does on its bounds."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    def _known(self, name: str) -> Any:
        value = getattr(self, "_" + name)
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._known("is_discrete"))
    event_dim = property(lambda self: self._known("event_dim"))

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """The same with more said about it."""
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, x: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint is only known from an instance."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that gives a constraint on an instance, and is a dependent constraint on the class."""

    def __init__(self, fn: Callable | None = None, *, is_discrete: Any = NotImplemented,
                 event_dim: Any = NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable) -> _DependentProperty:
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """Counts further dimensions as part of the event: it holds where the base holds for all of them."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, not {type(base_constraint).__name__}")
        if not (isinstance(reinterpreted_batch_ndims, int) and reinterpreted_batch_ndims >= 0):
            raise AssertionError(f"reinterpreted_batch_ndims must be an int >= 0, not {reinterpreted_batch_ndims!r}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        super().__init__()

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        keep = result.dim() - self.reinterpreted_batch_ndims
        return result.reshape(result.shape[:keep] + (-1,)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: a value must be one for every component (the dimension before the event)."""

    def __init__(self, base_constraint: Constraint):
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, not {type(base_constraint).__name__}")
        self.base_constraint = base_constraint
        super().__init__()

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        keep = value.dim() - self.event_dim
        return result.reshape(result.shape[:keep] + (-1,)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


# ------------------------------------------------------------------------------------------------------ single numbers
class _Bounded(Constraint):
    """Between bounds that are given, and kept under the names in `_shown`."""

    def __init__(self, *bounds: Any, **named: Any):
        names = self._shown
        if len(bounds) + len(named) != len(names) or not set(named) <= set(names[len(bounds):]):
            raise TypeError(f"{type(self).__name__}() takes {' and '.join(names)}")
        self.__dict__.update(zip(names, bounds), **named)
        super().__init__()


def _kind(name: str, check: Callable[[Any, Tensor], Tensor], bounds: str = "", is_discrete: bool = False,
          event_dim: int = 0) -> type[Constraint]:
    """The class of constraints that are nothing but a condition, on values and bounds."""
    return type(name, (_Bounded if bounds else Constraint,), dict(
        __module__=__name__, check=check, is_discrete=is_discrete, event_dim=event_dim, _shown=tuple(bounds.split())))


_Boolean = _kind("_Boolean", lambda self, value: (value == 0) | (value == 1), is_discrete=True)
_Real = _kind("_Real", lambda self, value: value == value)  # all but NaN
_GreaterThan = _kind("_GreaterThan", lambda self, value: self.lower_bound < value, "lower_bound")
_GreaterThanEq = _kind("_GreaterThanEq", lambda self, value: self.lower_bound <= value, "lower_bound")
_LessThan = _kind("_LessThan", lambda self, value: value < self.upper_bound, "upper_bound")
_Interval = _kind("_Interval", lambda self, value: (self.lower_bound <= value) & (value <= self.upper_bound),
                  "lower_bound upper_bound")
_HalfOpenInterval = _kind("_HalfOpenInterval", lambda self, value: (self.lower_bound <= value) & (value < self.upper_bound),
                          "lower_bound upper_bound")
_IntegerLessThan = _kind("_IntegerLessThan", lambda self, value: (value % 1 == 0) & (value <= self.upper_bound),
                         "upper_bound", is_discrete=True)
_IntegerGreaterThan = _kind("_IntegerGreaterThan", lambda self, value: (value % 1 == 0) & (value >= self.lower_bound),
                            "lower_bound", is_discrete=True)


class _IntegerInterval(_Interval):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        inside = super().check(value)
        return (value % 1 == 0) & inside if value.is_floating_point() else inside


# ------------------------------------------------------------------------------------------------ vectors and matrices
_OneHot = _kind("_OneHot", lambda self, value: ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1),
                is_discrete=True, event_dim=1)
_Simplex = _kind("_Simplex", lambda self, value: (value >= 0).all(dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6), event_dim=1)
_LowerTriangular = _kind("_LowerTriangular", lambda self, value: (value.tril() == value).flatten(-2).all(-1), event_dim=2)


class _Multinomial(Constraint):
    """Counts that add up to at most a total. (No more than that is checked, so that totals may differ by row.)"""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.size(-1) * 10  # grows with the length of the rows
        lengths = value.norm(dim=-1)
        return super().check(value) & (lengths - 1).abs().le(tolerance).all(dim=-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1], device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if not square.all():
            return square
        return value.isclose(value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return cholesky_ex(value).info.eq(0)


# ----------------------------------------------------------------------------------------------- constraints in pieces
class _Pieces(Constraint):
    def __init__(self, cseq: Sequence[Constraint], dim: int):
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("cseq must be a sequence of Constraints")
        self.cseq, self.dim = list(cseq), dim
        super().__init__()

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))

    def _check_dim(self, value: Tensor) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is out of range for a value of {value.dim()} dimensions")


class _Cat(_Pieces):
    """Constraints one after the other along a dimension, each over its length."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths has {len(self.lengths)} entries for {len(self.cseq)} constraints")

    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        checks, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths):
            checks.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return _join(checks, self.dim)


class _Stack(_Pieces):
    """One constraint for each index of a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> int:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        parts = [value.select(self.dim, i) for i in range(value.size(self.dim))]
        return _pile([c.check(v) for v, c in zip(parts, self.cseq)], self.dim)


# ---------------------------------------------------------------------------------------------------------- public names
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
