"""Special functions: the elementary ones, and all of them as kernels.

The families have files of their own (``special_erf``, ``special_gamma``, ...); they are
re-exported here, so this module holds every special function kernel under the last part of
its torch name.
"""

import math

import numpy as np

from ..parallel import early
from ..table import add
from .special_bessel import *  # noqa: F403
from .special_bessel import __all__ as _bessel_names
from .special_common import quiet
from .special_erf import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .special_gamma import digamma, gammaln, lgamma, mvlgamma, polygamma, psi, zeta
from .special_incomplete_gamma import gammainc, gammaincc, igamma, igammac
from .special_polynomials import *  # noqa: F403
from .special_polynomials import __all__ as _polynomial_names

__all__ = _bessel_names + _polynomial_names + [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "gammainc",
    "gammaincc", "gammaln", "igamma", "igammac", "lgamma", "log_ndtr",
    "log_sigmoid", "logit", "ndtr", "ndtri", "polygamma", "psi", "sigmoid", "sinc",
    "xlog1py", "xlogy", "zeta",
]


@quiet
def entr(x):
    result = -x * np.log(x)
    result = np.where(x == 0, x.dtype.type(0), result)
    return np.where(x < 0, x.dtype.type(-np.inf), result)


def _x_times_log(x, y, log):
    result = np.where(x == 0, np.zeros_like(x), x * log)
    return np.where(np.isnan(y), y, result)


@quiet
def xlogy(x, y):
    return _x_times_log(x, y, np.log(y))


@quiet
def xlog1py(x, y):
    return _x_times_log(x, y, np.log1p(y))


@quiet
def sinc(x):
    product = x * x.dtype.type(math.pi)
    one = np.ones_like(x)
    zero = x == 0
    return np.where(zero, one, np.sin(product) / np.where(zero, one, product))


@quiet
def logit(x, eps=None):
    if eps is not None:
        low = x.dtype.type(eps)
        high = x.dtype.type(1) - low
        x = np.where(x < low, low, np.where(x > high, high, x))
    return np.log(x / (1 - x))


@quiet
def expit(x):
    return 1 / (1 + np.exp(-x))


sigmoid = expit


@quiet
def log_sigmoid(x):
    return np.minimum(x, x.dtype.type(0)) - np.log1p(np.exp(-np.abs(x)))


# The kernels of sigmoid for complex numbers and of other families are elsewhere.
add(mvlgamma=mvlgamma, **{name: globals()[name] for name in __all__ if name != "sigmoid"})
add(**{f.__name__: early(f) for f in (erf, erfc, ndtr, lgamma, xlogy, xlog1py, entr, sinc)})  # those with a C expression
