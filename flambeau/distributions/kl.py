"""The Kullback-Leibler divergence KL(p || q) = E_p[log p - log q], by pairs of classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from .. import Tensor, full_like, inf, where
from ..autograd import grad
from ..linalg import solve_triangular
from ..nn.functional import softplus
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from .multivariate_normal import MultivariateNormal, _batch_mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost
from .utils import euler_constant as _euler_gamma

__all__ = ["register_kl", "kl_divergence"]

_KL_REGISTRY: dict[tuple[type, type], Callable] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable] = {}


def register_kl(type_p: type, type_q: type) -> Callable:
    """A decorator that enters a function (p, q) as the divergence between two classes and their subclasses.

    >>> from flambeau.distributions import Normal, kl_divergence, register_kl
    >>> class Mine(Normal):
    ...     pass
    >>> @register_kl(Mine, Mine)
    ... def between(p, q):
    ...     return torch.tensor(7.0)
    >>> kl_divergence(Mine(0.0, 1.0), Mine(1.0, 1.0))
    tensor(7.)
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(cls, type):  # classes that only behave like distributions are welcome
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {cls}")

    def decorator(function: Callable) -> Callable:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()  # what was found before may not be the best match any more
        return function

    return decorator


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The rule of the nearest base classes; NotImplemented if there is none."""
    matches = [pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not matches:
        return NotImplemented
    rank_p, rank_q = type_p.__mro__.index, type_q.__mro__.index
    left = min(matches, key=lambda pair: (rank_p(pair[0]), rank_q(pair[1])))
    right = min(matches, key=lambda pair: (rank_q(pair[1]), rank_p(pair[0])))
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl("
                      f"{left[0].__name__}, {right[1].__name__})", RuntimeWarning, stacklevel=3)
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) for each pair of the batch.

    >>> normal = torch.distributions.Normal
    >>> torch.distributions.kl_divergence(normal(0.0, 1.0), normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = type(p), type(q)
    function = _KL_MEMOIZE.get(pair)
    if function is None:
        function = _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    if function is NotImplemented:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")
    return function(p, q)


def _infinite_like(tensor: Tensor) -> Tensor:
    return full_like(tensor, inf)


def _x_log_x(tensor: Tensor) -> Tensor:
    return tensor.xlogy(tensor)


def _batch_trace_XXT(bmat: Tensor) -> Tensor:
    """The trace of X X^T of each matrix X."""
    return bmat.pow(2).sum((-2, -1))


# ------------------------------------------------------------------------------------------------------ of one family
@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p: Any, q: Any) -> Tensor:
    ones = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zeros = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    ones = ones.masked_fill(q.probs == 0, inf).masked_fill(p.probs == 0, 0)
    zeros = zeros.masked_fill(q.probs == 1, inf).masked_fill(p.probs == 1, 0)
    return ones + zeros


@register_kl(Beta, Beta)
def _kl_beta_beta(p: Any, q: Any) -> Tensor:
    p_sum, q_sum = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    norms = (q.concentration1.lgamma() + q.concentration0.lgamma() + p_sum.lgamma()
             - p.concentration1.lgamma() - p.concentration0.lgamma() - q_sum.lgamma())
    return (norms + (p.concentration1 - q.concentration1) * p.concentration1.digamma()
            + (p.concentration0 - q.concentration0) * p.concentration0.digamma()
            + (q_sum - p_sum) * p_sum.digamma())


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p: Any, q: Any) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return where(p.total_count > q.total_count, inf, kl)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p: Any, q: Any) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t = t.masked_fill((q.probs == 0).expand_as(t), inf)
    return t.masked_fill((p.probs == 0).expand_as(t), 0).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return (p.mean * (p.logits - q.logits) + p._cont_bern_log_norm() + (-p.probs).log1p()
            - q._cont_bern_log_norm() - (-q.probs).log1p())


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p: Any, q: Any) -> Tensor:
    total = p.concentration.sum(-1)
    norms = (total.lgamma() - q.concentration.sum(-1).lgamma()
             - (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1))
    means = p.concentration.digamma() - total.digamma().unsqueeze(-1)
    return norms + ((p.concentration - q.concentration) * means).sum(-1)


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normalizer, its slope by autograd."""
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot be computed "
                                  "using Bregman divergences")
    p_params = [param.detach().requires_grad_() for param in p._natural_params]
    q_params = q._natural_params
    normalizer = p._log_normalizer(*p_params)
    slopes = grad(normalizer.sum(), p_params, create_graph=True)
    result = q._log_normalizer(*q_params) - normalizer
    for p_param, q_param, slope in zip(p_params, q_params, slopes):
        result = result - _sum_rightmost((q_param - p_param) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p: Any, q: Any) -> Tensor:
    return (q.concentration * (p.rate / q.rate).log() + q.concentration.lgamma() - p.concentration.lgamma()
            + (p.concentration - q.concentration) * p.concentration.digamma()
            + (q.rate - p.rate) * (p.concentration / p.rate))


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift, away = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    return (-ratio.log() - shift + away + ratio * _euler_gamma + (shift + (1 + ratio).lgamma() - away).exp()
            - (1 + _euler_gamma))


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _kl_normal_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _kl_pareto_pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.support.lower_bound < q.support.lower_bound, inf, kl)


