"""SciPy and scikit-learn take tensors, through the array API standard, and give tensors back.

Each expression is computed with NumPy's arrays and with tensors, in a process of its own: SciPy reads its switch when it is
imported.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import warnings
import numpy as np
import flambeau
warnings.simplefilter("ignore")  # the libraries' own, about small samples
flambeau.set_default_dtype(flambeau.float64)  # what NumPy makes where nothing is said
rng = np.random.default_rng(0)
DATA = dict(X=rng.normal(size=(20, 3)), p=rng.random(6) + 0.1, q=rng.random(6) + 0.1, signal=rng.normal(size=64),
            counts=np.array([16.0, 18, 16, 14, 12, 12]))
DATA["y"] = (DATA["X"][:, 0] + 0.3 * rng.normal(size=20) > 0).astype(np.int64)
DATA["guess"] = (DATA["X"][:, 0] > 0).astype(np.int64)
DATA["target"] = DATA["X"] @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=20)


def check(expressions, names, tolerance, give_tensors=True):
    for expression in filter(None, map(str.strip, expressions.splitlines())):
        theirs = eval(expression, {**names, **{k: v.copy() for k, v in DATA.items()}})
        mine = eval(expression, {**names, **{k: flambeau.asarray(v.copy()) for k, v in DATA.items()}})
        for got, wanted in zip(mine, theirs) if isinstance(theirs, tuple) else [(mine, theirs)]:
            if give_tensors:
                assert isinstance(got, flambeau.Tensor), f"{expression} gave {type(got)}"
                assert str(got.dtype) == f"torch.{np.asarray(wanted).dtype}", f"{expression} gave {got.dtype}"
            np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance, err_msg=expression)
"""

SCIPY = """
import scipy.cluster.vq, scipy.constants, scipy.differentiate, scipy.fft, scipy.integrate, scipy.ndimage, scipy.optimize
import scipy.signal, scipy.special, scipy.stats
from scipy.spatial.transform import Rotation
check('''
    special.logsumexp(X, axis=0)
    special.softmax(X, axis=1)
    special.log_softmax(X, axis=1)
    special.erf(p)
    special.gammaln(p)
    special.ndtr(p)
    special.expit(p)
    special.xlogy(p, q)
    special.betainc(p, q, p / 2)
    stats.skew(X, axis=0)
    stats.kurtosis(X, axis=0)
    stats.zscore(X, axis=0)
    stats.sem(X, axis=0)
    stats.gmean(X**2, axis=0)
    stats.entropy(p)
    stats.rankdata(signal)
    tuple(stats.describe(X))[2:]
    tuple(stats.ttest_ind(X[:, 0], X[:, 1]))
    tuple(stats.pearsonr(X[:, 0], X[:, 1]))
    tuple(stats.normaltest(signal))
    tuple(stats.chisquare(counts))
    tuple(stats.mannwhitneyu(X[:, 0], X[:, 1]))
    tuple(stats.wilcoxon(signal))
    tuple(stats.f_oneway(X[:, 0], X[:, 1]))
    fft.fft(signal)
    fft.rfftn(X)
    fft.dct(signal)
    signal_.fftconvolve(signal, p)
    signal_.hilbert(signal)
    signal_.detrend(signal)
    signal_.resample(signal, 32)
    signal_.savgol_filter(signal, 5, 2)
    ndimage.gaussian_filter(X, 1.0)
    ndimage.median_filter(X, 3)
    vq.whiten(X)
    vq.vq(X, X[:4, :])
    vq.kmeans2(X, X[:3, :], minit='matrix')
    integrate.trapezoid(X, axis=0)
    integrate.cumulative_simpson(X, axis=0)
    integrate.tanhsinh(lambda x: x**2, p, q + 1).integral
    optimize.rosen(p)
    differentiate.derivative(lambda x: x**3, p).df
    constants.convert_temperature(p, 'Celsius', 'Kelvin')
    Rotation.from_quat(p[:4]).as_matrix()
''', dict(special=scipy.special, stats=scipy.stats, fft=scipy.fft, signal_=scipy.signal, ndimage=scipy.ndimage,
          vq=scipy.cluster.vq, integrate=scipy.integrate, optimize=scipy.optimize, differentiate=scipy.differentiate,
          constants=scipy.constants, Rotation=Rotation), 1e-9)
x = flambeau.tensor([0.5, 1.5, -1.0], requires_grad=True)
scipy.special.logsumexp(x).backward()  # computed with our functions alone, so it has a gradient
np.testing.assert_allclose(x.grad, scipy.special.softmax(x.detach().numpy()), rtol=1e-6)
"""

SKLEARN = """
import sklearn
from sklearn import decomposition, discriminant_analysis, linear_model, metrics
from sklearn import mixture, model_selection, naive_bayes, preprocessing
from sklearn.metrics import pairwise
from sklearn.pipeline import make_pipeline
names = {module.__name__.split(".")[-1]: module for module in (
    decomposition, discriminant_analysis, linear_model, metrics, mixture, model_selection, naive_bayes, preprocessing,
    pairwise)}
sklearn.set_config(array_api_dispatch=True)
check('''
    preprocessing.StandardScaler().fit_transform(X)
    preprocessing.MinMaxScaler().fit_transform(X)
    preprocessing.MaxAbsScaler().fit_transform(X)
    preprocessing.Normalizer().fit_transform(X)
    preprocessing.PolynomialFeatures().fit_transform(X)
    preprocessing.LabelEncoder().fit_transform(y)
    decomposition.PCA(2, svd_solver='full').fit_transform(X)
    decomposition.PCA(2, svd_solver='covariance_eigh').fit(X).components_
    linear_model.Ridge(solver='svd').fit(X, target).predict(X)
    linear_model.RidgeCV().fit(X, target).predict(X)
    linear_model.LogisticRegression().fit(X, y).predict(X)
    discriminant_analysis.LinearDiscriminantAnalysis().fit(X, y).predict(X)
    naive_bayes.GaussianNB().fit(X, y).predict_proba(X)
    mixture.GaussianMixture(2, random_state=0, init_params='random').fit(X).means_
    make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge(solver='svd')).fit(X, target).predict(X)
    tuple(model_selection.train_test_split(X, y, random_state=0))
    model_selection.cross_val_predict(linear_model.Ridge(solver='svd'), X, target, cv=3)
    metrics.confusion_matrix(y, guess)
    pairwise.rbf_kernel(X)
    pairwise.euclidean_distances(X)
    pairwise.cosine_similarity(X)
''', dict(names, make_pipeline=make_pipeline), 1e-5)
check('''
    metrics.accuracy_score(y, guess)
    metrics.f1_score(y, guess)
    metrics.log_loss(y, p_of(guess))
    metrics.r2_score(target, target + 0.1)
    metrics.mean_squared_error(target, target + 0.1)
    model_selection.GridSearchCV(linear_model.Ridge(solver='svd'), {'alpha': [0.1, 1.0]}, cv=3).fit(X, target).best_score_
''', dict(names, p_of=lambda guess: guess * 0.8 + 0.1), 1e-9, give_tensors=False)
"""


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", HEAD + textwrap.dedent(program)], capture_output=True, text=True,
                          env={**os.environ, "SCIPY_ARRAY_API": "1"})
    assert done.returncode == 0, done.stderr[-3000:]


def test_scipy():
    pytest.importorskip("scipy", reason="SciPy (extra: test) is not installed", minversion="1.17")
    _run(SCIPY)


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn (extra: test) is not installed")
def test_scikit_learn():
    _run(SKLEARN)
