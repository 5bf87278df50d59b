"""linalg against torch: values, gradients and second derivatives, real and complex, with batches and odd shapes."""

import itertools
import math

import numpy as np
import pytest
import torch
from compare import EXACT, Tolerance, array, same

import flambeau

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.standard_normal(shape)


def cplx(*shape):
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def flat(out):
    return [out] if not isinstance(out, (tuple, list)) else [x for o in out for x in flat(o)]


def within(bound):
    """Relative to the largest element: factorizations mix all of them."""
    return Tolerance(bound, bound, of_largest=bound)


def loss(outs, weights, T):
    total = 0
    for o, w in zip(outs, weights):
        o = o * T.from_numpy(w.copy())
        total = total + (T.real(o).sum() + 2 * T.imag(o).sum() if w.dtype.kind == "c" else o.sum())
    return total


def derivatives_agree(function, arrays, second=True, values=True, tol=1e-8):
    """function(T, *tensors) on both sides: outputs, gradients, and gradients of the gradients' sum of squares."""
    sides = []
    seen = None
    for T in (torch, flambeau):
        inputs = [T.from_numpy(a.copy()).requires_grad_(a.dtype.kind in "fc") for a in arrays]
        outs = [o for o in flat(function(T, *inputs)) if o.is_floating_point() or o.is_complex()]
        diff = [o for o in outs if o.requires_grad]
        if seen is None:
            rng = np.random.default_rng(5)
            seen = [np.asarray(rng.standard_normal(tuple(o.shape)) + (1j * rng.standard_normal(tuple(o.shape))
                                                                      if o.is_complex() else 0))
                    for o in diff]
        else:
            assert len(diff) == len(seen), "other outputs require grad"
        leaves = [x for x in inputs if x.requires_grad]
        grads = seconds = []
        if diff:
            grads = T.autograd.grad(loss(diff, seen, T), leaves, create_graph=second, allow_unused=True)
            if second:
                target = sum((g * g.conj()).real.sum() if g.is_complex() else (g * g).sum()
                             for g in grads if g is not None and g.requires_grad)
                if isinstance(target, T.Tensor):
                    seconds = T.autograd.grad(target, leaves, allow_unused=True)
        sides.append((outs, grads, seconds))
    (want, grads, seconds), (got, ours, our_seconds) = sides
    assert len(want) == len(got)
    if values:
        same(want, got, within(tol), "output")
    for name, a, b in (("gradient", grads, ours), ("second derivative", seconds, our_seconds)):
        assert len(a) == len(b), name
        for i, (w, g) in enumerate(zip(a, b)):
            if w is None or g is None:
                assert all(x is None or not array(x).any() for x in (w, g)), (name, i)
            else:
                same(w.detach(), g.detach(), within(tol * 100), f"{name} {i}")


def well(make, *shape):
    """A matrix far from singular."""
    a = make(*shape)
    n = min(shape[-2:])
    return a + 3 * np.eye(shape[-2], shape[-1]) * (1 if n else 0)


def positive(make, *shape):
    a = make(*shape)
    return a @ a.conj().swapaxes(-1, -2) + np.eye(shape[-1])


def hermitian(T, a):
    return (a + a.mH) / 2