@register_kl(Uniform, Uniform)
def _kl_uniform_uniform(p: Any, q: Any) -> Tensor:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), inf, kl)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p: Any, q: Any) -> Tensor:
    spread = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return spread.log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between transformed distributions needs the same transforms and event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent_independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independents with different reinterpreted_batch_ndims is not implemented")
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ----------------------------------------------------------------------------------------------- multivariate normals
def _same_events(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between two {type(p).__name__} and {type(q).__name__} with different event "
                         f"shapes cannot be computed: {tuple(p.event_shape)} and {tuple(q.event_shape)}")


def _log_det(d: Any) -> Tensor:
    if isinstance(d, LowRankMultivariateNormal):
        return _batch_lowrank_logdet(d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag, d._capacitance_tril)
    return 2 * d._half_log_det()


def _covariance_pieces(d: Any) -> list[Tensor]:
    """Matrices X whose X X^T add up to the covariance."""
    if isinstance(d, LowRankMultivariateNormal):
        return [d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag.sqrt().diag_embed()]
    return [d._unbroadcasted_scale_tril]


def _into_factor(q: Any, x: Tensor) -> Tensor:
    """trace(S^-1 X X^T) for q's covariance S."""
    if isinstance(q, LowRankMultivariateNormal):
        W, D = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
        projected = solve_triangular(q._capacitance_tril, (W.mT / D.unsqueeze(-2)) @ x, upper=False)
        return _batch_trace_XXT(x * D.rsqrt().unsqueeze(-1)) - _batch_trace_XXT(projected)
    return _batch_trace_XXT(solve_triangular(q._unbroadcasted_scale_tril, x, upper=False))


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_multivariatenormal_multivariatenormal(p: Any, q: Any) -> Tensor:
    _same_events(p, q)
    away = q.loc - p.loc
    if isinstance(q, LowRankMultivariateNormal):
        distance = _batch_lowrank_mahalanobis(q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, away,
                                              q._capacitance_tril)
    else:
        distance = _batch_mahalanobis(q._unbroadcasted_scale_tril, away)
    trace = sum(_into_factor(q, piece) for piece in _covariance_pieces(p))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


# -------------------------------------------------------------------------------------------------- of different ones
def _always_infinite(field: str, *pairs: tuple[type, type]) -> None:
    """p has probability where q has none, whatever the parameters."""
    for pair in pairs:
        register_kl(*pair)(lambda p, q: _infinite_like(getattr(p, field)))


_always_infinite("concentration1", (Beta, Pareto))
_always_infinite("probs", (ContinuousBernoulli, Pareto))
_always_infinite("rate", (Exponential, Beta), (Exponential, ContinuousBernoulli), (Exponential, Pareto),
                 (Exponential, Uniform), (Poisson, Bernoulli), (Poisson, Binomial))
_always_infinite("concentration", (Gamma, Beta), (Gamma, ContinuousBernoulli), (Gamma, Pareto), (Gamma, Uniform))
_always_infinite("loc", *[(p, q) for p in (Gumbel, Laplace, Normal)
                          for q in (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)])
