"""gradcheck and gradgradcheck over the whole op table: a new row is tested without a new test.

Pointwise rows are called with drawn numbers. For the others, PyTorch's own sample inputs are run through the public
operations once, and the calls that each row receives on the way are kept; every differentiable row must have been seen.
"""

import itertools
import warnings

import flambeau.signal
import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import flambeau
import flambeau.fft
import flambeau.linalg
import flambeau.nn.functional
import flambeau.special
from flambeau.autograd.gradcheck import gradcheck, gradgradcheck
from flambeau.ops.core.row import ROWS, Row
from flambeau.ops.pointwise.families import Pointwise
from flambeau.tensors.tensor import Tensor

flambeau.ops.linalg.load_all()
vars(flambeau.nn.functional)  # looking at all of it imports what waits to be asked for
POINTWISE = sorted(n for n, r in ROWS.items() if isinstance(r, Pointwise) and r.backward)
OTHERS = sorted(n for n, r in ROWS.items() if not isinstance(r, Pointwise) and r.backward)
KEPT = 1  # calls kept per row
SMALL = 220  # elements at most, or the numerical Jacobian takes too long

# Rows whose derivative cannot be checked by differences, with the reason (a name or the beginning of names).
WITHOUT = {
    "draw_": "a random draw: the gradient is zero by definition (tests/test_random.py)",
    "poisson": "a random draw: the gradient is zero by definition (tests/test_random.py)",
    "binomial": "a random draw: the gradient is zero by definition (tests/test_random.py)",
    "bernoulli": "a random draw: the gradient is zero by definition (tests/test_random.py)",
    "unique": "no derivative, as in PyTorch (tests/test_sorting.py)",
    "weight_int": "no derivative, as in PyTorch (tests/test_quantized.py)",
    "geqrf": "no derivative, as in PyTorch (tests/test_linalg.py)",
    "linalg_eig": "eigenvectors have a free phase: checked through phase-free functions in tests/test_linalg.py",
    "linalg_svd": "singular vectors have a free phase: checked through phase-free functions in tests/test_linalg.py",
    "_to_copy": "changes the precision that differences need (tests/test_convert.py)",
    "max_unpool": "drawn indices repeat, where the result is not defined (tests/test_pooling.py)",
    "fractional_max_pool": "drawn windows (tests/test_pooling.py)",
}


# Rows that no sample reaches alone: the layer or in-place form they serve has its gradients compared with PyTorch's.
ELSEWHERE = {
    "adaptive_": "test_pooling.py", "avg_pool": "test_pooling.py", "max_pool": "test_pooling.py",
    "upsample": "test_vision.py", "grid_sampler": "test_vision.py", "affine_grid": "test_vision.py",
    "channel_shuffle": "test_vision.py", "im2col": "test_conv.py", "col2im": "test_conv.py", "conv": "test_conv.py",
    "gru_layer": "test_rnn.py", "lstm_layer": "test_rnn.py", "rnn_layer": "test_rnn.py", "thnn_": "test_rnn.py",
    "ctc_loss": "test_losses.py", "multi_margin_loss": "test_losses.py", "multilabel_margin_loss": "test_losses.py",
    "nll_loss_backward": "test_losses.py", "cross_entropy": "test_losses_fused.py",
    "embedding": "test_embedding.py", "linear_": "test_linear.py",
    "scaled_dot_product": "test_attention.py", "sparse": "test_sparse.py", "native_": "test_norms.py",
    "hardtanh": "test_activations.py", "pad_": "test_padding.py", "attention": "test_attention.py",
    "copy": "test_inplace_views.py", "zero": "test_inplace_views.py", "add_batch_dim": "test_vmap.py",
    "remove_batch_dim": "test_vmap.py", "_move": "test_cuda.py",
}


def reason_without(name):
    for start, why in WITHOUT.items():
        if name.startswith(start):
            return why
    file = next((file for start, file in ELSEWHERE.items() if name.startswith(start)), None)
    return file and f"not reached alone: what it serves is compared with PyTorch in tests/{file}"


def symmetric(a):
    return (a + a.mT) / 2