# name -> (function, arrays from a maker of numbers)
CASES = {
    "inv": (lambda T, a: T.linalg.inv(a), lambda m: [well(m, 2, 3, 3)]),
    "inverse": (lambda T, a: a.inverse(), lambda m: [well(m, 3, 3)]),
    "det": (lambda T, a: T.linalg.det(a), lambda m: [m(2, 4, 4)]),
    "slogdet": (lambda T, a: T.linalg.slogdet(a), lambda m: [m(2, 3, 3)]),
    "logdet": (lambda T, a: T.logdet(a @ a.mH), lambda m: [well(m, 3, 3)]),
    "solve": (lambda T, a, b: T.linalg.solve(a, b), lambda m: [well(m, 2, 3, 3), m(2, 3, 2)]),
    "solve_broadcast": (lambda T, a, b: T.linalg.solve(a, b), lambda m: [well(m, 3, 3), m(2, 3, 2)]),
    "solve_vector": (lambda T, a, b: T.linalg.solve(a, b), lambda m: [well(m, 3, 3), m(3)]),
    "solve_vectors": (lambda T, a, b: T.linalg.solve(a, b), lambda m: [well(m, 2, 3, 3), m(2, 3)]),
    "solve_right": (lambda T, a, b: T.linalg.solve(a, b, left=False), lambda m: [well(m, 3, 3), m(2, 3)]),
    "solve_ex": (lambda T, a, b: T.linalg.solve_ex(a, b).result, lambda m: [well(m, 3, 3), m(3, 1)]),
    "triangular": (lambda T, a, b: T.linalg.solve_triangular(a, b, upper=True), lambda m: [well(m, 3, 3), m(2, 3, 2)]),
    "triangular_unit": (lambda T, a, b: T.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
                        lambda m: [m(3, 3), m(3, 2)]),
    "triangular_right": (lambda T, a, b: T.linalg.solve_triangular(a, b, upper=False, left=False),
                         lambda m: [well(m, 3, 3), m(2, 3)]),
    "triangular_solve": (lambda T, a, b: T.triangular_solve(b, a, upper=False, transpose=True),
                         lambda m: [well(m, 3, 3), m(3, 2)]),
    "cholesky": (lambda T, a: T.linalg.cholesky(hermitian(T, a)), lambda m: [positive(m, 2, 3, 3)]),
    "cholesky_upper": (lambda T, a: T.cholesky(hermitian(T, a), upper=True), lambda m: [positive(m, 3, 3)]),
    "cholesky_inverse": (lambda T, a: T.cholesky_inverse(T.linalg.cholesky(hermitian(T, a))), lambda m: [positive(m, 3,
                                                                                                                  3)]),
    "cholesky_solve": (lambda T, a, b: T.cholesky_solve(b, T.linalg.cholesky(hermitian(T, a))),
                       lambda m: [positive(m, 2, 3, 3), m(3, 2)]),
    "cholesky_solve_upper": (lambda T, a, b: T.cholesky_solve(b, T.linalg.cholesky(hermitian(T, a), upper=True),
                                                              upper=True),
                             lambda m: [positive(m, 3, 3), m(3, 2)]),
    "lu": (lambda T, a: T.linalg.lu(a), lambda m: [m(2, 3, 3)]),
    "lu_wide": (lambda T, a: T.linalg.lu(a), lambda m: [m(2, 4)]),
    "lu_tall": (lambda T, a: T.linalg.lu(a), lambda m: [m(4, 2)]),
    "lu_factor": (lambda T, a: T.linalg.lu_factor(a).LU, lambda m: [m(2, 3, 4)]),
    "lu_unpack": (lambda T, a: T.lu_unpack(*T.linalg.lu_factor(a)), lambda m: [m(4, 3)]),
    **{f"lu_solve_{left}_{adj}": (
        lambda T, a, b, left=left, adj=adj: T.linalg.lu_solve(*T.linalg.lu_factor(a), b, left=left, adjoint=adj),
        lambda m: [well(m, 3, 3), m(3, 3)]) for left in (True, False) for adj in (True, False)},
    "qr_tall": (lambda T, a: T.linalg.qr(a), lambda m: [m(2, 4, 3)]),
    "qr_wide": (lambda T, a: T.linalg.qr(a), lambda m: [m(3, 5)]),
    "qr_complete": (lambda T, a: T.linalg.qr(a, "complete"), lambda m: [m(3, 4)]),
    "svdvals": (lambda T, a: T.linalg.svdvals(a), lambda m: [m(2, 3, 4)]),
    "svd_tall": (lambda T, a: [abs(x) for x in T.linalg.svd(a, full_matrices=False)], lambda m: [m(4, 3)]),
    "svd_wide": (lambda T, a: [abs(x) for x in T.linalg.svd(a, full_matrices=False)], lambda m: [m(2, 3, 5)]),
    "svd_u": (lambda T, a: abs(T.linalg.svd(a, full_matrices=False).U), lambda m: [m(3, 3)]),
    "svd_v": (lambda T, a: abs(T.linalg.svd(a, full_matrices=False).Vh), lambda m: [m(3, 4)]),
    "svd_old": (lambda T, a: [abs(x) for x in T.svd(a)], lambda m: [m(4, 3)]),
    "eigh": (lambda T, a: [abs(x) for x in T.linalg.eigh(hermitian(T, a))], lambda m: [m(2, 3, 3)]),
    "eigvalsh": (lambda T, a: T.linalg.eigvalsh(hermitian(T, a), "U"), lambda m: [m(3, 3)]),
    "eig": (lambda T, a: (lambda w, v: (w.abs().sum(), (v @ T.diag_embed(w) @ T.linalg.inv(v)).abs(),
                                        v.abs().pow(3).sum()))(*T.linalg.eig(a)), lambda m: [m(3, 3)]),
    "eigvals": (lambda T, a: (T.linalg.eigvals(a) ** 2).sum(), lambda m: [m(3, 3)]),
    "householder": (lambda T, a, t: T.linalg.householder_product(a, t), lambda m: [m(2, 4, 3), m(2, 2)]),
    "ormqr": (lambda T, a, t, c: T.ormqr(a, t, c), lambda m: [m(4, 3), m(3), m(4, 2)]),
    "ormqr_right": (lambda T, a, t, c: T.ormqr(a, t, c, left=False, transpose=True), lambda m: [m(4, 3), m(3), m(2,
                                                                                                                 4)]),
    "pinv_tall": (lambda T, a: T.linalg.pinv(a), lambda m: [m(4, 3)]),
    "pinv_wide": (lambda T, a: T.linalg.pinv(a), lambda m: [m(2, 3, 4)]),
    "pinv_hermitian": (lambda T, a: T.linalg.pinv(hermitian(T, a), hermitian=True), lambda m: [well(m, 3, 3)]),
    "lstsq": (lambda T, a, b: T.linalg.lstsq(a, b).solution, lambda m: [m(4, 3), m(4, 2)]),
    "lstsq_wide": (lambda T, a, b: T.linalg.lstsq(a, b).solution, lambda m: [m(2, 3, 4), m(2, 3, 2)]),
    "matrix_exp": (lambda T, a: T.linalg.matrix_exp(a), lambda m: [m(2, 3, 3)]),
    "matrix_power": (lambda T, a: T.linalg.matrix_power(a, 5), lambda m: [m(3, 3)]),
    "matrix_power_negative": (lambda T, a: T.linalg.matrix_power(a, -2), lambda m: [well(m, 3, 3)]),
    "norm_nuc": (lambda T, a: T.linalg.matrix_norm(a, "nuc"), lambda m: [m(3, 4)]),
    "norm_2": (lambda T, a: T.linalg.matrix_norm(a, 2, (0, 2)), lambda m: [m(3, 2, 4)]),
    "norm_minus_2": (lambda T, a: T.linalg.matrix_norm(a, -2, keepdim=True), lambda m: [m(2, 3, 3)]),
    "norm_inf": (lambda T, a: T.linalg.norm(a, float("inf")), lambda m: [m(3, 4)]),
    "norm_1": (lambda T, a: T.linalg.norm(a, -1), lambda m: [m(3, 4)]),
    "norm_fro": (lambda T, a: T.linalg.norm(a, "fro", (-1, 0)), lambda m: [m(3, 4)]),
    "norm_vector": (lambda T, a: T.linalg.norm(a, 3.5, 1), lambda m: [m(3, 4)]),
    "cond": (lambda T, a: T.linalg.cond(a), lambda m: [m(2, 3, 4)]),
    "cond_nuc": (lambda T, a: T.linalg.cond(a, "nuc"), lambda m: [well(m, 3, 3)]),
    "tensorinv": (lambda T, a: T.linalg.tensorinv(a, 1), lambda m: [m(6, 2, 3)]),
    "tensorsolve": (lambda T, a, b: T.linalg.tensorsolve(a, b, dims=(0,)), lambda m: [m(6, 2, 3), m(2, 3)]),
    "vander": (lambda T, a: T.linalg.vander(a, N=4), lambda m: [m(2, 3)]),
    "vecdot": (lambda T, a, b: T.linalg.vecdot(a, b, dim=0), lambda m: [m(3, 2), m(3, 2)]),
    "cross": (lambda T, a, b: T.linalg.cross(a, b), lambda m: [m(4, 3), m(1, 3)]),
    "multi_dot": (lambda T, *t: T.linalg.multi_dot(t), lambda m: [m(3), m(3, 4), m(4, 2), m(2, 5)]),
    "diagonal": (lambda T, a: T.linalg.diagonal(a, offset=1), lambda m: [m(3, 4)]),
}
# torch itself has no second derivative of these
NO_SECOND = {"qr_complete"}


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, kind):
    function, arrays = CASES[name]
    derivatives_agree(function, arrays(real if kind == "real" else cplx), second=name not in NO_SECOND)


