"""In-place changes, views and version counters: small programs run by both libraries must tell the same story.

A program sees `torch` and a leaf `x` (3x4,
requires grad) and may record facts with `note(...)`. At the end the
gradient of x is compared too, if the program set `loss`.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

PROGRAMS = {
    "write to a view reaches the base": "y = x * 1; v = y[0]; v.mul_(2); loss = (y * w).sum(); note(y, v)",
    "write to the base reaches a view": "y = x * 1; v = y[0]; y.mul_(3); loss = (v * v).sum(); note(y, v)",
    "both ways": "y = x * 1; v = y[1:]; v.mul_(2); y.add_(1); v.exp_(); loss = (y * w).sum() + v.sum(); note(y, v)",
    "view of a view": "y = x * 1; v = y[1:][:, ::2]; v.mul_(2); loss = (y * y * w).sum(); note(y, v)",
    "two views": (
        "y = x * 1; a = y[0]; b = y[:, 0]; a.mul_(2); b.mul_(3); loss = (a * a).sum() + (b * w[:, 0]).sum(); "
        "note(y, a, b)"),
    "overlapping views": (
        "y = x * 1; a = y[:2]; b = y[1:]; a.mul_(2); b.mul_(a.sum()); loss = (y * w).sum(); note(y, a, b)"),
    "transposed view": "y = x * 1; v = y.t(); v.mul_(w.t()); loss = (y * y).sum(); note(y, v)",
    "transposed base": "y = x.t() * 1; v = y[1:]; v.mul_(2); loss = (y * w.t()).sum(); note(y, v)",
    "permuted dense base": (
        "y = (x.view(3, 2, 2).permute(2, 0, 1) * 1); v = y[:, 1]; v.mul_(3); loss = (y * y).sum(); note(y, v)"),
    "diagonal": "y = x * 1; v = y.diagonal(); v.mul_(5); loss = (y * w).sum(); note(y, v)",
    "unsqueezed": "y = x * 1; v = y.unsqueeze(0); v.mul_(5); loss = (y * w).sum(); note(y, v)",
    "expanded is read only": "y = x * 1; y[0].expand(3, 4).add_(1)",
    "as_strided": "y = x * 1; v = y.as_strided((2, 2), (4, 1), 1); v.mul_(5); loss = (y * w).sum(); note(y, v)",
    "fill through a view": "y = x * 1; y[0].fill_(2.0); loss = (y * w).sum(); note(y)",
    "zero through a view": "y = x * 1; v = y[:, 1]; v.zero_(); loss = (y * w).sum(); note(y, v)",
    "setitem number": "y = x * 1; y[0] = 2.0; loss = (y * w).sum(); note(y)",
    "setitem tensor": "y = torch.zeros(3, 4); y[1] = x[0] * 2; loss = (y * w).sum(); note(y)",
    "setitem row by row": (
        "y = torch.zeros(3, 4)\nfor i in range(3): y[i] = x[i] * (i + 1)\nloss = (y * w).sum(); note(y)"),
    "copy into a buffer's view": "y = torch.zeros(2, 3, 4); v = y[1]; v.copy_(x); loss = (y * y).sum(); note(y, v)",
    "copy broadcasts": "y = torch.zeros(2, 3, 4); y.copy_(x); loss = (y * y).sum(); note(y)",
    "copy casts": "y = torch.zeros(3, 4, dtype=torch.float64); y.copy_(x); loss = (y * y).sum(); note(y)",
    "copy over a computed tensor": "y = x * 2; y.copy_(torch.ones(3, 4)); loss = (y * x).sum(); note(y)",
    "copy to itself": "y = x * 2; y[0].copy_(y[1]); loss = (y * w).sum(); note(y)",
    "masked fill of a view": "y = x * 1; v = y[:2]; v.masked_fill_(v > 0, 0.0); loss = (y * w).sum(); note(y)",
    "in-place on several levels": (
        "y = x * 1; a = y[0]; b = a[1:]; c = b[:1]; c.mul_(4); b.mul_(2); "
        "loss = (y * w).sum() + (c * c).sum(); note(y, a, b, c)"),
    "composite in-place on a view": (
        "y = x * 1; v = y[0]; v.sigmoid_(); v.clamp_(0.4); v.addcmul_(w[0], w[1]); loss = (y * y).sum(); "
        "note(y)"),
    "product with itself": "y = x * 1; v = y[0]; v.mul_(v); loss = (y * w).sum(); note(y)",
    "saved result": "y = x * 1; v = y[0]; v.exp_(); loss = (y * w).sum(); note(y)",
    "saved result then changed": "y = x * 1; v = y[0]; v.exp_(); v.add_(1); loss = (y * w).sum(); note(y)",
    "saved then changed": "y = x * 1; z = y * y; y[0].add_(1); loss = z.sum()",
    "saved view then base changed": "y = x * 1; z = y[1].exp(); y.add_(1); loss = z.sum(); note(z)",
    "saved input view, base changed": "y = x * 1; v = y[1]; z = v * v; y.add_(1); loss = z.sum()",
    "detach shares the version": "y = x * 1; z = y * y; y.detach().add_(1); loss = z.sum()",
    "data does not": "y = x * 1; z = y * y; y.data.add_(1); loss = z.sum(); note(y)",
    "leaf": "x.add_(1)",
    "view of a leaf": "x[0].add_(1)",
    "leaf without recording": "\nwith torch.no_grad(): x.add_(1); x[0].mul_(2)\nloss = (x * w).sum(); note(x)",
    "view of a leaf, then leaf changed": "v = x[0]\nwith torch.no_grad(): x.mul_(2)\nloss = (v * v).sum(); note(v)",
    "view made in no_grad": "y = x * 1\nwith torch.no_grad(): v = y[0]\nnote(v); v.mul_(2)",
    "view of a leaf made in no_grad": "\nwith torch.no_grad(): v = x[0]\nnote(v); v.mul_(2)",
    "view made in no_grad of a plain tensor": (
        "y = torch.zeros(3, 4)\nwith torch.no_grad(): v = y[0]\nv.mul_(2); note(v); v.mul_(x[0])"),
    "view made and changed in no_grad": (
        "y = x * 1\nwith torch.no_grad(): v = y[0]; v.mul_(2)\nloss = (y * w).sum(); note(v, y)"),
    "pieces may not be changed": "y = x * 1; a, b = y.split([1, 2]); a.mul_(2)",
    "unbind may not be changed": "y = x * 1; y.unbind()[0].mul_(2)",
    "pieces of a plain tensor": "y = torch.ones(4); a, b = y.chunk(2); a.mul_(2); note(a, y)",
    "pieces of a plain tensor with a gradient": "y = torch.ones(3, 4); a = y.unbind()[0]; a.mul_(x[0])",
    "unsafe pieces may": "y = x * 1; a, b = y.unsafe_split(2); a.mul_(2); loss = (a * w[:2]).sum() + b.sum(); note(a)",
    "view then pieces, base changed": "y = x * 1; a, b = y.chunk(2, 1); y.mul_(2); loss = (a * b).sum(); note(a, b)",
    "t_": "y = x * 1; y.t_(); loss = (y * w.t()).sum(); note(y)",
    "transpose_": "y = x * 1; y.transpose_(0, 1); y.mul_(2); loss = (y * w.t()).sum(); note(y)",
    "squeeze_": "y = x[:1] * 1; y.squeeze_(); loss = (y * w[0]).sum(); note(y)",
    "squeeze_ dim": "y = x[:1] * 1; y.squeeze_(0); loss = (y * w[0]).sum(); note(y)",
    "unsqueeze_": "y = x * 1; y.unsqueeze_(1); loss = (y * w.unsqueeze(1)).sum(); note(y)",
    "unsqueeze_ of a view": (
        "y = x * 1; v = y[0]; v.unsqueeze_(0); v.mul_(2); loss = (y * w).sum() + v.sum(); note(y, v)"),
    "swapaxes_": "y = x * 1; y.swapaxes_(0, 1); loss = (y * w.t()).sum(); note(y)",
    "as_strided_": "y = x * 1; y.as_strided_((2, 2), (1, 4)); loss = (y * y).sum(); note(y)",
    "in-place view of a leaf": "x.t_()",
    "detach_": "y = x * 1; y.detach_(); note(y)",
    "detach_ of a view": "y = x * 1; y[0].detach_()",
    "detach": "y = x * 1; d = y.detach(); d.add_(1); note(d, y); loss = (y * w).sum()",
    "view dtype counts": "y = torch.zeros(4); v = y.view(torch.int32); v.add_(1); note(y)",
    "requires_grad after a view": "y = torch.zeros(3, 4); v = y[0]; y.requires_grad_(); note(v, y); v.add_(1)",
    "requires_grad of a view": "y = torch.zeros(3, 4); v = y[0]; v.requires_grad_(); note(v, y); v.add_(1)",
    "buffer becomes part of the graph": (
        "y = torch.zeros(3, 4); v = y[0]; y.add_(x); loss = (v * w[0]).sum(); note(v, y)"),
    "retain_grad moves": (
        "y = x * 1; y.retain_grad(); y.mul_(2); loss = (y * w).sum(); loss.backward(retain_graph=True); "
        "note(y.grad)"),
    "real part": (
        "z = torch.complex(x, x * 2); z.real.mul_(3); loss = (z.real * w).sum() + z.imag.sum(); "
        "note(torch.view_as_real(z))"),
    "view_as_real": (
        "z = torch.complex(x, x * 2); r = torch.view_as_real(z); r.mul_(2); "
        "loss = (r * r).sum() + z.abs().sum(); note(r)"),
    "piece of view_as_real": (
        "z = torch.complex(x, x * 2); r = torch.view_as_real(z)[1]; r.mul_(2); loss = (z.real * w).sum(); "
        "note(r)"),
    "complex base changed": (
        "z = torch.complex(x, x * 2); r = torch.view_as_real(z); z.mul_(2); loss = (r * r).sum(); note(r)"),
    "out is refused": "torch.mul(x, x, out=torch.zeros(3, 4))",
    "wrong shape": "y = x * 1; y.add_(torch.zeros(2, 3, 4))",
    "wrong dtype": "y = torch.zeros(3, dtype=torch.int64); y.add_(1.5)",
    "inference view": "\nwith torch.inference_mode(): v = x[0]; note(v.is_inference())\nv.add_(1)",
    "inference tensor": "\nwith torch.inference_mode(): v = x * 2\nv.add_(1)",
    "version counts": (
        "y = x * 1; y.add_(1); y[0].mul_(2); v = y.view(-1); v.mul_(2); y.copy_(y * 1); y.zero_(); "
        "y.fill_(1); note(y, v)"),
    "set item through slices of a view": (
        "y = x * 1; v = y[:, 1:3]; v[0] = x[0, :2] * 5; v[:, 1] *= 2; loss = (y * y).sum(); note(y, v)"),
    "add_ with alpha on a view": "y = x * 1; y[1].add_(x[0], alpha=3); loss = (y * w).sum(); note(y)",
    "relu_ on a view": "y = x * 1 - 1; y[1:].relu_(); loss = (y * w).sum(); note(y)",
    "index_put on a view": "y = x * 1; v = y[:, :2]; v[torch.tensor([0, 2])] = 0.5; loss = (y * w).sum(); note(y)",
    "double backward": (
        "y = x * 1; v = y[0]; v.mul_(x[1]); v.exp_(); "
        "g, = torch.autograd.grad((y * y).sum(), x, create_graph=True); loss = (g * g * 1e-3).sum()"),
    "double backward, composite": (
        "y = x * 1; v = y[:, 1]; v.sigmoid_(); v.copy_(v * x[:, 0]); "
        "g, = torch.autograd.grad((y * y).sum(), x, create_graph=True); loss = (g * g).sum()"),
}


def fact(value):
    if not hasattr(value, "grad_fn"):
        return value
    node = value.grad_fn
    return (str(value.dtype), tuple(value.shape), tuple(value.stride()), value.storage_offset(), value.requires_grad,
            value.is_leaf,
            value._is_view(), None if value._base is None else tuple(value._base.shape),
            value._version if not value.is_inference() else None, None if node is None else node.name().split("::")[-1],
            pytest.approx(value.detach().flatten().tolist(), rel=1e-4, abs=1e-5))


def run(module, program):
    start = module.arange(12, dtype=module.float32).reshape(3, 4) / 5 - 0.9
    x = start.requires_grad_()
    w = module.arange(12, 24, dtype=module.float32).reshape(3, 4) / 9
    notes = []
    scope = {"torch": module, "x": x, "w": w, "note": lambda *values: notes.extend(fact(v) for v in values)}
    try:
        exec(program, scope)
        if "loss" in scope:
            scope["loss"].backward()
    except Exception as error:
        return notes, type(error), None
    return notes, None, None if x.grad is None else pytest.approx(x.grad.flatten().tolist(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_same_story(name):
    notes, error, grad = run(torch, PROGRAMS[name])
    ours, our_error, our_grad = run(fb, PROGRAMS[name])
    assert our_error == error
    for a, b in zip(notes, ours):
        if isinstance(a, tuple):
            assert b[:-1] == a[:-1]
            assert b[-1].expected == a[-1]
        else:
            assert a == b
    assert (grad is None) == (our_grad is None)
    if grad is not None:
        assert our_grad.expected == grad


def test_refused_changes_leave_everything_as_it_was():
    y = fb.zeros(3, 4)
    piece = y.unbind()[0]
    x = fb.ones(4, requires_grad=True)
    for change in (lambda: piece.mul_(x), lambda: piece.copy_(x), lambda: piece.add_(x), lambda: piece.__setitem__(0,
            x[0])):
        with pytest.raises(RuntimeError):
            change()
        assert y.tolist() == [[0.0] * 4] * 3 and y._version == 0 and not y.requires_grad
    wide = fb.zeros(3).expand(2, 3)
    for change in (lambda: wide.add_(1), lambda: wide.copy_(fb.ones(2, 3)), lambda: wide.mul_(2)):
        with pytest.raises(RuntimeError):
            change()
        assert wide.tolist() == [[0.0] * 3] * 2 and wide._version == 0
    assert wide.fill_(1).tolist() == [[1.0] * 3] * 2  # one value for all does no harm


def test_no_cycles_after_view_changes():
    import gc
    import weakref
    gc.collect()
    gc.disable()
    try:
        x = fb.ones(3, 4, requires_grad=True)
        y = x * 1
        v = y[0]
        v.mul_(2)
        v.exp_()
        loss = (y * v.sum()).sum()
        loss.backward()
        nodes = [weakref.ref(t) for t in (y, v, loss)]
        del y, v, loss
        assert all(r() is None for r in nodes)
    finally:
        gc.enable()


OPERATIONS = """v.exp()|v * 2|2 * v|v + v|v.sum()|v.mean()|v @ v|v.relu()|v.max()|v.cumsum(0)|v[0]|v.view(2, 2)
    v.clone()|v ** 2|-v|1 - v|v.softmax(0) * v|torch.cat([v, v])|torch.stack([v, v])|v.unsqueeze(0)
    v.double()|torch.where(v > 0, v, -v)|v.norm()|v.sort()[0]|v.index_select(0, torch.tensor([0]))
    v.reshape(2, 2)|v.split(2)[0]|v.flip(0)|v.expand(2, 4)|v.select(0, 1)|v.squeeze()|v.t()"""


@pytest.mark.parametrize("operation", [e.strip() for e in OPERATIONS.replace("\n", "|").split("|")])
def test_a_view_joins_the_graph_when_its_base_does(operation):
    grads = []
    for module in (torch, fb):
        x = (module.arange(4, dtype=module.float32) + 1).requires_grad_()
        y = module.zeros(3, 4)
        v = y[0]
        y[0].copy_(x)
        eval(operation, {"torch": module, "v": v}).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[1] == pytest.approx(grads[0], rel=1e-4)


VIEW_STEPS = ["[0]", "[-1:]", "[..., 1:]", ".t()", ".view(-1)", ".unsqueeze(0)", ".transpose(0, -1)", ".diagonal()",
".reshape(-1)", "[::2]",
              ".unfold(0, 2, 2)", ".as_strided((2, 2), (2, 1), 1)", ".squeeze()", ".flatten()", ".narrow(0, 0, 1)",
              ".chunk(2)[0]",
              ".expand(2, 3, 4)", ".movedim(0, -1)", ".detach()", ".unbind()[0]"]
WRITE_STEPS = [".mul_(0.7)", ".add_(1)", ".sin_()", ".mul_(x[0, 1])", ".copy_(x[1, 2])", ".zero_()", ".fill_(0.5)",
".sigmoid_()", ".pow_(2)",
               ".mul_(other.tanh().mean())", ".t_()", ".unsqueeze_(0)", ".squeeze_()", ".relu_()", ".neg_()",
               ".addcmul_(x[0, 0], x[2, 3])",
               ".clamp_(-0.5, 0.8)", ".div_(x.abs().sum() + 1)", ".sub_(other.sin().mean())"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 7), st.integers(0, 7)), min_size=1,
        max_size=9))
def test_random_programs_of_views_and_changes(steps):
    outcomes = []
    for module in (torch, fb):
        x = (module.arange(12, dtype=module.float64).reshape(3, 4) / 5 - 0.9).requires_grad_()
        tensors = [x * 1]
        log = []
        try:
            for is_view, which, target, other in steps:
                t, o = tensors[target % len(tensors)], tensors[other % len(tensors)]
                table = VIEW_STEPS if is_view else WRITE_STEPS
                code = "t" + table[which % len(table)]
                log.append(code)
                made = eval(code, {"t": t, "other": o, "x": x})
                if is_view:
                    tensors.append(made)
            loss = sum((t * (i + 1)).cos().sum() for i, t in enumerate(tensors))
            loss.backward()
            facts = [(tuple(t.shape), tuple(s for n, s in zip(t.shape, t.stride()) if n > 1), t._version,
                    t.requires_grad,
                      None if t.grad_fn is None else t.grad_fn.name()) for t in tensors]
            outcomes.append((None, facts, x.grad.flatten().tolist(), [t.detach().flatten().tolist() for t in tensors]))
        except (RuntimeError, IndexError, TypeError) as error:
            outcomes.append((type(error), str(error)[:200], log))
    theirs, ours = outcomes
    assert (theirs[0] is None) == (ours[0] is None), (theirs, ours)  # of two reasons to refuse either may come first
    if theirs[0] is None:
        assert theirs[1] == ours[1]
        assert ours[2] == pytest.approx(theirs[2], rel=1e-4, abs=1e-8)
        for a, b in zip(theirs[3], ours[3]):
            assert b == pytest.approx(a, rel=1e-4, abs=1e-8)
