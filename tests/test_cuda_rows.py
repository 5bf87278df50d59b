"""Kernels over rows on a CUDA device, beside the CPU: softmax, norms, cross entropy. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.tensors.tensor import wrap

pytestmark = needs_gxx
FLOATS = (fl.float32, fl.float64, fl.bfloat16, fl.float16)


def with_gradients(function, *tensors):
    """Results, and gradients of all floating-point tensors, on the device as on the CPU."""
    def run(*tensors):
        given = [t.detach().requires_grad_() if isinstance(t, fl.Tensor) and t.is_floating_point() else t for t in tensors]
        made = function(*given)
        weights = (fl.arange(made.numel()).reshape(made.shape) / max(made.numel(), 1) + 0.5).to(made.device, made.dtype)
        (made * weights).sum().backward()
        return made.detach(), *[t.grad for t in given if isinstance(t, fl.Tensor) and t.requires_grad]

    if any([t.dtype in (fl.bfloat16, fl.float16) for t in tensors if isinstance(t, fl.Tensor)]):
        near_single(run, *tensors)
    else:
        agree(run, *tensors)


def near_single(function, *tensors):
    """Half precision beside single precision on the CPU, which rounds at other places: a few steps of the type apart."""
    wanted = function(*[t.float() if isinstance(t, fl.Tensor) and t.is_floating_point() else t for t in tensors])
    got = function(*[t.to("cuda") if isinstance(t, fl.Tensor) else t for t in tensors])
    for w, g in zip(wanted, got, strict=True):
        near = 4 * fl.finfo(g.dtype).eps
        assert (g.shape, g.stride()) == (w.shape, w.stride())
        fl.testing.assert_close(g.cpu().float(), w, rtol=near, atol=near)


# ------------------------------------------------------------------------------------------------------------ softmax
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype, cuda):
    with_gradients(lambda x: F.softmax(x, -1), draw(5, 8, dtype=dtype))


@pytest.mark.parametrize("shape, dim", [((3, 33), 1), ((2, 700), 1), ((2, 2000), 1), ((2, 5, 7), 1), ((40, 3), 0),
                                        ((2, 70, 3), 1)])
def test_softmax_of_rows_of_any_length(shape, dim, cuda):
    with_gradients(lambda x: F.log_softmax(x, dim), draw(*shape))
    agree(lambda x: fl.logsumexp(x, dim), draw(*shape))


def test_softmax_of_rows_longer_than_registers(cuda):
    with_gradients(lambda x: F.log_softmax(x, 1), draw(2, 17_000))
    agree(lambda x: (fl.logsumexp(x, 1), fl.logsumexp(x[:, 1:], 1)), draw(2, 17_000))


def test_softmax_of_views(cuda):
    x = draw(6, 4, 9)
    agree(lambda x: (F.softmax(x.transpose(0, 2), 1), F.softmax(x[:, ::2, 1:], -1), F.softmax(x[0, 0, 0], 0)), x)
    agree(lambda x: (F.softmax(x[..., 1:], -1), F.softmax(x[:0], -1)), draw(6, 4, 9))  # rows that start anywhere
    agree(lambda x: F.softmax(x, -1, dtype=fl.float64), x)
    agree(lambda x: (fl.logsumexp(x, (0, 2)), fl.logsumexp(x, (0, 1, 2), keepdim=True)), x)


def test_softmax_of_infinities(cuda):
    inf, nan = float("inf"), float("nan")
    x = fl.tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0]])
    agree(lambda x: (F.softmax(x, 1), F.log_softmax(x, 1), fl.logsumexp(x, 1)), x)
    agree(lambda x: fl._safe_softmax(x, 1), x)


# -------------------------------------------------------------------------------------------------------------- norms
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
def test_layer_norm(dtype, cuda):
    with_gradients(lambda x, w, b: F.layer_norm(x, (8,), w, b), draw(5, 8, dtype=dtype), draw(8, seed=1, dtype=dtype),
                   draw(8, seed=2, dtype=dtype))


@pytest.mark.parametrize("n, given, gradient, result", [
    (64, fl.bfloat16, fl.bfloat16, fl.bfloat16), (64, fl.float32, fl.bfloat16, fl.float32),
    (77, fl.bfloat16, fl.float32, fl.bfloat16), (1040, fl.float32, fl.float32, fl.bfloat16)])
def test_layer_norm_of_several_dtypes(n, given, gradient, result, cuda):
    """Inputs of half precision are as good as converted ones, and results as converted afterwards."""
    from flambeau.backends.cuda import backend
    x, g, w, b = draw(50, n, dtype=given), draw(50, n, seed=1, dtype=gradient), draw(n, seed=2), draw(n, seed=3)
    x, g, w, b = (t.to(cuda) for t in (x, g, w, b))
    kind = fl.zeros((), dtype=result)._array.dtype
    single = x.float(), g.float()
    F.layer_norm(single[0], (n,))  # the layers' rules of shapes are there from now on

    def both(x, g, *dtype):
        out, mean, over = backend.call("layer_norm", (x._array, 1, w._array, b._array, 1e-5, *dtype))
        made = backend.call("layer_norm_grad", (g._array, x._array, 1, mean, over, w._array, (True, True, True), *dtype))
        return [wrap(m) for m in (out, *made)]

    first, again = both(x, g, kind), both(x, g, kind)
    for one, other, wanted in zip(first, again, both(*single)):
        assert fl.equal(one.cpu(), other.cpu())
        close = dict(rtol=1e-5, atol=1e-5) if one.dtype is fl.float32 else dict(rtol=2 ** -8, atol=1e-5)
        fl.testing.assert_close(one.cpu().float(), wanted.cpu(), **close)


@pytest.mark.parametrize("shape", [(70, 33), (2, 17_000)])
def test_layer_norm_of_rows_of_any_length(shape, cuda):
    with_gradients(lambda x, w, b: F.layer_norm(x, shape[1:], w, b), draw(*shape), draw(shape[1], seed=1),
                   draw(shape[1], seed=2))


def test_layer_norm_of_parts(cuda):
    with_gradients(lambda x: F.layer_norm(x, (3, 5)), draw(4, 3, 5))
    with_gradients(lambda x, w: F.layer_norm(x, (3, 5), w), draw(4, 3, 5), draw(3, 5, seed=1))
    with_gradients(lambda x, w: F.layer_norm(x.transpose(0, 2), (3, 4), w), draw(4, 3, 5), draw(3, 4, seed=1))
    agree(lambda x: F.layer_norm(x, (5,)), draw(0, 5))


def test_rms_norm(cuda):
    with_gradients(lambda x, w: F.rms_norm(x, (8,), w), draw(5, 8), draw(8, seed=1))
    with_gradients(lambda x: F.rms_norm(x, (7,)), draw(5, 7))


@pytest.mark.parametrize("shape, groups", [((3, 6, 4, 5), 2), ((3, 8), 4), ((2, 4, 3000), 2)])
def test_group_norm(shape, groups, cuda):
    kind = fl.float64 if len(shape) == 3 else fl.float32  # long sums that cancel
    with_gradients(lambda x, w, b: F.group_norm(x, groups, w, b), draw(*shape, dtype=kind), draw(shape[1], seed=1, dtype=kind),
                   draw(shape[1], seed=2, dtype=kind))
    agree(lambda x: F.group_norm(x, groups), draw(*shape))


# -------------------------------------------------------------------------------------------------------- cross entropy
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction, cuda):
    target = fl.tensor([1, 0, -100, 9, 3, 3])
    with_gradients(lambda x, t: F.cross_entropy(x, t, reduction=reduction), draw(6, 10), target)
    weight = fl.arange(10).float()
    with_gradients(lambda x, t: F.cross_entropy(x, t, weight.to(x.device), reduction=reduction), draw(6, 10), target)
    with_gradients(lambda x, t: F.nll_loss(x, t, reduction=reduction), draw(6, 10), target)


def test_cross_entropy_of_many_classes(cuda):
    target = fl.arange(3) * 1000
    with_gradients(F.cross_entropy, draw(3, 5000), target)
    agree(F.cross_entropy, draw(3, 5000), target)


def test_cross_entropy_of_images_and_halves(cuda):
    with_gradients(F.cross_entropy, draw(2, 5, 3, 4), fl.arange(24).reshape(2, 3, 4) % 5)
    with_gradients(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), draw(6, 10), fl.arange(6))
    with_gradients(F.cross_entropy, draw(6, 10, dtype=fl.bfloat16), fl.arange(6))
    agree(F.nll_loss, draw(40_000, 2, dtype=fl.float64), fl.arange(40_000) % 2)


def test_targets_out_of_range(cuda):
    for of in (F.cross_entropy, F.nll_loss):
        with pytest.raises(IndexError, match=r"Target 10 is out of bounds\."):
            of(draw(2, 10).to(cuda), fl.tensor([3, 10]).to(cuda)).item()
    assert F.cross_entropy(draw(2, 10).to(cuda), fl.tensor([3, 9]).to(cuda)).item() > 0


# ---------------------------------------------------------------------------------- cross entropy of logits as they come
def logits_loss(x, target, weight=None, reduction=1, ignored=-100, pitch=0, pad=0):
    """(loss, gradient) by the kernels that a compiled program calls; pad: the logits' rows have so many further elements."""
    from flambeau.backends.cuda import backend
    call, classes, given = backend.call, x.shape[1], x._array
    pitch = pitch or classes
    if pad:
        given = backend.empty((len(x), classes + pad), given.dtype)[:, :classes]
        backend.copied(x._array, given)
    of = target._array, None if weight is None else weight._array
    loss, tops, inverse, total = call("logits_loss", (given, *of, reduction, ignored))
    grad = fl.full(loss.shape, 3.0, dtype=fl.float64 if x.dtype is fl.float64 else fl.float32, device="cuda")._array
    rest = tops, inverse, *of, total, ignored
    made = call("logits_loss_backward", (grad, given, *rest, given.dtype, pitch))
    assert made.strides == (pitch * given.itemsize, given.itemsize)
    between = wrap(backend.as_strided(made, (len(x), pitch), (pitch, 1), 0)).cpu()[:, classes:]
    assert not between.any()
    single = wrap(call("logits_loss_backward", (grad, x.to(wrap(grad).dtype)._array, *rest, grad.dtype, classes)))
    fl.testing.assert_close(wrap(made).cpu(), single.to(x.dtype).cpu(), rtol=0, atol=0, equal_nan=True)  # rounded once
    return wrap(loss), wrap(made)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes, pad, pitch", [(10, 0, 0), (65, 0, 72), (333, 3, 336), (5001, 7, 5008), (4096, 0, 0),
                                                  (5001, 0, 0)])
