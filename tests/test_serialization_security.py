"""A file cannot harm: load (weights_only) runs no code, takes no more memory than the file has, and refuses clearly."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
import zlib
from collections import OrderedDict

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau
from flambeau import serialization

REFUSED = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, NotImplementedError)


def archive(data, records=(), name="archive", compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr(f"{name}/data.pkl", data)
        for key, content in dict(records).items():
            made.writestr(f"{name}/{key}", content)
    file.seek(0)
    return file


def text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value):
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def storage(kind="torch\nFloatStorage", key="0", place="cpu", numel=4):
    return b"(" + text("storage") + b"c" + kind.encode() + b"\n" + text(key) + text(place) + number(numel) + b"tQ"


def tensor(size=(4,), stride=(1,), offset=0, source=None, grad=b"\x89", extra=b""):
    numbers = [b"(" + b"".join(map(number, values)) + b"t" for values in (size, stride)]
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + (source or storage()) + number(offset) + b"".join(numbers)
            + grad + b"ccollections\nOrderedDict\n)R" + extra + b"tR.")


DATA = {"data/0": struct.pack("<4f", 1, 2, 3, 4)}


def test_the_hand_made_file_is_good():
    assert flambeau.load(archive(tensor(), DATA)).tolist() == [1, 2, 3, 4]
    assert flambeau.load(archive(tensor((2, 2), (2, 1)), DATA)).tolist() == [[1, 2], [3, 4]]
    assert torch.load(archive(tensor(), {**DATA, "version": "3\n"})).tolist() == [1, 2, 3, 4]


# ---------------------------------------------------------------------------------------------------------------- code
class Evil:
    """Pickled, it calls a function when it is loaded."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.fixture
def trap(tmp_path):
    """A path that malicious code would create."""
    path = tmp_path / "trap"
    yield str(path)
    assert not path.exists()


def evil_pickles(path):
    touch = f"touch {path}"
    python = f"open({path!r}, 'w')"
    for protocol in (2, 3, 4, 5):
        yield pickle.dumps(Evil(os.system, touch), protocol)
        yield pickle.dumps(Evil(exec, python), protocol)
        yield pickle.dumps(Evil(eval, python), protocol)
        yield pickle.dumps(Evil(open, path, "w"), protocol)
        yield pickle.dumps({"w": [Evil(os.mkdir, path)]}, protocol)
    quoted = text(touch)
    yield b"cos\nsystem\n(" + quoted + b"tR."
    yield b"cposix\nsystem\n" + quoted + b"\x85R."
    yield b"(cos\nsystem\n" + quoted + b"o."                          # OBJ
    yield b"(" + quoted + b"ios\nsystem\n."                           # INST
    yield b"c__builtin__\neval\n" + text(python) + b"\x85R."
    yield b"cbuiltins\n__import__\n" + text("os") + b"\x85R."
    yield b"cbuiltins\ngetattr\ncos\nsystem\n" + text("x") + b"\x86R."
    yield b"ctorch\nos.system\n" + quoted + b"\x85R."                 # through a module's attributes
    yield b"\x80\x04" + text("torch.serialization") + text("os.system") + b"\x93" + quoted + b"\x85R."
    yield b"ctorch._utils\n__builtins__\n" + quoted + b"\x85R."
    yield b"cflambeau.serialization.rebuild\nrebuild_tensor\n)R."
    yield b"csubprocess\nPopen\n" + quoted + b"\x85R."
    yield b"crunpy\n_run_code\n" + quoted + b"\x85R."
    yield b"cnumpy.core.multiarray\n_reconstruct\n)R."
    yield b"\x82\x01."                                                # EXT1: the extension registry
    yield b"ccollections\nOrderedDict\n)\x81}" + text("__class__") + b"cos\nsystem\nsb."
    yield b"ccollections\nOrderedDict\n" + quoted + b"\x85R."
    yield text("os.system") + text(touch) + b"\x85R."                 # calling a string
    yield b"ctorch\nFloatStorage\n(K\x01tR."                          # calling a storage class
    yield b"ctorch\nTensor\n" + number(10**12) + b"\x85R."
    yield b"ctorch\nTensor\n" + number(10**12) + b"\x85\x81."
    yield b"ctorch\nFloatTensor\n" + number(10**12) + b"\x85\x81."
    yield b"ctorch.nn.parameter\nParameter\n" + number(10**12) + b"\x85R."
    yield b"c_codecs\nencode\n" + text("x") + text("zlib") + b"\x86R."
    yield b"cbuiltins\nbytearray\n" + number(10**12) + b"\x85R."      # memory instead of code
    yield (b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\nbytearray\nctorch\nTensor\n" + number(10**12)
           + b"\x85}tR.")
    yield b"ctorch._tensor\n_rebuild_from_type_v2\n(c_codecs\nencode\ncbuiltins\nset\n)}tR."


