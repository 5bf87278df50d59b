"""Special functions: the error function's and the gamma function's family, Bessel functions, orthogonal polynomials.

`flambeau.special` (the namespace) takes its names from `SPECIAL`.
"""

from __future__ import annotations

import math
from typing import Any

from ...backends.strides import contiguous_strides
from ...tensors.dtypes import bool_
from ...tensors.tensor import Tensor
from ..core import overrides as _overrides
from ..core.row import make_inplace, public
from .families import Pointwise, unary
from .functions import conj, masked, where_row

SQRT_PI, SQRT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)
SPECIAL: dict[str, Any] = {}  # what becomes flambeau.special.<name>
_NUMBERS = (bool, int, float, complex)


def refuse(name: str, argument: str):
    """The derivative with respect to an argument for which PyTorch has none either: an error in the backward pass."""

    def formula(grad):
        raise NotImplementedError(f"the derivative for '{name}: {argument}' is not implemented.")

    formula.refused = True
    return formula


def _hidden(name: str, c: str | None = None, backward: Any = None, **options: Any) -> Any:
    """A function of flambeau.special alone."""
    SPECIAL[name] = unary(f"special_{name}", c, backward, kernel=name, toplevel=False, method=False, inplace=False,
                          **{"takes": "bif", **options})
    return SPECIAL[name]


def _known(names: str, function: Any) -> Any:
    """A function that has its names both here and at the top level."""
    for name in names.split():
        SPECIAL[name] = function
    return function


def _sinc_self(grad: Any, self: Any) -> Any:
    scaled = self * math.pi
    slope = (scaled * scaled.cos() - scaled.sin()) / (scaled * self)
    return masked(grad * conj(slope), self != 0)


def _i1_self(grad: Any, self: Any, result: Any) -> Any:
    origin = self == 0
    self = where_row(origin, 1.0, self)  # a division by zero would make the second derivative NaN
    return grad * where_row(origin, 0.5, self.i0() - result / self)


def _i1e_self(grad: Any, self: Any, result: Any) -> Any:
    origin = self == 0
    self = where_row(origin, 1.0, self)
    return grad * where_row(origin, 0.5, SPECIAL["i0e"](self) - result * (self.sgn() + self.reciprocal()))


def _of_x(name: str, function: Any) -> Any:
    """PyTorch calls the argument of these functions x."""

    def of_x(x, *, out=None):
        return function(x, out=out)

    of_x.__name__ = of_x.__qualname__ = name
    of_x.__doc__ = function.__doc__
    _overrides.STAND_INS[function] = of_x
    return of_x


def _log_odds(self: Any = None, eps: Any = None) -> str:
    x = "a" if eps is None else "min(max(a, b), 1 - b)"
    return f"log({x} / (1 - {x}))"


# fmt: off
# ----------------------------------------------------------------------------------------- the error function
erf = _known("erf", unary("erf", "erf(a)", lambda grad, self: grad * (2 / SQRT_PI) * (-self * self).exp(), takes="bif"))
erfc = _known("erfc", unary("erfc", "erfc(a)", lambda grad, self: grad * (-2 / SQRT_PI) * (-self * self).exp(), takes="bif"))
erfinv = _known("erfinv", unary("erfinv", None, lambda grad, self: grad * (SQRT_PI / 2) * self.erfinv().square().exp(),
                                takes="bif", inplace=True))
_hidden("erfcx", None, lambda grad, self, result: grad * (2 * self * result - 2 / SQRT_PI), takes="biF")
_hidden("ndtr", "0.5 * erfc(-a * M_SQRT1_2)", lambda grad, self: grad * ((self * self) * -0.5).exp() / SQRT_2PI)
_hidden("ndtri", None, lambda grad, result: grad * SQRT_2PI * (result * result * 0.5).exp(), takes="biF")
_hidden("log_ndtr", None, lambda grad, self, result: grad / (result + self * self * 0.5).exp() / SQRT_2PI, takes="biF")

# ----------------------------------------------------------------------------------------- the gamma function
lgamma = _known("gammaln", unary("lgamma", "lgamma(a)", lambda grad, self: grad * self.digamma(), complex_ok=False,
                                 inplace=True))
digamma = _known("digamma psi", unary("digamma", None, lambda grad, self: grad * self.polygamma(1), complex_ok=False,
                                       inplace=True))
_polygamma = Pointwise("polygamma", "n self", as_given="n", complex_ok=False, backward=dict(
    self=lambda grad, n, self: grad * _polygamma(n + 1, self)))
_mvlgamma = Pointwise("mvlgamma", "self p", as_given="p", complex_ok=False, backward=dict(
    self=lambda grad, self, p: grad * sum((self - j / 2).digamma() for j in range(p))))
_zeta = Pointwise("zeta", "self other", node="SpecialZetaBackward0", takes="biF", backward=dict(
    self=refuse("zeta", "self"), other=lambda grad, self, other: grad * -self * _zeta(self + 1, other)))
_igamma = Pointwise("igamma", "self other", takes="f", backward=dict(
    self=refuse("igamma", "input"),
    other=lambda grad, self, other: grad * ((self - 1) * other.log() - other - self.lgamma()).exp()))