# ------------------------------------------------------------------------------------------------- shapes and errors
EMPTY = [(0, 0), (2, 0, 0), (0, 3, 3)]


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "qr", "svd", "svdvals", "eigh", "eigvalsh",
                                  "eig", "eigvals", "pinv", "lu", "lu_factor", "matrix_exp", "matrix_rank", "cond",
                                  "norm"])
def test_empty_matrices(name, shape):
    a = np.zeros(shape, "float32")
    want = flat(getattr(torch.linalg, name)(torch.from_numpy(a)))
    got = flat(getattr(flambeau.linalg, name)(flambeau.from_numpy(a)))
    same(want, got, EXACT, name)


@pytest.mark.parametrize("name, args, error", [
    ("inv", [(3, 4)], RuntimeError), ("inv", [(3,)], RuntimeError), ("det", [(2, 3)], RuntimeError),
    ("cholesky", [(3, 4)], RuntimeError), ("eigh", [(2, 3)], RuntimeError), ("solve", [(3, 3), (4, 2)], RuntimeError),
    ("svd", [(3,)], RuntimeError), ("qr", [(3,)], RuntimeError), ("matrix_norm", [(3,)], RuntimeError),
    ("householder_product", [(2, 3), (2,)], RuntimeError), ("lstsq", [(3, 2), (4, 1)], RuntimeError),
    ("multi_dot", [[(2, 3)]], RuntimeError), ("cross", [(2, 4), (2, 4)], RuntimeError),
    ("tensorinv", [(2, 3, 4)], RuntimeError)])
