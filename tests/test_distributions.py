"""Every distribution, transform and divergence agrees with torch: samples of a seed, values, gradients, errors."""

from __future__ import annotations

import math
import pickle
import warnings

import pytest
import torch
from compare import same

import flambeau

MODULES = (torch, flambeau)


class Maker:
    """Builds the same parameters in either module, and remembers the tensors for their gradients."""

    def __init__(self, mod, dtype):
        self.mod, self.D, self.dtype, self.leaves = mod, mod.distributions, getattr(mod, dtype), []

    def __call__(self, value, grad=True):
        t = self.mod.tensor(value, dtype=self.dtype, requires_grad=grad)
        if grad:
            self.leaves.append(t)
        return t


TRIL = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.8]]
COV = [[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.5]]
PROBS = [[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]]
LOGITS = [[0.3, -1.2, 2.0], [0.0, 0.4, 0.1]]

CASES = {
    "Normal": lambda c: c.D.Normal(c([0.5, -1.0]), c([1.0, 2.0])),
    "Normal batch": lambda c: c.D.Normal(c([[0.5], [-1.0]]), c([1.0, 2.0, 0.3])),
    "Normal number": lambda c: c.D.Normal(0.5, c([1.0, 2.0])),
    "LogNormal": lambda c: c.D.LogNormal(c([0.5, -1.0]), c([1.0, 0.2])),
    "MultivariateNormal tril": lambda c: c.D.MultivariateNormal(c([0.5, -1.0, 2.0]), scale_tril=c(TRIL)),
    "MultivariateNormal cov": lambda c: c.D.MultivariateNormal(c([[0.5, -1.0, 2.0]] * 2), c(COV)),
    "MultivariateNormal precision": lambda c: c.D.MultivariateNormal(c([0.5, -1.0, 2.0]), precision_matrix=c(COV)),
    "MultivariateNormal batch": lambda c: c.D.MultivariateNormal(c([0.5, -1.0, 2.0]), scale_tril=c([TRIL, TRIL])),
    "LowRankMultivariateNormal": lambda c: c.D.LowRankMultivariateNormal(
        c([0.5, -1.0, 2.0]), c([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.4]]), c([1.0, 0.5, 2.0])),
    "Bernoulli": lambda c: c.D.Bernoulli(c([0.2, 0.5, 0.9])),
    "Bernoulli logits": lambda c: c.D.Bernoulli(logits=c([0.2, -0.5, 3.0])),
    "ContinuousBernoulli": lambda c: c.D.ContinuousBernoulli(c([0.2, 0.4999, 0.9])),
    "ContinuousBernoulli logits": lambda c: c.D.ContinuousBernoulli(logits=c([0.2, -0.5, 3.0])),
    "Binomial": lambda c: c.D.Binomial(5, c([0.2, 0.5, 0.9])),
    "Binomial logits": lambda c: c.D.Binomial(c([3.0, 4.0, 10.0], False), logits=c([0.2, -0.5, 3.0])),
    "NegativeBinomial": lambda c: c.D.NegativeBinomial(c([3.0, 4.5, 10.0], False), c([0.2, 0.5, 0.9])),
    "NegativeBinomial logits": lambda c: c.D.NegativeBinomial(4, logits=c([0.2, -0.5, 1.0])),
    "Geometric": lambda c: c.D.Geometric(c([0.2, 0.5, 0.9])),
    "Geometric logits": lambda c: c.D.Geometric(logits=c([0.2, -0.5, 1.0])),
    "Categorical": lambda c: c.D.Categorical(c(PROBS)),
    "Categorical logits": lambda c: c.D.Categorical(logits=c(LOGITS)),
    "OneHotCategorical": lambda c: c.D.OneHotCategorical(c(PROBS)),
    "OneHotCategorical logits": lambda c: c.D.OneHotCategorical(logits=c(LOGITS)),
    "OneHotCategoricalStraightThrough": lambda c: c.D.OneHotCategoricalStraightThrough(logits=c(LOGITS)),
    "Multinomial": lambda c: c.D.Multinomial(6, c(PROBS)),
    "Multinomial logits": lambda c: c.D.Multinomial(6, logits=c(LOGITS)),
    "Poisson": lambda c: c.D.Poisson(c([0.2, 5.0, 30.0])),
    "Uniform": lambda c: c.D.Uniform(c([0.2, -5.0]), c([0.5, 1.0])),
    "Exponential": lambda c: c.D.Exponential(c([0.2, 5.0])),
    "Gamma": lambda c: c.D.Gamma(c([0.2, 5.0]), c([1.0, 0.5])),
    "Chi2": lambda c: c.D.Chi2(c([0.7, 5.0])),
    "InverseGamma": lambda c: c.D.InverseGamma(c([1.2, 5.0]), c([1.0, 0.5])),
    "Beta": lambda c: c.D.Beta(c([1.2, 5.0, 0.3]), c([2.0, 0.5, 0.4])),
    "Dirichlet": lambda c: c.D.Dirichlet(c([[1.2, 5.0, 0.3], [2.0, 0.5, 0.4]])),
    "Kumaraswamy": lambda c: c.D.Kumaraswamy(c([1.2, 5.0]), c([2.0, 0.5])),
    "Laplace": lambda c: c.D.Laplace(c([1.2, -5.0]), c([2.0, 0.5])),
    "Cauchy": lambda c: c.D.Cauchy(c([1.2, -5.0]), c([2.0, 0.5])),
    "HalfNormal": lambda c: c.D.HalfNormal(c([2.0, 0.5])),
    "HalfCauchy": lambda c: c.D.HalfCauchy(c([2.0, 0.5])),
    "StudentT": lambda c: c.D.StudentT(c([0.7, 1.5, 5.0]), c([2.0, 0.5, 0.0]), c([1.0, 2.0, 3.0])),
    "FisherSnedecor": lambda c: c.D.FisherSnedecor(c([1.7, 5.0]), c([1.5, 6.0])),
    "Gumbel": lambda c: c.D.Gumbel(c([1.2, -5.0]), c([2.0, 0.5])),
    "LogisticNormal": lambda c: c.D.LogisticNormal(c([[1.2, -0.5]]), c([2.0, 0.5])),
    "RelaxedBernoulli": lambda c: c.D.RelaxedBernoulli(c(0.7), c([0.2, 0.9])),
    "RelaxedBernoulli logits": lambda c: c.D.RelaxedBernoulli(c(0.7), logits=c([0.2, 0.9])),
    "RelaxedOneHotCategorical": lambda c: c.D.RelaxedOneHotCategorical(c(0.7), c(PROBS)),
    "RelaxedOneHotCategorical logits": lambda c: c.D.RelaxedOneHotCategorical(c(0.7), logits=c(LOGITS)),
    "VonMises": lambda c: c.D.VonMises(c([1.2, -0.5]), c([2.0, 20.0])),
    "Weibull": lambda c: c.D.Weibull(c([1.2, 0.5]), c([2.0, 1.5])),
    "Pareto": lambda c: c.D.Pareto(c([1.2, 0.5]), c([2.5, 1.5])),
    "GeneralizedPareto": lambda c: c.D.GeneralizedPareto(c([1.2, 0.5]), c([2.5, 1.5]), c([0.3, 0.6])),
    "Wishart": lambda c: c.D.Wishart(c([5.0, 7.0]), scale_tril=c(TRIL)),
    "Wishart cov": lambda c: c.D.Wishart(c(5.0), covariance_matrix=c(COV)),
    "LKJCholesky": lambda c: c.D.LKJCholesky(3, c([0.5, 2.0])),
    "Independent": lambda c: c.D.Independent(c.D.Normal(c([[0.5, -1.0]] * 3), c([1.0, 2.0])), 1),
    "MixtureSameFamily": lambda c: c.D.MixtureSameFamily(
        c.D.Categorical(c([0.2, 0.8])), c.D.Normal(c([0.5, -1.0]), c([1.0, 2.0]))),
    "MixtureSameFamily vectors": lambda c: c.D.MixtureSameFamily(
        c.D.Categorical(logits=c([[0.2, 0.8], [0.1, 0.3]])),
        c.D.Independent(c.D.Normal(c([[[0.5, -1.0, 0.0], [0.1, 0.2, 0.3]]] * 2), c(1.5)), 1)),
    "TransformedDistribution": lambda c: c.D.TransformedDistribution(
        c.D.Normal(c([0.5, -1.0]), c([1.0, 2.0])), [c.D.AffineTransform(c([1.0, 2.0]), c([-2.0, 0.5])),
                                                    c.D.SigmoidTransform()]),
    "squashed normal": lambda c: c.D.TransformedDistribution(
        c.D.Independent(c.D.Normal(c([[0.5, -1.0]]), c([1.0, 2.0])), 1), c.D.TanhTransform(cache_size=1)),
}