_always_infinite("scale", (Pareto, Beta), (Pareto, ContinuousBernoulli), (Pareto, Uniform))


def _normal_cross_entropy(mean: Tensor, variance: Tensor, q: Any) -> Tensor:
    """-E[log q] of a normal q under a distribution of this mean and variance."""
    return 0.5 * (math.log(2 * math.pi) + (variance + (mean - q.loc).pow(2)) / q.scale.pow(2)) + q.scale.log()


for _p, _q, _formula in (
        (Geometric, Geometric, lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits),
        (HalfNormal, HalfNormal, lambda p, q: _kl_normal_normal(p.base_dist, q.base_dist)),
        (OneHotCategorical, OneHotCategorical, lambda p, q: _kl_categorical_categorical(p._categorical, q._categorical)),
        (Poisson, Poisson, lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)),
        (Bernoulli, Poisson, lambda p, q: -p.entropy() - (p.probs * q.rate.log() - q.rate)),
        *[(p, Exponential, lambda p, q: -p.entropy() - q.rate.log() + q.rate * p.mean)
          for p in (Beta, ContinuousBernoulli, Gamma)],
        *[(p, Normal, lambda p, q: -p.entropy() + _normal_cross_entropy(p.mean, p.variance, q))
          for p in (Beta, ContinuousBernoulli, Uniform)]):
    register_kl(_p, _q)(_formula)


@register_kl(Beta, ContinuousBernoulli)
def _kl_beta_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


@register_kl(Beta, Gamma)
def _kl_beta_gamma(p: Any, q: Any) -> Tensor:
    total = p.concentration1 + p.concentration0
    return (-p.entropy() + q.concentration.lgamma() - q.concentration * q.rate.log()
            - (q.concentration - 1) * (p.concentration1.digamma() - total.digamma())
            + q.rate * p.concentration1 / total)


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _kl_beta_uniform(p: Any, q: Any) -> Tensor:
    return where((q.low > p.support.lower_bound) | (q.high < p.support.upper_bound), inf,
                 -p.entropy() + (q.high - q.low).log())


@register_kl(Exponential, Gamma)
def _kl_exponential_gamma(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return (-q.concentration * ratio.log() + ratio + q.concentration.lgamma() + q.concentration * _euler_gamma
            - (1 + _euler_gamma))


@register_kl(Exponential, Gumbel)
def _kl_exponential_gumbel(p: Any, q: Any) -> Tensor:
    product = p.rate * q.scale
    shift = q.loc / q.scale
    return product.log() - 1 + product.reciprocal() - shift + shift.exp() * (product / (product + 1))


@register_kl(Exponential, Normal)
def _kl_exponential_normal(p: Any, q: Any) -> Tensor:
    variance = q.scale.pow(2)
    squared = p.rate.pow(2)
    return (0.5 * (squared * variance * 2 * math.pi).log() - 1 + squared.reciprocal() / variance
            - q.loc / (p.rate * variance) + 0.5 * q.loc.pow(2) / variance)


@register_kl(Gamma, Gumbel)
def _kl_gamma_gumbel(p: Any, q: Any) -> Tensor:
    scaled, shift = p.rate * q.scale, q.loc / q.scale
    return ((p.concentration - 1) * p.concentration.digamma() - p.concentration.lgamma() - p.concentration
            + scaled.log() + p.concentration / scaled - shift
            + shift.exp() * (1 + scaled.reciprocal()).pow(-p.concentration))


@register_kl(Gamma, Normal)
def _kl_gamma_normal(p: Any, q: Any) -> Tensor:
    variance, squared = q.scale.pow(2), p.rate.pow(2)
    spread = (p.concentration + p.concentration.pow(2)) / squared
    return (0.5 * (squared * variance * 2 * math.pi).log() - p.concentration - p.concentration.lgamma()
            + (p.concentration - 1) * p.concentration.digamma() + 0.5 * spread / variance
            - q.loc * p.concentration / (p.rate * variance) + 0.5 * q.loc.pow(2) / variance)


@register_kl(Gumbel, Normal)
def _kl_gumbel_normal(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    away = (p.loc + p.scale * _euler_gamma - q.loc) / q.scale
    return (-ratio.log() + 0.5 * math.log(2 * math.pi) + (math.pi ** 2 / 12) * ratio.pow(2) + 0.5 * away.pow(2)
            - (_euler_gamma + 1))


@register_kl(Laplace, Normal)
def _kl_laplace_normal(p: Any, q: Any) -> Tensor:
    variance = q.scale.pow(2)
    ratio = p.scale.pow(2) / variance
    return (-0.5 * (2 * ratio / math.pi).log() + 0.5 * p.loc.pow(2) / variance - p.loc * q.loc / variance
            + 0.5 * q.loc.pow(2) / variance + ratio - 1)


@register_kl(Normal, Gumbel)
def _kl_normal_gumbel(p: Any, q: Any) -> Tensor:
    ratio = (p.loc - q.loc) / q.scale
    spread = (p.scale / q.scale).pow(2)
    return (ratio + (-ratio + 0.5 * spread).exp() + q.scale.log()) - (0.5 * (1 + math.log(2 * math.pi)) + p.scale.log())


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p: Any, q: Any) -> Tensor:
    away = p.loc - q.loc
    ratio = away / p.scale
    mean_distance = (math.sqrt(2 / math.pi) * p.scale * (-0.5 * ratio.pow(2)).exp()
                     + away * (math.sqrt(0.5) * ratio).erf())
    return -p.scale.log() + mean_distance / q.scale + (2 * q.scale).log() - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Pareto, Exponential)