def test_logits_as_they_come(dtype, classes, pad, pitch, cuda):
    """The loss and its gradient are those of logits that were converted to single precision before, and the gradient after."""
    x, target = draw(6, classes, dtype=dtype) * 4, fl.tensor([1, 0, -100, classes - 1, 3, 3])
    single = x.double() if dtype is fl.float64 else x.float()
    single.requires_grad_()
    wanted = F.cross_entropy(single, target)
    (wanted * 3).backward()
    loss, grad = logits_loss(x.to(cuda), target.to(cuda), pad=pad, pitch=pitch)
    fl.testing.assert_close(loss.cpu(), wanted.detach())
    eps = fl.finfo(dtype).eps
    fl.testing.assert_close(grad.cpu().to(single.dtype), single.grad, rtol=max(eps, 1e-5), atol=1e-7)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_logits_with_weights(reduction, cuda):
    x, target, weight = draw(5, 77, dtype=fl.bfloat16), fl.tensor([1, 76, 5, 5, 0]), fl.arange(77).float() / 8
    single = x.float().requires_grad_()
    wanted = F.cross_entropy(single, target, weight, ignore_index=5, reduction=("none", "mean", "sum")[reduction])
    (wanted * 3).sum().backward()
    loss, grad = logits_loss(x.to(cuda), target.to(cuda), weight.to(cuda), reduction, 5)
    fl.testing.assert_close(loss.cpu(), wanted.detach())
    fl.testing.assert_close(grad.cpu().float(), single.grad, rtol=0.01, atol=1e-7)


def test_logits_that_are_infinite(cuda):
    inf, nan = float("inf"), float("nan")
    x = fl.tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0], [-inf, 3.0, -inf]])
    target = fl.tensor([0, 1, 2, 1, 0])
    loss, _ = logits_loss(x.to(cuda), target.to(cuda), reduction=0)
    fl.testing.assert_close(loss.cpu(), F.cross_entropy(x, target, reduction="none"), equal_nan=True)
