"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import (
    Size,
    Tensor,
    arange,
    broadcast_shapes,
    cholesky_inverse,
    cholesky_solve,
    digamma,
    mvlgamma,
    nan,
    randn,
    tensor,
    tril_indices,
)
from ..linalg import cholesky, slogdet
from ..types import _Number
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import _precision_to_scale_tril
from .utils import lazy_property

__all__ = ["Wishart"]


_log_2 = math.log(2)


def _mvdigamma(x: Tensor, p: int) -> Tensor:
    """The derivative of the multivariate log gamma function."""
    return digamma(x.unsqueeze(-1) - arange(p, dtype=x.dtype, device=x.device).div(2)).sum(-1)


class Wishart(ExponentialFamily):
    """Sums of `df` outer products x x^T of normal vectors with the given covariance (or its inverse, or its factor).

    >>> torch.distributions.Wishart(torch.tensor(3.0), torch.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky,
                "df": constraints.greater_than(self._event_shape[-1] - 1)}
    _expands = "df covariance_matrix scale_tril precision_matrix"

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}
        given = {name: m for name, m in given.items() if m is not None}
        if len(given) != 1:
            raise ValueError("Expected exactly one of covariance_matrix or precision_matrix or scale_tril to be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, _Number):
            df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape = broadcast_shapes(df.shape, matrix.shape[:-2])
        event_shape = matrix.shape[-2:]
        self.df = df.expand(batch_shape)
        if (self.df <= event_shape[-1] - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if (self.df < event_shape[-1]).any():
            warnings.warn("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < "
                          "ndim.", stacklevel=2)
        factor = {"scale_tril": lambda m: m, "covariance_matrix": cholesky,
                  "precision_matrix": _precision_to_scale_tril}[name]
        self._unbroadcasted_scale_tril = factor(matrix)
        self._dist_chi2 = self._diagonal_squares()

    def _diagonal_squares(self) -> Chi2:
        """The squares of the diagonal in Bartlett's decomposition."""
        p = self._event_shape[-1]
        fewer = arange(p, dtype=self.df.dtype, device=self.df.device).expand(self._batch_shape + (-1,))
        return Chi2(df=self.df.unsqueeze(-1) - fewer)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Wishart:
        new = self._get_checked_instance(Wishart, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new._batch_shape, new._event_shape = Size(batch_shape), self._event_shape
        new = self._expand(batch_shape, new)
        new._dist_chi2 = new._diagonal_squares()
        return new

    def _square(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._square(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self._square(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._square(cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = property(lambda self: self.df.view(self._batch_shape + (1, 1)) * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = factor.masked_fill(factor <= 0, nan)
        return factor.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.view(self._batch_shape + (1, 1)) * (v.pow(2) + outer)

    def _bartlett_sampling(self, sample_shape: Any = Size()) -> Tensor:
        """L A A^T L^T with A lower triangular: roots of chi-squared numbers on the diagonal, normal ones below."""
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        i, j = tril_indices(p, p, offset=-1)
        below = randn(Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,), dtype=noise.dtype, device=noise.device)
        noise[..., i, j] = below
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape: Any = Size(), max_try_correction: int | None = None) -> Tensor:
        """Samples; those that rounding made singular are drawn again, up to max_try_correction (10) times."""
        tries = 10 if max_try_correction is None else max_try_correction
        sample = self._bartlett_sampling(Size(sample_shape))
        # PyTorch's first round draws the regular samples anew instead of the singular ones: done here as well, since a
        # seed should give its numbers.
        again = self._regular(sample)
        for _ in range(tries):
            if not again.any():
                break
            fresh = self._bartlett_sampling(Size((int(again.sum()),)))
            sample = sample.clone()
            sample[again] = fresh
            still = again.clone()
            still[again] = ~self._regular(fresh)
            again = still
        return sample

    def _regular(self, sample: Tensor) -> Tensor:
        """Whether any matrix of the batch is positive definite, for each index of the sample shape."""
        good = self.support.check(sample.detach())
        return good.reshape(good.shape[:good.dim() - len(self._batch_shape)] + (-1,)).any(-1)

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        nu, p = self.df, self._event_shape[-1]
        trace = cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (-nu * (p * _log_2 / 2 + self._half_log_det()) - mvlgamma(nu / 2, p=p)
                + (nu - p - 1) / 2 * slogdet(value).logabsdet - trace / 2)

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        return ((p + 1) * (p * _log_2 / 2 + self._half_log_det()) + mvlgamma(nu / 2, p=p)
                - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p=p) + nu * p / 2)

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        nu, p = self.df, self._event_shape[-1]
        return -self.precision_matrix / 2, (nu - p - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        p = self._event_shape[-1]
        return (y + (p + 1) / 2) * (-slogdet(-2 * x).logabsdet + _log_2 * p) + mvlgamma(y + (p + 1) / 2, p=p)