# Rows that read only part of a structured input: the other part is made from it.
STRUCTURED = {
    "linalg_eigh": lambda a, *rest: (symmetric(a), *rest),
    "linalg_cholesky_ex": lambda a, *rest: (symmetric(a), *rest),
    "cholesky_inverse": lambda a, *rest: (a.tril() if not rest[0] else a.triu(), *rest),
    "cholesky_solve": lambda b, a, upper: (b, a.triu() if upper else a.tril(), upper),
    "linalg_solve_triangular": lambda a, b, *rest: (a, b, *rest),
}
PLAIN = {"threshold": 0.1, "value": 0.7, "alpha": 1.3, "scale": 1.1, "input_scale": 0.9, "lambd": 0.4, "nan": 0.0,
         "posinf": 1.0, "neginf": -1.0, "weight": 0.3, "min": -0.5, "max": 0.6, "eps": 0.05, "rounding_mode": "floor",
         "decimals": 1, "p": 2, "n": 1, "exponent": 2.5, "beta": 1.2, "negative_slope": 0.1, "lower": -0.4, "upper": 0.5,
         "approximate": "none", "min_val": -0.5, "max_val": 0.6}


def drawn(seed, low, high):
    rng = np.random.RandomState(seed)
    return flambeau.from_numpy(rng.uniform(low, high, (2, 3))).requires_grad_()


def pointwise_args(row, low, high):
    args, tensors = [], 0
    for name in row.args:
        if (name in PLAIN and name not in row.backward) or (row.name, name) == ("pow_base", "self"):
            args.append(PLAIN.get(name, 1.7))
        elif name == "condition":
            args.append(drawn(tensors, -1, 1).detach() > 0)
        else:
            takes = name in row.backward and not hasattr(row.backward[name], "refused")
            args.append(drawn(tensors, low, high) if takes else drawn(tensors, low, high).detach())
            tensors += 1
    return args


def usable(row, args):
    """Finite with finite gradients: the interval lies in the operation's domain."""
    out = row(*args)
    out = out if isinstance(out, tuple) else (out,)
    leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    total = sum(o.sum() for o in out if o.requires_grad)
    grads = flambeau.autograd.grad(total, leaves, allow_unused=True)
    return all(o.isfinite().all() for o in out) and all(g is None or g.isfinite().all() for g in grads)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_row(name):
    why = reason_without(name)
    if why:
        pytest.skip(why)
    row = ROWS[name]
    if name in EXTRA:
        check_derivatives(row, EXTRA[name]())
        return
    if all(hasattr(f, "refused") for f in row.backward.values()):  # PyTorch has no derivative either
        with pytest.raises(RuntimeError, match="not implemented|not supported"):
            row(*[drawn(i, 0.1, 0.9) for i in range(len(row.args))]).sum().backward()
        return
    for low, high in ((-0.9, 0.9), (0.1, 0.9), (1.1, 2.5), (2.2, 4.0)):
        args = pointwise_args(row, low, high)
        if usable(row, args):
            break
    else:
        pytest.fail(f"no interval where {name} is smooth")
    check_derivatives(row, args)


def tensors_in(a):
    return isinstance(a, (list, tuple)) and any(isinstance(t, Tensor) for t in a)


