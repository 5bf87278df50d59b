"""How processes find one another: stores, addresses, launchers."""

import datetime
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch.distributed

import flambeau
import flambeau.distributed
from flambeau.distributed.mpi.pmi import node_map
from flambeau.distributed.rendezvous import first_host, rendezvous, slurm

SECOND = datetime.timedelta(seconds=1)


def stores(m, tmp_path):
    d = m.distributed
    yield "hash", d.HashStore()
    yield "file", d.FileStore(str(tmp_path / f"{m.__name__}-store"), 1)
    yield "tcp", d.TCPStore("localhost", 0, 1, True)
    yield "prefix", d.PrefixStore("a", d.PrefixStore("b", d.HashStore()))


@pytest.mark.parametrize("m", [flambeau, torch], ids=["flambeau", "torch"])
def test_stores(m, tmp_path):
    for name, store in stores(m, tmp_path):
        store.set("key", "value")
        assert store.get("key") == b"value"
        store.set("key", b"\x00\xff")
        assert store.get("key") == b"\x00\xff" and store.check(["key"]) and not store.check(["key", "other"])
        assert (store.add("count", 2), store.add("count", 3), store.add("count", -1)) == (2, 5, 4)
        assert store.get("count") == b"4"
        if name != "file":
            assert store.compare_set("fresh", "", "first") == b"first"
            assert store.compare_set("fresh", "wrong", "second") == b"first"
            assert store.compare_set("fresh", "first", "second") == b"second"
            assert store.compare_set("absent", "something", "new") == b"something"
        if name != "prefix":
            assert store.num_keys() >= 2
        assert store.delete_key("key")
        if (name, m) != ("file", torch):
            assert not store.delete_key("key")
        store.set_timeout(SECOND / 20)
        assert store.timeout == SECOND / 20
        wrong = RuntimeError if (name, m) == ("file", torch) else m.distributed.DistStoreError
        with pytest.raises(wrong):
            store.get("never")
        with pytest.raises(wrong):
            store.wait(["never"], SECOND / 20)
        for wrong_kind in (lambda: store.set("key", 2), lambda: store.set(1, "a"), lambda: store.get(1),
                           lambda: store.wait("abc")):
            with pytest.raises(TypeError):
                wrong_kind()


@pytest.mark.parametrize("m", [flambeau, torch], ids=["flambeau", "torch"])
def test_queues_and_names_of_keys(m, tmp_path):
    for name, store in stores(m, tmp_path):
        store.set_timeout(SECOND / 20)
        if name == "file":
            with pytest.raises(NotImplementedError):
                store.queue_push("queue", "1")
            continue
        store.queue_push("queue", "1")
        store.queue_push("queue", b"")
        assert [store.queue_len("queue"), store.queue_pop("queue"), store.queue_pop("queue")] == [2, b"1", b""]
        assert store.queue_len("queue") == store.queue_len("other") == 0
        with pytest.raises(m.distributed.QueueEmptyError):
            store.queue_pop("queue", False)
        with pytest.raises(m.distributed.DistStoreError):
            store.queue_pop("queue")
        store.set("key", "1")
        assert "key" in store.list_keys() and not any(k.startswith("a/") for k in store.list_keys())


def test_a_server_knows_its_own_commands_only():
    store = flambeau.distributed.TCPStore("localhost", 0, 1, True)
    with pytest.raises(flambeau.distributed.DistStoreError, match="knows no command"):
        store._do("__init__")


def test_waiting_for_another_thread(tmp_path):
    for _, store in stores(flambeau, tmp_path):
        threading.Timer(0.05, lambda s=store: s.set("late", "1")).start()
        store.wait(["late"], 20 * SECOND)
        assert store.get("late") == b"1"