FLOAT32_ONLY = {"GeneralizedPareto"}  # torch's own mixes in a float32 constant and fails with float64


def value_or_error(function, *args):
    """What a call returns, or the type of error it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "value", function(*args)
        except Exception as error:
            return "error", type(error).__name__


def both(case, dtype, program):
    """Runs program(maker, distribution) in both modules from one seed."""
    results = []
    dtype = "float32" if case in FLOAT32_ONLY else dtype
    for mod in MODULES:
        maker = Maker(mod, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            d = CASES[case](maker)
            mod.manual_seed(3)
            results.append(program(maker, d))
    return results


def tolerance(case, dtype):
    return 2e-4 if dtype == "float32" or case in FLOAT32_ONLY else 1e-6


DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
EVERY = pytest.mark.parametrize("case", list(CASES))


def gradients(maker, value):
    """The gradients of a weighted sum of a value in all the parameters; None where nothing is connected."""
    if not value.requires_grad:
        return [None] * len(maker.leaves)
    weights = maker.mod.arange(1, value.numel() + 1, dtype=value.dtype).reshape(value.shape)
    return maker.mod.autograd.grad((value * weights.cos()).sum(), maker.leaves, allow_unused=True,
                                   retain_graph=True)


@EVERY
@DTYPES
def test_shapes_moments_and_text(case, dtype):
    def program(maker, d):
        facts = [tuple(d.batch_shape), tuple(d.event_shape), d.has_rsample, d.has_enumerate_support, repr(d),
                 repr(d.support).replace("flambeau", "torch"),
                 {k: repr(v) for k, v in d.arg_constraints.items()}]
        for name in ("mean", "mode", "variance", "stddev"):
            facts.append((name, value_or_error(getattr, d, name)))
        for name in ("entropy", "perplexity", "enumerate_support"):
            facts.append((name, value_or_error(getattr(d, name))))
        return facts

    same(*both(case, dtype, program), tolerance(case, dtype), case)


@EVERY
@DTYPES
def test_samples_of_a_seed(case, dtype):
    def program(maker, d):
        return [d.sample(), d.sample((4,)), d.sample((2, 3)), value_or_error(d.rsample, (2,))]

    expected, got = both(case, dtype, program)
    same(expected, got, tolerance(case, dtype) * 5, case)


@EVERY
@DTYPES
def test_log_prob_and_its_gradient(case, dtype):
    values = both(case, dtype, lambda maker, d: d.sample((3,)).tolist())[0]

    def program(maker, d):
        value = maker(values, grad=False)
        lp = d.log_prob(value)
        return [lp, *gradients(maker, lp)]

    expected, got = both(case, dtype, program)
    same(expected, got, tolerance(case, dtype) * 20, case)


@pytest.mark.parametrize("case", [c for c in CASES if not c.startswith("Wishart")])  # torch's cannot: see below
def test_rsample_gradient(case):
    def program(maker, d):
        return gradients(maker, d.rsample((3,))) if d.has_rsample else []

    expected, got = both(case, "float64", program)
    # torch's own slope of gamma and beta samples is an approximation, good to about 1e-3
    same(expected, got, 5e-3, case)


def test_wishart_sample_gradient():
    """torch writes in place to what its backward pass needs; here the samples are differentiable."""
    def sample(tril):
        flambeau.manual_seed(2)
        return flambeau.distributions.Wishart(flambeau.tensor(5.0, dtype=tril.dtype), scale_tril=tril,
                                              validate_args=False).rsample((2,))

    assert flambeau.autograd.gradcheck(sample, flambeau.tensor(TRIL, dtype=flambeau.float64, requires_grad=True))


@EVERY
def test_entropy_gradient(case):
    def program(maker, d):
        kind, value = value_or_error(d.entropy)
        return gradients(maker, value) if kind == "value" else value

    expected, got = both(case, "float64", program)
    same(expected, got, 1e-4 if case in FLOAT32_ONLY else 1e-5, case)


@EVERY
def test_cdf_and_icdf(case):
    values = both(case, "float64", lambda maker, d: d.sample((3,)).tolist())[0]

    def program(maker, d):
        value = maker(values, grad=False)
        kind, p = value_or_error(d.cdf, value)
        quantiles = maker([0.05, 0.5, 0.93], grad=False).view((3,) + (1,) * len(d.batch_shape + d.event_shape))
        q = value_or_error(d.icdf, quantiles.expand((3,) + tuple(d.batch_shape + d.event_shape)))
        return [kind, p, q, gradients(maker, q[1]) if q[0] == "value" else None]

    expected, got = both(case, "float64", program)
    same(expected, got, 1e-4 if case in FLOAT32_ONLY else 1e-6, case)


@EVERY
def test_expand(case):
    def program(maker, d):
        wide = d.expand((2,) + tuple(d.batch_shape))
        maker.mod.manual_seed(1)
        x = wide.sample((2,))
        return [tuple(wide.batch_shape), tuple(wide.event_shape), x, wide.log_prob(x), value_or_error(lambda: wide.mean),
                value_or_error(wide.entropy), type(wide).__name__]

    expected, got = both(case, "float64", program)
    if case.startswith("Multinomial"):  # torch loses a field of an expanded one
        assert expected[5] == ("error", "AttributeError") and got[5][0] == "value"
        expected[5] = got[5]
    same(expected, got, 1e-4 if case in FLOAT32_ONLY else 1e-5, case)


@EVERY
def test_pickles(case):
    maker = Maker(flambeau, "float64")
    d = CASES[case](maker)
    again = pickle.loads(pickle.dumps(d))
    flambeau.manual_seed(0)
    x = d.sample()
    same(d.log_prob(x), again.log_prob(x), 1e-9, case)


# ------------------------------------------------------------------------------------------------------- divergences
KL_FAMILIES = {
    "Bernoulli": lambda c, k: c.D.Bernoulli(c([0.2, 0.7 - 0.1 * k])),
    "Beta": lambda c, k: c.D.Beta(c([1.2, 3.0 + k]), c([2.0, 0.5])),
    "Binomial": lambda c, k: c.D.Binomial(4, c([0.2, 0.7 - 0.1 * k])),
    "Categorical": lambda c, k: c.D.Categorical(logits=c([0.2, 0.7 - k, 0.1])),
    "Cauchy": lambda c, k: c.D.Cauchy(c([0.2, 0.7]), c([1.0, 2.0 + k])),
    "ContinuousBernoulli": lambda c, k: c.D.ContinuousBernoulli(c([0.2, 0.7 - 0.1 * k])),
    "Dirichlet": lambda c, k: c.D.Dirichlet(c([0.2, 0.7 + k, 3.0])),
    "Exponential": lambda c, k: c.D.Exponential(c([0.2, 0.7 + k])),
    "Gamma": lambda c, k: c.D.Gamma(c([0.2, 0.7 + k]), c([1.0, 2.0])),
    "Chi2": lambda c, k: c.D.Chi2(c([0.2, 0.7 + k])),
    "Geometric": lambda c, k: c.D.Geometric(c([0.2, 0.7 - 0.1 * k])),
    "Gumbel": lambda c, k: c.D.Gumbel(c([0.2, 0.7]), c([1.0, 2.0 + k])),
    "HalfNormal": lambda c, k: c.D.HalfNormal(c([1.0, 2.0 + k])),
    "Laplace": lambda c, k: c.D.Laplace(c([0.2, 0.7]), c([1.0, 2.0 + k])),
    "LogNormal": lambda c, k: c.D.LogNormal(c([0.2, 0.7]), c([1.0, 2.0 + k])),
    "Normal": lambda c, k: c.D.Normal(c([0.2, 0.7]), c([1.0, 2.0 + k])),
    "OneHotCategorical": lambda c, k: c.D.OneHotCategorical(logits=c([0.2, 0.7 - k, 0.1])),
    "Pareto": lambda c, k: c.D.Pareto(c([0.2, 0.7]), c([3.0, 2.5 + k])),
    "Poisson": lambda c, k: c.D.Poisson(c([0.2, 0.7 + k])),
    "Uniform": lambda c, k: c.D.Uniform(c([0.2, 0.7 - 0.1 * k]), c([0.9, 0.8 + k * 0.05])),
    "Uniform wide": lambda c, k: c.D.Uniform(c([-0.5, -0.1]), c([1.5, 1.8 + k])),
    "MultivariateNormal": lambda c, k: c.D.MultivariateNormal(c([0.5, -1.0 + k, 2.0]), scale_tril=c(TRIL)),
    "LowRankMultivariateNormal": lambda c, k: c.D.LowRankMultivariateNormal(
        c([0.5, -1.0, 2.0 - k]), c([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.4]]), c([1.0, 0.5, 2.0])),
    "Independent": lambda c, k: c.D.Independent(c.D.Normal(c([[0.5, -1.0 + k]] * 3), c([1.0, 2.0])), 1),
    "Wishart": lambda c, k: c.D.Wishart(c(5.0 + k), scale_tril=c(TRIL)),
    "VonMises": lambda c, k: c.D.VonMises(c([1.2, -0.5]), c([2.0, 20.0])),
}


@pytest.mark.parametrize("left", list(KL_FAMILIES))
def test_divergence(left):
    for right in KL_FAMILIES:
        results = []
        for mod in MODULES:
            maker = Maker(mod, "float64")
            p, q = KL_FAMILIES[left](maker, 0), KL_FAMILIES[right](maker, 1)
            kind, value = value_or_error(mod.distributions.kl_divergence, p, q)
            results.append([kind, value, gradients(maker, value) if kind == "value" else None])
        expected, got = results
        assert expected[0] == got[0], f"KL({left}, {right}): torch {expected}, flambeau {got}"
        same(expected[1], got[1], 1e-6, f"KL({left}, {right})")
        if expected[0] == "value" and all(math.isfinite(v) for v in expected[1].flatten().tolist()):
            same(expected[2], got[2], 1e-5, f"gradient of KL({left}, {right})")


EDGES = {
    "Bernoulli": [0.0, 0.5, 1.0], "Poisson": [0.0, 1.0], "Geometric": [0.5, 1.0],
}


@pytest.mark.parametrize("name", list(EDGES))
def test_divergence_at_the_edges(name):
    for p in EDGES[name]:
        for q in EDGES[name]:
            results = [value_or_error(mod.distributions.kl_divergence, getattr(mod.distributions, name)(mod.tensor([p])),
                                      getattr(mod.distributions, name)(mod.tensor([q]))) for mod in MODULES]
            same(*results, 1e-6, f"KL({name}({p}), {name}({q}))")


@EVERY
def test_exponential_family_formulas(case):
    """Entropy and divergence by the natural parameters."""
    results = []
    for mod in MODULES:
        d = CASES[case](Maker(mod, "float64"))
        family = mod.distributions.ExponentialFamily
        if isinstance(d, family):
            results.append([value_or_error(family.entropy, d),
                            value_or_error(mod.distributions.kl._kl_expfamily_expfamily, d, d)])
        else:
            results.append([])
    same(*results, 1e-7, case)


def test_register_kl_picks_the_nearest_classes():
    D = flambeau.distributions

    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Normal)
    def rule(p, q):
        return "mine"

    try:
        n = D.Normal(0.0, 1.0)
        assert D.kl_divergence(Mine(0.0, 1.0), n) == "mine"
        assert D.kl_divergence(n, Mine(0.0, 1.0)).item() == 0
        with pytest.raises(TypeError):
            D.register_kl(3, D.Normal)
    finally:
        del D.kl._KL_REGISTRY[Mine, D.Normal]
        D.kl._KL_MEMOIZE.clear()


# -------------------------------------------------------------------------------------------------------- transforms
VECTOR = [[0.3, -1.2, 0.9], [1.0, 0.1, -0.4]]
TRANSFORMS = {
    "Abs": (lambda c: c.D.AbsTransform(), VECTOR),
    "Affine": (lambda c: c.D.AffineTransform(c([1.0, 2.0, 3.0]), c([-1.0, 0.5, 2.0])), VECTOR),
    "Affine numbers": (lambda c: c.D.AffineTransform(1.0, -2.0), VECTOR),
    "Affine event": (lambda c: c.D.AffineTransform(1.0, c([-1.0, 0.5, 2.0]), event_dim=1), VECTOR),
    "Exp": (lambda c: c.D.ExpTransform(), VECTOR),
    "Power": (lambda c: c.D.PowerTransform(c(2.0)), [[0.3, 1.2, 0.9]]),
    "Sigmoid": (lambda c: c.D.SigmoidTransform(), VECTOR),
    "Softplus": (lambda c: c.D.SoftplusTransform(), VECTOR),
    "Tanh": (lambda c: c.D.TanhTransform(), VECTOR),
    "Softmax": (lambda c: c.D.SoftmaxTransform(), VECTOR),
    "StickBreaking": (lambda c: c.D.StickBreakingTransform(), VECTOR),
    "CorrCholesky": (lambda c: c.D.CorrCholeskyTransform(), VECTOR),
    "CorrCholesky 4": (lambda c: c.D.CorrCholeskyTransform(), [0.3, -1.2, 0.9, 1.0, 0.1, -0.4]),
    "LowerCholesky": (lambda c: c.D.LowerCholeskyTransform(), COV),
    "PositiveDefinite": (lambda c: c.D.PositiveDefiniteTransform(), COV),
    "Reshape": (lambda c: c.D.ReshapeTransform((3,), (3, 1)), VECTOR),
    "Independent": (lambda c: c.D.IndependentTransform(c.D.ExpTransform(), 1), VECTOR),
    "Compose": (lambda c: c.D.ComposeTransform([c.D.AffineTransform(0.5, 2.0), c.D.StickBreakingTransform()]), VECTOR),
    "Compose inverse": (lambda c: c.D.ComposeTransform([c.D.ExpTransform(), c.D.TanhTransform()]).inv, [[0.3, 0.7]]),
    "Cat": (lambda c: c.D.CatTransform([c.D.ExpTransform(), c.D.SigmoidTransform()], dim=-1, lengths=[1, 2]), VECTOR),
    "Stack": (lambda c: c.D.StackTransform([c.D.ExpTransform(), c.D.SigmoidTransform()], dim=0), VECTOR),
    "Cumulative": (lambda c: c.D.CumulativeDistributionTransform(c.D.Normal(c(0.2), c(1.5))), VECTOR),
    "identity": (lambda c: c.D.identity_transform, VECTOR),
}


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_transform(name):
    results = []
    for mod in MODULES:
        maker = Maker(mod, "float64")
        make, value = TRANSFORMS[name]
        t = make(maker)
        x = maker(value)
        y = t(x)
        jacobian = value_or_error(t.log_abs_det_jacobian, x, y)
        results.append([y, gradients(maker, y), value_or_error(t.inv, y), jacobian,
                        gradients(maker, jacobian[1]) if jacobian[0] == "value" else None, t.bijective,
                        value_or_error(lambda t=t: t.sign), repr(t), repr(t.domain), repr(t.codomain),
                        t.domain.event_dim, t.codomain.event_dim,
                        tuple(t.forward_shape(tuple(x.shape))), tuple(t.inverse_shape(tuple(y.shape))),
                        t == make(maker), t == t, t.inv.inv is t or t.inv.inv == t])
    same(*results, 1e-6, name)


CONSTRAINTS = {
    "real": lambda c: c.real, "positive": lambda c: c.positive, "nonnegative": lambda c: c.nonnegative,
    "greater_than": lambda c: c.greater_than(2.0), "greater_than_eq": lambda c: c.greater_than_eq(2.0),
    "less_than": lambda c: c.less_than(-1.0), "unit_interval": lambda c: c.unit_interval,
    "interval": lambda c: c.interval(-2.0, 3.0), "half_open_interval": lambda c: c.half_open_interval(-2.0, 3.0),
    "simplex": lambda c: c.simplex, "real_vector": lambda c: c.real_vector, "lower_cholesky": lambda c: c.lower_cholesky,
    "positive_definite": lambda c: c.positive_definite, "corr_cholesky": lambda c: c.corr_cholesky,
    "cat": lambda c: c.cat([c.positive, c.real], dim=-1, lengths=[1, 2]),
    "stack": lambda c: c.stack([c.positive, c.real, c.unit_interval], dim=-1),
    "boolean": lambda c: c.boolean, "integer_interval": lambda c: c.integer_interval(0, 2),
    "nonnegative_integer": lambda c: c.nonnegative_integer, "positive_integer": lambda c: c.positive_integer,
    "one_hot": lambda c: c.one_hot, "multinomial": lambda c: c.multinomial(3), "symmetric": lambda c: c.symmetric,
    "square": lambda c: c.square, "lower_triangular": lambda c: c.lower_triangular,
    "positive_semidefinite": lambda c: c.positive_semidefinite, "dependent": lambda c: c.dependent,
    "independent": lambda c: c.independent(c.positive, 1),
    "mixture": lambda c: c.MixtureSameFamilyConstraint(c.positive),
}
SAMPLES = [VECTOR[0], [[0.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.2, 0.3, 0.5]], COV, TRIL, [[1.0, math.nan, math.inf]],
           [[1.0, 0.0], [0.6, 0.8]]]


@pytest.mark.parametrize("name", list(CONSTRAINTS))
def test_constraint(name):
    results = []
    for mod in MODULES:
        D, maker = mod.distributions, Maker(mod, "float64")
        constraint = CONSTRAINTS[name](D.constraints)
        facts = [repr(constraint), value_or_error(lambda c=constraint: c.event_dim),
                 value_or_error(lambda c=constraint: c.is_discrete), D.constraints.is_dependent(constraint)]
        facts += [value_or_error(constraint.check, maker(v, grad=False)) for v in SAMPLES]
        for registry in (D.biject_to, D.transform_to):
            kind, t = value_or_error(registry, constraint)
            x = maker(COV, grad=False)
            if kind == "error":
                facts.append(t)
            else:
                y = t(x)
                facts += [repr(t), y, value_or_error(t.inv, y), value_or_error(constraint.check, y)]
        results.append(facts)
    same(*results, 1e-6, name)


def test_transform_cache_returns_the_very_tensor():
    t = flambeau.distributions.TanhTransform(cache_size=1)
    x = flambeau.randn(3)
    y = t(x)
    assert t.inv(y) is x and t(x) is y
    assert t.with_cache(1) is t and t.with_cache(0)._cache_size == 0


# ------------------------------------------------------------------------------------------------------------ errors
BAD = {
    "scale": lambda D, t: D.Normal(t([0.0]), t([-1.0])),
    "loc": lambda D, t: D.Normal(t([math.nan]), t([1.0])),
    "probs": lambda D, t: D.Bernoulli(t([1.5])),
    "logits": lambda D, t: D.Categorical(logits=t([math.nan, 1.0])),
    "rate": lambda D, t: D.Exponential(t([0.0])),
    "concentration": lambda D, t: D.Gamma(t([-1.0]), t([1.0])),
    "concentration1": lambda D, t: D.Kumaraswamy(t([-1.0]), t([1.0])),
    "covariance_matrix": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([[1.0, 2.0], [2.0, 1.0]])),
    "scale_tril": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), scale_tril=t([[1.0, 2.0], [2.0, 1.0]])),
    "low": lambda D, t: D.Uniform(t([2.0]), t([1.0])),
    "total_count": lambda D, t: D.Binomial(t([-2.0]), t([0.5])),
    "df": lambda D, t: D.StudentT(t([-2.0])),
}


@pytest.mark.parametrize("parameter", list(BAD))
def test_a_bad_parameter_is_named(parameter):
    with pytest.raises(ValueError):
        BAD[parameter](torch.distributions, torch.tensor)
    with pytest.raises(ValueError, match=f"parameter {parameter} "):
        BAD[parameter](flambeau.distributions, flambeau.tensor)


OTHER_ERRORS = {
    "both": lambda D, t: D.Bernoulli(t([0.5]), t([0.5])),
    "neither": lambda D, t: D.Categorical(),
    "no dims": lambda D, t: D.Categorical(t(0.5)),
    "value outside": lambda D, t: D.Gamma(t([1.0]), t([1.0])).log_prob(t([-1.0])),
    "value shape": lambda D, t: D.Normal(t([1.0, 2.0]), t([1.0, 2.0])).log_prob(t([-1.0] * 3)),
    "event shape": lambda D, t: D.Dirichlet(t([1.0, 2.0])).log_prob(t([0.2, 0.2, 0.6])),
    "value no tensor": lambda D, t: D.Normal(0.0, 1.0).log_prob(1.0),
    "category": lambda D, t: D.Categorical(t([0.5, 0.5])).log_prob(t(2)),
    "rsample": lambda D, t: D.Poisson(t([1.0])).rsample(),
    "no cdf": lambda D, t: D.Poisson(t([1.0])).cdf(t([1.0])),
    "strings": lambda D, t: D.Normal("a", 1.0),
    "ndims": lambda D, t: D.Independent(D.Normal(0.0, 1.0), 1),
    "multinomial": lambda D, t: D.Multinomial(t([3]), t([0.5, 0.5])),
    "lkj": lambda D, t: D.LKJCholesky(1),
    "mvn": lambda D, t: D.MultivariateNormal(t([0.0, 1.0])),
    "mvn dims": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([1.0, 1.0])),
    "lowrank": lambda D, t: D.LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0], [1.0], [1.0]]), t([1.0, 1.0])),
    "mixture": lambda D, t: D.MixtureSameFamily(D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0] * 3), t([1.0] * 3))),
    "mixture type": lambda D, t: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(t([0.0] * 3), t([1.0] * 3))),
    "kl": lambda D, t: D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(1.0)),
    "transforms": lambda D, t: D.TransformedDistribution(D.Normal(0.0, 1.0), "exp"),
    "reshape": lambda D, t: D.ReshapeTransform((2,), (3,)),
    "cache": lambda D, t: D.ExpTransform(cache_size=2),
    "biject": lambda D, t: D.biject_to(D.constraints.boolean),
    "register": lambda D, t: D.biject_to.register(3, lambda c: c),
    "unit": lambda D, t: D.Beta(t([1.0]), t([1.0])).log_prob(t([1.5])),
    "default": lambda D, t: D.Distribution.set_default_validate_args(3),
}


@pytest.mark.parametrize("name", list(OTHER_ERRORS))
def test_errors_have_torchs_type(name):
    expected = value_or_error(OTHER_ERRORS[name], torch.distributions, torch.tensor)
    got = value_or_error(OTHER_ERRORS[name], flambeau.distributions, flambeau.tensor)
    assert expected[0] == "error" and expected == got, (expected, got)


def test_validation_can_be_turned_off():
    D = flambeau.distributions
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    assert D.Gamma(1.0, 1.0, validate_args=False).log_prob(flambeau.tensor(-1.0)).item() == 1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_a_subclass_with_its_own_init_must_expand_itself():
    D = flambeau.distributions

    class Wide(D.Normal):
        def __init__(self):
            super().__init__(0.0, 10.0)

    with pytest.raises(NotImplementedError, match="expand"):
        Wide().expand((2,))


def test_gamma_slope_is_exact():
    """dx / da at a fixed quantile, against SciPy's quantiles; torch's own is good to 1e-3."""
    stats = pytest.importorskip("scipy.stats")
    for a in (0.05, 0.7, 1.0, 3.0, 40.0, 900.0, 2000.0):
        for quantile in (0.01, 0.5, 0.97):
            h = 1e-3 * a
            x = stats.gamma.ppf(quantile, a)
            around = [stats.gamma.ppf(quantile, a + k * h) for k in (-2, -1, 1, 2)]
            slope = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * h)
            got = flambeau._standard_gamma_grad(flambeau.tensor(a, dtype=flambeau.float64),
                                                flambeau.tensor(x, dtype=flambeau.float64)).item()
            assert math.isclose(got, slope, rel_tol=1e-5), (a, quantile)


def test_triangles():
    for mod in MODULES:
        u = mod.distributions.utils
        for count, diag in ((6, 0), (3, -1), (3, -2), (10, 0), (0, -1), (1, 0)):
            v = mod.arange(1.0, count + 1)
            m = u.vec_to_tril_matrix(v, diag)
            assert u.tril_matrix_to_vec(m, diag).tolist() == v.tolist()
        with pytest.raises(ValueError):
            u.vec_to_tril_matrix(mod.ones(5))


def test_programs():
    """A policy-gradient step and a VAE's loss, as public programs write them."""
    for mod in MODULES:
        from_logits = mod.distributions.Categorical(logits=mod.zeros(2, 3, requires_grad=True))
        assert tuple(from_logits.sample().shape) == (2,)
    D, nn = flambeau.distributions, flambeau.nn
    flambeau.manual_seed(0)
    policy = nn.Linear(4, 2)
    m = D.Categorical(logits=policy(flambeau.randn(5, 4)))
    action = m.sample()
    loss = -(m.log_prob(action) * flambeau.ones(5)).sum() - 0.01 * m.entropy().sum()
    loss.backward()
    assert policy.weight.grad.abs().sum() > 0
    encoder = nn.Linear(4, 4)
    mu, scale = encoder(flambeau.randn(5, 4)).chunk(2, -1)
    q = D.Independent(D.Normal(mu, scale.exp()), 1)
    p = D.Independent(D.Normal(flambeau.zeros(2), flambeau.ones(2)).expand((5, 2)), 1)
    (D.kl_divergence(q, p) - q.rsample().sum(-1)).sum().backward()
    assert encoder.weight.grad.abs().sum() > 0
