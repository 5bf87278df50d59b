"""pad in all modes, dropout from a seed, and their layers."""

import pytest
from compare import agree_in_words
from layer_cases import both_refuse, derivatives_agree, numbers

EDGES = [((2, 5), (1, 2)), ((2, 3, 5), (2, 1)), ((2, 4, 5), (1, 2, 2, 1)), ((2, 2, 4, 5), (3, 0, 0, 2)),
         ((2, 3, 4, 3), (1, 2, 2, 1, 0, 2)), ((1, 2, 3, 4, 3), (1, 2, 2, 1, 0, 2)), ((2, 3, 5), (-1, 2)),
         ((1, 2, 4, 5), (2, -1, -2, 1))]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape, pad", EDGES)
def test_edges(shape, pad, mode):
    derivatives_agree(lambda torch, x: torch.nn.functional.pad(x, pad, mode=mode), numbers(*shape), second=True,
                      node=mode != "circular" and min(pad) >= 0)


@pytest.mark.parametrize("shape, pad", [*EDGES, ((3,), (1, 1)), ((2, 3), (0, 0, 1, 2)), ((2, 3), ())])
def test_constant(shape, pad):
    derivatives_agree(lambda torch, x: torch.nn.functional.pad(x, pad, value=1.5), numbers(*shape), node=False)


@pytest.mark.parametrize("text, shape", [
    (f"{kind}Pad{n}d({p}{', 2.5' if kind == 'Constant' else ''})", (2, 3) + (4,) * n)
    for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular") for n in (1, 2, 3)
    for p in (1, tuple(range(2 * n)) if n < 3 else (1, 0, 2, 1, 0, 1))])
def test_layers(text, shape):
    def program(torch):
        layer = eval(f"torch.nn.{text}", {"torch": torch})
        return layer, layer(torch.linspace(0, 1, 3 * 2 * 4 ** (len(shape) - 2)).reshape(shape))

    agree_in_words(program, tolerance=1e-7)


@pytest.mark.parametrize("call", [
    lambda t: t.nn.functional.pad(t.ones(2, 3), (1,)), lambda t: t.nn.functional.pad(t.ones(3), (1, 1, 1, 1)),
    lambda t: t.nn.functional.pad(t.ones(2, 3), (3, 1), mode="reflect"),
    lambda t: t.nn.functional.pad(t.ones(2, 3), (4, 1), mode="circular"),
    lambda t: t.nn.functional.pad(t.ones(3), (1, 1), mode="reflect"),
    lambda t: t.nn.functional.pad(t.ones(2, 3), (1, 1), mode="mirror"),
    lambda t: t.nn.functional.pad(t.ones(2, 3), (1, 1), mode="replicate", value=2.0),
    lambda t: t.nn.functional.pad(t.ones(2, 3), (-2, -2)), lambda t: t.nn.CircularPad2d(1)(t.ones(2, 2)),
])
def test_refusals(call):
    both_refuse(call)


# ------------------------------------------------------------------------------------------------------------ dropout
@pytest.mark.parametrize("name, shape", [
    ("dropout", (7, 9)), ("dropout", (3,)), ("dropout1d", (4, 5, 6)), ("dropout1d", (5, 6)), ("dropout2d", (2, 3, 4, 5)),
    ("dropout3d", (2, 3, 2, 4, 5)), ("dropout3d", (3, 2, 4, 5)), ("alpha_dropout", (7, 9)),
    ("feature_alpha_dropout", (4, 5, 6))])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_dropout_masks_come_from_the_seed(name, shape, p):
    for training in (True, False):
        derivatives_agree(lambda torch, x, training=training: getattr(torch.nn.functional, name)(x, p, training) * 1,
                          numbers(*shape), node=False, tolerance=1e-7)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "float32", "large"])
def test_dropout_of_all_layouts(layout):
    def program(torch):
        torch.manual_seed(5)
        x = torch.arange(24.0).reshape(4, 6)
        x = {"transposed": x.t(), "float32": x, "large": torch.ones(300, 200)}.get(layout, x.double())
        x = x.clone().requires_grad_() if layout != "transposed" else x.detach().requires_grad_()
        out = torch.nn.functional.dropout(x, 0.4)
        out.sum().backward()
        return out, x.grad, out.grad_fn.name(), torch.rand(2)

    agree_in_words(program, tolerance=1e-7)


def test_dropout_in_place_and_layers():
    def program(torch):
        torch.manual_seed(5)
        x = torch.ones(4, 6)
        out = torch.nn.functional.dropout(x, 0.5, inplace=True)
        layers = [torch.nn.Dropout(0.2), torch.nn.Dropout1d(), torch.nn.Dropout2d(0.1, True), torch.nn.Dropout3d(),
                  torch.nn.AlphaDropout(0.3), torch.nn.FeatureAlphaDropout()]
        return out is x, x, layers, layers[0](x), layers[4](x), layers[0].eval()(x)

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("call", [
    lambda t: t.nn.functional.dropout(t.ones(2), 1.5), lambda t: t.nn.Dropout(-0.1),
    lambda t: t.nn.functional.dropout1d(t.ones(2)), lambda t: t.dropout(t.ones(2), 2.0, True)])
def test_dropout_refusals(call):
    both_refuse(call)