def test_wrong_shapes(name, args, error):
    def make(T, s):
        return [make(T, x) for x in s] if isinstance(s, list) else T.from_numpy(np.ones(s, "float32"))
    for T in (torch, flambeau):
        with pytest.raises(error):
            getattr(T.linalg, name)(*[make(T, s) for s in args])


@pytest.mark.parametrize("name", ["inv", "det", "svd", "eigh", "cholesky", "qr", "solve", "pinv"])
@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_wrong_dtypes(name, dtype):
    for T in (torch, flambeau):
        a = T.from_numpy(np.ones((2, 2), dtype))
        with pytest.raises(RuntimeError):
            getattr(T.linalg, name)(*(a, a) if name == "solve" else (a,))


def test_singular_matrices_say_which():
    a = np.stack([np.eye(2), np.zeros((2, 2))])
    for T in (torch, flambeau):
        x = T.from_numpy(a.copy())
        with pytest.raises(T.linalg.LinAlgError, match=r"Batch element 1"):
            T.linalg.inv(x)
        with pytest.raises(T.linalg.LinAlgError, match=r"Batch element 1"):
            T.linalg.solve(x, x)
        with pytest.raises(T.linalg.LinAlgError, match=r"not positive-definite"):
            T.linalg.cholesky(-x)
        assert T.linalg.inv_ex(x).info.tolist() == [0, 1]