_igammac = Pointwise("igammac", "self other", takes="f", backward=dict(
    self=refuse("igammac", "input"),
    other=lambda grad, self, other: -grad * ((self - 1) * other.log() - other - self.lgamma()).exp()))

# ----------------------------------------------------------------------------------------- products with logarithms
_xlogy = Pointwise("xlogy", "self other", c="b != b ? b : a == 0 ? 0 : a * log(b)", complex_ok=False,
                   cpu_name="xlogy_cpu", backward=dict(
    self=lambda grad, self, other: masked(grad * other.log(), ~((self == 0) & (other <= 0))),
    other=lambda grad, self, other: grad * self / other))
_xlog1py = Pointwise("special_xlog1py", "self other", kernel="xlog1py", c="b != b ? b : a == 0 ? 0 : a * log1p(b)",
                     node="SpecialXlog1PyBackward0", complex_ok=False, backward=dict(
    self=lambda grad, self, other: masked(grad * other.log1p(), ~((self == 0) & (other <= -1))),
    other=lambda grad, self, other: grad * self / (other + 1)))
_hidden("entr", "a > 0 ? -a * log(a) : a == 0 ? 0 : a < 0 ? -INFINITY : a", lambda grad, self: grad * -(self.log() + 1))
sinc = _known("sinc", unary("sinc", "a == 0 ? 1 : sin(M_PI * a) / (M_PI * a)", _sinc_self))
_logit = Pointwise("logit", "self eps", as_given="eps", complex_ok=False, c=_log_odds, backward=dict(
    self=lambda grad, self, eps: _logit_self(grad, self, eps)))

# ----------------------------------------------------------------------------------------- Bessel and Airy functions
i0 = _known("i0", unary("i0", None, lambda grad, self: grad * SPECIAL["i1"](self), complex_ok=False))
_hidden("i0e", None, lambda grad, self, result: grad * (SPECIAL["i1e"](self) - self.sgn() * result),
        node="SpecialI0EBackward0")
_hidden("i1", None, _i1_self)
_hidden("i1e", None, _i1e_self, node="SpecialI1EBackward0")
_hidden("bessel_j0", takes="biF")
_hidden("bessel_j1", takes="biF")
_hidden("bessel_y0", takes="biF")
_hidden("bessel_y1", takes="biF")
# fmt: on
for _name in ("modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
              "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai"):
    _hidden(_name, takes="biF")
    SPECIAL[_name] = _of_x(_name, SPECIAL[_name])


def _logit_self(grad: Any, self: Any, eps: float | None) -> Any:
    slope = grad / (self * (1 - self))
    if eps is None:
        return where_row((self < 0) | (self > 1), math.nan, slope)
    return masked(slope, ~((self < eps) | (self > 1 - eps)))


@public(inplace="function")
def logit(input: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)); with eps, x is first kept within [eps, 1 - eps]."""
    return _logit(input, eps)


@public(method=False)
def polygamma(n: int, input: Any) -> Any:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return _polygamma(n, input)


def _polygamma_method(self: Any, n: int) -> Any:
    """The n-th derivative of digamma."""
    return polygamma(n, self)


Tensor.polygamma = _polygamma_method
Tensor.polygamma_ = make_inplace("polygamma", _polygamma_method)


@public(inplace=True)
def mvlgamma(input: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    if input.dtype is bool_:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    from ..shape.views import relaid
    made = _mvlgamma(input, p)
    return made if made.is_contiguous() else relaid(made, contiguous_strides(made.shape))


def _pair(name: str, row: Pointwise, doc: str, scalars: bool = True, **options: Any) -> Any:
    """A function of two tensors, either of which may be a number."""

    def function(input, other):
        if not (isinstance(input, Tensor) or isinstance(other, Tensor)):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        for value in (input, other):
            if not isinstance(value, Tensor) and not (scalars and isinstance(value, _NUMBERS)):
                raise TypeError(f"{name}(): expected Tensors, got {type(value).__name__}")
        return row(input, other)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return public(function, name=name, **options)


_alone = dict(toplevel=False, method=False)
xlogy = _known("xlogy", _pair("xlogy", _xlogy, "input * log(other), 0 where input is 0.", inplace="function"))
SPECIAL["xlog1py"] = _pair("xlog1py", _xlog1py, "input * log(1 + other), 0 where input is 0.", **_alone)
SPECIAL["zeta"] = _pair("zeta", _zeta, "The Hurwitz zeta function.", **_alone)
igamma = _known("gammainc", _pair("igamma", _igamma, "The regularized lower incomplete gamma function.", False, inplace=True))
igammac = _known("gammaincc", _pair("igammac", _igammac, "The regularized upper incomplete gamma function.", False,
                                    inplace=True))

for _name in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
              "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
              "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
              "laguerre_polynomial_l", "legendre_polynomial_p"):
    SPECIAL[_name] = _pair(_name, Pointwise(f"special_{_name}", "self other", kernel=_name, takes="biF"),
                           "The polynomial of degree `other` at `input`.", also={"n": "other"}, **_alone)
