"""Layers whose code is written from a row: inspection, copying and subclassing find what a person would have written."""

import copy
import inspect
import pickle
import typing

import pytest
import torch

import flambeau
from flambeau import nn
from flambeau.nn.layer import Layer


def rows(cls=Layer):
    for sub in cls.__subclasses__():
        yield from rows(sub)
        if hasattr(nn, sub.__name__) and not sub.__name__.startswith("_"):
            yield sub


_ = [getattr(nn, name) for name in nn.__all__]  # layers are imported when they are asked for
ROWS = sorted({cls.__name__ for cls in rows()})


def test_there_are_rows():
    assert {"ReLU", "Softplus", "MaxPool2d", "MSELoss", "Dropout", "PixelShuffle"} <= set(ROWS)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "NLLLoss2d"])  # PyTorch's old name takes *args
def test_signatures_are_pytorchs(name):
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (nn, torch.nn))
    shown = [[(p.name, p.kind, p.default) for p in found.values() if p.name != "self"] for found in (ours, theirs)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ROWS)
def test_annotations_can_be_read(name):
    cls = getattr(nn, name)
    for method in (cls.__init__, cls.forward):
        assert "return" in typing.get_type_hints(method) or method is cls.__init__


def test_source_copies_and_pickles():
    assert inspect.getsource(nn.ELU.forward) == "def forward(self, input):\n    return F.elu(input, self.alpha, self.inplace)\n"
    layer = nn.ELU(2.0, inplace=True)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is nn.ELU and (other.alpha, other.inplace) == (2.0, True) and repr(other) == repr(layer)
    assert repr(layer) == repr(torch.nn.ELU(2.0, inplace=True))


def test_a_programs_own_class_annotates_what_it_likes():
    class Mine(nn.ReLU):
        scale: float = 3.0

        def forward(self, input):
            return super().forward(input) * self.scale

    layer = Mine(inplace=False)
    assert layer.scale == 3.0 and repr(layer) == "Mine()"
    assert layer(flambeau.tensor([-1.0, 2.0])).tolist() == [0.0, 6.0]
