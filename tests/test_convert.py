"""Conversion of dtype, device and layout; clone, detach, copy_; storages."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from compare import agree

import flambeau as fb

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64",
        "uint8", "bool"]


def values(module, dtype):
    data = [0, 1, 2, 3, 100, 5] if dtype != "bool" else [0, 1, 1, 0, 1, 1]
    t = module.tensor(data, dtype=getattr(module, dtype))
    return t + 0.5 if t.is_floating_point() else t * (1 + 2j) if t.is_complex() else t


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.filterwarnings("ignore")
def test_every_cast(source):
    for target in DTYPES:
        a, b = (values(m, source).to(getattr(m, target)) for m in (torch, fb))
        assert str(a.dtype) == str(b.dtype)
        assert a.tolist() == b.tolist(), target
        c, d = (m.zeros(6, dtype=getattr(m, target)).copy_(values(m, source)) for m in (torch, fb))
        assert c.tolist() == d.tolist(), target


@pytest.mark.parametrize("method", ["float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte",
        "bool", "cfloat", "cdouble"])
def test_named_casts(method):
    a, b = (getattr(m.tensor([0.0, 1.5, 2.0]), method)() for m in (torch, fb))
    assert str(a.dtype) == str(b.dtype) and a.tolist() == b.tolist() and a.type() == b.type()


def test_to_takes_every_form():
    x = fb.ones(2, 3)
    other = fb.zeros(1, dtype=fb.float64)
    forms = [x.to(fb.float64), x.to("cpu", fb.float64), x.to(fb.device("cpu"), fb.float64), x.to(other),
            x.to(dtype=fb.float64),
             x.to(device="cpu", dtype=fb.float64), x.to(fb.float64, True), x.to(fb.float64, non_blocking=True,
             copy=True),
             x.to(other=other), x.to("cpu", fb.float64, False, True), x.type(fb.float64), x.type("torch.DoubleTensor"),
             x.type_as(other)]
    assert all(f.dtype is fb.float64 for f in forms)
    assert x.to(fb.float32) is x and x.to("cpu") is x and x.to(x) is x and x.float() is x and x.cpu() is x
    assert x.to() is x
    assert x.to(fb.float32, copy=True) is not x and x.contiguous() is x
    for bad in (lambda: x.to("nonsense"), lambda: x.to(fb.float32, memory_format=fb.channels_last),
                lambda: x.to("cuda"), lambda: x.cuda()):
        with pytest.raises((RuntimeError, AssertionError)):
            bad()
    for bad in (lambda: x.to(1.5), lambda: x.to(dtype="float32"), lambda: x.to(fb.float32, colour=1)):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(ValueError):
        x.type("torch.NoTensor")


def test_gradients_cross_dtypes():
    for expression in ("x.double()", "x.to(torch.complex64).abs()", "x.half().float()",
            "x.to(torch.float32, copy=True)", "x.clone()"):
        grads = []
        for m in (torch, fb):
            x = m.tensor([1.0, -2.0, 3.0], requires_grad=True)
            y = eval(expression, {"torch": m, "x": x})
            (y * y).sum().backward()
            assert str(x.grad.dtype) == "torch.float32"
            grads.append(x.grad.tolist())
        assert grads[0] == pytest.approx(grads[1])
    assert fb.ones(2, requires_grad=True).long().requires_grad is False


def test_node_names():
    x = fb.ones(2, 3, requires_grad=True)
    names = {"ToCopyBackward0": x.double(), "CloneBackward0": x.clone(), "FillBackward0": fb.fill(x, 1)}
    for name, t in names.items():
        assert t.grad_fn.name().split("::")[-1] == name
    y = x * 1
    assert y.copy_(fb.zeros(3)).grad_fn.__class__.__name__ == "CopyBackwards" and len(y.grad_fn.next_functions) == 2
    assert (x * 1).fill_(1).grad_fn.__class__.__name__ == "FillBackward2"
    assert (x * 1).fill_(fb.tensor(1.0)).grad_fn.__class__.__name__ == "FillBackward3"
    assert (x * 1).zero_().grad_fn.__class__.__name__ == "ZeroBackward0"


def test_copy_broadcasts_and_refuses():
    x = fb.zeros(2, 3)
    x.copy_(fb.tensor([1.0, 2.0, 3.0]))
    assert x.tolist() == [[1, 2, 3]] * 2
    x[0].copy_(x[1].flip(0))
    assert x.tolist() == [[3, 2, 1], [1, 2, 3]]
    before = x.tolist()
    for bad, error in ((lambda: x.copy_(fb.ones(4)), RuntimeError), (lambda: x.copy_(fb.ones(2, 2, 3)), RuntimeError),
                       (lambda: x.copy_([3]), TypeError),
                       (lambda: x.fill_(fb.ones(2)), RuntimeError), (lambda: x.fill_("a"), TypeError),
                       (lambda: x.fill_(1j), RuntimeError)):
        with pytest.raises(error):
            bad()
        assert x.tolist() == before


def test_overlapping_copy_within_one_tensor():
    for m in (torch, fb):
        x = m.arange(6.0)
        x[1:].copy_(x[:-1].clone())
        assert x.tolist() == [0, 0, 1, 2, 3, 4]


def test_detach_and_data():
    x = fb.ones(3, requires_grad=True)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.data_ptr() == y.data_ptr() and not d._is_view()
    d.add_(1)
    assert y._version == d._version == 1 and y.data._version == 0
    y.detach_()
    assert y.is_leaf and not y.requires_grad


def test_resize_and_set():
    for m in (torch, fb):
        x = m.arange(6.0)
        assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]] and x.stride() == (2, 1)
        assert x.resize_(6).tolist() == [0, 1, 2, 3, 4, 5]
        assert x.resize_(3, 4).shape == (3, 4) and x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
        assert x.resize_as_(m.zeros(2, 1)).shape == (2, 1)
        with pytest.raises(RuntimeError):
            m.zeros(2, requires_grad=True).resize_(3)
        y = m.zeros(0)
        y.set_(m.arange(6.0), 1, (2, 2), (2, 1))
        assert y.tolist() == [[1, 2], [3, 4]] and y.storage_offset() == 1
        source = m.arange(4.0)
        y.set_(source)
        y[0] = 9
        assert source[0] == 9 and y.is_set_to(source) and not y.is_set_to(source[:2])
        z = m.zeros(0)
        z.set_(source.untyped_storage())
        assert z.tolist() == [9, 1, 2, 3]
        assert z.set_().numel() == 0


def test_out_is_resized_with_a_warning():
    for m in (torch, fb):
        out = m.ones(3)
        with pytest.warns(UserWarning, match="resized"):
            m.add(m.ones(4), 1, out=out)
        assert out.tolist() == [2] * 4
        out = m.empty(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            m.add(m.ones(2, 2), 1, out=out)
        assert out.shape == (2, 2)


@pytest.mark.filterwarnings("ignore")
def test_storage_matches_torch():
    facts = []
    for m in (torch, fb):
        x = m.arange(6, dtype=m.float32).view(2, 3)
        s, t = x.untyped_storage(), x.storage()
        part = x[1:, 1:]
        facts.append((s.nbytes(), len(s), s.tolist(), t.tolist(), len(t), str(t.dtype), s[4], t[2],
                part.storage_offset(),
                      part.untyped_storage().nbytes(),
                      part.untyped_storage().data_ptr() == s.data_ptr() == x.data_ptr(),
                      part.data_ptr() - s.data_ptr(), t.element_size(), s.element_size(), repr(t), repr(s),
                      s.is_shared(), t.size(),
                      x.nbytes, x.itemsize, x.element_size(), str(s.device)))
        t[0] = 7
        assert x[0, 0] == 7
        s.fill_(0)
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]]
        s.resize_(64)
        assert s.nbytes() == 64 and x.untyped_storage().nbytes() == 64
        again = copy.deepcopy(s)
        assert again.nbytes() == 64 and again.data_ptr() != s.data_ptr()
        with pytest.raises(IndexError):
            s[64]
    assert facts[0] == facts[1]
    storage = fb.UntypedStorage(4) if hasattr(fb, "UntypedStorage") else fb.zeros(1).untyped_storage()
    assert pickle.loads(pickle.dumps(storage.fill_(3))).tolist() == [3] * 4


def test_large_results_have_exact_storages_and_live_on():
    """Pooled memory must not be handed out again while any view of it lives."""
    x = fb.ones(300, 300)
    y = x + 1
    assert y.untyped_storage().nbytes() == 360000 and y[5:].storage_offset() == 1500
    row = y[7]
    del y
    others = [x + 5 for _ in range(4)]
    assert row.tolist() == [2.0] * 300 and others[0][0, 0] == 6


def test_shared_memory():
    x = fb.arange(4.0)
    assert not x.is_shared()
    x.share_memory_()
    assert x.is_shared() and x.tolist() == [0, 1, 2, 3] and x[1:].is_shared()
    import os
    pid = os.fork()
    if not pid:
        x[0] = 42
        os._exit(0)
    os.waitpid(pid, 0)
    assert x[0] == 42
    assert not x.is_pinned()
    with pytest.raises(RuntimeError):
        x.pin_memory()


def test_as_strided_covers_the_whole_storage_only():
    x = fb.arange(6.0)[2:]
    assert x.as_strided((6,), (1,), 0).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError):
        x.as_strided((5,), (1,), 2)
    assert fb.zeros(3, 0).as_strided((0,), (1,)).shape == (0,)


@pytest.mark.parametrize("name", ["int64", "int32", "uint8", "bool", "float32", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3), ()])
def test_integers_are_no_part_of_the_graph(name, shape):
    def program(t):
        x = (t.arange(1.0, 1 + max(math.prod(shape), 1), dtype=t.float64).reshape(shape) / 2).requires_grad_()
        y = x * 1
        made = y.to(getattr(t, name))
        (y - made.to(t.float64).real).sum().backward()
        return made.requires_grad, y.type_as(made).requires_grad, x.grad
    agree(program, graph=False)
