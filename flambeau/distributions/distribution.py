"""The base of all distributions: shapes, checks of parameters and values, and what follows from other methods."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from .. import Size, Tensor
from ..autograd.modes import no_grad
from ..types import _Number
from . import constraints
from .utils import broadcast_all, lazy_property

__all__ = ["Distribution"]


def _expanded(owner: type[Distribution]) -> set[str]:
    """The names of the fields that have a batch's shape."""
    own = [cls.__dict__ for cls in owner.__mro__]
    named = [fields["arg_constraints"] for fields in own if isinstance(fields.get("arg_constraints"), dict)]
    return {*itertools.chain(*named), *itertools.chain(*[fields.get("_expands", "").split() for fields in own])}


_EXAMPLE = """{doc}

    >>> d = torch.distributions.{name}({arguments})
    >>> d.log_prob({value})
    {result}
    >>> d.sample((3,)).shape
    torch.Size([3])
    """


class Distribution:
    """A batch of independent distributions: a sample's shape is sample_shape + batch_shape + event_shape.

    >>> coin = torch.distributions.Bernoulli(torch.tensor([0.5, 0.9]))
    >>> coin.batch_shape, coin.event_shape, coin.sample((3,)).shape
    (torch.Size([2]), torch.Size([]), torch.Size([3, 2]))
    >>> coin.log_prob(torch.ones(2))
    tensor([-0.6931, -0.1054])
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    _expands = ""  # what expand() expands besides the parameters, which `arg_constraints` names
    _keeps = ""  # and the fields that it leaves as they are

    def __init_subclass__(cls, example: tuple[str, str, str] | None = None, **kwargs: Any) -> None:
        """example: arguments, a value and its logarithmic probability, which the docstring shows."""
        super().__init_subclass__(**kwargs)
        if example is not None and cls.__doc__:  # (there is none under -OO)
            arguments, value, result = example
            cls.__doc__ = _EXAMPLE.format(doc=cls.__doc__, name=cls.__name__, arguments=arguments, value=value, result=result)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their parameters and values."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = Size(), event_shape: Any = Size(), validate_args: bool | None = None):
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                          "initialize the distribution with `validate_args=False` to turn off validation.", stacklevel=3)
            return
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue  # made from another parameter, which is checked itself
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                                 f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                                 f"values:\n{value}")

    def _hold(self, **parameters: Any) -> Size:
        """Keeps the parameters, broadcast against each other; gives the batch's shape."""
        held = broadcast_all(*parameters.values())
        for name, value in zip(parameters, held):
            setattr(self, name, value)
        return Size() if all(isinstance(given, _Number) for given in parameters.values()) else held[0].size()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        """The same distribution with its batch expanded to a shape, without copying parameters."""
        return self._expand(batch_shape, _instance)

    def _expand(self, batch_shape: Any, instance: Any, **replaced: Any) -> Any:
        """`expand` for the package's own classes. Fields that are expanded are distributions, or tensors of batch shape (these
        may have more dimensions). replaced: fields that are set as given, such as base distributions expanded on their own.
        """
        owner = next(cls for cls in type(self).__mro__ if cls.__module__.startswith(__package__) and "__init__" in cls.__dict__)
        if owner is Distribution:
            raise NotImplementedError(f"{type(self).__name__} does not implement expand")
        new = self._get_checked_instance(owner, instance)
        batch_shape = Size(batch_shape)
        fields = self.__dict__
        for name in _expanded(owner) & fields.keys():
            value = fields[name]
            more = value.shape[len(self._batch_shape):] if isinstance(value, Tensor) else Size()
            setattr(new, name, value.expand(batch_shape + more))
        for name, value in [*[(name, fields[name]) for name in self._keeps.split()], *replaced.items()]:
            setattr(new, name, value)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    batch_shape = property(lambda self: self._batch_shape)
    event_shape = property(lambda self: self._event_shape)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError(f"{type(self).__name__} does not define arg_constraints")

    @property
    def support(self) -> Any:
        """Where values lie."""
        raise NotImplementedError(f"{type(self).__name__} does not define support")

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement mean")

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement variance")

    stddev = property(lambda self: self.variance.sqrt())

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        """Draws values; no gradient flows through them."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        """Draws values as functions of the parameters, so that gradients flow through them."""
        raise NotImplementedError(f"{type(self).__name__} does not implement rsample: its draws are not differentiable")

    def sample_n(self, n: int) -> Tensor:
        """n samples (an old name of sample((n,)))."""
        warnings.warn("sample_n(n) will be deprecated. Use .sample((n,)) instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or probability) at a value."""
        raise NotImplementedError(f"{type(self).__name__} does not implement log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a number up to the value."""
        raise NotImplementedError(f"{type(self).__name__} does not implement cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The number up to which the probability is `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along dimension 0 (expand: over the batch as well)."""
        raise NotImplementedError(f"{type(self).__name__} does not implement enumerate_support")

    def _spread_support(self, values: Tensor, expand: bool) -> Tensor:
        """The possible values of a scalar distribution in the shape that enumerate_support returns."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    def entropy(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = Size()) -> Size:
        """The shape of what `sample(sample_shape)` returns."""
        if not isinstance(sample_shape, Size):
            sample_shape = Size(sample_shape)
        return Size(sample_shape + self._batch_shape + self._event_shape)

    def _check_value(self, value: Tensor) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Tensor) -> None:
        """Checks that `value` has this distribution's shape and lies in its support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor, but got {type(value).__name__}")
        start = value.dim() - len(self._event_shape)
        if value.size()[start:] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        wanted = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.size()), reversed(wanted)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs {wanted}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                          "distribution with `validate_args=False` to turn off validation.", stacklevel=3)
            return
        if support is None:
            raise AssertionError("support is None")
        if not support.check(value).all():
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                             f"within the support ({support!r}) of the distribution {self!r}, but found invalid "
                             f"values:\n{value}")

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An empty object of this class for `expand`; a subclass with another __init__ must expand itself."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                                      "__init__ method must also define a custom .expand() method.")
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        names = [k for k in self.arg_constraints if k in self.__dict__]
        shown = [(k, self.__dict__[k]) for k in names]
        args = ", ".join(f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in shown)
        return f"{type(self).__name__}({args})"
