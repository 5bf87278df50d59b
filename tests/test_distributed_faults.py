"""What happens to real jobs when something goes wrong: a rank dies, hangs, never comes, or does something else."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
import rank_programs as programs
from ranks import Ranks

pytest.importorskip("mpi4py", reason="the extra 'mpi' is not installed")
START = """
import os, sys, time, datetime, signal
import flambeau as f, flambeau.distributed as d
timeout = datetime.timedelta(seconds=float(os.environ.get("TIMEOUT", 60)))
d.init_process_group("mpi", timeout=timeout)
rank = d.get_rank()


def say(*words):  # in one piece: the ranks share the output
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())


x = f.ones(3)
d.all_reduce(x)
say("rank", rank, "begins")
"""


def launch(tmp_path, program, *options, workers=2, **environment):
    """Runs a program under the launcher; (exit code, output of all ranks and of the launcher, seconds)."""
    script = tmp_path / "program.py"
    script.write_text(START + textwrap.dedent(program))
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", str(workers),
                           *options, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, time.monotonic() - start


def ended_after(text):
    """Seconds from when a rank said that it fails to when the launcher was done (it says so itself)."""
    return float(re.search(r"AT (\S+)", text).group(1))


def test_a_job_that_ends_well(tmp_path):
    code, text, _ = launch(tmp_path, "d.all_reduce(x); say('sum', x.sum().item())", workers=4)
    assert code == 0 and text.count("sum 48.0") == 4, text


def test_a_job_without_native_code(tmp_path):
    """Where there is no compiler, Python waits itself."""
    code, text, _ = launch(tmp_path, """
        works = [d.all_reduce(x, async_op=True) for _ in range(3)]
        del works
        work = d.all_reduce(y := f.ones(1000), async_op=True)
        say("sum", work.get_future().wait()[0].sum().item())
        """, FLAMBEAU_NATIVE="0")
    assert code == 0 and text.count("sum 2000.0") == 2, text


FATE = {"raises": "raise ValueError('this is why')", "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
        "exits": "sys.exit(7)"}


@pytest.mark.parametrize("fate", FATE)
def test_a_rank_that_fails_ends_all(tmp_path, fate):
    """Within 5 seconds, though the others are waiting in a collective; with a code that is not 0 and the culprit's name."""
    code, text, _ = launch(tmp_path, f"""
        if rank == 1:
            say("AT", time.time())
            {FATE[fate]}
        d.all_reduce(x)
        say("too far")
        """)
    assert time.time() - ended_after(text) < 5
    assert code == {"raises": 1, "is killed": 128 + 9, "exits": 7}[fate] and "too far" not in text
    assert "rank 1 failed first" in text, text
    if fate == "raises":
        errors = re.findall(r"^\w*Error.*$", text, re.M)
        assert errors[0].startswith("ValueError: this is why"), text  # before what the others may have to say


def test_without_a_launcher_the_others_notice(tmp_path):
    """Two processes that only have addresses in common: the survivor raises, and names the dead rank."""
    script = tmp_path / "program.py"
    script.write_text(START + "if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\nstart = time.time()\n"
                              "try:\n    d.all_reduce(x)\nexcept RuntimeError as error:\n"
                              "    say('TOOK', time.time() - start, error)\n")
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
                                   "MASTER_PORT": str(port)}) for r in range(2)]
    text = ranks[0].communicate(timeout=60)[0]
    ranks[1].communicate(timeout=60)
    assert re.search(r"TOOK [0-4]\.\d+ .*rank 1 has ended without farewell", text), text


def test_a_rank_that_has_ended_in_peace_is_not_waited_for(tmp_path):
    code, text, _ = launch(tmp_path, """
        if rank == 0:
            d.all_reduce(x)
        """)
    assert code == 1 and "rank 1 has ended, and will not come" in text, text


