"""Training on several processes, started by the launcher as a user would: see parallel_checks.py for what is checked."""

import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="several processes need mpi4py and an MPI")


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1",
               "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])}


def launch(processes, *command, options=(), timeout=600):
    """Runs a program in several processes; what it printed, if all ended well."""
    done = subprocess.run([sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", str(processes),
                           *options, *map(str, command)], env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_way_trains_as_one_process_does(processes):
    said = launch(processes, HERE / "parallel_checks.py")
    assert said.count(" holds ") >= 15, said


def losses(said):
    """What is printed after the word, six digits of it: another process may print before the line ends."""
    return [float(number) for number in re.findall(r" loss (\d+\.\d{6})", said)]


LOSSES = {  # PyTorch 2.13's own, under torchrun with as many processes
    ("ddp_tutorial", 2): [1.155946, 1.030666, 0.969161],
    ("fsdp_tutorial", 2): [0.598567, 0.458447, 0.577322, 0.551617, 0.232450, 0.174682],
    ("tensor_parallel", 4): [3.361979, 3.122365, 3.086431, 3.083036, 2.904890, 2.694124]}


@pytest.mark.parametrize("program, processes", LOSSES)
def test_programs_written_for_pytorch(program, processes, tmp_path):
    """`import torch` is flambeau in them, and nothing else is different."""
    said = launch(processes, "-m", "flambeau", HERE / "programs_parallel" / f"{program}.py", tmp_path)
    assert said.count("done") == processes, said
    assert losses(said) == pytest.approx(LOSSES[program, processes], abs=2e-6)


def test_a_trainer_with_snapshots_goes_on_after_a_failure(tmp_path):
    """The losses are PyTorch's without a failure; here the second process fails after the third epoch."""
    said = launch(2, "-m", "flambeau", HERE / "programs_parallel" / "elastic_trainer.py", tmp_path / "snapshot.pt",
                  options=("--max-restarts", "1"))
    assert said.count("Resuming training from snapshot at Epoch 3") == 2 and said.count("done") == 2, said
    assert losses(said) == pytest.approx([0.460945, 0.190414, 0.289970, 0.137219, 0.182040], abs=2e-6)


def test_a_program_that_spawns_its_processes(tmp_path):
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run([sys.executable, "-m", "flambeau", HERE / "programs_parallel" / "spawn_ddp.py", str(port)],
                          env=ENVIRONMENT | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "done" in done.stdout, f"{done.stdout}\n{done.stderr}"
    assert losses(done.stdout) == pytest.approx([0.101458, 0.092951, 0.099869, 0.098755], abs=2e-6)  # PyTorch's
