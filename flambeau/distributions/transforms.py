"""Invertible maps with the logarithm of their Jacobian's determinant, to build distributions and constraints from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import Tensor, broadcast_shapes, cat, eye, finfo, stack
from ..linalg import cholesky
from ..nn.functional import pad, softmax, softplus
from ..types import _Number
from . import constraints
from ._transform_base import (  # noqa: F401  (programs find the inverse here)
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    _InverseTransform,
    identity_transform,
)
from .distribution import Distribution
from .utils import _sum_rightmost, broadcast_all, lazy_property, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
           "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftplusTransform",
           "TanhTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform", "Transform",
           "identity_transform"]


# --------------------------------------------------------------------------------------------------- maps of numbers
class _Alike(Transform):
    """A transform without parameters: all of one class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    __hash__ = Transform.__hash__


class _Rising(_Alike):
    domain = constraints.real
    bijective = True
    sign = +1


class ExpTransform(_Rising):
    """y = exp(x).

    >>> torch.distributions.ExpTransform()(torch.tensor(0.0))
    tensor(1.)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent, of positive x.

    >>> torch.distributions.PowerTransform(torch.tensor(2.0))(torch.tensor(3.0))
    tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True
    _arguments = "exponent"

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def _broadcast(self, shape: Any) -> Any:
        return broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    forward_shape = inverse_shape = _broadcast


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """sigmoid that stays strictly between 0 and 1."""
    info = finfo(x.dtype)
    return x.sigmoid().clamp(min=info.tiny, max=1.0 - info.eps)


class SigmoidTransform(_Rising):
    """y = 1 / (1 + exp(-x)).

    >>> torch.distributions.SigmoidTransform()(torch.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        info = finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1.0 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Rising):
    """y = log(1 + exp(x)); the identity for x > 20.

    >>> torch.distributions.SoftplusTransform()(torch.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Rising):
    """y = tanh(x). Numerically better than the affine map of a sigmoid that it equals.

    >>> torch.distributions.TanhTransform()(torch.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()  # without clamping: use cache_size=1 where values come near -1 or 1

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))  # log(1 - tanh(x)**2) without cancellation