def test_clients_of_a_tcp_store():
    d = flambeau.distributed
    server = d.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    clients = [d.TCPStore("localhost", server.port, is_master=False) for _ in range(3)]
    threads = [threading.Thread(target=lambda c=c: [c.add("n", 1) for _ in range(50)]) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.append("list", "a")
    clients[0].append("list", "b")
    clients[1].multi_set(["x", "y"], ["1", "2"])
    assert server.get("n") == b"150" and server.get("list") == b"ab" and server.multi_get(["x", "y"]) == [b"1", b"2"]
    assert server.add("big", 0) == 0 and clients[2].compare_set("big", "0", "x" * 200_000) == b"x" * 200_000


def test_a_store_that_is_not_there():
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(flambeau.distributed.DistNetworkError, match=f"{port}"):
        flambeau.distributed.TCPStore("localhost", port, timeout=SECOND / 10)
    with socket.create_server(("", 0)) as taken, pytest.raises(flambeau.distributed.DistNetworkError, match="listen"):
        flambeau.distributed.TCPStore("localhost", taken.getsockname()[1], is_master=True)


def test_a_stranger_at_the_port():
    """Whatever is sent to the port, the store goes on."""
    server = flambeau.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with socket.create_connection(("localhost", server.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(5)
        assert stranger.recv(100) == b""
    server.set("a", "b")
    assert server.get("a") == b"b"


def test_addresses(monkeypatch, tmp_path):
    store, rank, size = next(rendezvous(f"file://{tmp_path}/f?rank=1&world_size=3"))
    assert (rank, size) == (1, 3) and isinstance(store, flambeau.distributed.FileStore)
    for url, wrong in {"tcp://localhost:1?rank=0": "world size parameter missing",
                       "tcp://localhost?rank=0&world_size=1": "port", "file://?rank=0&world_size=1": "path missing"}.items():
        with pytest.raises(ValueError, match=wrong):
            next(rendezvous(url))
    with pytest.raises(RuntimeError, match="No rendezvous handler"):
        rendezvous("pigeon://roof")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="environment variable RANK expected"):
        next(rendezvous("env://"))
    with pytest.raises(ValueError, match="MASTER_ADDR"):
        next(rendezvous("env://", 0, 2))
    flambeau.distributed.register_rendezvous_handler("own", lambda url, **options: iter([("a store", 2, 5)]))
    assert next(rendezvous("own://anything")) == ("a store", 2, 5)


def test_slurm(monkeypatch):
    for name, value in {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "12345", "SLURM_LOCALID": "1",
                        "SLURM_STEP_NODELIST": "gpu[003-004,9],other"}.items():
        monkeypatch.setenv(name, value)
    assert slurm() == {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu003", "MASTER_PORT": "32345"}


@pytest.mark.parametrize("nodes,first", [("a", "a"), ("a,b", "a"), ("n[1,3]", "n1"), ("rack[01-04]-ib,x", "rack01-ib")])
def test_the_first_of_slurms_nodes(nodes, first):
    assert first_host(nodes) == first


def test_the_map_of_nodes():
    assert node_map(["a", "a", "b", "b"]) == "(vector,(0,1,2),(1,1,2))"
    assert node_map(["a", "b", "a"]) == "(vector,(0,1,1),(1,1,1),(0,1,1))"


def test_one_process_needs_no_mpi():
    code = ("import sys, flambeau.distributed as d; d.init_process_group('gloo', rank=0, world_size=1); d.barrier(); "
            "print('mpi4py' in sys.modules)")
    environment = {k: v for k, v in os.environ.items() if k not in ("MASTER_ADDR", "RANK")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "False", done.stderr


# ------------------------------------------------------------------------------------------------------------- launchers
PROGRAM = r"""
import os, flambeau as f, flambeau.distributed as d
d.init_process_group(os.environ.get("BACKEND", "mpi"), os.environ.get("ADDRESS"), rank=int(os.environ.get("GIVEN_RANK", -1)),
                     world_size=int(os.environ.get("GIVEN_SIZE", -1)))
x = f.ones(2) * (d.get_rank() + 1)
d.all_reduce(x)
os.write(1, f"rank {d.get_rank()} of {d.get_world_size()} has {x.tolist()}\n".encode())
d.destroy_process_group()
d.init_process_group("gloo", os.environ.get("ADDRESS"), rank=d.get_rank() if d.is_initialized() else
                     int(os.environ.get("GIVEN_RANK", -1)), world_size=int(os.environ.get("GIVEN_SIZE", -1)))
d.all_reduce(x)
os.write(1, f"again {x.tolist()}\n".encode())
d.destroy_process_group()
"""


@pytest.fixture
def program(tmp_path):
    pytest.importorskip("mpi4py", reason="the extra 'mpi' is not installed")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def check(text, size):
    total = float(sum(range(1, size + 1)))
    for rank in range(size):
        assert f"rank {rank} of {size} has [{total}, {total}]" in text, text
    assert text.count(f"again [{total * size}, {total * size}]") == size, text


def free_port():
    with socket.create_server(("", 0)) as free:
        return str(free.getsockname()[1])


def together(commands, environments):
    """Runs several commands at once; all they print."""
    started = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **e})
               for c, e in zip(commands, environments)]
    try:
        return "".join(p.communicate(timeout=120)[0] for p in started)
    finally:
        for p in started:
            p.kill()


@pytest.mark.parametrize("how", ["tcp", "file", "env"])
def test_processes_that_only_have_an_address_in_common(program, tmp_path, how):
    port = free_port()
    said = [{"tcp": {"ADDRESS": f"tcp://localhost:{port}", "GIVEN_RANK": str(r), "GIVEN_SIZE": "2"},
             "file": {"ADDRESS": f"file://{tmp_path}/meet", "GIVEN_RANK": str(r), "GIVEN_SIZE": "2"},
             "env": {"RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}}[how]
            for r in range(2)]
    check(together([[sys.executable, program]] * 2, said), 2)


def test_under_slurm(program):
    port_of = 20000 + int(time.time()) % 20000  # the job's number decides about the port
    said = [{"SLURM_PROCID": str(r), "SLURM_NTASKS": "2", "SLURM_JOB_ID": str(port_of - 20000), "SLURM_LOCALID": str(r),
             "SLURM_STEP_NODELIST": "localhost"} for r in range(2)]
    check(together([[sys.executable, program]] * 2, said), 2)


def test_under_mpiexec(program):
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(mpiexec):
        pytest.skip("no mpiexec beside this Python")
    check(together([[mpiexec, "-n", "2", sys.executable, program]], [{}]), 2)


MIXED = """
import os
import flambeau as f, flambeau.distributed as d
from flambeau.distributed import nccl
nccl.library = lambda: type("played", (), {"available": True})  # nothing on a GPU is asked for
d.init_process_group("nccl")
try:
    d.new_group([d.get_rank()], backend="gloo", use_local_synchronization=True)
except RuntimeError as error:
    assert "which is started by all processes of the world" in str(error)
group = d.new_group([1, 0], backend="gloo")
x = f.ones(2) * (d.get_rank() + 1)
d.all_reduce(x, group=group)
alone = d.new_group([d.get_rank()], backend="gloo", use_local_synchronization=True)
d.all_reduce(x, group=alone)
os.write(1, f"sum {x.tolist()}\\n".encode())
d.destroy_process_group()
"""


def test_a_group_of_mpi_in_a_world_of_nccl(tmp_path):
    pytest.importorskip("mpi4py", reason="the extra 'mpi' is not installed")
    (tmp_path / "mixed.py").write_text(MIXED)
    launcher = [sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", "2"]
    text = together([[*launcher, str(tmp_path / "mixed.py")]], [{}])
    assert text.count("sum [3.0, 3.0]") == 2, text


def test_two_machines(program):
    """Two launchers, as on two machines, that number themselves."""
    port = free_port()
    command = [sys.executable, "-m", "flambeau.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "job", program]
    check(together([command] * 2, [{}] * 2), 4)


def test_options_of_the_launcher(tmp_path):
    script = tmp_path / "show.py"
    script.write_text("import os, sys\ne = os.environ\nprint(e['RANK'], e['GROUP_RANK'], e['ROLE_NAME'], sys.argv[1:])")
    done = subprocess.run([sys.executable, "-m", "flambeau.distributed.launch", "--use_env", "--standalone",
                           "--nproc_per_node=2", "--role", "worker", "-r", "3", "--log-dir", str(tmp_path / "logs"),
                           str(script),
                           "--lr", "1"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    written = sorted(p.read_text() for p in (tmp_path / "logs").rglob("stdout.log"))
    assert written == ["0 0 worker ['--lr', '1']\n", "1 0 worker ['--lr', '1']\n"]


def test_options_from_the_environment(monkeypatch):
    import signal

    from flambeau.distributed.agent import Agent
    from flambeau.distributed.run import config_from_args, parse_args
    from flambeau.distributed.stores import HashStore
    for name, value in {"NPROC_PER_NODE": "3", "VIRTUAL_LOCAL_RANK": "1", "SHUTDOWN_TIMEOUT": "4", "MAX_RESTARTS": "2",
                        "TEE": "0:3", "SIGNALS_TO_HANDLE": "SIGUSR1"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    plan = config_from_args(parse_args(["--max-restarts", "1", "x.py"]))
    assert (plan.workers, plan.max_restarts, plan.grace, plan.signals, plan.tee) == (3, 1, 4.0, [signal.SIGUSR1], {0: 3})
    told = Agent(plan, HashStore()).environment(2, "folder")
    assert (told["RANK"], told["LOCAL_RANK"], told["CUDA_VISIBLE_DEVICES"]) == ("2", "0", "6")


@pytest.mark.parametrize("options,message", [(["--nnodes", "1:4"], "a number of machines that changes"),
                                             (["--rdzv-conf", "a=b"], "--rdzv-conf"),
                                             (["--nproc-per-node", "x"], "expected a number"),
                                             (["--numa_binding", "node"], "--numa-binding node"),
                                             (["--logs-specs", "a"], "--logs-specs"),
                                             (["--event-log-handler", "a"], "handler a"),
                                             (["--duplicate-stdout-filters", "a"], "--duplicate-stdout-filters"),
                                             (["--signals-to-handle", "SIGNO"], "there is no signal 'SIGNO'")])
def test_options_that_are_refused(options, message):
    from flambeau.distributed.run import config_from_args, parse_args
    with pytest.raises((NotImplementedError, ValueError), match=message):
        config_from_args(parse_args([*options, "x.py"]))
