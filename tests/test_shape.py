"""Joining, repeating and rearranging against torch: values, strides, names, gradients and errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_views import made, views_agree

import flambeau as fb

CASES = {
    (2, 3, 4): """torch.cat([x, x])|torch.cat((x, x * 2), 1)|torch.cat([x, x], dim=-1)|torch.concat([x, x], 2)
        torch.concatenate([x, x], axis=1)
        torch.cat([x, torch.zeros(0)])|torch.cat([x, x.double()], 1)|torch.cat([x.transpose(0, 1), x.transpose(0, 1)])
        torch.stack([x, x])|torch.stack([x, x * 2], 1)|torch.stack((x, x), dim=-1)|torch.hstack([x, x])
        torch.vstack((x, x))
        torch.dstack([x, x])|torch.column_stack([x, x])|x.repeat(2, 1, 1)|x.repeat(1, 2, 3, 1)|x.repeat((2, 2, 2))
        x.repeat(0, 1, 1)
        x.tile(2)|x.tile(2, 1, 1, 1)|x.tile((2, 3))|x.repeat_interleave(2)|x.repeat_interleave(2, dim=1)
        x.repeat_interleave(3, 2)
        x.repeat_interleave(torch.tensor([1, 2, 0]), dim=1)|x.repeat_interleave(torch.tensor([2]), 1)|x.roll(1)
        x.roll(1, 0)|x.roll((1, -2), (1, 2))|x.roll(-7, 2)
        x.flip(0)|x.flip(0, 2)|x.flip((1,))|x.flip(dims=(0, 1, 2))|x.fliplr()|x.flipud()|x.rot90()|x.rot90(2)
        x.rot90(-1, (1, 2))
        x.rot90(4)|x.rot90(3, [2, 0])|x.tril()|x.triu(1)|x.tril(-1)|x.triu(diagonal=-2)|x.diag_embed()
        x.diag_embed(1)|x.diag_embed(-1, 0, 2)
        x.diagflat()|torch.constant_pad_nd(x, (1, 1))|torch.constant_pad_nd(x, (1, -1, 2, 0), 3.0)
        torch.constant_pad_nd(x, (-1, -2))""",
    (4, 4): """x.diag()|x.diag(1)|x.diag(-2)|x.tril()|x.triu()|torch.block_diag(x, x)
        torch.block_diag(x, x[0], x[0, 0])|x.rot90()""",
    (4,): """x.diag()|x.diag(2)|x.diag(-1)|x.diagflat(1)|x.diag_embed()|torch.hstack([x, x])|torch.vstack([x, x])
        torch.dstack([x, x])
        torch.row_stack([x, x])|torch.column_stack([x, x])|torch.meshgrid(x, x[:3], indexing='ij')
        torch.meshgrid(x, x[:3], indexing='xy')
        torch.meshgrid([x, x, x[:2]], indexing='xy')|torch.cartesian_prod(x, x[:2])|torch.cartesian_prod(x)
        x.repeat(2)|x.repeat(3, 2)
        x.repeat_interleave(torch.tensor([0, 1, 2, 3]))|x.flip(0)|x.roll(2)
        torch.broadcast_tensors(x, x.unsqueeze(1))""",
    (): """x.repeat(3)|x.tile(2, 2)|torch.hstack([x, x])|torch.stack([x, x])|x.flip(())|x.roll(1)|torch.block_diag(x)
        x.diagflat()|x.repeat_interleave(3)""",
}
TABLE = [(s, e.strip()) for s, text in CASES.items() for e in text.replace("\n", "|").split("|") if e.strip()]


@pytest.mark.parametrize(("shape", "expression"), TABLE, ids=[f"{s}-{e}" for s, e in TABLE])
@pytest.mark.filterwarnings("ignore")
def test_result_is_torchs(shape, expression):
    # block_diag's result has unusual strides in torch, which nothing depends on.
    views_agree(expression, shape)


def test_combinations():
    for expression in ("torch.combinations(x)", "torch.combinations(x, 3)", "torch.combinations(x, 2, True)",
            "torch.combinations(x, 1)",
                       "torch.combinations(x, r=0)", "torch.combinations(x, 5)"):
        views_agree(expression, (4,), names=False, gradient="0" not in expression and "5" not in expression)


ERRORS = """torch.cat([])|torch.cat([torch.zeros(2,3),torch.zeros(3,2)])|torch.cat([torch.zeros(()),torch.zeros(())])
        torch.cat([torch.zeros(2),3])
    torch.cat(torch.zeros(2))|torch.cat([torch.zeros(2), torch.zeros(2, 2)])|torch.cat([torch.zeros(2)], 1)
        torch.stack([])
    torch.stack([torch.zeros(2),torch.zeros(3)])|torch.stack([torch.zeros(2)], 2)|torch.zeros(2).repeat()
        torch.zeros(2,2).repeat(2)
    torch.zeros(2).repeat(-1)|torch.zeros(2).tril()|torch.zeros(2,2,2).diag()|torch.zeros(2).flip(1)
        torch.zeros(2,2).flip(0,0)
    torch.zeros(2).roll((1,2),0)|torch.zeros(2).roll((1,2))|torch.zeros(2).rot90()|torch.zeros(2, 2).rot90(1, (0, 0))
    torch.zeros(2, 2).rot90(1, (0,))|torch.meshgrid(torch.zeros(2),torch.zeros(2,2),indexing='ij')
        torch.meshgrid(torch.zeros(2),indexing='q')
    torch.zeros(3).repeat_interleave(torch.tensor([1,2]))|torch.zeros(3).repeat_interleave(-1)
        torch.constant_pad_nd(torch.zeros(2),(1,))
    torch.constant_pad_nd(torch.zeros(2),(-2,-2))|torch.constant_pad_nd(torch.zeros(2),(1, 1, 1, 1))
        torch.block_diag(torch.zeros(2,2,2))
    torch.zeros(2, 2).diag_embed(0, 1, 1)|torch.combinations(torch.zeros(2, 2))
        torch.cartesian_prod(torch.zeros(2, 2))|torch.zeros(1).fliplr()
    torch.zeros(2).repeat_interleave(torch.tensor([0.5, 1.0]))|torch.hstack([])|torch.zeros(3).roll(())"""


@pytest.mark.parametrize("expression", [e.strip() for e in ERRORS.replace("\n", "|").split("|") if e.strip()])
def test_errors_have_torchs_type(expression):
    with pytest.raises(Exception) as expected:
        eval(expression, {"torch": torch})
    with pytest.raises(type(expected.value)):
        eval(expression, {"torch": fb})


def test_cat_promotes_as_torch():
    names = ["uint8", "int32", "int64", "float16", "float32", "complex64", "bool"]
    for a in names:
        for b in names:
            kinds = [str(m.cat([m.zeros(2, dtype=getattr(m, a)), m.ones(1, dtype=getattr(m,
                    b))]).dtype) for m in (torch, fb)]
            assert kinds[0] == kinds[1], (a, b)


def test_out_forms():
    for m in (torch, fb):
        out = m.empty(0)
        assert m.cat([m.ones(2), m.zeros(1)], out=out) is out and out.tolist() == [1, 1, 0]
        assert m.stack([m.ones(2)], out=m.empty(1, 2)).tolist() == [[1, 1]]
        assert m.tril(m.ones(2, 2), out=m.empty(2, 2)).tolist() == [[1, 0], [1, 1]]
    x = fb.ones(3, 3)
    assert x.tril_().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]] and x._version == 1


def test_half_precision_and_integers_pass_through():
    for dtype in ("float16", "bfloat16", "int64", "bool", "complex64"):
        for expression in ("torch.cat([x, x])", "x.flip(0)", "x.repeat(2, 2)", "x.roll(1, 1)", "x.tril()",
                "x.diag_embed()", "x.t().clone()"):
            a, b = (eval(expression, {"torch": m, "x": m.arange(6).view(2, 3).to(getattr(m, dtype))}) for m in (torch,
                    fb))
            assert a.tolist() == b.tolist() and str(a.dtype) == str(b.dtype)


STEPS = st.lists(st.sampled_from([
    ".transpose(0, -1)", ".flip(0)", "[:, 1:]", ".unsqueeze(1)", ".squeeze()", ".clone()", ".contiguous()",
    ".reshape(-1, 2)", " * 2", "[..., ::2]",
    ".repeat(1, 2)", ".expand(2, -1, -1)", ".permute(1, 0)", ".flatten(0, 1)", ".t()", "[0]", ".movedim(0, -1)",
    ".unfold(0, 1, 1)", ".roll(1, 0)",
    ".mT", ".narrow(0, 0, 1)", ".diagonal()", ".view(-1)", "[None]", "[:, None]", ".swapaxes(0, 1)", ".sum_to_size(1)",
    ".sin()", ".tril()"]), max_size=6)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from([(2, 4), (4, 2), (1, 3), (2, 1, 3), (3, 1), (6,), (0, 2), (1, 1)]), STEPS)
def test_chains_of_operations_have_torchs_values_strides_and_gradients(shape, steps):
    expression = "x" + "".join(steps) if " * 2" not in steps[:-1] else "x" + "".join(s for s in steps if s != " * 2")
    try:
        result = eval(expression, {"torch": torch, "x": made(torch, shape)})
    except Exception as error:
        with pytest.raises(type(error)):
            eval(expression, {"torch": fb, "x": made(fb, shape)})
        return
    if result.numel():
        views_agree(expression, shape, units=not {" * 2", ".sin()", ".flip(0)", ".expand(2, -1, -1)"} & set(steps))
    else:  # strides of empty tensors have a test of their own
        assert tuple(eval(expression, {"torch": fb, "x": made(fb, shape)}).shape) == tuple(result.shape)