def check_derivatives(row, args):
    """First and second derivatives by differences, with respect to every differentiable argument."""
    def function(*leaves):
        it = iter(leaves)
        full = [next(it) if isinstance(a, Tensor) and a.requires_grad else
                [next(it) if isinstance(t, Tensor) and t.requires_grad else t for t in a] if tensors_in(a) else a
                for a in args]
        out = row(*STRUCTURED.get(row.name, lambda *a: a)(*full))
        return tuple(o for o in out if o.requires_grad) if isinstance(out, tuple) else out

    leaves = [t for a in args for t in (a if tensors_in(a) else [a]) if isinstance(t, Tensor) and t.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gradcheck(function, leaves)
        assert gradgradcheck(function, leaves, fast_mode=True)


# Rows that no public sample reaches (in-place forms and second derivatives): one call each.
EXTRA = {
    "masked_scale": lambda: [leaf(2, 3), leaf(2, 3, seed=1).detach() > 0, 2.0],
    "clone_strided": lambda: [leaf(2, 3), (1, 2)],
    "from_channels_last": lambda: [leaf(1, 2, 2, 3), "contiguous"],
    "from_channels_last_3d": lambda: [leaf(1, 2, 2, 1, 3), "contiguous"],
    "neg_view": lambda: [leaf(2, 3)],
    "conj_view": lambda: [flambeau.complex(leaf(2, 2), leaf(2, 2, seed=1)).detach().requires_grad_()],
    "conj_physical": lambda: [flambeau.complex(leaf(2, 2), leaf(2, 2, seed=1)).detach().requires_grad_()],
    "fill_copy_tensor": lambda: [leaf(2, 3), leaf(seed=1)],
    "fill_number": lambda: [leaf(2, 3), 2.0],
    "fill_tensor": lambda: [leaf(2, 3), leaf(seed=1)],
    "fill": lambda: [leaf(2, 3), 2.0],
    "_euclidean_dist": lambda: [leaf(3, 2), leaf(4, 2, seed=1), 2.0, 1],
    "alias": lambda: [leaf(2, 3)],
    "max_all": lambda: [leaf(2, 3)],
    "min_all": lambda: [leaf(2, 3)],
    "sum": lambda: [leaf(2, 3), None, False, None],
    "mean": lambda: [leaf(2, 3), None, False, None],
    "select": lambda: [leaf(4, 3), 0, 1],
    "slice": lambda: [leaf(4, 3), 0, 1, 4, 2],
    "squeeze": lambda: [leaf(1, 3, 1), (0, 2)],
    "squeeze_dim": lambda: [leaf(1, 3), 0],
    "squeeze_dims": lambda: [leaf(1, 3, 1), (0, 2)],
    "unsqueeze": lambda: [leaf(2, 3), 1],
    "transpose": lambda: [leaf(2, 3), 0, 1],
    "t": lambda: [leaf(2, 3)],
    "view": lambda: [leaf(2, 3), (3, 2)],
    "expand": lambda: [leaf(1, 3), (2, 3)],
    "permute": lambda: [leaf(2, 3, 2), (2, 0, 1)],
    "unbind": lambda: [leaf(2, 3), 0],
    "split": lambda: [leaf(4, 3), 2, 0],
    "grouped_mm": lambda: [leaf(5, 2), leaf(3, 2, 4, seed=1), flambeau.tensor([2, 2, 5], dtype=flambeau.int32)],
    "baddbmm": lambda: [leaf(3, 2, 2), leaf(3, 2, 2, seed=1), leaf(3, 2, 2, seed=2), 1.0, 2.0],
    "scatter_with": lambda: [leaf(3, 2), 0, flambeau.tensor([[0, 2], [1, 0]]), leaf(2, 2, seed=1), "add"],
    "slice_copy": lambda: [leaf(4, 3), 0, 1, 4, 2],
    "slice_scatter": lambda: [leaf(4, 3), leaf(2, 3, seed=1), 0, 1, 4, 2],
    "split_copy": lambda: [leaf(4, 3), 2, 0],
    "select_copy": lambda: [leaf(4, 3), 0, 1],
    "squeeze_dims_copy": lambda: [leaf(1, 3, 1), (0, 2)],
    "unsafe_split_with_sizes": lambda: [leaf(4, 3), (1, 3), 0],
    "addbmm": lambda: [leaf(2, 2), leaf(3, 2, 2, seed=1), leaf(3, 2, 2, seed=2), 1.0, 2.0],
    "smoothed_nll": lambda: [leaf(4, 3), flambeau.tensor([0, 2, -100, 1]), leaf(3, seed=1).detach().abs(), 1, -100, 0.2],
    "smoothed_nll_backward": lambda: [leaf(4), (4, 3), flambeau.tensor([0, 2, -100, 1]), None, 0, -100,
                                      flambeau.tensor(3.0, dtype=flambeau.float64), 0.2],
}


def leaf(*shape, seed=0):
    return flambeau.from_numpy(np.asarray(np.random.RandomState(seed).uniform(-1, 1, shape))).requires_grad_()


# --------------------------------------------------------------------------------- calls seen in real operations
def to_flambeau(x):
    if isinstance(x, torch.Tensor):
        made = flambeau.from_numpy(np.array(x.detach().resolve_conj().resolve_neg().numpy(), copy=True))
        return made.requires_grad_() if x.requires_grad else made
    if isinstance(x, (list, tuple)):
        return type(x)(map(to_flambeau, x)) if not isinstance(x, torch.Size) else flambeau.Size(x)
    if isinstance(x, dict):
        return {k: to_flambeau(v) for k, v in x.items()}
    if isinstance(x, torch.dtype):
        return getattr(flambeau, str(x)[6:])
    return x


def copied(row, args):
    """The arguments of a call as fresh leaves, or None if it is not one to check."""
    out, total, wanted = [], 0, False

    def one(t, differentiable):
        nonlocal total, wanted
        total += t.numel()
        fresh = t.detach().clone()
        if differentiable and t.requires_grad:
            wanted = True
            fresh.requires_grad_()
        return fresh

    for name, a in zip(row.args, args):
        takes = name in row.backward
        if isinstance(a, Tensor):
            out.append(one(a, takes))
        elif isinstance(a, (list, tuple)) and any(isinstance(t, Tensor) for t in a):
            out.append([one(t, takes) if isinstance(t, Tensor) else t for t in a])
        else:
            out.append(a)
    leaves = [t for a in out for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor) and t.requires_grad]
    doubles = all(t.dtype in (flambeau.float64, flambeau.complex128) for t in leaves)
    return out if wanted and 0 < total <= SMALL and doubles else None