def test_restarts(tmp_path):
    """All workers start anew; what they find on the disk is from the last attempt."""
    code, text, _ = launch(tmp_path, """
        path = os.path.join(os.path.dirname(__file__), f"step-{rank}")
        step = int(open(path).read()) if os.path.exists(path) else 0
        while step < 4:
            step += 1
            d.all_reduce(x)
            open(path, "w").write(str(step))
            if rank == 1 and step == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                raise ValueError("once")
        say("rank", rank, "done after restart", os.environ["TORCHELASTIC_RESTART_COUNT"])
        """, "--max-restarts", "1")
    assert code == 0 and text.count("done after restart 1") == 2 and "restart 1 of 1" in text, text


TRAINING = """
model = f.nn.Linear(4, 1)
optimizer = f.optim.Adam(model.parameters(), lr=0.05)
path, start = os.path.join(os.path.dirname(__file__), os.environ["NAME"]), 0
if os.path.exists(path):
    saved = f.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    start = saved["step"]
for step in range(start, 8):
    generator = f.Generator().manual_seed(100 * step + rank)
    data = f.randn(16, 4, generator=generator)
    loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        d.all_reduce(p.grad, op=d.ReduceOp.AVG)
    optimizer.step()
    d.all_reduce(loss := loss.detach(), op=d.ReduceOp.AVG)
    if rank == 0:
        f.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)
        say("loss of step", step, "is", loss.item().hex())
    d.barrier()
    if os.environ["NAME"] == "interrupted" and rank == 1 and step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_training_goes_on_after_a_restart_as_if_nothing_had_happened(tmp_path):
    """From the last checkpoint, on the same loss curve, to the last digit."""
    curves = {}
    for name in ("interrupted", "undisturbed"):
        code, text, _ = launch(tmp_path, "f.manual_seed(0)\n" + TRAINING, "--max-restarts", "1", NAME=name)
        assert code == 0, text
        curves[name] = dict(re.findall(r"loss of step (\d+) is (\S+)", text))
        assert ("restart 1 of 1" in text) == (name == "interrupted")
    assert len(curves["interrupted"]) == 8 and curves["interrupted"] == curves["undisturbed"]


def test_too_many_failures(tmp_path):
    code, text, _ = launch(tmp_path, "if rank == 0: raise ValueError('always')", "--max-restarts", "1")
    assert code == 1 and text.count("ValueError: always") >= 2 and "the job has failed" in text, text


@pytest.mark.parametrize("victim,said", [(1, "the launcher of machine 1 has ended"), (0, "The process that serves it has")])
def test_a_machine_that_is_gone_ends_the_others(tmp_path, victim, said):
    """Its launcher and its workers die at once; the other launcher ends, though it might restart its own."""
    script, there = tmp_path / "program.py", tmp_path / "there"
    script.write_text(f"{START}\nopen({str(there)!r} + str(rank), 'w').close()\nwhile True:\n    d.all_reduce(x)\n"
                      "    time.sleep(0.05)\n")
    with socket.create_server(("", 0)) as free:
        port = str(free.getsockname()[1])
    launchers = [subprocess.Popen([sys.executable, "-m", "flambeau.distributed.run", "--nnodes", "2", "--node-rank", str(node),
                                   "--master-addr", "localhost", "--master-port", port, "--max-restarts", "2", str(script)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
                 for node in range(2)]
    try:
        while not all((tmp_path / f"there{rank}").exists() for rank in range(2)):
            time.sleep(0.05)
            assert launchers[0].poll() is None
        os.killpg(launchers[victim].pid, signal.SIGKILL)
        text = launchers[1 - victim].communicate(timeout=60)[0]
        assert launchers[1 - victim].returncode == 1 and said in text, text
    finally:
        for launcher in launchers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)


def test_a_collective_that_hangs_names_the_ranks(tmp_path):
    _, text, _ = launch(tmp_path, """
        if rank == 1:
            time.sleep(4)
            sys.exit(0)
        try:
            d.all_reduce(f.ones(5))
        except RuntimeError as error:
            say(error)
        """, TIMEOUT="1")
    assert "Timed out after 1000 ms in all_reduce(torch.float32, 5, SUM), operation 2" in text, text
    assert "rank 1: last was all_reduce(torch.float32, 3, SUM), operation 1" in text, text


def test_a_rank_that_is_stopped_is_named(tmp_path):
    """SIGSTOP: it neither ends nor answers, and the launcher kills it after the others have raised."""
    code, text, _ = launch(tmp_path, """
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        d.all_reduce(f.ones(5))
        """, TIMEOUT="1")
    assert code == 1 and "rank 1: does not answer (it has ended, is stopped, or never came)" in text, text
    assert "rank 0 failed first" in text, text


def test_a_rank_that_never_comes_is_named(tmp_path):
    code = ("import datetime, flambeau.distributed as d; second = datetime.timedelta(seconds=1)\n"
            f"d.init_process_group('mpi', 'file://{tmp_path}/store', rank=0, world_size=3, timeout=second)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "missing: rank 1, 2" in done.stderr


# ------------------------------------------------------------------------------------------ ranks that do different things
@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    ranks = Ranks(2, tmp_path_factory.mktemp("rendezvous") / "store")
    yield ranks
    ranks.close()


# A call, and what rank 0 and rank 1 must hear.
DIFFERENT = {
    "number of elements": ("d.all_reduce(m.ones(2 + rank), group=g)", ["(torch.float32, 2, SUM", "(torch.float32, 3, SUM"]),
    "dtype": ("d.all_reduce(m.ones(4 - 2 * rank, dtype=[m.float32, m.float64][rank]), group=g)",
              ["torch.float32, 4", "torch.float64, 2"]),
    "operation": ("d.all_reduce(m.ones(2), group=g) if rank else d.broadcast(m.ones(2), 0, group=g)",
                  ["broadcast(torch.float32, 2, 0", "all_reduce("]),
    "reduction": ("d.all_reduce(m.ones(2), op=[d.ReduceOp.SUM, d.ReduceOp.MAX][rank], group=g)", ["SUM", "MAX"]),
    "root": ("d.broadcast(m.ones(2), rank, group=g)", ["2, 0", "2, 1"]),
    "members": ("d.new_group([rank])", ["new_group([0])", "new_group([1])"]),  # the last: it leaves the world at odds
}
MESSAGES = {
    "shorter": ("d.send(m.ones(3), 1, g) if rank == 0 else d.recv(m.ones(4), 0, g)", "sent 3 elements, expected 4"),
    "longer": ("d.send(m.ones(5), 1, g) if rank == 0 else d.recv(m.ones(4), 0, g)", "truncated"),
    "dtype": ("d.send(m.ones(2), 1, g) if rank == 0 else d.recv(m.ones(1).double(), 0, g)",
              "rank 0 sent a tensor of torch.float32, expected torch.float64"),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_messages_that_are_not_as_expected(pair, what):
    call, expected = MESSAGES[what]
    sender, receiver = pair(programs.differ, call)
    assert sender == "nothing" and expected in receiver


def test_pieces_that_do_not_fit(pair):
    answers = pair(programs.differ, "d.all_to_all_single(m.ones(4), m.ones(4), [2, 2], [1 + rank, 3 - rank], g)")
    assert "rank 0 sends 1 elements to rank 0, which expects 2" in answers[0]
    assert "rank 0 sends 3 elements to rank 1, which expects 2" in answers[1]


@pytest.mark.parametrize("what,careful", [(w, c) for w in DIFFERENT for c in (False, True) if c or w != "members"])
def test_differences_are_told_by_rank(pair, what, careful):
    call, expected = DIFFERENT[what]
    for answer in pair(programs.differ, call, careful):
        assert "ranks do different things" in answer
        assert re.search(f"rank 0: .*{re.escape(expected[0])}.*\n *rank 1: .*{re.escape(expected[1])}", answer), answer
