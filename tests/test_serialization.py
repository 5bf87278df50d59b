"""save and load: files travel between flambeau and PyTorch in both directions, and nothing is lost on the way."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from saved_files import DTYPES, Point, all_ways, module_state, same_bits, saved

import flambeau
from flambeau import serialization


def attributes(t):
    x = t.ones(2)
    x.note = "hello"
    return x


def optimizer_state(t):
    t.manual_seed(0)
    model = t.nn.Linear(3, 2)
    optimizer = t.optim.Adam(model.parameters(), lr=0.1)
    model(t.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"optimizer": optimizer.state_dict(), "epoch": 3}


OBJECTS = {
    "tensor": lambda t: t.arange(6.0).reshape(2, 3),
    "scalar": lambda t: t.tensor(3),
    "empty": lambda t: [t.empty(0), t.empty(0, 3), t.empty(2, 0, 4, dtype=t.int64)],
    "requires_grad": lambda t: t.ones(2, requires_grad=True),
    "computed": lambda t: t.ones(2, requires_grad=True) * 2,
    "parameter": lambda t: t.nn.Parameter(t.ones(2, 2)),
    "frozen parameter": lambda t: t.nn.Parameter(t.ones(2, 2), requires_grad=False),
    "transposed": lambda t: t.arange(6.0).reshape(2, 3).t(),
    "slice": lambda t: t.arange(20.0)[3:17:2],
    "expanded": lambda t: t.arange(3.0)[:, None].expand(3, 5),
    "channels last": lambda t: t.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=t.channels_last),
    "meta": lambda t: t.empty(3, 4, device="meta"),
    "containers": lambda t: {"a": [1, (2, 3.5), None, True, {"x": t.ones(1)}], 5: "text", (1, 2): b"\x00\xff"},
    "ordered": lambda t: OrderedDict([("b", 1), ("a", t.zeros(1))]),
    "counter": lambda t: Counter({"a": 2}),
    "set": lambda t: {3},
    "numbers": lambda t: [1 << 70, -(1 << 70), 255, 65535, 1 << 30, -1, 1e300, 1 + 2j, 0],
    "bytearray": lambda t: bytearray(b"abc"),
    "long text": lambda t: "é" * 1000,
    "names": lambda t: [t.float32, t.bool, t.bfloat16, t.device("cpu"), t.device("cuda:1"), t.Size([2, 3]), t.strided],
    "attributes": attributes,
    "state dict": module_state,
    "optimizer": optimizer_state,
    "same object twice": lambda t: [[1], t.Size([1])] * 2,
    "many": lambda t: {str(i): t.full((3,), float(i)) for i in range(300)},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_travel_both_ways(name):
    for before, after in all_ways(OBJECTS[name]):
        same_bits(before, after)


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_travel_both_ways_in_the_old_format(name):
    for before, after in all_ways(OBJECTS[name], save_args={"_use_new_zipfile_serialization": False}):
        same_bits(before, after)


@pytest.mark.parametrize("name", ["containers", "numbers", "names", "state dict", "set", "bytearray"])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_newer_pickle_protocols(name, protocol):
    for writer in (torch, flambeau):
        made = OBJECTS[name](writer)
        same_bits(made, flambeau.load(saved(writer, made, pickle_protocol=protocol)))
    same_bits(made, torch.load(saved(flambeau, made, pickle_protocol=protocol), weights_only=False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype):
    def make(t):
        kind = getattr(t, dtype)
        base = t.tensor([0, 1, 2, 3, 4, 5]).to(kind)
        return [base, base[2:], base.to(t.float32)]

    for before, after in all_ways(make):
        same_bits(before, after)
        assert after[0].untyped_storage().data_ptr() == after[1].untyped_storage().data_ptr()


def test_lazily_conjugated_and_negated_tensors_of_torch():
    x = torch.tensor([1 + 2j, 3 - 4j])
    loaded = flambeau.load(saved(torch, [x.conj(), x.conj()[1:], x.clone().conj(), x.clone().conj().imag]))
    assert loaded[0].tolist() == [1 - 2j, 3 + 4j] and loaded[1].tolist() == [3 + 4j]
    assert loaded[3].tolist() == [-2.0, 4.0]
    loaded[0][1] = 0
    assert loaded[1].tolist() == [0]


def test_sparse_tensors():
    def make(t):
        x = t.sparse_coo_tensor(t.tensor([[0, 2, 0], [1, 0, 1]]), t.tensor([3.0, 4.0, 5.0]), (3, 4))
        return [x, x.coalesce()]

    pairs = [*all_ways(make), *all_ways(make, save_args={"_use_new_zipfile_serialization": False})]
    for before, after in pairs:
        for x, y in zip(before, after):
            assert y.is_sparse and x.is_coalesced() == y.is_coalesced() and tuple(y.shape) == (3, 4)
            same_bits(x._indices(), y._indices())
            same_bits(x._values(), y._values())


# ----------------------------------------------------------------------------------------------------- shared storages
def test_shared_storages_stay_shared_and_are_saved_once():
    def make(t):
        x = t.arange(1000.0)
        return {"x": x, "rows": x.view(10, 100)[3], "again": x, "tied": [t.nn.Parameter(x), t.nn.Parameter(x)]}

    for _, after in [*all_ways(make), *all_ways(make, save_args={"_use_new_zipfile_serialization": False})]:
        after["x"][300] = -1
        assert after["rows"][0] == -1 and after["tied"][1][300] == -1
        assert after["again"] is after["x"]
    file = saved(flambeau, make(flambeau))
    assert [n for n in zipfile.ZipFile(file).namelist() if "/data/" in n] == ["archive/data/0"]


def test_a_view_saves_its_whole_storage_but_a_clone_does_not():
    x = flambeau.zeros(1000)
    assert len(saved(flambeau, x[:1]).getvalue()) > 4000 > len(saved(flambeau, x[:1].clone()).getvalue())


def test_one_memory_as_two_dtypes_is_refused():
    x = flambeau.zeros(4)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        flambeau.save([x, x.view(flambeau.int32)], io.BytesIO())


def test_memory_of_temporary_tensors_is_not_mixed_up():
    class Lazy:
        def __init__(self, n):
            self.n = n

        def __reduce__(self):
            return list, ([flambeau.full((64,), float(self.n))],)

    loaded = flambeau.load(saved(flambeau, [Lazy(i) for i in range(20)]), weights_only=False)
    assert [item[0][5].item() for item in loaded] == list(range(20))


def test_storages():
    for before, after in all_ways(lambda t: t.arange(3.0).untyped_storage()):
        assert bytes(before) == bytes(after)
    for _, after in all_ways(lambda t: [t.FloatStorage([1, 2])]):
        assert list(after[0]) == [1.0, 2.0]


# ------------------------------------------------------------------------------------------------------- whole modules
MODULES = {
    "mlp": (lambda t: t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Identity(), t.nn.Dropout(0.1),
                                      t.nn.LayerNorm(8), t.nn.Linear(8, 2)), (3, 4)),
    "convolution": (lambda t: t.nn.Sequential(t.nn.Conv2d(1, 4, 3, padding=1), t.nn.BatchNorm2d(4), t.nn.MaxPool2d(2),
                                              t.nn.Flatten(), t.nn.Linear(16, 2)), (2, 1, 4, 4)),
    "containers": (lambda t: t.nn.ModuleDict({"a": t.nn.ModuleList([t.nn.GroupNorm(1, 2), t.nn.PixelShuffle(2)])}),
                   None),
    "losses": (lambda t: t.nn.ModuleList([t.nn.CrossEntropyLoss(t.ones(3)), t.nn.MSELoss(), t.nn.Embedding(3, 2)]),
               None),
    "rnn": (lambda t: t.nn.LSTM(3, 4, 2), (5, 1, 3)),
    "transformer": (lambda t: t.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (1, 3, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_whole_modules_travel_both_ways(name):
    build, shape = MODULES[name]
    for before, after in all_ways(lambda t: (t.manual_seed(0), build(t).eval())[1], weights_only=False):
        assert repr(before) == repr(after)
        same_bits(before.state_dict(), after.state_dict())
        assert str(type(after)).replace("flambeau", "torch")[:12] == "<class 'torc"
        if shape:
            results = [m((torch if isinstance(m, torch.nn.Module) else flambeau).ones(*shape)) for m in (before, after)]
            first, second = (r[0] if isinstance(r, tuple) else r for r in results)
            np.testing.assert_allclose(first.detach().numpy(), second.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_modules_are_refused_by_default_until_they_are_marked_as_safe():
    for writer in (torch, flambeau):
        file = saved(writer, writer.nn.Linear(2, 2))
        with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules\.linear\.Linear was not an allowed"):
            flambeau.load(file)
        file.seek(0)
        assert serialization.get_unsafe_globals_in_checkpoint(file) == ["torch.nn.modules.linear.Linear"]
        file.seek(0)
        with serialization.safe_globals([flambeau.nn.Linear]):
            assert isinstance(flambeau.load(file), flambeau.nn.Linear)
        assert serialization.get_safe_globals() == []


def test_functions_travel_both_ways():
    for _, after in all_ways(lambda t: [t.tanh, t.nn.functional.relu, t.nn.functional.gelu], weights_only=False):
        assert [f.__name__ for f in after] == ["tanh", "relu", "gelu"]


def test_optimizers_and_schedulers():
    def make(t):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(2))], lr=0.1, momentum=0.9)
        return t.optim.lr_scheduler.StepLR(optimizer, 2)

    for before, after in all_ways(lambda t: make(t).state_dict()):
        same_bits(before, after)
    loaded = flambeau.load(saved(flambeau, make(flambeau)), weights_only=False)
    assert loaded.optimizer.param_groups[0]["momentum"] == 0.9


def test_a_state_dict_of_torch_fits_a_flambeau_model():
    torch.manual_seed(0)
    source = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    goal = flambeau.nn.Sequential(flambeau.nn.Linear(3, 4), flambeau.nn.Tanh(), flambeau.nn.Linear(4, 1))
    goal.load_state_dict(flambeau.load(saved(torch, source.state_dict())))
    np.testing.assert_allclose(goal(flambeau.ones(2, 3)).detach().numpy(), source(torch.ones(2, 3)).detach().numpy(),
                               1e-5)


class Marked(flambeau.Tensor):
    pass


def test_classes_of_the_user():
    file = saved(flambeau, Point(flambeau.ones(2)))
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        flambeau.load(file)
    file.seek(0)
    assert flambeau.load(file, weights_only=False).x.tolist() == [1, 1]
    file.seek(0)
    serialization.add_safe_globals([Point])
    try:
        assert flambeau.load(file).x.tolist() == [1, 1]
        assert serialization.get_safe_globals() == [Point]
    finally:
        serialization.clear_safe_globals()


def test_a_class_that_was_renamed():
    file = saved(torch, Point(1))
    with serialization.safe_globals([(Point, f"{Point.__module__}.Point")]):
        assert flambeau.load(file).x == 1
    with pytest.raises(ValueError, match="length 2"):
        serialization.add_safe_globals([(Point, "a", "b")])
    with pytest.raises(TypeError, match="must be a class or a function"):
        serialization.add_safe_globals([3])


def test_tensor_subclasses():
    made = flambeau.ones(3).as_subclass(Marked)
    made.tag = [1]
    file = saved(flambeau, made)
    loaded = flambeau.load(file, weights_only=False)
    assert type(loaded) is Marked and loaded.tag == [1] and loaded.tolist() == [1, 1, 1]


def test_uninitialized_parameters():
    for _, after in all_ways(lambda t: t.nn.UninitializedParameter(), weights_only=False):
        assert type(after).__name__ == "UninitializedParameter"
    loaded = flambeau.load(saved(flambeau, flambeau.nn.LazyLinear(3)), weights_only=False)
    assert loaded(flambeau.ones(2, 5)).shape == (2, 3)


def test_named_results():
    loaded = flambeau.load(saved(flambeau, flambeau.tensor([1.0, 2.0]).max(0)), weights_only=False)
    assert loaded.values == 2 and loaded.indices == 1