def test_no_code_runs(trap):
    for data in evil_pickles(trap):
        with pytest.raises(REFUSED):
            flambeau.load(archive(data))
        with pytest.raises(REFUSED):
            flambeau.load(io.BytesIO(data))  # and as a file of the old format


class WithState:
    def __setstate__(self, state):
        raise AssertionError("must not be called")


def test_setstate_of_classes_that_were_not_allowed():
    data = pickle.dumps(WithState(), 2)[:-1] + b"}K\x01K\x02sb."
    with pytest.raises(pickle.UnpicklingError, match="was not an allowed global"):
        flambeau.load(archive(data))
    for made in (b"]", b"}", b"\x8f", b"K\x05", text("x"), b"ccollections\nCounter\n)R"):
        with pytest.raises(pickle.UnpicklingError, match="Can only build"):
            flambeau.load(archive(b"\x80\x04" + made + b"}K\x01K\x02sb."))


def test_messages_say_what_to_do():
    with pytest.raises(pickle.UnpicklingError, match=r"(?s)weights_only.*trust.*add_safe_globals\(\[shutil.rmtree\]\)"):
        flambeau.load(archive(b"cshutil\nrmtree\n."))
    with pytest.raises(pickle.UnpicklingError, match="whose module os is blocked"):
        flambeau.load(archive(b"cos\nsystem\n."))
    with serialization.safe_globals([(os.system, "os.system")]), pytest.raises(pickle.UnpicklingError, match="blocked"):
        flambeau.load(archive(b"cos\nsystem\n."))


def test_the_list_of_unsafe_names_builds_nothing(trap):
    found = serialization.get_unsafe_globals_in_checkpoint(archive(pickle.dumps(Evil(os.system, f"touch {trap}"), 2)))
    assert found == ["posix.system"]
    found = serialization.get_unsafe_globals_in_checkpoint(archive(pickle.dumps([OrderedDict(), Evil(exec, "1")], 4)))
    assert found == ["builtins.exec"]


def test_attributes_cannot_replace_a_tensors_own_records():
    state = b"}(" + text("_base") + b"K\x01" + text("_grad") + b"K\x02" + text("mine") + b"K\x03u"
    inner = tensor()[2:-2].partition(b"_rebuild_tensor_v2\n")[2]
    data = (b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n"
            + inner + state + b"tR.")
    loaded = flambeau.load(archive(data, DATA))
    assert loaded.mine == 3 and loaded._base is None and loaded.grad is None


# ------------------------------------------------------------------------------------------------------ persistent ids
@pytest.mark.parametrize("pid", [
    text("storage"), number(3), b"]", b")", b"(" + text("module") + b"cbuiltins\nset\n" + b"NNt", text("x") + b"\x85",
    storage(kind="torch\nfloat32")[:-1], storage(kind="collections\nOrderedDict")[:-1], storage(numel=-1)[:-1],
    b"(" + text("storage") + b"ctorch\nFloatStorage\n" + number(0) + text("cpu") + number(4) + b"t",
    b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + text("4") + b"t",
    b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"t",
])
def test_persistent_ids_of_the_wrong_kind(pid):
    with pytest.raises(pickle.UnpicklingError):
        flambeau.load(archive(pid + b"Q.", DATA))


@pytest.mark.parametrize("key", ["1", "../0", "/etc/passwd", "../../data.pkl", "", "0/", "\x00"])
def test_keys_only_name_records_of_the_archive(key):
    with pytest.raises(RuntimeError, match="no record"):
        flambeau.load(archive(tensor(source=storage(key=key)), DATA))


@pytest.mark.parametrize("place", ["nowhere", "cuda:0", "../x", ""])
def test_unknown_places(place):
    with pytest.raises(RuntimeError):
        flambeau.load(archive(tensor(source=storage(place=place)), DATA))


