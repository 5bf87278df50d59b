"""The in-place forms that PyTorch offers as functions too: `flambeau.exp_(x)` besides `x.exp_()`."""

from __future__ import annotations

from ...tensors.tensor import Tensor
from ..core.row import FUNCTIONS
from . import activations, arithmetic, comparison, complex, functions, special  # noqa: F401  (they define the methods)

_NAMES = """
abs acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil clamp clamp_max clamp_min
clip conj_physical cos cosh deg2rad erf erfc exp exp2 expm1 fix floor frac gcd i0 lcm ldexp log log10 log1p log2
logit nan_to_num neg negative rad2deg reciprocal relu round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc
xlogy
"""

for _name in _NAMES.split():
    FUNCTIONS[_name + "_"] = getattr(Tensor, _name + "_")
