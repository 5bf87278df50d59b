"""Building and keeping native code when things go wrong: no compiler, a broken one, a bad cache folder, several processes."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import flambeau

HOME = Path(flambeau.__file__).parent.parent
STEP = """
import warnings
warnings.simplefilter("always")
import flambeau as torch
w = torch.ones(3, requires_grad=True)

@torch.compile
def f(x):
    w.grad = None
    loss = (x * w + 1).tanh().sum()
    loss.backward()
    return loss

found = [round(f(torch.arange(3.0)).item(), 4) for _ in range(4)]
assert found == [round(torch.tensor([1.0, 2.0, 3.0]).tanh().sum().item(), 4)] * 4, found
assert w.grad.shape == (3,)
print("programs", sum(map(len, f._compiled.plans.values())))
"""

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler to play with")


def environment(**changes):
    """This process's environment without what steers the compiler (but the CPU it builds for), plus changes."""
    names = {k: v for k, v in os.environ.items() if k == "FLAMBEAU_MARCH" or (not k.startswith("FLAMBEAU_") and k != "CC")}
    names["PYTHONPATH"] = str(HOME)
    names.update({k: str(v) for k, v in changes.items()})
    return names


def started(path, code, **changes):
    """A process that runs code from a file: what cannot be read again cannot be compiled as a whole."""
    path.write_text(code)
    return subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**changes))


def python(code, limit=None, **changes):
    """Runs code in a process of its own; returns what it printed and what it said on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(code)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, preexec_fn=limit,
                              env=environment(**changes))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def warnings_in(text):
    return text.count("Warning: ")


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder in which the step has been built once."""
    folder = tmp_path_factory.mktemp("caches") / "warm"
    out, err = python(STEP, FLAMBEAU_CACHE=folder)
    assert "programs 1" in out and not warnings_in(err), err
    return folder


def test_the_folder_is_private_and_where_it_was_asked_for(cache):
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    libraries = list(cache.glob("*.so"))
    assert libraries and all(p.with_suffix(".sum").exists() for p in libraries)
    assert not list(cache.glob("build-*"))


def test_default_place_and_xdg(tmp_path):
    code = "from flambeau.native import toolchain; print(toolchain.folder())"
    assert python(code, HOME=tmp_path, XDG_CACHE_HOME="")[0].strip() == str(tmp_path / ".cache" / "flambeau")
    assert python(code, HOME=tmp_path, XDG_CACHE_HOME=tmp_path / "x")[0].strip() == str(tmp_path / "x" / "flambeau")


def test_a_warm_cache_needs_no_compiler_run(tmp_path):
    log = tmp_path / "log"
    log.write_text("")
    cc = script(tmp_path / "logging-cc", f'echo "$@" >> {log}\nexec cc "$@"\n')
    for _ in range(2):
        before = log.read_text().count("-shared")
        out, err = python(STEP, FLAMBEAU_CC=cc, FLAMBEAU_CACHE=tmp_path / "cache")
        assert "programs 1" in out and not warnings_in(err)
    assert before >= 2 and log.read_text().count("-shared") == before


