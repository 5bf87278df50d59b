"""Views: values, strides, offsets, node names and gradients, all against torch."""

import itertools

import pytest
import torch
from compare import Tolerance, same

import flambeau as fb


def made(module, shape, dtype="float32", requires_grad=True):
    count = 1
    for n in shape:
        count *= n
    t = module.arange(count, dtype=getattr(module, dtype)).reshape(shape) / 7 + 0.25
    return t.requires_grad_(requires_grad) if requires_grad else t


def several(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def geometry(t, units=True):
    """Everything about where the elements lie.

    units=False leaves out the strides of dimensions of length one: they have no meaning, and NumPy chooses them freely
    for the result of pointwise work on permuted arrays.
    """
    offset = t.storage_offset() if t.numel() else 0  # nothing lies there
    strides = tuple(s if units or n > 1 else None for n, s in zip(t.shape, t.stride()))
    return tuple(t.shape), strides, offset, t.is_contiguous()


def node_name(t):
    return None if t.grad_fn is None else t.grad_fn.name().split("::")[-1]


def views_agree(expression, shape, names=True, gradient=True, units=True):
    """Evaluates the expression with both libraries on equal input `x` and compares everything a user can see."""
    results = {}
    for module in (torch, fb):
        x = made(module, shape)
        out = several(eval(expression, {"torch": module, "x": x}))
        if gradient:
            total = sum((o * made(module, tuple(o.shape), requires_grad=False)).sum() for o in out)
            total.backward()
        results[module] = x, out
    x, out = results[torch]
    y, ours = results[fb]
    same(out, ours, Tolerance(1e-5, 1e-12), expression)
    for a, b in zip(out, ours):
        assert geometry(a, units) == geometry(b, units), expression
        if names:
            assert node_name(a) == node_name(b), expression
            assert a._is_view() == b._is_view(), expression
    if gradient:
        same(x.grad, y.grad, Tolerance(1e-5, 1e-12), expression)
    return ours


VIEWS = {
    (2, 3, 4): """x.view(6, 4)|x.view(2, -1)|x.view((4, 6))|x.view(2, 3, 1, 4)|x.view(-1)|x.view(1, 24, 1)
        x.view_as(torch.zeros(4, 6))
        x.reshape(6, 4)|x.reshape(-1)|x.reshape((3, -1))|x.reshape(shape=(8, 3))|x.transpose(0, 1).reshape(6, 4)
        x.transpose(0, 2).reshape(4, 3, 2)|x.reshape_as(torch.zeros(6, 4))|x.expand(2, 2, 3, 4)|x.expand(5, -1, -1, -1)
        x.unsqueeze(1).expand(-1, 3, 3, 4)|x.expand((1, 2, 3, 4))|x[:, :1].expand(2, 3, 4)|x.broadcast_to(4, 2, 3, 4)
        x.expand_as(torch.zeros(7, 2, 3, 4))|x.permute(2, 0, 1)|x.permute((1, 0, 2))|x.permute(dims=(0, 2, 1))
        x.permute(-1, 0, 1)|torch.permute(x, (2, 1, 0))|x.transpose(0, 1)|x.transpose(-1, -3)|x.swapaxes(0, 2)
        x.swapdims(1, 2)
        x.mT|x.mH|x.adjoint()|x.narrow(1, 0, 2)|x.narrow(2, -2, 1)|x.narrow(0, 2, 0)|x.select(1, 0)|x.select(-1, -1)
        x.unfold(1, 2, 1)|x.unfold(2, 2, 2)|x.unfold(2, 3, 1)|x.unfold(0, 1, 5)|x.diagonal()|x.diagonal(1, 1, 2)
        x.diagonal(-1, 0, 2)|x.diagonal(9)|x.diagonal(offset=1, dim1=2, dim2=0)|x.squeeze()|x.squeeze(0)
        x.squeeze((0, 1))
        x.unsqueeze(0)|x.unsqueeze(-1)|x.unsqueeze(1)|x.unsqueeze(3)|x.transpose(0, 2).unsqueeze(1)
        x.transpose(0, 2).unsqueeze(-1)
        x.movedim(0, 1)|x.movedim((0, 1), (2, 0))|x.moveaxis(0, -1)|x.split(2, 1)|x.split([1, 2], dim=1)|x.split(1)
        torch.split(x, 3, dim=2)|x.split_with_sizes((1, 3), 2)|x.chunk(2)|x.chunk(3, -1)|x.chunk(9, 2)|x.unbind()
        x.unbind(2)
        x.tensor_split(2)|x.tensor_split(3, 2)|x.tensor_split((1, 2), 1)|x.tensor_split(torch.tensor([1, 3]), 2)
        x.hsplit(3)|x.hsplit([1])|x.vsplit(2)|x.dsplit(2)|x.dsplit((1, 2))|x.flatten()|x.flatten(1)|x.flatten(0, 1)
        x.transpose(0, 1).flatten()|x.flatten(1, 2)|x.unflatten(1, (3, 1))|x.unflatten(-1, (2, -1))|x.ravel()
        x.transpose(0, 1).ravel()|x.as_strided((2, 2), (1, 2))|x.as_strided((3, 3), (2, 1), 1)
        x.as_strided((2, 5), (0, 3))
        x.transpose(0, 2).as_strided((2, 3), (3, 1))|x[:, 1:].as_strided((2, 2), (4, 1), 5)|x.as_strided((), (), 3)
        torch.atleast_1d(x)|torch.atleast_3d(x)|x.sum_to_size(3, 4)|x.sum_to_size(2, 1, 4)|x.sum_to_size(1)
        x.unsafe_split(1)|x.unsafe_chunk(2, 1)|torch.unsafe_split_with_sizes(x, [1, 2], 1)
        torch.view_copy(x, (6, 4))|torch.select_copy(x, 1, 0)|torch.slice_copy(x, 1, 0, 2)
        torch.expand_copy(x, (2, 2, 3, 4))
        torch.permute_copy(x, (2, 0, 1))|torch.transpose_copy(x, 0, 1)|torch.squeeze_copy(x)|torch.squeeze_copy(x, 0)
        torch.unsqueeze_copy(x, 0)|torch.unbind_copy(x)|torch.split_copy(x, 1)|torch.split_with_sizes_copy(x, [1, 1])
        torch.diagonal_copy(x)|torch.unfold_copy(x, 1, 2, 1)|torch.as_strided_copy(x, (2, 2), (1, 2))
        torch.alias_copy(x)
        torch.narrow_copy(x, 1, 0, 2)|x.select_scatter(torch.zeros(2, 4), 1, 0)
        x.slice_scatter(torch.zeros(2, 2, 4), 1, 0, 2)
        x.diagonal_scatter(torch.zeros(4, 2))|x.contiguous()|x.transpose(0, 1).contiguous()|x.clone()
        x.transpose(0, 1).clone()|x[:, ::2].clone()|x.expand(2, 2, 3, 4).clone()|x.permute(2, 0, 1)[::2].clone()
        x.transpose(0, 2).flip(0)|x.double()|x.transpose(0, 1).double()|x.to(torch.float64, copy=True)""",
    (2, 1, 3, 1): """x.squeeze()|x.squeeze(1)|x.squeeze(0)|x.squeeze((1, 3))|x.squeeze(-1)|x.permute(3, 1, 0, 2)
        x.transpose(0, 1)
        x.view(6)|x.view(2, 3)|x.transpose(0, 1).view(1, 6)|x.permute(1, 0, 3, 2).view(2, 3)|x.expand(2, 4, 3, 5)|x.T
        x.expand(3, 2, 1, 3, 1)|x.unsqueeze(1)|x.unsqueeze(4)|x.reshape(3, 2)|x.permute(2, 1, 0, 3).clone()
        x.select(1, 0)
        x.permute(3, 2, 1, 0).contiguous()|x.mT|x.flatten(1)|x.unfold(0, 2, 1)|x.diagonal(0, 1, 2)""",
    (4, 4): """x.t()|x.T|x.H|x.mH|x.diagonal()|x.diagonal(2)|x.diagonal(-2)|torch.t_copy(x)
        x.t().view(16) if False else x.view(16)
        x.as_strided_scatter(torch.zeros(2, 2), (2, 2), (1, 2)).t()|x.diagonal_scatter(torch.zeros(3), 1)
        torch.atleast_3d(x)""",
    (5,): """x.t()|x.view(5, 1)|x.unfold(0, 2, 1)|x.unfold(0, 3, 2)|x.split(2)|x.chunk(2)|x.hsplit([2, 4])
        torch.atleast_2d(x)
        torch.atleast_3d(x)|x.expand(3, 5)|x.select(0, 2)|x.narrow(0, 1, 3)|x.unbind()|x.squeeze(0)
        x.as_strided((3, 3), (1, 1))""",
    (): """x.view(1)|x.reshape(1, 1)|x.flatten()|x.squeeze()|x.unsqueeze(0)|x.expand(3)|x.expand(2, 3)|x.t()|x.ravel()
        torch.atleast_1d(x)|torch.atleast_2d(x)|torch.atleast_3d(x)|x.permute(())|x.transpose(0, 0)|x.squeeze(0)
        x.unfold(0, 1, 1)
        x.clone()|x.movedim(0, 0)""",
    (1,): "x.squeeze()|x.expand(4)|x.view(())|x.squeeze(0)|x.expand(2, 1)|x.view(1, 1)|x.t()",
}
CASES = [(shape, e.strip()) for shape, text in VIEWS.items() for e in text.replace("\n", "|").split("|") if e.strip()]


@pytest.mark.parametrize(("shape", "expression"), CASES, ids=[f"{s}-{e}" for s, e in CASES])
@pytest.mark.filterwarnings("ignore")
def test_view_is_torchs(shape, expression):
    # torch's own gradient of as_strided_scatter for its first argument is wrong (it keeps the overwritten part).
    views_agree(expression, shape, gradient="as_strided_scatter" not in expression)


EMPTY = """x.transpose(0, 2)|x[0]|x.view(0, 6)|x.view(3, 0)|x.expand(4, 2, 0, 3)|x.unsqueeze(1)|x.squeeze()
        x.select(2, 1)|x.permute(1, 2, 0)
    x.flatten()|x.reshape(0)|x.narrow(0, 1, 1)|x.unbind(0)|x.split(1)|x.chunk(3, 1)|x.diagonal()|x.unfold(2, 2, 1)
        x.clone()
    x.transpose(0, 1).clone()|x.contiguous()|x.t() if False else x.mT|x.repeat(2, 2, 2)|torch.cat([x, x])
        torch.stack([x, x])"""


@pytest.mark.parametrize("expression", [e.strip() for e in EMPTY.replace("\n", "|").split("|") if e.strip()])
def test_empty_tensors_have_torchs_geometry(expression):
    views_agree(expression, (2, 0, 3), gradient=False)


@pytest.mark.parametrize("dims", list(itertools.permutations(range(4))))
def test_every_permutation_with_dimensions_of_one(dims):
    for tail in ("", ".clone()", ".contiguous()", ".squeeze()", ".unsqueeze(2)", ".double()", "[..., 0]", "[:1]"):
        views_agree(f"x.permute{dims}{tail}", (2, 1, 3, 2), gradient=False)


def test_pointwise_results_keep_a_permuted_layout():
    for dims in itertools.permutations(range(3)):
        for tail in (" + 1", ".exp()", f" * x.permute{dims}", ".neg()"):
            views_agree(f"x.permute{dims}{tail}", (2, 3, 4), gradient=False)


def test_channels_last():
    for shape in ((2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1)):
        for tail in ("", ".clone()", ".contiguous()", ".contiguous(memory_format=torch.channels_last)",
                ".permute(0, 2, 3, 1)",
                     ".clone(memory_format=torch.contiguous_format)", ".double()"):
            views_agree(f"x.to(memory_format=torch.channels_last){tail}", shape, gradient=False)
    t = fb.zeros(2, 3, 4, 5).to(memory_format=fb.channels_last)
    assert t.is_contiguous(memory_format=fb.channels_last) and not t.is_contiguous()
    v = fb.zeros(2, 3, 4, 5, 6).contiguous(memory_format=fb.channels_last_3d)
    assert v.stride() == torch.zeros(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d).stride()
    assert fb.cat([t, t], 1).stride() == (120, 1, 30, 6)


def test_views_share_memory():
    x = fb.zeros(3, 4)
    views = [x.t(), x.view(12), x[1], x.unsqueeze(0), x.diagonal(), x.as_strided((2, 2), (4, 1)), *x.split(2),
            x.expand(2, 3, 4)]
    x.fill_(2)
    assert all(v.flatten()[0] == 2 for v in views)
    views[0][1, 1] = 7
    assert x[1, 1] == 7 and views[2][1] == 7
    pointer = x.untyped_storage().data_ptr()
    assert all(v.untyped_storage().data_ptr() == pointer for v in views)


def test_view_as_another_dtype():
    for expression in ("x.view(torch.int32)", "x.view(torch.int16)", "x.view(torch.uint8)", "x.view(torch.float64)",
                       "x.view(torch.complex64)", "x[:, ::2].view(torch.int32)", "x.t().view(torch.int32)",
                       "x[1].view(torch.int64)"):
        a, b = (eval(expression, {"torch": m, "x": made(m, (2, 4), requires_grad=False)}) for m in (torch, fb))
        assert geometry(a) == geometry(b) and a.tolist() == b.tolist() and str(a.dtype) == str(b.dtype)
    x = fb.zeros(2)
    x.view(fb.int32)[0] = 0x3F800000
    assert x[0] == 1 and x._version == 1


ERRORS = """torch.zeros(3,4).t().view(12)|torch.zeros(2,3).t().view(torch.float64)|torch.zeros(3).view(torch.float64)
    torch.zeros(3).expand(2,4)|torch.zeros(3).expand(2,-1,3)|torch.zeros(3).expand(-1,3)|torch.zeros(2, 3).expand(3)
    torch.zeros(3).as_strided((5,),(1,))|torch.zeros(3).as_strided((2,),(-1,))|torch.zeros(3).as_strided((2,),(1,), 9)
    torch.zeros(3).as_strided((2,),(1, 1))|torch.zeros(2,2).permute(0,0)|torch.zeros(2,2).permute(0)
        torch.zeros(2,2).permute(0, 2)
    torch.zeros(2,2,2).t()|torch.zeros(2,2,2).H|torch.zeros(2).mT|torch.zeros(2).narrow(0,1,3)
        torch.zeros(2).narrow(0,3,0)
    torch.zeros(2).select(0,2)|torch.zeros(()).select(0,2)|torch.zeros(2).select(1,0)|torch.zeros(2).unfold(0,3,1)
    torch.zeros(2).unfold(0,1,0)|torch.zeros(2).split(0)|torch.zeros(2).split([1])|torch.zeros(2).split(-1)
        torch.zeros(()).split(1)
    torch.zeros(2).chunk(0)|torch.zeros(2).unbind(1)|torch.zeros(()).unbind(0)|torch.zeros(2).reshape(3)
        torch.zeros(2).view(3)
    torch.zeros(2).view(-1,-1)|torch.zeros(2,2).diagonal(0,0,0)|torch.zeros(2).diagonal()|torch.zeros(2).view()
        torch.zeros(2).reshape()
    torch.zeros(3).squeeze(1)|torch.zeros(2).unsqueeze(3)|torch.zeros(3).unflatten(0,(2,2))
        torch.zeros(3).unflatten(1,(2,2))
    torch.zeros(3).tensor_split(0)|torch.zeros(()).hsplit(1)|torch.zeros(3,3).hsplit(2)|torch.zeros(2).vsplit(1)
    torch.zeros(2).sum_to_size(3)|torch.zeros(2, 2).movedim((0, 1), (0,))|torch.zeros(2, 2).movedim((0, 0), (0, 1))
    torch.zeros(2, 2).flatten(1, 0)|torch.zeros(2).transpose(0, 1)|torch.zeros(2).select_scatter(torch.zeros(3), 0, 0)
    torch.zeros(0).view(-1, 0)|torch.zeros(2).view(2.0)|torch.zeros(2).contiguous(memory_format=torch.channels_last)
    torch.broadcast_tensors(torch.zeros(2), torch.zeros(3))|torch.zeros(2).clone(memory_format=torch.channels_last)"""


@pytest.mark.parametrize("expression", [e.strip() for e in ERRORS.replace("\n", "|").split("|") if e.strip()])
def test_errors_have_torchs_type(expression):
    with pytest.raises(Exception) as expected:
        eval(expression, {"torch": torch})
    with pytest.raises(type(expected.value)):
        eval(expression, {"torch": fb})


def test_double_backward_through_views():
    for expression in ("x.as_strided((3, 3), (2, 1), 1)", "x.unfold(1, 2, 1)", "x.select(1, 0)", "x[:, 1:]",
            "x.diagonal()",
                       "x.expand(2, 3, 4)", "x.t()", "torch.cat(x.split(2, 1)[::-1], 1)", "torch.stack(x.unbind(1))",
                       "x.transpose(0, 1)[::2].as_strided((2, 2), (3, 2))", "x.sum_to_size(1, 4)", "x.repeat(2, 1)",
                       "x.roll(1, 0)"):
        grads = []
        for module in (torch, fb):
            x = made(module, (3, 4), "float64")
            y = eval(expression, {"torch": module, "x": x})
            g, = module.autograd.grad((y * y * y).sum(), x, create_graph=True)
            h, = module.autograd.grad((g * g).sum(), x)
            grads.append(h)
        same(*grads, where=expression)


def test_saved_values_have_torchs_names():
    x = fb.zeros(2, 3, requires_grad=True)
    assert x.select(1, 0).grad_fn._saved_self_sym_sizes == (2, 3)
    node = x[:, 1:].grad_fn
    assert (node._saved_dim, node._saved_start, node._saved_end, node._saved_step) == (1, 1, 3, 1)
    assert x.permute(1, 0).grad_fn._saved_dims == (1, 0)
    assert x.as_strided((1,), (1,), 2).grad_fn._saved_storage_offset == 2
    assert len(x.select(1, 0).grad_fn.next_functions) == 1
