"""Training on several processes, started by the launcher as a user would: see parallel_checks.py for what is checked."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="several processes need mpi4py and an MPI")


def launch(processes, *command, timeout=600):
    """Runs a program in several processes; what it printed, if all ended well."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", str(processes),
                           *map(str, command)], env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_way_trains_as_one_process_does(processes):
    said = launch(processes, HERE / "parallel_checks.py")
    assert said.count(" holds ") >= 15, said


LOSSES = {"ddp_tutorial": [1.155946, 1.030666, 0.969161],  # PyTorch 2.13's own, under torchrun with two processes
          "fsdp_tutorial": [0.598567, 0.458447, 0.577322, 0.551617, 0.232450, 0.174682]}


@pytest.mark.parametrize("program", LOSSES)
def test_programs_written_for_pytorch(program, tmp_path):
    """`import torch` is flambeau in them, and nothing else is different."""
    said = launch(2, "-m", "flambeau", HERE / "programs_parallel" / f"{program}.py", tmp_path)
    assert said.count("done") == 2, said
    losses = [float(line.split()[-1]) for line in said.splitlines() if " loss " in line]
    assert losses == pytest.approx(LOSSES[program], abs=2e-6)