# --------------------------------------------------------------------------------------------------------------- sizes
BAD_GEOMETRY = [
    ((5,), (1,), 0), ((4,), (1,), 1), ((2,), (4,), 0), ((4,), (1,), -1), ((-1,), (1,), 0), ((4,), (-1,), 3),
    ((2, 2), (1,), 0), ((1 << 62,), (1,), 0), ((1 << 200,), (0,), 0), ((2,), (1 << 62,), 0), ((1,), (1,), 1 << 62),
    ((1 << 40, 1 << 40), (0, 0), 0), ((0, 1 << 61, 1 << 61), (1, 1, 1), 0), ((1,) * 65, (1,) * 65, 0),
]


@pytest.mark.parametrize("size, stride, offset", BAD_GEOMETRY)
@pytest.mark.parametrize("old", [False, True])
def test_geometry_is_checked_against_the_storage(size, stride, offset, old):
    with pytest.raises(pickle.UnpicklingError):
        if old:
            flambeau.load(legacy(tensor(size, stride, offset, source=storage()[:-2] + b"NtQ")))
        else:
            flambeau.load(archive(tensor(size, stride, offset), DATA))


def test_a_huge_expanded_tensor_costs_nothing_even_when_conjugated():
    data = struct.pack("<2f", 1, 2)
    source = storage("torch\nComplexFloatStorage", numel=1)
    metadata = b"}" + text("conj") + b"\x88s"
    loaded = flambeau.load(archive(tensor((1 << 50,), (0,), source=source, extra=metadata), {"data/0": data}))
    assert loaded.shape == (1 << 50,) and loaded[12345].item() == 1 - 2j


@pytest.mark.parametrize("numel", [5, 1 << 40, 1 << 200])
def test_a_storage_cannot_be_larger_than_its_record(numel):
    with pytest.raises(pickle.UnpicklingError, match="bytes, but its record"):
        flambeau.load(archive(tensor(source=storage(numel=numel)), DATA))


def test_one_storage_described_in_two_ways():
    data = b"\x80\x02" + tensor()[2:-1] + tensor(source=storage("torch\nIntStorage"))[2:-1] + b"\x86."
    with pytest.raises(pickle.UnpicklingError, match="two different ways"):
        flambeau.load(archive(data, DATA))


def test_other_arguments_of_the_rebuilders():
    for bad in (tensor(extra=b"}" + text("evil") + b"\x88s"), tensor(source=b"N"), tensor(source=text("x")),
                tensor(source=storage("torch\nLongStorage", numel=2), size=(1,), grad=b"\x88"),
                b"ctorch._utils\n_rebuild_parameter\n(NNNtR.", b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
                b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n" + number(1 << 70)
                + b"\x85)\x89tR.",
                b"ctorch._utils\n_rebuild_qtensor\n)R.",
                b"ctorch.serialization\n_get_layout\n" + text("__class__") + b"\x85R.",
                b"ctorch\ndevice\n" + text("nowhere") + b"\x85R.", b"ctorch\nSize\n" + text("ab") + b"\x85R."):
        with pytest.raises(REFUSED):
            flambeau.load(archive(bad, DATA))


def sparse(indices, values, size=(1 << 50,)):
    parts = b"".join(part[2:-1] for part in (indices, values))
    numbers = b"(" + b"".join(map(number, size)) + b"t"
    return (b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n"
            + text("torch.sparse_coo") + b"\x85R(" + parts + numbers + b"\x89ttR.")


def test_sparse_tensors_with_expanded_parts():
    records = {"data/0": struct.pack("<2q", 0, 1), "data/1": struct.pack("<2f", 1, 2)}
    places = storage("torch\nLongStorage", numel=2)
    values = storage(key="1", numel=2)
    good = sparse(tensor((1, 2), (2, 1), source=places), tensor((2,), source=values))
    assert flambeau.load(archive(good, records))._nnz() == 2
    for bad in (sparse(tensor((1, 1 << 40), (1, 0), source=places), tensor((1 << 40,), (0,), source=values)),
                sparse(tensor((1, 2), (2, 1), source=places), tensor((), (), source=values)),
                sparse(tensor((1, 2), (2, 1), source=places), tensor((2,), source=values), (1,)),
                sparse(tensor((1, 2), (2, 1), source=values), tensor((2,), source=values))):
        with pytest.raises(REFUSED):
            flambeau.load(archive(bad, records))


