"""save and load: files travel between flambeau and PyTorch in both directions, and nothing is lost on the way."""

from __future__ import annotations

import io
import mmap
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import warnings
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch

import flambeau
from flambeau import serialization

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float8_e4m3fn",
          "float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def raw(tensor):
    """A tensor's elements as bytes, whatever the library and dtype."""
    tensor = tensor.detach().contiguous()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
        return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return tensor._array.tobytes()


def same(a, b):
    """Whether two objects of the two libraries say the same."""
    if isinstance(a, (torch.Tensor, flambeau.Tensor)):
        assert isinstance(b, (torch.Tensor, flambeau.Tensor))
        names = (str(a.dtype), tuple(a.shape), a.requires_grad, str(a.device))
        assert names == (str(b.dtype), tuple(b.shape), b.requires_grad, str(b.device))
        assert a.stride() == b.stride()
        assert isinstance(a, (torch.nn.Parameter, flambeau.nn.Parameter)) == isinstance(
            b, (torch.nn.Parameter, flambeau.nn.Parameter))
        if a.device.type != "meta":
            assert a.storage_offset() == b.storage_offset()
            assert raw(a) == raw(b)
        return
    if isinstance(a, dict):
        assert type(a) is type(b) and list(map(str, a)) == list(map(str, b))
        for x, y in zip(a.values(), b.values()):
            same(x, y)
        if isinstance(a, OrderedDict):
            same(getattr(a, "_metadata", 0), getattr(b, "_metadata", 0))
        return
    if isinstance(a, (list, tuple)) and not isinstance(a, (torch.Size, flambeau.Size)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
        return
    assert str(a) == str(b)
    assert type(a).__name__ == type(b).__name__


def saved(library, obj, **kwargs):
    file = io.BytesIO()
    library.save(obj, file, **kwargs)
    file.seek(0)
    return file


def all_ways(make, *, save_args=None, **load_args):
    """The object through each pair of writer and reader."""
    for writer in (torch, flambeau):
        for reader in (torch, flambeau):
            if writer is torch and reader is torch:
                continue
            yield make(writer), reader.load(saved(writer, make(writer), **(save_args or {})), **load_args)


def attributes(t):
    x = t.ones(2)
    x.note = "hello"
    return x


def module_state(t):
    t.manual_seed(0)
    return t.nn.Sequential(OrderedDict(a=t.nn.Linear(3, 4), b=t.nn.BatchNorm1d(4))).state_dict()


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
        same(before, after)


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_travel_both_ways_in_the_old_format(name):
    for before, after in all_ways(OBJECTS[name], save_args={"_use_new_zipfile_serialization": False}):
        same(before, after)


@pytest.mark.parametrize("name", ["containers", "numbers", "names", "state dict", "set", "bytearray"])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_newer_pickle_protocols(name, protocol):
    for writer in (torch, flambeau):
        made = OBJECTS[name](writer)
        same(made, flambeau.load(saved(writer, made, pickle_protocol=protocol)))
    same(made, torch.load(saved(flambeau, made, pickle_protocol=protocol), weights_only=False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype):
    def make(t):
        kind = getattr(t, dtype)
        base = t.tensor([0, 1, 2, 3, 4, 5]).to(kind)
        return [base, base[2:], base.to(t.float32)]

    for before, after in all_ways(make):
        same(before, after)
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
            same(x._indices(), y._indices())
            same(x._values(), y._values())


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
        same(before.state_dict(), after.state_dict())
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
        same(before, after)
    loaded = flambeau.load(saved(flambeau, make(flambeau)), weights_only=False)
    assert loaded.optimizer.param_groups[0]["momentum"] == 0.9


def test_a_state_dict_of_torch_fits_a_flambeau_model():
    torch.manual_seed(0)
    source = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    goal = flambeau.nn.Sequential(flambeau.nn.Linear(3, 4), flambeau.nn.Tanh(), flambeau.nn.Linear(4, 1))
    goal.load_state_dict(flambeau.load(saved(torch, source.state_dict())))
    np.testing.assert_allclose(goal(flambeau.ones(2, 3)).detach().numpy(), source(torch.ones(2, 3)).detach().numpy(),
                               1e-5)


class Point:
    def __init__(self, x):
        self.x = x


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
    with serialization.safe_globals([(Point, f"{__name__}.Point")]):
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


# --------------------------------------------------------------------------------------------------------- the format
def test_the_archive_looks_like_torchs(tmp_path):
    listings = []
    for t in (torch, flambeau):
        path = tmp_path / t.__name__ / "model.pt"
        path.parent.mkdir()
        t.save({"w": t.arange(5.0), "e": t.empty(0), "b": t.ones(3, dtype=t.uint8)}, path)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            infos = archive.infolist()
        listings.append([(i.filename, i.file_size, i.compress_type, i.flag_bits, i.header_offset) for i in infos])
        data = path.read_bytes()
        for info in infos:
            start = info.header_offset + 30 + len(info.filename) + int.from_bytes(
                data[info.header_offset + 28:info.header_offset + 30], "little")
            assert start % 64 == 0
    assert [entry[0] for entry in listings[1]][-2:] == ["model/version", "model/.data/serialization_id"]
    assert listings[0] == listings[1]


def test_the_same_content_gives_the_same_file():
    assert saved(flambeau, module_state(flambeau)).getvalue() == saved(flambeau, module_state(flambeau)).getvalue()


def test_files_above_four_gibibytes_use_wide_fields():
    from flambeau.serialization.archive import ArchiveReader, ArchiveWriter

    file = io.BytesIO()
    writer = ArchiveWriter(file, "archive")
    writer.position = 5 << 30  # as if 5 GB had been written before
    writer.record("data.pkl", b"abc")
    writer.finish()
    raw_file = file.getvalue()
    assert b"PK\x06\x06" in raw_file and (5 << 30).to_bytes(8, "little") in raw_file

    class Shifted:
        at = 0

        def seek(self, offset, whence=0):
            self.at = offset if whence == 0 else (5 << 30) + len(raw_file) + offset
            return self.at

        def tell(self):
            return self.at

        def read(self, count=-1):
            start = self.at - (5 << 30)
            self.at += count
            return b"\0" * max(-start, 0) + raw_file[max(start, 0):start + count]

    assert ArchiveReader(Shifted()).read("data.pkl") == b"abc"


def test_checksums_can_be_left_out():
    serialization.set_crc32_options(False)
    torch.serialization.set_crc32_options(False)
    try:
        assert not serialization.get_crc32_options()
        for before, after in all_ways(lambda t: t.arange(4.0)):
            same(before, after)
    finally:
        serialization.set_crc32_options(True)
        torch.serialization.set_crc32_options(True)


def test_big_endian_files():
    file = saved(torch, [torch.tensor([1.0, -2.0]), torch.tensor([1 + 2j]), torch.tensor([True])])
    source = zipfile.ZipFile(file)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as goal:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name and len(data) > 1:
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            goal.writestr(name, data)
    out.seek(0)
    loaded = flambeau.load(out)
    assert loaded[0].tolist() == [1, -2] and loaded[1].tolist() == [1 + 2j] and loaded[2].tolist() == [True]


def test_default_endianness():
    assert serialization.get_default_load_endianness() is None
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        data = np.array([1.0], ">f4").tobytes()
        out = io.BytesIO()
        source = zipfile.ZipFile(saved(torch, torch.tensor([1.0])))
        with zipfile.ZipFile(out, "w") as goal:
            goal.writestr("archive/data.pkl", source.read("archive/data.pkl"))
            goal.writestr("archive/data/0", data)
        out.seek(0)
        assert flambeau.load(out).tolist() == [1.0]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError):
        serialization.set_default_load_endianness("big")


# --------------------------------------------------------------------------------------------------------------- files
def test_paths_and_files(tmp_path):
    for path in (tmp_path / "a.pt", str(tmp_path / "b.pt"), pathlib.Path(tmp_path / "ü.pt"), tmp_path / "noending"):
        flambeau.save(flambeau.ones(2), path)
        assert torch.load(path).tolist() == flambeau.load(path).tolist() == [1, 1]
    with open(tmp_path / "c.pt", "w+b") as file:
        file.write(b"prefix")
        flambeau.save(flambeau.ones(3), file)
        file.seek(6)
        assert flambeau.load(file).tolist() == [1, 1, 1]


def test_several_objects_in_one_file_of_the_old_format():
    file = io.BytesIO()
    for i in range(3):
        flambeau.save([i, flambeau.full((2,), i)], file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert [flambeau.load(file)[0] for _ in range(3)] == [0, 1, 2]


class OnlyReadAndSeek:
    def __init__(self, data):
        self.file = io.BytesIO(data)

    def read(self, count=-1):
        return self.file.read(count)

    def seek(self, *args):
        self.file.seek(*args)

    def tell(self):
        return self.file.tell()


def test_a_minimal_file_object_is_enough():
    assert flambeau.load(OnlyReadAndSeek(saved(torch, torch.ones(2)).getvalue())).tolist() == [1, 1]

    class Writer:
        data = b""

        def write(self, piece):
            self.data += piece

    writer = Writer()
    flambeau.save(flambeau.ones(2), writer)
    assert torch.load(io.BytesIO(writer.data)).tolist() == [1, 1]


def test_bad_file_arguments(tmp_path):
    with pytest.raises(AttributeError, match="write"):
        flambeau.save(1, 3)
    with pytest.raises(AttributeError, match="seekable"):
        flambeau.load(3)
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        flambeau.save(1, tmp_path / "no" / "x.pt")
    with pytest.raises(FileNotFoundError):
        flambeau.load(tmp_path / "x.pt")
    with pytest.raises(IsADirectoryError):
        flambeau.save(1, tmp_path)
    with pytest.raises(RuntimeError, match="pickle_module"):
        flambeau.load(saved(flambeau, 1), pickle_module=pickle, weights_only=True)
    assert flambeau.load(saved(flambeau, 1), pickle_module=pickle) == 1


def test_environment_can_force_safe_loading(monkeypatch):
    file = saved(flambeau, Point(1))
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        flambeau.load(file, weights_only=False)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one of"):
        flambeau.load(file)
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    file.seek(0)
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert flambeau.load(file).x == 1


# -------------------------------------------------------------------------------------------------------- map_location
@pytest.fixture
def cuda_file():
    """A file that says its storage was on a GPU."""
    source = zipfile.ZipFile(saved(torch, {"a": torch.arange(3.0), "b": torch.ones(2)}))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as goal:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            goal.writestr(name, data)
    out.seek(0)
    return out


@pytest.mark.parametrize("where", ["cpu", flambeau.device("cpu"), {"cuda:0": "cpu"}, lambda storage, tag: storage,
                                   b"cpu"])
def test_map_location_moves_to_the_cpu(cuda_file, where):
    assert flambeau.load(cuda_file, map_location=where)["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("where", [None, "cuda:0", {"cpu": "cuda:0"}, lambda storage, tag: None])
def test_map_location_without_the_device(cuda_file, where):
    with pytest.raises(RuntimeError, match="map_location=torch.device"):
        flambeau.load(cuda_file, map_location=where)


def test_map_location_details(cuda_file):
    seen = []

    def place(storage, tag):
        seen.append((type(storage).__name__, storage.nbytes(), tag))
        return storage

    flambeau.load(cuda_file, map_location=place)
    assert seen == [("UntypedStorage", 12, "cuda:0"), ("UntypedStorage", 8, "cuda:0")]
    cuda_file.seek(0)
    assert flambeau.load(cuda_file, map_location="meta")["a"].device.type == "meta"
    for where, error in (("nowhere", RuntimeError), (3, TypeError)):
        cuda_file.seek(0)
        with pytest.raises(error):
            flambeau.load(cuda_file, map_location=where)
    file = saved(flambeau, flambeau.ones(2), _use_new_zipfile_serialization=False)
    assert flambeau.load(file, map_location="meta").shape == (2,)


def test_register_package():
    from flambeau.serialization import locations
    before = list(locations._packages)
    serialization.register_package(0, lambda s: "shelf" if s.nbytes() == 12 else None,
                                   lambda s, tag: s if tag == "shelf" else None)
    try:
        file = saved(flambeau, flambeau.arange(3.0))
        assert b"shelf" in file.getvalue()
        assert flambeau.load(file).tolist() == [0, 1, 2]
    finally:
        locations._packages[:] = before
    file.seek(0)
    with pytest.raises(RuntimeError, match="tagged with shelf"):
        flambeau.load(file)


# ---------------------------------------------------------------------------------------------------------------- mmap
def test_mmap_reads_from_the_file(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"x": torch.arange(1000.0), "y": torch.ones(3, dtype=torch.bool), "e": torch.empty(0)}, path)
    loaded = flambeau.load(path, mmap=True)
    assert loaded["x"].sum() == 499500 and loaded["x"].untyped_storage().nbytes() == 4000
    loaded["x"][0] = 7  # private: the file stays as it was
    assert loaded["x"][0] == 7 and flambeau.load(path)["x"][0] == 0
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        flambeau.load(path, mmap=True)["x"][0] = 5
    assert torch.load(path)["x"][0] == 5
    flambeau.save(loaded, path)  # over the very file that is mapped
    assert loaded["x"][0] == 7 and flambeau.load(path)["x"][0] == 7


def test_mmap_needs_a_path_and_the_new_format(tmp_path):
    with pytest.raises(ValueError, match="path"):
        flambeau.load(saved(flambeau, flambeau.ones(1)), mmap=True)
    flambeau.save(flambeau.ones(1), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        flambeau.load(tmp_path / "old.pt", mmap=True)
    with pytest.raises(ValueError, match="MAP_PRIVATE"):
        serialization.set_default_mmap_options(99)


def test_skip_data():
    with serialization.skip_data():
        file = saved(flambeau, flambeau.ones(3))
    assert flambeau.load(file).tolist() == [0, 0, 0]
    file = saved(flambeau, flambeau.ones(3))
    with serialization.skip_data():
        assert flambeau.load(file).shape == (3,)


# ----------------------------------------------------------------------------------------------------------- atomicity
class Bomb:
    def __reduce__(self):
        raise ValueError("boom")


def test_an_error_while_pickling_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    flambeau.save(1, path)
    with pytest.raises(ValueError, match="boom"):
        flambeau.save([flambeau.ones(10), Bomb()], path)
    assert flambeau.load(path) == 1 and os.listdir(tmp_path) == ["model.pt"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    from flambeau.serialization import archive
    path = tmp_path / "model.pt"
    flambeau.save(1, path)

    def full_disk(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.ArchiveWriter, "finish", full_disk)
    with pytest.raises(OSError, match="No space left"):
        flambeau.save(flambeau.ones(10), path)
    monkeypatch.undo()
    assert flambeau.load(path) == 1 and os.listdir(tmp_path) == ["model.pt"]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    flambeau.save("old", path)
    program = textwrap.dedent("""
        import signal, sys
        import flambeau
        from flambeau.serialization import archive
        whole = archive.ArchiveWriter.record

        def record(self, name, data):
            whole(self, name, data)
            self.file.flush()
            if name == "data/0":
                print("half", flush=True)
                signal.pause()

        archive.ArchiveWriter.record = record
        flambeau.save([flambeau.ones(10), flambeau.zeros(100)], sys.argv[1])
    """)
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"half\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert flambeau.load(path) == "old"
    flambeau.save("new", path)
    assert flambeau.load(path) == "new"


def test_links_permissions_and_special_files(tmp_path):
    path, link = tmp_path / "model.pt", tmp_path / "link.pt"
    flambeau.save(1, path)
    path.chmod(0o640)
    link.symlink_to(path)
    flambeau.save(2, link)
    assert link.is_symlink() and flambeau.load(path) == 2 and path.stat().st_mode & 0o777 == 0o640
    flambeau.save(3, "/dev/null")


# --------------------------------------------------------------------------------------------------------- safetensors
def test_safetensors_both_ways(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="the safetensors package is not installed")
    from flambeau.serialization import safetensors as ours

    def make(t):
        made = {d: t.tensor([[0, 1, 2]]).to(getattr(t, d)) for d in DTYPES if d != "complex128"}
        return {**made, "empty": t.empty(0, 2)}

    ours.save_file(make(flambeau), tmp_path / "f.safetensors", metadata={"format": "pt"})
    safetensors.save_file(make(torch), tmp_path / "t.safetensors")
    for name in ("f", "t"):
        for load in (safetensors.load_file, ours.load_file, flambeau.load):
            loaded, expected = load(tmp_path / f"{name}.safetensors"), make(torch)
            assert set(loaded) == set(expected)
            for key, value in expected.items():
                same(loaded[key], value)
    assert raw(ours.load(ours.save({"x": flambeau.ones(2)}))["x"]) == raw(torch.ones(2))


def test_safetensors_refuses_what_the_format_cannot_hold(tmp_path):
    pytest.importorskip("safetensors", reason="the safetensors package is not installed")
    from flambeau.serialization import safetensors as ours
    x = flambeau.arange(6.0).view(2, 3)
    with pytest.raises(RuntimeError, match="share memory"):
        ours.save_file({"a": x, "b": x[1]}, tmp_path / "x")
    ours.save_file({"a": x[0], "b": x[1]}, tmp_path / "x")  # parts that do not overlap are fine
    for bad, error in (({"a": x.t()}, ValueError), ({"a": 3}, ValueError), ([x], ValueError),
                       ({"a": flambeau.ones(1, dtype=flambeau.complex128)}, TypeError)):
        with pytest.raises(error):
            ours.save_file(bad, tmp_path / "y")
    assert not (tmp_path / "y").exists()
    with pytest.raises(RuntimeError, match="not a valid safetensors"):
        ours.load(b"\xff" * 100)


def test_safetensors_package_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    from flambeau.serialization import safetensors as ours
    with pytest.raises(RuntimeError, match="pip install safetensors"):
        ours.save_file({}, tmp_path / "x")


def test_no_warnings_in_everyday_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flambeau.load(saved(flambeau, module_state(flambeau)))
