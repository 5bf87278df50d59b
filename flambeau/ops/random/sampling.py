"""Gamma and Dirichlet samples as differentiable functions of their parameters."""

from __future__ import annotations

from typing import Any

from ...backends.cpu.random import sampling as _kernels  # noqa: F401  (enters the kernels)
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import Row


def _refuse(name: str) -> Any:
    raise NotImplementedError(f"derivative for aten::{name} is not implemented: how the gradient of a sample changes is "
                              "not known")


_gamma_slope = Row(
    "_standard_gamma_grad", "self output", kernel="standard_gamma_grad", shape=rules.pointwise,
    node="StandardGammaGradBackward0", backward={
        "self": lambda grad: _refuse("_standard_gamma_grad"), "output": lambda grad: _refuse("_standard_gamma_grad")})
_dirichlet_slope = Row("_dirichlet_grad", "x alpha total", kernel="dirichlet_grad", shape=rules.pointwise,
                       node="NotImplemented", backward={
    "x": lambda grad: _refuse("_dirichlet_grad"), "alpha": lambda grad: _refuse("_dirichlet_grad"),
    "total": lambda grad: _refuse("_dirichlet_grad")})

standard_gamma = Row("_standard_gamma", "self values", kernel="drawn", node="StandardGammaBackward0", backward={
    "self": lambda grad, self, result: grad * _gamma_slope(self, result)})


def _dirichlet_backward(grad: Tensor, x: Tensor, concentration: Tensor) -> Tensor:
    """Each concentration moves its own coordinate, and all the others in proportion, since they add up to 1."""
    total = concentration.sum(-1, keepdim=True).expand_as(concentration)
    return _dirichlet_slope(x, concentration, total) * (grad - (x * grad).sum(-1, keepdim=True))


sample_dirichlet = Row("_sample_dirichlet", "self values", kernel="drawn", node="_DirichletBackward", backward={
    "self": lambda grad, self, result: _dirichlet_backward(grad, result, self)})


def standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """d output / d self of standard gamma samples `output` of shapes `self`."""
    return _gamma_slope(self, output)


def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """d x / d alpha / (1 - x) of coordinates of Dirichlet samples whose concentrations add up to `total`."""
    return _dirichlet_slope(x, alpha, total)