# -------------------------------------------------------------------------------------------------------------- pickle
@pytest.mark.parametrize("data", [
    b"", b".", b"\x80", b"\x80\x02.", b"\x80\xff.", b"0.", b"1.", b"t.", b"u.", b"e.", b"(", b"(.", b"a.", b"s.", b"R.",
    b"b.", b"\x81.", b"Q.", b"h\x00.", b"j\xff\xff\xff\xff.", b"q\x00.", b"(q\x00.", b"}K\x01K\x02K\x03s.",
    b"}(K\x01u.", b"K\x01K\x02a.", b"}K\x01a.", b"}]K\x01s.", b"X\xff\xff\xff\xffabc.", b"\x8d" + b"\xff" * 8 + b"a.",
    b"\x8e" + b"\xff" * 8 + b"a.", b"\x96" + b"\xff" * 8 + b"a.", b"\x8b\xff\xff\xff\x7fa.", b"\x8b\xff\xff\xff\xffa.",
    b"B\xff\xff\xff\xffa.", b"T\xff\xff\xff\xffa.", b"c", b"cos", b"cos\n", b"cos\nx", b"c\xff\xfe\nx\n.",
    b"X\x02\x00\x00\x00\xff\xff.",
    b"I1\n.", b"L1L\n.", b"F1.0\n.", b"S'a'\n.", b"V\n.",
    b"P1\n.", b"\x97.", b"\x98.", b"G\x00.", b"\x95", b"NN\x86N.}",
    b"\x80\x04K\x01K\x02\x93.",
])
def test_malformed_pickles(data):
    if data == b"NN\x86N.}":
        assert flambeau.load(archive(data)) is None  # what follows the end is not looked at
        return
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        flambeau.load(archive(data))


def nested_tuples(depth):
    return b")" + b"\x85" * depth


@pytest.mark.parametrize("key", [
    nested_tuples(200_000),                            # the hash would overflow the stack
    b")" + b"q\x00h\x00\x86" * 60,                     # and here take 2**60 steps
])
@pytest.mark.parametrize("use", [b"}%bNs.", b"\x80\x04\x8f(%b\x90.", b"cbuiltins\nset\n](%be\x85R.",
                                 b"ccollections\nOrderedDict\n](%bN\x86e\x85R."])
def test_keys_that_would_take_forever_to_hash(key, use):
    with pytest.raises(pickle.UnpicklingError, match="nested too deeply"):
        flambeau.load(archive(use % key))


def test_deep_nesting_neither_crashes_nor_takes_forever():
    loaded = flambeau.load(archive(b"]" * 100_000 + b"a" * 99_999 + b"."))
    assert type(loaded) is list
    assert type(flambeau.load(archive(nested_tuples(100_000) + b"."))) is tuple
    with pytest.raises(pickle.UnpicklingError):
        flambeau.load(archive(nested_tuples(100_000) + b")R."))


@pytest.mark.parametrize("bomb", [
    b"cbuiltins\nset\nq\x00](" + b"K\x01" * 20_000 + b"eq\x01" + b"h\x00h\x01\x85R0" * 20_000 + b"N.",
    b"c_codecs\nencode\nq\x00" + text("a" * 100_000) + b"q\x01" + b"h\x00h\x01\x85R" * 20_000 + b".",
    b"cbuiltins\nbytearray\nq\x00B" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01"
    + b"h\x00h\x01\x85R" * 20_000 + b".",
    b"ctorch\nSize\nq\x00(" + b"K\x01" * 20_000 + b"tq\x01" + b"h\x00h\x01\x85R" * 20_000 + b".",
])
def test_copies_that_would_fill_the_memory(bomb):
    with pytest.raises(pickle.UnpicklingError, match="fill the memory"):
        flambeau.load(archive(bomb))


# ----------------------------------------------------------------------------------------------------------------- zip
def patched(file, *changes):
    data = bytearray(file.getvalue())
    for start, new in changes:
        start = start if start >= 0 else len(data) + start
        data[start:start + len(new)] = new
    return io.BytesIO(bytes(data))


def test_compressed_bombs_are_refused():
    bomb = archive(tensor(source=storage(numel=25_000_000)), {"data/0": bytes(100_000_000)},
                   compression=zipfile.ZIP_DEFLATED)
    assert len(bomb.getvalue()) < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeError, match="compressed"):
            flambeau.load(bomb)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def central(name, offset, size, crc=0, packed=None, method=0, flags=0):
    packed = size if packed is None else packed
    return b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, flags, method, 0, 0, crc, packed, size, len(name),
                                       0, 0, 0, 0, 0, offset) + name


def local(name, data):
    head = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(name), 0)
    return b"PK\x03\x04" + head + name + data


def end(count, size, start):
    return b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, size, start, 0)