@pytest.fixture(scope="module")
def seen():
    """Row name -> argument lists, gathered while PyTorch's samples run."""
    calls = {}
    call, finish = Row.__call__, Row.finish

    def noted(self, args):
        kept = calls.setdefault(self.name, [])
        if len(kept) < KEPT and self.backward and flambeau.is_grad_enabled():
            with flambeau.no_grad():  # copying calls rows too
                fresh = copied(self, args)
            if fresh is not None:
                kept.append(fresh)

    def noted_call(self, *args):
        made = call(self, *args)
        noted(self, args)
        return made

    def noted_finish(self, args, made):
        noted(self, args)
        return finish(self, args, made)

    Row.__call__, Row.finish = noted_call, noted_finish
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for info in op_db:
                if info.supports_autograd:
                    for dtype in (torch.float64, torch.complex128):
                        if dtype in info.dtypes:
                            run_samples(info, dtype)
            for name, build in EXTRA.items():
                if not calls.get(name):
                    calls[name] = [build()]
    finally:
        Row.__call__, Row.finish = call, finish
    return calls


def run_samples(info, dtype):
    function = flambeau
    for part in info.name.split("."):
        function = getattr(function, part, None)
    forms = [function, getattr(Tensor, info.name, None), getattr(Tensor, info.name + "_", None)]
    try:
        samples = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=True), 14))
    except Exception:
        return
    for sample in samples:
        for form in forms:
            if form is None:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    first, args, kwargs = to_flambeau(sample.input), to_flambeau(sample.args), to_flambeau(sample.kwargs)
                    if form is forms[2]:
                        first = first * 1
                    out = form(first, *args, **kwargs)
                    for o in out if isinstance(out, (tuple, list)) else [out]:
                        if isinstance(o, Tensor) and o.requires_grad:
                            leaves = [t for t in [first, *args] if isinstance(t, Tensor) and t.is_leaf and t.requires_grad]
                            flambeau.autograd.grad(o.sum() if not o.is_complex() else o.abs().sum(), leaves,
                                                   create_graph=True, allow_unused=True)
            except Exception:  # what torch's samples do is another test's business (and callables stay unconverted)
                continue


@pytest.mark.parametrize("name", OTHERS)
def test_row(name, seen):
    why = reason_without(name)
    if why:
        pytest.skip(why)
    calls = seen.get(name)
    assert calls, f"no sample reached {name}: add one"
    for args in calls:
        check_derivatives(ROWS[name], args)
