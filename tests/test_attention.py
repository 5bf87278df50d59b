"""Scaled dot-product attention and MultiheadAttention against PyTorch."""

import numpy as np
import pytest
import torch as reference
from compare import agree_in_words, same

import flambeau
from flambeau import native

RNG = np.random.default_rng(0)


def arrays(*shapes, dtype="float64"):
    return [RNG.standard_normal(s).astype(dtype) for s in shapes]


def attend(torch, values, mask=None, **options):
    """(output, gradients) of attention over arrays."""
    leaves = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    mask = None if mask is None else torch.from_numpy(mask)
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask, **options)
    weight = torch.arange(out.numel(), dtype=out.dtype).view(out.shape).cos()
    return [out, *torch.autograd.grad((out * weight).sum(), leaves)]


def attention_agrees(values, tolerance=1e-10, **options):
    same(attend(reference, values, **options), attend(flambeau, values, **options), tolerance)


TRI = np.tril(np.ones((5, 7), bool))
CASES = {
    "plain": dict(),
    "causal": dict(is_causal=True),
    "scale": dict(scale=0.3),
    "negative scale": dict(scale=-0.3),
    "bool mask": dict(mask=RNG.random((5, 7)) > 0.4),
    "mask per batch": dict(mask=RNG.random((2, 1, 5, 7)) > 0.4),
    "float mask": dict(mask=RNG.standard_normal((5, 7))),
    "float mask per head": dict(mask=RNG.standard_normal((2, 3, 5, 7))),
    "rows that see nothing": dict(mask=TRI & (np.arange(5) > 1)[:, None]),
}


@pytest.mark.parametrize("case", CASES)
def test_fused_kernel(case):
    attention_agrees(arrays((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)), **CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_head_by_head(case):
    """Where there is no native code."""
    with native.off():
        attention_agrees(arrays((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)), **CASES[case])


@pytest.mark.parametrize("shapes", [
    [(5, 4), (7, 4), (7, 4)], [(3, 5, 4), (3, 7, 4), (3, 7, 4)], [(2, 2, 3, 5, 4), (2, 2, 3, 7, 4), (2, 2, 3, 7, 4)],
    [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], [(2, 3, 5, 4), (1, 3, 7, 4), (1, 1, 7, 4)],
    [(2, 3, 0, 4), (2, 3, 7, 4), (2, 3, 7, 4)]], ids=str)
def test_shapes(shapes):
    attention_agrees(arrays(*shapes))


def test_grouped_queries():
    attention_agrees(arrays((2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4)), enable_gqa=True)


def test_large_scores_do_not_overflow():
    attention_agrees([200 * a for a in arrays((1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 4))])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lower_precision(dtype):
    attention_agrees(arrays((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), dtype=dtype),
                     tolerance=1e-4 if dtype == "float32" else 2e-2)


def test_dropout_draws_as_pytorch():
    def program(torch):
        torch.manual_seed(3)
        q = torch.randn(2, 3, 5, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.4)

    agree_in_words(program, tolerance=1e-5)


def test_layout_follows_the_query():
    def program(torch):
        x = torch.ones(2, 5, 3, 4).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x).stride()

    agree_in_words(program)


def test_second_derivative():
    q, k, v = [flambeau.from_numpy(a).requires_grad_() for a in arrays((1, 2, 3, 4), (1, 2, 4, 4), (1, 2, 4, 4))]
    attention = flambeau.nn.functional.scaled_dot_product_attention
    assert flambeau.autograd.gradcheck(lambda *a: attention(*a, is_causal=True), (q, k, v))
    assert flambeau.autograd.gradgradcheck(lambda *a: attention(*a, is_causal=True), (q, k, v))


def test_second_derivative_counts_each_input_once():
    """key is computed from query: its gradient must not be counted twice."""
    def program(torch):
        q = torch.linspace(-1, 1, 24, dtype=torch.float64).view(1, 2, 3, 4).requires_grad_()
        out = torch.nn.functional.scaled_dot_product_attention(q, q * 2, q.sin(), attn_mask=None)
        (g,) = torch.autograd.grad(out.sin().sum(), q, create_graph=torch is flambeau)
        return g

    agree_in_words(lambda torch: program(torch).detach(), tolerance=1e-9)


@pytest.mark.parametrize("mistake", [
    lambda F, q: F(q[0, 0, 0], q, q), lambda F, q: F(q, q.double(), q), lambda F, q: F(q, q[..., :2], q),
    lambda F, q: F(q, q, q, attn_mask=q.long()), lambda F, q: F(q, q, q, dropout_p=2.0),
    lambda F, q: F(q, q[:, :2], q), lambda F, q: F(q[0], q[0], q[0], attn_mask=q[0, 0] > 0, is_causal=True),
    lambda F, q: F(q, q[:, :2], q[:, :2], enable_gqa=True)])
