"""lobpcg: a few eigenvalues by iteration, beside eigh and PyTorch."""

import numpy as np
import pytest
import torch as oracle

import flambeau

RANDOM = np.random.default_rng(0).standard_normal((40, 40))
MATRIX = RANDOM @ RANDOM.T + np.diag(np.arange(40.0) * 3)
OTHER = np.eye(40) * 2 + 0.01 * (RANDOM + RANDOM.T)


def tensor(t, values, dtype="float64"):
    return t.tensor(values.tolist(), dtype=getattr(t, dtype))


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 1e-3)])
@pytest.mark.parametrize("options", [dict(k=3), dict(k=3, largest=False), dict(k=2, method="basic"), dict(k=2, n=5)])
def test_values_and_vectors(options, dtype, tolerance):
    flambeau.manual_seed(0)
    A = tensor(flambeau, MATRIX, dtype)
    values, vectors = flambeau.lobpcg(A, **options)
    exact = np.linalg.eigvalsh(MATRIX)
    wanted = exact[:options["k"]] if options.get("largest") is False else exact[::-1][:options["k"]]
    np.testing.assert_allclose(values.numpy(), wanted, rtol=tolerance)
    assert vectors.shape == (40, options["k"])
    assert float((A @ vectors - vectors * values).abs().max()) < 300 * tolerance ** 0.6
    np.testing.assert_allclose((vectors.mT @ vectors).numpy(), np.eye(options["k"]), atol=1e-5)


def test_the_generalized_problem():
    flambeau.manual_seed(0)
    A, B = tensor(flambeau, MATRIX), tensor(flambeau, OTHER)
    values, vectors = flambeau.lobpcg(A, k=2, B=B)
    exact = np.sort(np.linalg.eigvals(np.linalg.solve(OTHER, MATRIX)).real)[::-1][:2]
    np.testing.assert_allclose(values.numpy(), exact, rtol=1e-8)
    assert float((A @ vectors - B @ vectors * values).abs().max()) < 1e-4


def test_a_preconditioner_saves_steps():
    steps = {}
    for name in ("without", "with"):
        flambeau.manual_seed(0)
        A = tensor(flambeau, np.diag(np.arange(1.0, 201.0) ** 2))
        count = []
        flambeau.lobpcg(A, k=1, largest=False, iK=A.inverse() if name == "with" else None, tracker=lambda w: count.append(w.E))
        steps[name] = len(count)
    assert 0 < steps["with"] < steps["without"] / 4


def test_batches_and_sparse_matrices():
    flambeau.manual_seed(0)
    values, vectors = flambeau.lobpcg(tensor(flambeau, np.stack([MATRIX, MATRIX * 2])), k=1)
    np.testing.assert_allclose(values[1].numpy(), 2 * values[0].numpy(), rtol=1e-9)
    assert vectors.shape == (2, 40, 1)
    sparse = flambeau.lobpcg(tensor(flambeau, MATRIX).to_sparse(), k=1)[0]
    np.testing.assert_allclose(sparse.numpy(), values[0].numpy(), rtol=1e-9)


def gradient(t):
    t.manual_seed(0)
    A = tensor(t, MATRIX).requires_grad_()
    values, vectors = t.lobpcg(A, k=2, tol=1e-12)
    ((values * t.tensor([1.0, 2.0])).sum() + (vectors ** 4).sum()).backward()
    return A.grad.numpy()


def test_gradients():
    np.testing.assert_allclose(gradient(flambeau), gradient(oracle), atol=1e-9)


@pytest.mark.parametrize("error, words, call", [
    (AssertionError, "square", lambda t: t.lobpcg(t.ones(30, 40), k=1)),
    (ValueError, "smaller than 3 x", lambda t: t.lobpcg(t.eye(20), k=8)),
    (ValueError, "B != I", lambda t: t.lobpcg(t.eye(20, requires_grad=True), k=1, B=t.eye(20))[0].sum().backward()),
])
def test_refused(error, words, call):
    for t in (oracle, flambeau):
        with pytest.raises(error, match=words):
            call(t)
