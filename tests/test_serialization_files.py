"""Files that save writes and load reads: their format, paths, devices, mmap, failures half-way, safetensors."""

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

import numpy as np
import pytest
import torch
from saved_files import DTYPES, Point, all_ways, module_state, raw, same_bits, saved

import flambeau
from flambeau import serialization


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
            same_bits(before, after)
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
                same_bits(loaded[key], value)
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