class AbsTransform(_Alike):
    """y = |x|; the inverse gives the positive one.

    >>> torch.distributions.AbsTransform()(torch.tensor(-2.0))
    tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x. event_dim: how many of the last dimensions are one event.

    >>> torch.distributions.AffineTransform(1.0, 2.0)(torch.tensor(3.0))
    tensor(7.)
    """

    bijective = True
    _arguments = "loc scale event_dim"

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    def _region(self) -> Any:
        return constraints.independent(constraints.real, self.event_dim) if self.event_dim else constraints.real

    domain = constraints.dependent_property(_region, is_discrete=False)
    codomain = constraints.dependent_property(_region, is_discrete=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = Transform.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shape, scale = x.shape, self.scale
        if isinstance(scale, _Number):
            result = x.new_full((), math.log(abs(scale)) if scale else -math.inf).expand(shape)
        else:
            result = scale.abs().log()
        if self.event_dim:
            result = result.expand(broadcast_shapes(result.shape, shape[-self.event_dim:]))
            result = _sum_rightmost(result, self.event_dim)
            shape = shape[:-self.event_dim]
        return result.expand(shape)

    def _broadcast(self, shape: Any) -> Any:
        return broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    forward_shape = inverse_shape = _broadcast


def _same(a: Any, b: Any) -> bool:
    """Whether two parameters, numbers or tensors, are equal."""
    if isinstance(a, _Number) and isinstance(b, _Number):
        return a == b
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else bool(equal)


# ------------------------------------------------------------------------------------------ maps of vectors, matrices
class CorrCholeskyTransform(Transform):
    """Vectors of D * (D - 1) / 2 free numbers as Cholesky factors of D x D correlation matrices.

    tanh of the numbers are partial correlations; each row of the factor is a stick of squared length 1 that they break.

    >>> from flambeau.distributions import CorrCholeskyTransform
    >>> CorrCholeskyTransform()(torch.tensor([0.5]))
    tensor([[1.0000, 0.0000],
            [0.4621, 0.8868]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        x = x.tanh()
        eps = finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - r * r).sqrt().cumprod(-1)  # the square root of what is left of the stick after each break
        r = r + eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(dim=-1)
        left = pad(left[..., :-1], [1, 0], value=1)
        partial = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (partial.log1p() - partial.neg().log1p()) / 2  # atanh

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Any = None) -> Tensor:
        left = 1 - (y * y).cumsum(dim=-1)
        # Column j of row i scales with the stick left after j - 1 breaks, which column j - 1 of `left` holds
        sticks = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        slopes = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(dim=-1)  # of tanh
        return sticks + slopes

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input: expected at least 1")
        count = shape[-1]
        side = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if side * (side - 1) // 2 != count:
            raise ValueError(f"Input is not a flattened lower-diagonal number: {count} entries")
        return shape[:-1] + (side, side)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input: expected at least 2")
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape)}")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


def _needs_vector(shape: Any) -> Any:
    if len(shape) < 1:
        raise ValueError("Too few dimensions on input: expected at least 1")
    return shape


class SoftmaxTransform(_Alike):
    """y = softmax(x). Not bijective: the inverse gives the logarithms.

    >>> torch.distributions.SoftmaxTransform()(torch.zeros(2))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _needs_vector(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _needs_vector(shape)


class StickBreakingTransform(_Alike):
    """Vectors of K free numbers as points of the simplex with K + 1 coordinates, by breaking a stick K times.

    >>> torch.distributions.StickBreakingTransform()(torch.zeros(2)).sum()
    tensor(1.0000)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        """log of how many pieces are still to come: with it x = 0 gives equal pieces."""
        return (x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)).log()

    def _call(self, x: Tensor) -> Tensor:
        broken = _clipped_sigmoid(x - self._offset(x))
        left = (1 - broken).cumprod(-1)
        return pad(broken, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        cropped = y[..., :-1]
        left = (1 - cropped.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return cropped.log() - left.log() + self._offset(cropped)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x)
        return (softplus(-x).neg() - x + y[..., :-1].log()).sum(-1)  # logsigmoid(x) - x + log(piece)

    def forward_shape(self, shape: Any) -> Any:
        return _needs_vector(shape)[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Any) -> Any:
        return _needs_vector(shape)[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(_Alike):
    """Free matrices as lower triangular ones with a positive diagonal.

    >>> torch.distributions.LowerCholeskyTransform()(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Alike):
    """Free matrices as positive definite ones, through their Cholesky factors.

    >>> torch.distributions.PositiveDefiniteTransform()(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


# ------------------------------------------------------------------------------------------------ transforms in pieces
class _SideBySide(Transform):
    """Transforms of parts of a value along a dimension."""

    transforms: list[Transform]

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        if cache_size:
            tseq = [t.with_cache(cache_size) for t in tseq]
        super().__init__(cache_size=cache_size)
        self.transforms, self.dim = list(tseq), dim

    def _check_sizes(self, values: Sequence[Tensor], size: int) -> None:
        for v in values:
            if not -v.dim() <= self.dim < v.dim():
                raise AssertionError(f"dim {self.dim} is out of range for a value of {v.dim()} dimensions")
            if v.size(self.dim) != size:
                raise AssertionError(f"expected size {size} along dim {self.dim}, got {v.size(self.dim)}")

    bijective = property(lambda self: all(t.bijective for t in self.transforms))


class CatTransform(_SideBySide):
    """Transforms side by side along a dimension, each over its length.

    >>> from flambeau.distributions import CatTransform, ExpTransform, identity_transform
    >>> CatTransform([ExpTransform(), identity_transform])(torch.zeros(2))
    tensor([1., 0.])
    """

    _arguments = "transforms dim lengths"

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths has {len(self.lengths)} entries for {len(self.transforms)} transforms")

    @lazy_property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        return sum(self.lengths)

    def _parts_of(self, *values: Tensor):
        """(transform, its part of each value) in order."""
        self._check_sizes(values, self.length)
        start = 0
        for transform, length in zip(self.transforms, self.lengths):
            yield transform, *[v.narrow(self.dim, start, length) for v in values]
            start += length

    def _call(self, x: Tensor) -> Tensor:
        return cat([t(part) for t, part in self._parts_of(x)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return cat([t.inv(part) for t, part in self._parts_of(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = []
        for t, before, after in self._parts_of(x, y):
            term = t.log_abs_det_jacobian(before, after)
            terms.append(_sum_rightmost(term, self.event_dim - t.event_dim))
        dim = self.dim if self.dim < 0 else self.dim - x.dim()
        dim += self.event_dim  # the events' dimensions are gone from the terms
        return cat(terms, dim=dim) if dim < 0 else sum(terms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_SideBySide):
    """One transform for each index of a dimension.

    >>> from flambeau.distributions import ExpTransform, StackTransform, identity_transform
    >>> StackTransform([ExpTransform(), identity_transform])(torch.zeros(2))
    tensor([1., 0.])
    """

    _arguments = "transforms dim"

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim, cache_size)

    def _slices(self, *values: Tensor):
        self._check_sizes(values, len(self.transforms))
        for i, t in enumerate(self.transforms):
            yield t, *[v.select(self.dim, i) for v in values]

    def _call(self, x: Tensor) -> Tensor:
        return stack([t(part) for t, part in self._slices(x)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return stack([t.inv(part) for t, part in self._slices(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack([t.log_abs_det_jacobian(a, b) for t, a, b in self._slices(x, y)], dim=self.dim)

    domain = constraints.dependent_property(
        lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))

    codomain = constraints.dependent_property(
        lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))


class CumulativeDistributionTransform(Transform):
    """y = the probability of a number up to x under a distribution.

    >>> from flambeau.distributions import CumulativeDistributionTransform, Uniform
    >>> CumulativeDistributionTransform(Uniform(0.0, 4.0))(torch.tensor([1.0]))
    tensor([0.2500])
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = +1
    _arguments = "distribution"

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
