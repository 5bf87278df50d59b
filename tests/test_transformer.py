"""Transformer, its encoder, decoder and layers against PyTorch."""

import pytest
from compare import agree_in_words

import flambeau


def built(torch, module, *values, train=True, **call):
    """Output, gradients and state of a module over leaves."""
    module.train(train)
    leaves = [v.requires_grad_() for v in values]
    torch.manual_seed(1)
    out = module(*leaves, **call)
    out.sin().sum().backward()
    return out, [v.grad for v in leaves], {n: p.grad for n, p in module.named_parameters()}, module


def inputs(torch, *shapes):
    torch.manual_seed(5)
    return [torch.randn(*s, dtype=torch.float64) for s in shapes]


LAYERS = {
    "plain": dict(dropout=0.0), "dropout": dict(dropout=0.3), "norm first": dict(dropout=0.0, norm_first=True),
    "gelu": dict(dropout=0.0, activation="gelu"), "batch first": dict(dropout=0.0, batch_first=True),
    "no bias": dict(dropout=0.0, bias=False), "other eps": dict(dropout=0.0, layer_norm_eps=0.1),
}


@pytest.mark.parametrize("options", LAYERS)
@pytest.mark.parametrize("train", [True, False])
def test_encoder_layer(options, train):
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dtype=torch.float64, **LAYERS[options])
        return built(torch, layer, *inputs(torch, (4, 3, 8)), train=train)

    agree_in_words(program, tolerance=1e-8)


@pytest.mark.parametrize("options", LAYERS)
def test_decoder_layer(options):
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.TransformerDecoderLayer(8, 2, 16, dtype=torch.float64, **LAYERS[options])
        return built(torch, layer, *inputs(torch, (4, 3, 8), (4, 3, 8)))

    agree_in_words(program, tolerance=1e-8)


def masks(torch, which):
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[1, 2:] = True
    return {"none": {}, "causal": dict(mask=causal), "hint": dict(mask=causal, is_causal=True),
            "bool": dict(mask=causal < 0), "padding": dict(src_key_padding_mask=padding),
            "both": dict(mask=causal < 0, src_key_padding_mask=padding)}[which]


@pytest.mark.parametrize("which", ["none", "causal", "hint", "bool", "padding", "both"])
@pytest.mark.parametrize("train", [True, False])
def test_encoder(which, train):
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, dtype=torch.float64)
        encoder = torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(8, dtype=torch.float64))
        return built(torch, encoder, *inputs(torch, (3, 4, 8)), train=train, **masks(torch, which))

    agree_in_words(program, tolerance=1e-8)


@pytest.mark.parametrize("which", ["none", "causal", "padding"])
def test_encoder_in_inference(which):
    """PyTorch leaves padding out with nested tensors here, and fills it with zeros."""
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)
        encoder = torch.nn.TransformerEncoder(layer, 2).eval()
        with torch.no_grad():
            return encoder(*inputs(torch, (3, 4, 8)), **masks(torch, which))

    agree_in_words(program, tolerance=1e-8, warned=False)


@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer(batch_first):
    def program(torch):
        torch.manual_seed(0)
        model = torch.nn.Transformer(8, 2, 2, 2, 16, 0.1, batch_first=batch_first, dtype=torch.float64)
        src, tgt = inputs(torch, *([(3, 5, 8), (3, 4, 8)] if batch_first else [(5, 3, 8), (4, 3, 8)]))
        mask = model.generate_square_subsequent_mask(4, dtype=torch.float64)
        return built(torch, model, src, tgt, tgt_mask=mask), list(model.state_dict()), model.state_dict()

    agree_in_words(program, tolerance=1e-8, warned=False)


def test_without_batch():
    def program(torch):
        torch.manual_seed(0)
        model = torch.nn.Transformer(8, 2, 1, 1, 16, 0.0, dtype=torch.float64)
        return built(torch, model, *inputs(torch, (5, 8), (4, 8)))

    agree_in_words(program, tolerance=1e-8, warned=False)


@pytest.mark.parametrize("mistake", [
    lambda n, x: n.TransformerEncoderLayer(8, 2, activation="sin"),
    lambda n, x: n.Transformer(8, 2, 1, 1)(x, x[:, :2]), lambda n, x: n.Transformer(4, 2, 1, 1)(x, x),
    lambda n, x: n.TransformerEncoderLayer(8, 3)])
def test_errors(mistake):
    agree_in_words(lambda torch: mistake(torch.nn, torch.ones(4, 3, 8)), warned=False)


def test_warning_about_nested_tensors():
    agree_in_words(lambda torch: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2), 1).use_nested_tensor)


def test_causal_mask():
    agree_in_words(lambda torch: torch.nn.Transformer.generate_square_subsequent_mask(3))
    assert flambeau.nn.modules.transformer._generate_square_subsequent_mask(2).tolist() == [[0.0, float("-inf")], [0.0, 0.0]]