def test_errors(mistake):
    agree_in_words(lambda torch: mistake(torch.nn.functional.scaled_dot_product_attention, torch.ones(1, 3, 4, 4)), text=False)


# ---------------------------------------------------------------------------------------------------- the layer
LAYERS = {
    "plain": dict(), "no bias": dict(bias=False), "bias_kv": dict(add_bias_kv=True), "zero": dict(add_zero_attn=True),
    "both": dict(add_bias_kv=True, add_zero_attn=True), "other sizes": dict(kdim=5, vdim=3),
    "batch first": dict(batch_first=True),
}
CALLS = {
    "weights": dict(), "each head": dict(average_attn_weights=False), "fast": dict(need_weights=False),
    "padding": dict(key_padding_mask=True), "mask": dict(attn_mask=2), "mask, fast": dict(attn_mask=2, need_weights=False),
    "mask per head": dict(attn_mask=3), "both masks": dict(key_padding_mask=True, attn_mask=2, need_weights=False),
}


def run_layer(torch, layer, call, batched=True, train=True):
    torch.manual_seed(0)
    m = torch.nn.MultiheadAttention(8, 2, dtype=torch.float64, **layer).train(train)
    first = layer.get("batch_first")
    sizes = [(4, 3, 8), (5, 3, layer.get("kdim", 8)), (5, 3, layer.get("vdim", 8))]
    if not batched:
        sizes = [(s[0], s[2]) for s in sizes]
    values = [torch.randn(*s, dtype=torch.float64).requires_grad_() for s in sizes]
    given = [v.transpose(0, 1) if first and batched else v for v in values]
    options = dict(call)
    if options.get("key_padding_mask"):
        mask = torch.zeros(3, 5, dtype=torch.bool)
        mask[0, 3:] = True
        options["key_padding_mask"] = mask if batched else mask[0]
    if "attn_mask" in options:
        shape = (4, 5) if options["attn_mask"] == 2 else (6 if batched else 2, 4, 5)
        mask = torch.ones(4, 5, dtype=torch.bool).triu(2)
        options["attn_mask"] = mask.expand(*shape)
    out, weights = m(*given, **options)
    (out.sin().sum() + (0 if weights is None else weights.cos().sum())).backward()
    return out, weights, [v.grad for v in values], {n: p.grad for n, p in m.named_parameters()}, m.state_dict(), m


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("layer", LAYERS)
def test_multihead(layer, call):
    agree_in_words(lambda torch: run_layer(torch, LAYERS[layer], CALLS[call]), tolerance=1e-9)


@pytest.mark.parametrize("call", CALLS)
def test_multihead_without_batch(call):
    agree_in_words(lambda torch: run_layer(torch, {}, CALLS[call], batched=False), tolerance=1e-9)


@pytest.mark.parametrize("need_weights", [True, False])
def test_self_attention_in_eval_mode(need_weights):
    def program(torch):
        torch.manual_seed(0)
        m = torch.nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.3).eval()
        x = torch.randn(3, 5, 8)
        with torch.no_grad():
            return m(x, x, x, need_weights=need_weights)

    agree_in_words(program, tolerance=1e-5)


@pytest.mark.parametrize("mistake", [
    lambda n: n.MultiheadAttention(0, 1), lambda n: n.MultiheadAttention(5, 2)])
def test_layer_errors(mistake):
    agree_in_words(lambda torch: mistake(torch.nn))


@pytest.mark.parametrize("mistake", [
    lambda m, x: m(x[0], x, x), lambda m, x: m(x[0, 0], x, x), lambda m, x: m(x, x, x, attn_mask=x[0] > 0),
    lambda m, x: m(x, x, x, key_padding_mask=x > 0), lambda m, x: m(x, x, x, is_causal=True),
    lambda m, x: m(x[..., :4], x, x), lambda m, x: m(x, x, x[:2]), lambda m, x: m(x, x, x, attn_mask=x.long())])
def test_call_errors(mistake):
    agree_in_words(lambda torch: mistake(torch.nn.MultiheadAttention(8, 2), torch.ones(4, 3, 8)), text=False)


def test_names():
    before = flambeau.overrides.active
    from flambeau.nn.modules.activation import MultiheadAttention

    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    from flambeau.nn.attention.bias import causal_lower_right, causal_upper_left
    from flambeau.nn.attention.flex_attention import flex_attention
    assert MultiheadAttention is flambeau.nn.MultiheadAttention
    q = flambeau.randn(1, 1, 3, 4)
    k = flambeau.randn(1, 1, 5, 4)
    with sdpa_kernel(SDPBackend.MATH), sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        out = flambeau.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=causal_lower_right(3, 5))
    assert out.shape == (1, 1, 3, 4)
    assert causal_upper_left(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert flambeau.allclose(flex_attention(q, k, k), flambeau.nn.functional.scaled_dot_product_attention(q, k, k), atol=1e-6)
    assert flambeau.overrides.active is before  # a causal mask takes no part in overrides