def _kl_pareto_exponential(p: Any, q: Any) -> Tensor:
    product = p.scale * q.rate
    kl = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return where(p.alpha <= 1, inf, kl)


@register_kl(Pareto, Gamma)
def _kl_pareto_gamma(p: Any, q: Any) -> Tensor:
    mean_log = p.scale.log() + p.alpha.reciprocal()
    kl = (p.alpha.log() - p.scale.log() - p.alpha.reciprocal() - 1 + q.concentration.lgamma()
          - q.concentration * q.rate.log() - (q.concentration - 1) * mean_log
          + q.rate * p.alpha * p.scale / (p.alpha - 1))
    return where(p.alpha <= 1, inf, kl)


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Any, q: Any) -> Tensor:
    variance = 2 * q.scale.pow(2)
    mean = p.scale * p.alpha / (p.alpha - 1)
    kl = ((math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal() - 1
          + (p.alpha * p.scale.pow(2) / (p.alpha - 2) - 2 * mean * q.loc + q.loc.pow(2)) / variance)
    return where(p.alpha <= 2, inf, kl)


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    logs = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    complements = (_x_log_x(1 - p.high) - _x_log_x(1 - p.low) + width) / width
    kl = (-width.log() - (q.concentration1 - 1) * logs + (q.concentration0 - 1) * complements
          + q.concentration1.lgamma() + q.concentration0.lgamma()
          - (q.concentration1 + q.concentration0).lgamma())
    return where((p.high > q.support.upper_bound) | (p.low < q.support.lower_bound), inf, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    kl = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()
    return where((p.high >= q.support.upper_bound) | (p.low <= q.support.lower_bound), inf, kl)


@register_kl(Uniform, Exponential)
def _kl_uniform_exponetial(p: Any, q: Any) -> Tensor:
    kl = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return where(p.low < q.support.lower_bound, inf, kl)


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    kl = (-width.log() + q.concentration.lgamma() - q.concentration * q.rate.log()
          - (q.concentration - 1) * mean_log + q.rate * (p.high + p.low) / 2)
    return where(p.low < q.support.lower_bound, inf, kl)


@register_kl(Uniform, Gumbel)
def _kl_uniform_gumbel(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    low, high = (p.low - q.loc) / q.scale, (p.high - q.loc) / q.scale
    exponentials = ((-low).exp() - (-high).exp()) * q.scale / width
    return -(width / q.scale).log() + (high + low) / 2 + exponentials


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    kl = -width.log() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * mean_log
    return where(p.low < q.support.lower_bound, inf, kl)
