"""flambeau.special: PyTorch's names, values and gradients."""

import pytest
import torch
from compare import Tolerance, same
from test_pointwise import gradients_agree, ours, results_agree, sample

import flambeau as fl
from flambeau import special

ONE = """airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln
i0 i0e i1 i1e log1p log_ndtr logit modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
modified_bessel_k1 ndtr ndtri psi round scaled_modified_bessel_k0 scaled_modified_bessel_k1 sinc
spherical_bessel_j0""".split()
# PyTorch's own double precision is good to about 1e-8 in these.
ROUGH = ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
FAMILIES = {"chebyshev_polynomial_": "tuvw", "shifted_chebyshev_polynomial_": "tuvw",
            "hermite_polynomial_": ("h", "he"), "laguerre_polynomial_": "l", "legendre_polynomial_": "p"}
POLYNOMIALS = [family + letter for family, letters in FAMILIES.items() for letter in letters]


def test_every_name_is_there():
    assert [n for n in torch.special.__all__ if not hasattr(special, n)] == []
    assert fl.special is special


@pytest.mark.parametrize("name", ONE)
def test_one_argument(name):
    for dtype in ("bool", "uint8", "int64", "float32", "float64", "complex64"):
        x = sample(dtype)
        if name in ROUGH and dtype == "float64":
            same(getattr(torch.special, name)(x), getattr(special, name)(ours(x)),
                 Tolerance(1e-5, 1e-6))
        else:
            results_agree(lambda T, x: getattr(T.special, name)(x), x)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "zeta", "gammainc", "gammaincc"])
def test_two_arguments(name):
    for dtype in ("int64", "float32", "float64"):
        x = sample(dtype)
        for shift in (1, 3, 7):
            results_agree(lambda T, x, y: getattr(T.special, name)(x, y), x, x.roll(shift))
        results_agree(lambda T, x: getattr(T.special, name)(x, 2), x)
        results_agree(lambda T, x: getattr(T.special, name)(2.5, x), x)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    x = torch.tensor([-2.0, -1.0, -0.3, 0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    degrees = torch.arange(8)
    results_agree(lambda T, x, n: getattr(T.special, name)(x, n), x[:, None], degrees)
    results_agree(lambda T, x: getattr(T.special, name)(x, 3), x)
    results_agree(lambda T, n: getattr(T.special, name)(0.5, n), degrees)


@pytest.mark.parametrize("name", """entr erf erfc erfcx erfinv expit gammaln i0 i0e i1 i1e log_ndtr ndtri
digamma sinc""".split())
def test_gradients(name):
    x = torch.cat([torch.linspace(0.05, 0.95, 7, dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64)])
    gradients_agree(lambda T, x: getattr(T.special, name)(x), x)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_gradients_of_two(name):
    x = sample("float64")
    for shift in (0, 1, 5):
        gradients_agree(lambda T, x, y: getattr(T.special, name)(x, y), x, x.roll(shift))


def test_gradients_that_do_not_exist():
    x = fl.tensor([1.5, 2.5], requires_grad=True)
    for function in (special.zeta, special.gammainc, special.gammaincc):
        with pytest.raises(RuntimeError, match="not implemented"):
            function(x, fl.tensor([2.0, 3.0])).sum().backward()
    assert not special.bessel_j0(x).requires_grad


def test_arguments():
    x = torch.tensor([2.5, 3.5])
    results_agree(lambda T, x: T.special.multigammaln(x, 3), x)
    results_agree(lambda T, x: T.special.polygamma(0, x), x)
    results_agree(lambda T, x: x.polygamma(3), x)
    results_agree(lambda T, x: T.special.polygamma(-1, x), x)
    results_agree(lambda T, x: T.special.round(x * 1.11, decimals=1), x)
    out = fl.zeros(2)
    assert special.erfcx(ours(x), out=out) is out