@pytest.mark.parametrize("how,said", [
    ("echo the disk of dreams is full >&2; exit 1\n", "the disk of dreams is full"),
    ("kill -SEGV $$\n", "failed with status"),
    ('while [ $# -gt 1 ]; do [ "$1" = -o ] && echo garbage > "$2"; shift; done; exit 0\n', "could not be"),
    ("exit 0\n", "failed with status 0"),
])
def test_a_compiler_that_fails(tmp_path, how, said):
    """One clear message with the compiler's own words, and eager results."""
    cc = script(tmp_path / "bad-cc", f'[ "$1" = --version ] && echo bad && exit 0\n{how}')
    out, err = python(STEP, FLAMBEAU_CC=cc, FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 0" in out
    assert said in err and "runs eagerly" in err
    assert err.count("runs eagerly") == 1 and "Traceback" not in err
    assert not list((tmp_path / "cache").glob("*.so")) or "garbage" in how


def test_a_compiler_that_is_not_there(tmp_path):
    """FLAMBEAU_CC names nothing: the others are asked."""
    assert "programs 1" in python(STEP, FLAMBEAU_CC="/no/such/compiler", FLAMBEAU_CACHE=tmp_path / "cache")[0]


def test_no_compiler_at_all(tmp_path):
    code = "import sys\nsys.modules['ziglang'] = None\n" + STEP  # which would bring one
    code += "import flambeau.nn.functional as F\nprint(F.softmax(torch.ones(1000, 100), 1)[0, 0].item())\n"
    out, err = python(code, PATH="/nonexistent", FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 0" in out
    assert warnings_in(err) == 1 and err.count("no C compiler") == 1, err


def test_native_code_switched_off(tmp_path):
    out, err = python(STEP, FLAMBEAU_NATIVE="0", FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 0" in out and not warnings_in(err), err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("place", ["/dev/null/cache", "/sys"])
def test_a_folder_that_cannot_be_written_to(place):
    out, err = python(STEP, FLAMBEAU_CACHE=place)
    assert "programs 1" in out
    assert err.count("cannot keep compiled code") == 1 and "FLAMBEAU_CACHE" in err, err


@pytest.mark.skipif(hasattr(os, "getuid") and os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    out, err = python(STEP, FLAMBEAU_CACHE=tmp_path)
    assert "programs 1" in out and "cannot keep compiled code" in err


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 12345, 12345)
    out, err = python(STEP, FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 1" in out and "belongs to another user" in err
    assert not list((tmp_path / "cache").iterdir())


def test_a_folder_that_others_may_write_to(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    out, _ = python(STEP, FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 1" in out
    assert not (tmp_path / "cache").stat().st_mode & 0o022


def test_a_full_disk(tmp_path):
    code = f"""
import os
replace = os.replace
def full(a, b):
    if str(b).startswith({str(tmp_path)!r}):
        raise OSError(28, "No space left on device")
    return replace(a, b)
os.replace = full
""" + STEP
    out, err = python(code, FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 1" in out and "No space left" in err and "Traceback" not in err
    assert not list((tmp_path / "cache").glob("*.so"))


def test_files_that_may_not_grow(tmp_path):
    """The compiler itself runs out of space: its message, and eager results."""
    import resource
    out, err = python(STEP, FLAMBEAU_CACHE=tmp_path / "cache",
                      limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert "programs 0" in out and err.count("runs eagerly") == 1 and "Traceback" not in err


@pytest.mark.parametrize("damage", ["garbage", "truncated", "without sum"])
def test_damaged_files_are_built_again(cache, tmp_path, damage):
    folder = tmp_path / "cache"
    shutil.copytree(cache, folder)
    for path in folder.glob("*.so"):
        data = path.read_bytes()
        if damage == "without sum":
            path.with_suffix(".sum").unlink()
        else:
            path.write_bytes(b"not a library" if damage == "garbage" else data[:len(data) // 2])
    out, err = python(STEP, FLAMBEAU_CACHE=folder)
    assert "programs 1" in out and not warnings_in(err), err
    for path in cache.glob("*.so"):
        assert (folder / path.name).stat().st_size == path.stat().st_size


def test_three_processes_build_the_same_at_once(tmp_path):
    runs = [started(tmp_path / f"step{n}.py", STEP, FLAMBEAU_CACHE=tmp_path / "cache") for n in range(3)]
    for run in runs:
        out, err = run.communicate()
        assert run.returncode == 0 and "programs 1" in out and not warnings_in(err), err
    assert not list((tmp_path / "cache").glob("build-*"))


def test_another_compiler_has_files_of_its_own(cache, tmp_path):
    folder = tmp_path / "cache"
    shutil.copytree(cache, folder)
    cc = script(tmp_path / "other-cc", 'exec cc "$@"\n')
    assert "programs 1" in python(STEP, FLAMBEAU_CC=cc, FLAMBEAU_CACHE=folder)[0]
    assert len(list(folder.glob("*.so"))) == 2 * len(list(cache.glob("*.so")))


def test_debug_prints_the_c_with_the_users_lines(cache, tmp_path):
    run = started(tmp_path / "mystep.py", STEP, FLAMBEAU_CACHE=cache, FLAMBEAU_DEBUG="c")
    _, err = run.communicate()
    assert run.returncode == 0, err
    line = 1 + STEP.splitlines().index("    loss = (x * w + 1).tanh().sum()")
    assert f"mystep.py:{line}" in err and "long program(" in err and "for (long" in err
    run = started(tmp_path / "mystep.py", STEP, FLAMBEAU_CACHE=cache)
    assert "mystep.py" not in run.communicate()[1]


def test_a_forked_child():
    """The child of a fork runs native kernels and compiled functions, with threads in the parent."""
    code = STEP + """
import os
torch.set_num_threads(2)
big = torch.linspace(-1, 1, 400_000).view(400, 1000)
g = torch.compile(lambda x: (x * 2).exp().sum(1))

def work():
    return [round(v, 3) for v in (torch.softmax(big, 1).exp().sum().item(), (big @ big.t()).sum().item(), g(big).sum().item(),
                                  f(torch.arange(3.0)).item())]
expected = work()
work()
pid = os.fork()
if pid == 0:
    os._exit(0 if all(abs(a - b) < 1e-3 * abs(b) + 0.5 for a, b in zip(work(), expected)) else 3)
_, status = os.waitpid(pid, 0)
assert status == 0, status
work()
"""
    assert "programs 1" in python(code)[0]


def test_a_compiled_function_in_workers_of_a_data_loader(cache):
    code = """
import flambeau as torch
from flambeau.utils.data import DataLoader, Dataset
f = torch.compile(lambda x: x * 2 + 1)
f(torch.ones(3))
class Data(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return f(torch.full((3,), float(i)))
if __name__ == "__main__":
    got = [b[:, 0].tolist() for b in DataLoader(Data(), batch_size=2, num_workers=2)]
    assert got == [[1, 3], [5, 7], [9, 11]], got
    print("fine")
"""
    assert "fine" in python(code, FLAMBEAU_CACHE=cache)[0]


# ---------------------------------------------------------------------------------------------- parts, and several at a time
LARGE = """
import sys, warnings
warnings.simplefilter("always")
import flambeau as torch
from flambeau import nn
F = nn.functional
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.memory, self.norm = nn.Embedding(9, 64), nn.GRU(64, 64, batch_first=True), nn.LayerNorm(64)
        self.first, self.last = nn.Linear(64, 96), nn.Linear(32, 11)

    def forward(self, i):
        x = F.dropout(self.norm(self.memory(self.table(i))[0]), 0.3)
        q, k, v = [y.view(4, 40, 2, 16).transpose(1, 2) for y in F.gelu(self.first(x)).chunk(3, -1)]
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(4, 40, 32)
        x = F.max_pool1d(F.softmax(x, -1).cumsum(1), 2)
        return self.last(x.repeat(1, 1, 2))

net = Net()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
i, target = torch.arange(160).view(4, 40) % 9, torch.arange(160) % 11

def step(i, target):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(i).view(160, 11), target)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss

if sys.argv[1] == "eager first":
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    step(i, target)
    net.load_state_dict(kept)
    optimizer.__setstate__(torch.optim.RMSprop(net.parameters(), lr=1e-3).__getstate__())
    net.zero_grad()
torch.manual_seed(1)
compiled = torch.compile(step)
print(*[compiled(i, target).item() for _ in range(4)], sum(map(len, compiled._compiled.plans.values())))
"""


def run_large(tmp_path, how, **changes):
    """The losses of the large step, how many programs it made, and the libraries it left behind."""
    path = tmp_path / "large.py"
    path.write_text(LARGE)
    folder = tmp_path / how.replace(" ", "-")
    done = subprocess.run([sys.executable, path, how], capture_output=True, text=True,
                          env=environment(FLAMBEAU_CACHE=folder, **changes))
    assert done.returncode == 0 and not warnings_in(done.stderr), done.stderr
    *losses, count = done.stdout.split()
    return [float(x) for x in losses], int(count), sorted(p.name for p in folder.glob("*.so"))


def test_what_numpy_did_while_captured_gives_the_same_program(tmp_path):
    """Nothing is built while a call is captured; kernels on NumPy draw and keep what native ones do."""
    cold, count, made = run_large(tmp_path, "cold")
    after, _, all_made = run_large(tmp_path, "eager first")
    assert count == 1 and cold == pytest.approx(after, rel=1e-5)
    assert {n for n in made if n.startswith("step-")} == {n for n in all_made if n.startswith("step-")}
    assert any(n.startswith("pointwise-") for n in all_made) and not any(n.startswith("pointwise-") for n in made)


def test_exact_mode_keeps_every_bit_of_the_first_call_too(tmp_path):
    """It does not wait: the first call, which is captured, rounds as native kernels do."""
    code = """
import flambeau as torch
x = torch.linspace(-3, 3, 35000).view(500, 70).clone()
f = lambda x: (x.exp().sum(), x.softmax(1), torch.nn.functional.gelu(x), torch.nn.functional.layer_norm(x, (70,)))
first = torch.compile(f, mode="exact")(x)
assert all(torch.equal(a, b) for a, b in zip(first, f(x)))
"""
    python(code, FLAMBEAU_CACHE=tmp_path / "cache")


def test_a_program_builds_only_what_it_uses():
    code = STEP + """
from flambeau import native
f(torch.ones(3000, 300))
made = native.library("reduce")
print("built", sorted(n for n in made.signatures if n in vars(made)))
torch.ones(3000, 300, dtype=torch.float64).sum()
print("built", sorted(n for n in made.signatures if n in vars(made)))
"""
    code = code.replace("w = torch.ones(3,", "w = torch.ones(1,").replace("assert w.grad", "assert 1 or w.grad").replace(
        "assert found", "assert 1 or found")
    assert [line for line in python(code)[0].splitlines() if line.startswith("built")] == [
        "built ['fl_sum_f32']", "built ['fl_sum_f32', 'fl_sum_f64']"]


@pytest.mark.skipif(not shutil.which("clang"), reason="there is no clang")
def test_clang(tmp_path):
    code = STEP + "x = torch.arange(9e4).view(300, 300)\nprint(x.sum().item(), (x @ x).shape, x.softmax(1).sum().item())\n"
    out, err = python(code, FLAMBEAU_CC="clang", FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 1" in out and not warnings_in(err), err


def test_other_compilers_build_whole_sources(tmp_path):
    """Dropping the other parts is GCC's art."""
    cc = script(tmp_path / "not-gcc", '[ "$1" = --version ] && echo another compiler && exit 0\nexec cc "$@"\n')
    code = """
import flambeau as torch
from flambeau import native
assert torch.ones(300, 300).sum().item() == 90000 and torch.nn.LSTM(8, 8)(torch.ones(20, 3, 8))[0].shape == (20, 3, 8)
made = native.library("reduce")
assert all(n in vars(made) for n in made.signatures)
"""
    python(code, FLAMBEAU_CC=cc, FLAMBEAU_CACHE=tmp_path / "cache")
    names = [path.name.partition("-")[0] for path in (tmp_path / "cache").glob("*.so")]
    assert len(names) == len(set(names)) and {"runtime", "reduce", "rnn", "gemm"} <= set(names)


def test_every_function_belongs_to_one_part():
    from flambeau import native
    from flambeau.native import toolchain
    for path in toolchain.HERE.glob("*.c"):
        source = path.read_text()
        parts = native.parts(source)
        assert sorted(f for part in parts for f in part) == sorted(native.signatures(source))
        assert all(len({f.endswith("_f64") for f in part}) == 1 for part in parts)


def test_parts_run_on_our_threads(tmp_path):
    """A part that found no GOMP_parallel among its own functions would bring GCC's OpenMP library with it."""
    code = "import flambeau as torch\nx = torch.ones(300, 300)\ntorch.softmax(x @ x, 1).sum()\n"
    python(code, FLAMBEAU_CACHE=tmp_path / "cache")
    libraries = list((tmp_path / "cache").glob("*.so"))
    assert len(libraries) >= 4 and not any(b"libgomp" in p.read_bytes() for p in libraries)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_program_is_built_with_its_kernels_at_the_same_time(tmp_path):
    """A build waits for another one beside it, a minute at most."""
    log = tmp_path / "log"
    cc = script(tmp_path / "sociable-cc", f"""[ "$1" = --version ] || [ -z "$ALONE_NO_MORE" ] && exec cc "$@"
echo + >> {log}
n=0
while [ $(grep -c + {log}) -lt 2 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
cc "$@"; r=$?
echo - >> {log}
exit $r
""")
    code = "import os\nos.environ['ALONE_NO_MORE'] = '1'\n" \
           "torch.compile(lambda x: torch.softmax(x @ x, 1).cumsum(0))(torch.ones(70, 70))"
    python(STEP + code, FLAMBEAU_CACHE=tmp_path / "cache", FLAMBEAU_CC=cc)
    assert log.read_text().split()[:2] == ["+", "+"]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="about registers of x86")
def test_code_without_avx_leaves_long_doubles_alone():
    """GCC 12 takes words through MMX registers in such code, after which long doubles are NaN."""
    code = """
import numpy as np, flambeau as torch
a, b = torch.rand(3, 5, 2, 9), torch.rand(3, 5, 2, 9)
f = torch.compile(lambda a, b: (((a - b) * a).amax(), (a * b).exp().amax(), (a - 2 * b).amax()))
for _ in range(3):
    f(a, b)
assert np.sum(np.full(1000, 2, np.longdouble)) == 2000
"""
    python(code, FLAMBEAU_MARCH="x86-64-v2")


def test_one_of_several_builds_fails(tmp_path):
    """Its message, eager results, and nothing left behind."""
    cc = script(tmp_path / "picky-cc", 'for a; do case "$a" in */source.c) grep -q "long program(" "$a" && '
                                       '{ echo I do not like programs >&2; exit 1; };; esac; done\nexec cc "$@"\n')
    out, err = python(STEP, FLAMBEAU_CC=cc, FLAMBEAU_CACHE=tmp_path / "cache")
    assert "programs 0" in out and err.count("runs eagerly") == 1 and "I do not like programs" in err and "Traceback" not in err
    assert not list((tmp_path / "cache").glob("build-*"))


# ------------------------------------------------------------------------------------------------------- keeping it small
def libraries(folder, ages):
    """Files that look like libraries of 100 kB, last used so many hours ago."""
    folder.mkdir(exist_ok=True)
    for n, hours in enumerate(ages):
        path = folder / f"old-{n:032x}.so"
        path.write_bytes(bytes(100_000))
        path.with_suffix(".sum").write_text("?")
        os.utime(path, (time.time() - 3600 * hours,) * 2)


def left(folder):
    return sorted(int(p.stem[4:], 16) for p in folder.glob("old-*.so"))


def test_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    from flambeau.native import toolchain
    libraries(tmp_path, [5, 1, 9, 3, 0, 7])
    (tmp_path / "notes.so").write_bytes(bytes(10**6))  # not ours
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "0.6")
    toolchain.prune(tmp_path)
    assert left(tmp_path) == [0, 1, 2, 3, 4, 5]
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "0.5")
    toolchain.prune(tmp_path)
    assert left(tmp_path) == [1, 3, 4] and len(list(tmp_path.glob("*.sum"))) == 3
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "0")
    toolchain.prune(tmp_path)
    assert left(tmp_path) == [4]  # another process may be about to load it
    assert (tmp_path / "notes.so").exists()


def test_remains_of_builds_that_were_killed_go_too(tmp_path):
    from flambeau.native import toolchain
    for name, hours in (("build-old", 5), ("build-new", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "source.c").touch()
        os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
    toolchain.prune(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["build-new"]


def test_a_build_makes_room_and_a_use_counts(cache, tmp_path):
    folder = tmp_path / "cache"
    shutil.copytree(cache, folder)
    for path in folder.glob("*.so"):
        os.utime(path, (time.time() - 3600 * 24,) * 2)
    libraries(folder, range(1, 9))
    assert "programs 1" in python(STEP, FLAMBEAU_CACHE=folder, FLAMBEAU_CACHE_LIMIT=0)[0]
    used = {path.name for path in folder.glob("*.so") if path.stat().st_mtime > time.time() - 600}
    assert len(used) >= 2 and len(left(folder)) == 8  # nothing was built
    other = STEP.replace("+ 1", "+ 1.0").replace("tanh", "sigmoid")
    assert "programs 1" in python(other, FLAMBEAU_CACHE=folder, FLAMBEAU_CACHE_LIMIT=0)[0]
    assert len(left(folder)) == 8  # the folder was looked after when the first of its libraries was built
    os.utime(folder / "pruned", (time.time() - 3600 * 24,) * 2)
    out, err = python(other.replace("sigmoid", "sin"), FLAMBEAU_CACHE=folder, FLAMBEAU_CACHE_LIMIT=0)
    assert "programs 1" in out and not warnings_in(err)
    assert not left(folder) and used <= {path.name for path in folder.glob("*.so")}


def test_several_processes_make_room_at_once(cache, tmp_path):
    folder = tmp_path / "cache"
    libraries(folder, range(1, 200))
    code = STEP.replace("+ 1", "+ {}").replace("assert found", "assert 1 or found")
    runs = [started(tmp_path / f"step{n}.py", code.format(n), FLAMBEAU_CACHE=folder, FLAMBEAU_CACHE_LIMIT=0)
            for n in range(3)]
    for run in runs:
        out, err = run.communicate()
        assert run.returncode == 0 and "programs 1" in out and not warnings_in(err), err
    assert not left(folder)
