"""Kernels that come with the wheel: which library is chosen, when none is, and that eager mode then needs no compiler."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flambeau
from flambeau.native import prebuilt, toolchain

ROOT = Path(flambeau.__file__).parents[1]
OLD, V2, V3, V4 = (frozenset(words.split()) for words in ("sse2", prebuilt._V2, prebuilt._V3, prebuilt._V4))


# ----------------------------------------------------------------------------------------------------------------- choosing
@pytest.mark.parametrize("machine, has, best", [
    ("x86_64", V4 | {"amx_tile"}, "x86-64-v4"), ("x86_64", V2, "x86-64-v2"),
    ("x86_64", V3, "x86-64-v3"), ("x86_64", V4 - {"avx512vl"}, "x86-64-v3"), ("x86_64", V3 - {"fma"}, "x86-64-v2"),
    ("aarch64", frozenset(["fp", "asimd"]), "armv8-a"), ("aarch64", frozenset(), "armv8-a")])
def test_the_best_that_a_processor_can_run(machine, has, best):
    assert prebuilt.levels(machine, has)[0] == best


@pytest.mark.parametrize("machine, has", [("x86_64", OLD), ("x86_64", frozenset()), ("riscv64", V4)])
def test_a_processor_for_which_nothing_was_built(machine, has):
    assert prebuilt.levels(machine, has) == []


def test_this_processor_has_what_its_levels_need():
    machine = os.uname().machine
    for level in prebuilt.levels(machine, prebuilt.features()):
        assert prebuilt.features().issuperset(prebuilt.LEVELS[machine][level].split())


def folder_with(path: Path, levels: list[str], **changed) -> Path:
    manifest = {"sources": "digest", "levels": levels, "in_parts": True, "compiler": "none", "keys": [], **changed}
    (path / "manifest.json").write_text(json.dumps(manifest))
    for level in levels:
        (path / f"{level}.so").touch()
    return path


def test_the_first_wanted_level_that_is_there_is_taken(tmp_path):
    folder = folder_with(tmp_path, ["x86-64-v3", "x86-64-v2"])
    assert prebuilt.choose(folder, "digest", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]).path == tmp_path / "x86-64-v3.so"
    (tmp_path / "x86-64-v3.so").unlink()
    assert prebuilt.choose(folder, "digest", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]).level == "x86-64-v2"
    assert prebuilt.choose(folder, "digest", ["znver5"]) is None and prebuilt.choose(folder, "digest", []) is None


def test_libraries_of_other_sources_are_not_used(tmp_path):
    assert prebuilt.choose(folder_with(tmp_path, ["x86-64-v2"]), "another digest", ["x86-64-v2"]) is None
    (tmp_path / "manifest.json").write_text("{ half a file")
    assert prebuilt.choose(tmp_path, "digest", ["x86-64-v2"]) is None
    assert prebuilt.choose(tmp_path / "absent", "digest", ["x86-64-v2"]) is None


def test_a_digest_knows_sources_headers_and_flags(tmp_path, monkeypatch):
    for name in ("a.c", "b.h"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(prebuilt, "HERE", tmp_path)
    seen = {prebuilt.sources_digest(("-O3",)), prebuilt.sources_digest(("-O2",))}
    for name in ("a.c", "b.h"):
        (tmp_path / name).write_text("changed")
        seen.add(prebuilt.sources_digest(("-O3",)))
    (tmp_path / "a.c").rename(tmp_path / "c.c")
    seen.add(prebuilt.sources_digest(("-O3",)))
    assert len(seen) == 5
    assert len({prebuilt.key(*given) for given in (("a", ()), ("b", ()), ("a", ("-O2",)), ("a", ("-O2", "-g")))}) == 4


# -------------------------------------------------------------------------------------------------------- tools/wheels.py
@pytest.fixture(scope="module")
def wheels():
    if not (ROOT / "tools" / "wheels.py").exists():
        pytest.skip("needs the checkout: tools/ is not installed")
    kept, before = toolchain.in_parts, os.environ.get("FLAMBEAU_PREBUILT")
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "tools" / "wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    toolchain.in_parts = kept
    os.environ.pop("FLAMBEAU_PREBUILT", None)
    if before is not None:
        os.environ["FLAMBEAU_PREBUILT"] = before


def test_every_source_that_python_loads_by_name_is_in_the_wheel(wheels):
    """Eager mode has no other way to a compiler than these calls, families and pointwise loops."""
    found = wheels.helpers()
    assert found["calls"] == () and found["slot"] == ("-pthread",)
    calls = sum(path.read_text().count("toolchain.build(") for path in (ROOT / "flambeau").rglob("*.py"))
    assert calls == len(found) + 1  # and the pointwise loops


@pytest.mark.parametrize("in_parts", [True, False])
def test_every_native_function_is_in_the_wheel(wheels, in_parts):
    wanted = wheels.requests(in_parts)
    assert len(set(wanted)) == len(wanted) > 500
    for path in toolchain.HERE.glob("*.c"):
        names = set(flambeau.native.signatures(path.read_text()))
        texts = [source for source, name, _ in wanted if name == path.stem]
        if path.stem not in wheels.helpers() and path.stem != "runtime" and in_parts:
            assert {f for text in texts for f in re.findall(r"extern __typeof\((\w+)\)", text)} == names
        else:
            assert texts


def test_no_two_loops_have_functions_of_one_name(wheels):
    names = [re.findall(r"void (fl_(?:flat|walk)_\w+)\(", source) for source, _, _ in wheels.pointwise()]
    names = list(map(list, {tuple(pair) for pair in names}))
    assert all(len(pair) == 2 for pair in names) and len({n for pair in names for n in pair}) == 2 * len(names)


def test_every_argument_that_changes_an_expression_has_its_variants(wheels):
    from flambeau.backends.cpu.pointwise import loops
    list(wheels.pointwise())
    assert {k for k in loops.kernels() if not isinstance(loops._entries[k].c, str)} == set(wheels.VARIANTS)


def test_a_wheel_with_kernels_is_a_whole_wheel(wheels, tmp_path):
    plain = tmp_path / "flambeau-1.0-py3-none-any.whl"
    with zipfile.ZipFile(plain, "w") as made:
        made.writestr("flambeau/__init__.py", "x = 1\n")
        made.writestr("flambeau-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("flambeau-1.0.dist-info/RECORD", "old\n")
    (tmp_path / "out").mkdir()
    path = wheels.with_kernels(plain, {"flambeau/native/prebuilt/v3.so": b"\x7fELF"}, "manylinux_2_28_x86_64", tmp_path / "out")
    assert path.name == "flambeau-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path) as made:
        assert made.read("flambeau/native/prebuilt/v3.so") == b"\x7fELF"
        said = made.read("flambeau-1.0.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in said and "Tag: py3-none-manylinux_2_28_x86_64" in said and "none-any" not in said
        record = made.read("flambeau-1.0.dist-info/RECORD").decode().splitlines()
        assert {line.split(",")[0] for line in record} == set(made.namelist())
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
        assert f"flambeau/__init__.py,sha256={digest},6" in record


def test_the_tag_says_which_glibc_is_needed(wheels, tmp_path):
    library = tmp_path / "some.so"
    library.write_bytes(b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.14\0GLIBC_2.27\0not_GLIBC_2.99x\0")
    assert wheels.glibc_needed(library) == (2, 27)


# ------------------------------------------------------------------------------------------------- without a compiler
def small_set(wheels, folder: Path) -> None:
    """A folder like the wheel's, for this processor, with a few of the requests."""
    wanted = [r for r in wheels.requests(True) if r[1] in ("runtime", "calls", "scan") or (
        r[1] == "pointwise" and r[0].startswith(("// exp(a)\n", "// a + b\n")) and "typedef float T" in r[0])]
    machine = os.uname().machine
    level = prebuilt.levels(machine, prebuilt.features())[-1]
    made_for = wheels.Target(machine, ("gcc",), ("gcc",), True)
    objects = wheels.compile_all(made_for, level, wanted, folder / "objects")
    wheels.link(made_for, objects, folder / f"{level}.so")
    manifest = {"sources": prebuilt.sources_digest(toolchain.FLAGS), "levels": [level], "in_parts": True, "compiler": "gcc",
                "keys": [prebuilt.key(source, extra) for source, _, extra in wanted]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


PROGRAM = """
import json, sys, warnings
warnings.simplefilter("error")
import flambeau
from flambeau import native
from flambeau.native import toolchain
x = flambeau.linspace(-3, 3, 100_000).reshape(100, 1000)
y = (x.exp() + x).cumsum(1)
said = []
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    double = flambeau.compile(lambda x: x * 2)
    assert double(x).equal(x * 2) and double(x).equal(x * 2)
    said = [str(w.message) for w in seen]
import os
print(json.dumps({"compiler": toolchain.compiler(), "native": native.library("scan") is not None, "said": said,
                  "built": len(os.listdir(os.environ["FLAMBEAU_CACHE"])), "sum": float(y.numpy().sum())}))
"""


def test_eager_mode_needs_no_compiler_and_compile_says_what_to_install(wheels, tmp_path):
    if not toolchain.is_gcc() or not prebuilt.levels(os.uname().machine, prebuilt.features()):
        pytest.skip("needs GCC, on a processor that wheels are built for")
    small_set(wheels, tmp_path)
    for name in ("empty", "cache"):
        (tmp_path / name).mkdir()

    def run(folder: str) -> dict:
        env = {**os.environ, "PATH": str(tmp_path / "empty"), "FLAMBEAU_CC": "", "CC": "", "FLAMBEAU_MARCH": "",
               "FLAMBEAU_PREBUILT": folder, "FLAMBEAU_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
        program = PROGRAM if folder != "0" else PROGRAM.replace('simplefilter("error")', 'simplefilter("ignore")')
        done = subprocess.run([sys.executable, "-c", "import sys; sys.modules['ziglang'] = None\n" + program],
                              capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    found = run(str(tmp_path))
    assert found["compiler"] is None and found["native"] and found["built"] == 0
    assert len(found["said"]) == 1 and "pip install ziglang" in found["said"][0] and "compile runs eagerly" in found["said"][0]
    without = run("0")
    assert not without["native"] and found["sum"] == pytest.approx(without["sum"], rel=1e-5)
