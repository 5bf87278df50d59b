"""viz.summary: torchinfo's table to the letter, and what is counted."""

from __future__ import annotations

import pytest
import torch

import flambeau
from flambeau import nn
from flambeau.viz import summary

ALL = ("input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds", "trainable")


def cnn(mod):
    nn = mod.nn
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.ReLU()), nn.Flatten(), nn.Linear(1936, 10))


def mixed(mod):
    """A layer twice, a parameter of its own, a list, a layer that is never called, and one that does not learn."""
    nn = mod.nn

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice = nn.Linear(8, 8)
            self.scale = nn.Parameter(mod.ones(8))
            self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())])
            self.unused = nn.Linear(3, 3)
            self.frozen = nn.Linear(8, 2).requires_grad_(False)

        def forward(self, x):
            x = self.twice(self.twice(x)) * self.scale
            for layer in self.layers:
                x = layer(x)
            return self.frozen(x)

    return Mixed()


def lstm(mod):
    return mod.nn.LSTM(8, 16, 2, batch_first=True)


MODELS = {cnn: (4, 1, 28, 28), mixed: (4, 8), lstm: (4, 5, 8)}
OPTIONS = [dict(col_names=ALL), dict(col_names=ALL, verbose=2, depth=2),
           dict(col_names=("num_params",), row_settings=("hide_recursive_layers",)),
           dict(col_names=("output_size", "mult_adds"), depth=1, row_settings=("var_names", "depth", "ascii_only")),
           dict(col_names=("output_size", "trainable"), col_width=18, row_settings=("var_names",), mode="train")]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(k for k in o if k != "col_names"))
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_the_table_is_torchinfos(model, options, capsys):
    torchinfo = pytest.importorskip("torchinfo", reason="torchinfo, the oracle, is not installed")
    expected = torchinfo.summary(model(torch), MODELS[model], **{"verbose": 1, **options})
    table = summary(model(flambeau), MODELS[model], **{"verbose": 1, **options})
    # Since Python 3.11 torchinfo prints the name of its enum in the unit's place.
    assert str(table) == str(expected).replace("Units.MEGABYTES", "M")
    for total in ("total_params", "trainable_params", "total_mult_adds", "total_output_bytes"):
        assert getattr(table, total) == getattr(expected, total), total
    assert capsys.readouterr().out.endswith(str(table) + "\n")


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_without_input(model):
    torchinfo = pytest.importorskip("torchinfo", reason="torchinfo, the oracle, is not installed")
    assert str(summary(model(flambeau), verbose=0)) == str(torchinfo.summary(model(torch), verbose=0))


def test_the_default_columns():
    table = summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (3, 4), verbose=0)
    lines = str(table).splitlines()
    assert lines[1].split()[1:] == "(type:depth-idx) Output Shape Param # Mult-Adds Time (ms) Output (MB)".split()
    assert lines[4].split()[:6] == ["├─Linear:", "1-1", "[3,", "8]", "40", "120"]
    assert "Total mult-adds (M): 0.00" in lines and any(line.startswith("Forward pass (ms): ") for line in lines)
    assert table.seconds >= max(layer.seconds for layer in table.summary_list[1:]) > 0


def test_a_linear_layer_works_at_every_position():
    table = summary(nn.Linear(8, 16), (2, 5, 8), verbose=0)
    assert table.total_mult_adds == 2 * 5 * (8 * 16 + 16)


def test_looking_up_multiplies_nothing():
    table = summary(nn.Embedding(100, 8), (2, 5), dtypes=[flambeau.long], verbose=0)
    assert (table.total_params, table.total_mult_adds) == (800, 0)


def test_shared_parameters_count_once():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    assert summary(nn.Sequential(a, b), (1, 4), verbose=0).total_params == 16 + 8


def test_pruned_weights_count_what_is_left():
    layer = nn.Linear(4, 4)
    flambeau.nn.utils.prune.l1_unstructured(layer, "weight", amount=6)
    assert summary(layer, (1, 4), verbose=0).total_params == 10 + 4


def test_lazy_layers_get_their_parameters():
    model = nn.Sequential(nn.LazyLinear(3))
    assert summary(model, verbose=0).total_params == 0
    assert summary(model, (2, 5), verbose=0).total_params == 18


@pytest.mark.parametrize("data", ["tensor", "list", "dict", "kwargs"])
def test_ways_to_give_input(data):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, y=None):
            return self.layer(x if y is None else x + y)

    x = flambeau.ones(2, 3)
    given = {"tensor": dict(input_data=x), "list": dict(input_data=[x, x]), "dict": dict(input_data={"x": x, "y": x}),
             "kwargs": dict(input_size=(2, 3), y=x)}[data]
    table = summary(Two(), verbose=0, **given)
    assert table.summary_list[1].output_size == [2, 3] and table.total_params == 12


def test_several_inputs_with_dtypes_and_a_batch():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)

        def forward(self, index, scale):
            return self.table(index) * scale

    table = summary(Lookup(), [(7,), (7, 4)], batch_dim=0, dtypes=[flambeau.long, flambeau.float], verbose=0)
    assert table.input_size == [[1, 7], [1, 7, 4]] and table.summary_list[0].output_size == [1, 7, 4]


def test_meta_computes_nothing_and_leaves_the_model():
    model = nn.Sequential(nn.Linear(4, 4))
    table = summary(model, (1 << 20, 4), device="meta", verbose=0)
    assert table.total_mult_adds == 20 << 20 and model[0].weight.device.type == "cpu"


def test_the_model_stays_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 3))
    model[1].eval()
    flambeau.manual_seed(3)
    expected = flambeau.rand(1)
    flambeau.manual_seed(3)
    summary(model, (4, 3), verbose=0)
    assert flambeau.equal(flambeau.rand(1), expected)  # the program's random numbers too
    assert [m.training for m in model] == [True, False, True]
    assert model[0].num_batches_tracked == 0 and not any(m._forward_hooks for m in model.modules())
    summary(model, (4, 3), mode="train", verbose=0)
    assert model[0].num_batches_tracked == 1


def test_a_failure_says_how_far_it_came():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3))
    with pytest.raises(RuntimeError) as caught:
        summary(model, (2, 4), verbose=0)
    assert caught.value.__notes__[-1:] == ["summary: the model's forward pass failed. Layers that had run: []"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("options, error, text", [
    (dict(input_size=(1, 2), input_data=flambeau.ones(1, 2)), RuntimeError, "only one of"),
    (dict(col_names=("weight",)), ValueError, "'weight' is not a valid column"),
    (dict(row_settings=("deep",)), ValueError, "'deep' is not a valid row setting"),
    (dict(col_names=("time",)), ValueError, "you must pass input_data or input_size"),
    (dict(col_width=0), ValueError, "greater than 0"), (dict(mode="test"), ValueError, "'train' or 'eval'"),
    (dict(verbose=3), ValueError, "verbose must be"), (dict(input_size=5), TypeError, "a tuple or list of ints"),
    (dict(input_size=(0, 2)), ValueError, "positive sizes"),
    (dict(input_size=(1, 2), dtypes=[]), ValueError, "1 inputs, but 0 dtypes"),
    (dict(cache_forward_pass=True), NotImplementedError, "cache_forward_pass")])
def test_wrong_arguments(options, error, text):
    with pytest.raises(error, match=text):
        summary(nn.Linear(2, 2), **options)