PICKLE = b"\x80\x02K\x07."


def crafted(entries, records=None, count=None):
    body = records if records is not None else local(b"a/data.pkl", PICKLE)
    directory = b"".join(entries)
    return io.BytesIO(body + directory + end(len(entries) if count is None else count, len(directory), len(body)))


GOOD = central(b"a/data.pkl", 0, len(PICKLE), zlib.crc32(PICKLE))
TWO = local(b"a/data.pkl", PICKLE) + local(b"a/data/0", b"1234")
SECOND = len(local(b"a/data.pkl", PICKLE))


def test_the_hand_made_archive_is_good():
    assert flambeau.load(crafted([GOOD])) == 7


@pytest.mark.parametrize("name, file", {
    "duplicate names": crafted([GOOD, GOOD]),
    "duplicate names in two folders": crafted(
        [GOOD, central(b"b/data.pkl", SECOND, 4)], local(b"a/data.pkl", PICKLE) + local(b"b/data.pkl", b"1234")),
    "overlapping records": crafted([GOOD, central(b"a/data/0", SECOND - 3, 4)], TWO),
    "a record over another's data": crafted(
        [central(b"a/data.pkl", 0, len(PICKLE) + 20), central(b"a/data/0", SECOND, 4)], TWO),
    "same data under two names": crafted([GOOD, central(b"a/data/0", 0, len(PICKLE))]),
    "wrong checksum": crafted([central(b"a/data.pkl", 0, len(PICKLE), 1)]),
    "size past the end": crafted([central(b"a/data.pkl", 0, 1 << 20)]),
    "size past the directory": crafted([central(b"a/data.pkl", 0, len(PICKLE) + 1)]),
    "offset past the end": crafted([central(b"a/data.pkl", 1 << 30, 5)]),
    "64-bit size without its field": crafted([central(b"a/data.pkl", 0, 0xFFFFFFFF)]),
    "two sizes": crafted([central(b"a/data.pkl", 0, len(PICKLE), packed=3)]),
    "unknown compression": crafted([central(b"a/data.pkl", 0, len(PICKLE), method=99)]),
    "encrypted": crafted([central(b"a/data.pkl", 0, len(PICKLE), flags=1)]),
    "absurd number of records": crafted([GOOD], count=0xFFFE),
    "fewer records than counted": crafted([GOOD], count=2),
    "no records": crafted([]),
    "other record": crafted([central(b"a/other", 0, 1)], local(b"a/other", b"x")),
    "name differs from the record's": crafted([central(b"a/data.pkx", 0, len(PICKLE))]),
    "absolute name": crafted([central(b"/a/data.pkl", 0, 5)], local(b"/a/data.pkl", PICKLE)),
    "name that climbs": crafted([central(b"a/../data.pkl", 0, 5)], local(b"a/../data.pkl", PICKLE)),
    "name with a drive": crafted([central(b"c:/data.pkl", 0, 5)], local(b"c:/data.pkl", PICKLE)),
    "name with a backslash": crafted([central(b"a/..\\data.pkl", 0, 5)], local(b"a/..\\data.pkl", PICKLE)),
    "name with a zero byte": crafted([central(b"a/data.pkl\0", 0, 5)], local(b"a/data.pkl\0", PICKLE)),
    "name that is no text": crafted([central(b"a/\xff\xfe", 0, 5)], local(b"a/\xff\xfe", PICKLE)),
    "no folder": crafted([central(b"data.pkl", 0, 5)], local(b"data.pkl", PICKLE)),
    "directory outside the file": patched(crafted([GOOD]), (-10, struct.pack("<II", 56, 1 << 31))),
    "directory larger than the file": patched(crafted([GOOD]), (-10, struct.pack("<II", 1 << 31, 0))),
    "64-bit locator to nowhere": io.BytesIO(local(b"a/data.pkl", PICKLE) + b"PK\x06\x07"
                                            + struct.pack("<IQI", 0, 1 << 60, 1) + end(1, 56, 45)),
    "several disks": patched(crafted([GOOD]), (-18, b"\x01\x00")),
}.items())
def test_bad_archives(name, file):
    file.seek(0)
    with pytest.raises(RuntimeError):
        flambeau.load(file)