def test_results_are_named_and_take_out():
    a = flambeau.from_numpy(positive(real, 3, 3))
    assert repr(flambeau.linalg.eigh(a)).startswith("torch.return_types.linalg_eigh(\neigenvalues=tensor(")
    assert flambeau.linalg.svd(a)._fields == ("U", "S", "Vh")
    values, vectors = flambeau.zeros(3, dtype=flambeau.float64), flambeau.zeros(3, 3, dtype=flambeau.float64)
    result = flambeau.linalg.eigh(a, out=(values, vectors))
    assert result.eigenvalues is values and float(values.abs().sum()) > 0
    assert flambeau.linalg.norm(input=a, axis=0, keepdims=True).shape == (1, 3)


def leibniz(a):
    """det as a polynomial, so that its derivatives of every order are right at every matrix."""
    total = 0
    for p in itertools.permutations(range(a.shape[-1])):
        sign = np.linalg.det(np.eye(len(p))[list(p)])
        total = total + sign * math.prod((a[..., i, j] for i, j in enumerate(p)), start=1)
    return total


_rng = np.random.default_rng(3)
SINGULAR = {
    "whole numbers": [[1, 2, 3], [4, 5, 6], [5, 7, 9]], "transposed": [[1, 4, 5], [2, 5, 7], [3, 6, 9]],
    "outer": np.outer([1.0, 2, 3], [1, -1, 2]) + np.outer([0, 1, 1], [2.0, 0, 1]),
    "nilpotent": np.eye(4, k=1), "zero": np.zeros((2, 2)), "rank 1 of 3": np.ones((3, 3)),
    "rank 3 of 4": _rng.standard_normal((4, 3)) @ _rng.standard_normal((3, 4)),
    "rank 2 of 4": _rng.standard_normal((4, 2)) @ _rng.standard_normal((2, 4)),
    "badly scaled": np.diag([1e6, 1, 1e-3, 0]) @ _rng.standard_normal((4, 4)),
    "nearly": np.diag([1, 1, 1e-13]) @ _rng.standard_normal((3, 3)),
    "in a batch": [[[2, 1], [4, 2]], [[2, 1], [3, 2]], [[0, 0], [0, 0]]],
}


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", SINGULAR)
def test_det_has_a_gradient_at_singular_matrices(name, kind):
    """The cofactors, whether a pivot is zero or what rounding left of it, and derivatives of them. (PyTorch gives 0 or NaN.)"""
    a = np.asarray(SINGULAR[name], float) * (1 if kind == "real" else 1 - 2j)
    derivatives_agree(lambda T, x: T.linalg.det(x) if T is flambeau else leibniz(x), [a])


@pytest.mark.parametrize("pivot", [0.0, 1e-16, -3e-15, 1e-320])
def test_cofactors_do_not_depend_on_how_a_pivot_rounds(pivot):
    from flambeau.backends.cpu.linalg import kernels as kernels
    for dtype in ("float64", "complex128"):
        _, lu, pivots = kernels.det_lu(np.array([[1, 2, 3], [4, 5, 6], [5, 7, 9]], dtype))
        lu[2, 2] = pivot
        swaps = (pivots != [1, 2, 3]).sum()
        got = kernels.cofactor_lu(lu, pivots, np.prod(np.diagonal(lu), keepdims=True)[0] * (-1) ** swaps)
        np.testing.assert_allclose(got, [[3, -6, 3], [3, -6, 3], [-3, 6, -3]], atol=1e-13)


def test_third_derivative_of_det():
    for a in (np.diag([1.0, 2, 0, 3]) + np.eye(4, k=-1), np.diag([1.0, 2, 5, 3]) + np.eye(4, k=1)):
        found = []
        for T, det in ((torch, leibniz), (flambeau, flambeau.linalg.det)):
            grad = x = T.from_numpy(a).requires_grad_()
            for power in (1, 2, 3):
                loss = det(x) if power == 1 else (grad ** power).sum()
                (grad,) = T.autograd.grad(loss, x, create_graph=True)
            found.append(grad)
        same(*found, within(1e-9), "third derivative")


def test_integer_determinants_are_exact():
    a = flambeau.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert flambeau.det(a).item() == -2.0
