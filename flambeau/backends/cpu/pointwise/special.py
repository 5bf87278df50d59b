"""Special functions as kernels, each under the last part of its torch name.

The families have files of their own (``special_erf``, ``special_gamma``, ...).
"""

from ..parallel import early
from ..table import add
from .special_bessel import *  # noqa: F403
from .special_bessel import __all__ as _bessel_names
from .special_erf import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .special_gamma import digamma, gammaln, lgamma, mvlgamma, polygamma, psi, zeta
from .special_incomplete_gamma import gammainc, gammaincc, igamma, igammac
from .special_polynomials import *  # noqa: F403
from .special_polynomials import __all__ as _polynomial_names

__all__ = _bessel_names + _polynomial_names + [
    "digamma", "erf", "erfc", "erfcx", "erfinv", "gammainc", "gammaincc", "gammaln", "igamma", "igammac", "lgamma", "log_ndtr",
    "ndtr", "ndtri", "polygamma", "psi", "zeta",
]


# Those with a C expression run it; what is nothing but its expression (entr, sinc, xlogy...) is written in its row alone.
add(mvlgamma=mvlgamma, **{name: globals()[name] for name in __all__})
add(**{f.__name__: early(f) for f in (erf, erfc, ndtr, lgamma)})