def test_damaged_data_is_noticed():
    data = bytearray(saved_state(False))
    entry = zipfile.ZipFile(io.BytesIO(bytes(data))).getinfo("archive/data/0")
    header = entry.header_offset
    start = header + 30 + len(entry.filename) + int.from_bytes(data[header + 28:header + 30], "little")
    data[start] ^= 1
    with pytest.raises(RuntimeError, match=r"checksum .* of record 'archive/data/0'"):
        flambeau.load(io.BytesIO(bytes(data)))


# -------------------------------------------------------------------------------------------------- files that are cut
def saved_state(old, library=flambeau):
    file = io.BytesIO()
    library.manual_seed(0)
    library.save({"model": library.nn.Linear(3, 2).state_dict(), "n": [1, "x", 2.5]}, file,
                 _use_new_zipfile_serialization=not old)
    return file.getvalue()


def legacy(pickled, numel=4):
    file = io.BytesIO()
    for head in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(head, file, 2)
    file.write(pickled)
    pickle.dump(["0"], file, 2)
    file.write(struct.pack("<q", numel) + DATA["data/0"])
    file.seek(0)
    return file


@pytest.mark.parametrize("library", [flambeau, torch])
@pytest.mark.parametrize("old", [False, True])
def test_a_file_cut_anywhere_is_a_clean_error(old, library, tmp_path):
    data = saved_state(old, library)
    for cut in range(0, len(data), 7 if old else 13):
        with pytest.raises((pickle.UnpicklingError, EOFError, RuntimeError)):
            flambeau.load(io.BytesIO(data[:cut]))
    path = tmp_path / "cut.pt"
    path.write_bytes(data[:-1])
    with pytest.raises((EOFError, RuntimeError)):
        flambeau.load(path)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.booleans(), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_random_damage_never_does_worse_than_an_error(old, changes):
    data = bytearray(saved_state(old))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        flambeau.load(io.BytesIO(bytes(data)))
    except REFUSED:
        pass


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_pickles_never_do_worse_than_an_error(data):
    try:
        flambeau.load(archive(data + b".", DATA))
    except REFUSED:
        pass


# ------------------------------------------------------------------------------------------------------- the old format
def test_the_hand_made_old_file_is_good():
    assert flambeau.load(legacy(tensor(source=storage()[:-2] + b"NtQ"))).tolist() == [1, 2, 3, 4]
    part = storage()[:-2] + b"(" + text("p") + number(1) + number(2) + b"ttQ"
    assert flambeau.load(legacy(tensor((2,), source=part))).tolist() == [2, 3]


@pytest.mark.parametrize("file", [
    legacy(tensor(source=storage(numel=1 << 40)[:-2] + b"NtQ")),
    legacy(tensor(source=storage(numel=1 << 40)[:-2] + b"NtQ"), numel=1 << 40),
    legacy(tensor(source=storage()[:-2] + b"NtQ"), numel=3),
    legacy(tensor(source=storage()[:-2] + b"NtQ"), numel=-4),
    legacy(tensor((4,), source=storage()[:-2] + b"(" + text("p") + number(1) + number(4) + b"ttQ")),
    legacy(tensor(source=storage(key="7")[:-2] + b"NtQ")),
    legacy(tensor()),
    legacy(b"\x80\x02(" + text("module") + b"cos\nsystem\nNNtQ."),
    io.BytesIO(pickle.dumps(5, 2)),
    io.BytesIO(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(7, 2)),
    io.BytesIO(b"hello world, this is no checkpoint"),
    io.BytesIO(b"\0" * 257 + b"ustar" + b"\0" * 300),
])
def test_bad_files_of_the_old_format(file):
    with pytest.raises((pickle.UnpicklingError, RuntimeError, EOFError)):
        flambeau.load(file)


def test_torchscript_and_tar_files_say_what_they_are():
    script = archive(PICKLE, {"constants.pkl": b"x"})
    with pytest.raises(RuntimeError, match="TorchScript"):
        flambeau.load(script)
    script.seek(0)
    with pytest.raises(NotImplementedError, match="TorchScript"):
        flambeau.load(script, weights_only=False)
    with pytest.raises(NotImplementedError, match="tar"):
        flambeau.load(io.BytesIO(b"\0" * 257 + b"ustar" + b"\0" * 300), weights_only=False)


def test_indices_of_a_sparse_tensor_in_the_old_format_are_checked_too():
    places = storage("torch\nLongStorage", numel=2)[:-2] + b"NtQ"
    data = sparse(tensor((1, 2), (2, 1), source=places), tensor((2,), source=places), (5,))
    with pytest.raises(RuntimeError):
        flambeau.load(legacy(data, numel=2))
