"""Special functions as kernels, each under the last part of its torch name.

The families have files of their own (``special_erf``, ``special_gamma``, ...). What is nothing but its C expression (entr,
sinc, xlogy...) is written in its row alone.
"""

from ..parallel import native_from_two
from ..table import add
from .special_bessel import BESSEL
from .special_erf import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .special_gamma import digamma, lgamma, mvlgamma, polygamma, zeta
from .special_incomplete_gamma import gammainc, gammaincc
from .special_polynomials import POLYNOMIALS

for _function in (erfcx, erfinv, log_ndtr, ndtri, digamma, mvlgamma, polygamma, zeta, gammainc, gammaincc):
    add(**{_function.__name__: _function})
for _function in (erf, erfc, ndtr, lgamma):  # with a C expression
    add(**{_function.__name__: native_from_two(_function)})
add(gammaln=lgamma, psi=digamma, igamma=gammainc, igammac=gammaincc, **BESSEL, **POLYNOMIALS)
