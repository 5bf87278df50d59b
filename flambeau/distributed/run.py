"""`python -m flambeau.distributed.run --nproc-per-node 4 train.py`: a program in several processes, with torchrun's options.

On several machines run it on each, with --nnodes, --node-rank, --master-addr and --master-port; or with --rdzv-backend c10d and
--rdzv-endpoint host:port, and the machines number themselves.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import uuid
from typing import Any

from .agent import Agent, AgentGone, Plan, WorkersFailed
from .errors import DistError
from .stores import Store
from .tcp_store import TCPStore

# torchrun's options that are known by name and refused, and what they are where nobody gives them.
_REFUSED = {"--rdzv-conf": "", "--event-log-handler": "null", "--logs-specs": None, "--numa-binding": None,
            "--duplicate-stdout-filters": "", "--duplicate-stderr-filters": ""}
__all__ = ["config_from_args", "get_args_parser", "main", "parse_args", "run"]


def get_args_parser() -> argparse.ArgumentParser:
    """torchrun's options. What is not given is looked for in the environment, as $PET_NPROC_PER_NODE and the like."""
    parser = argparse.ArgumentParser(prog="python -m flambeau.distributed.run", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(*names: str, **options: Any) -> None:
        said = os.environ.get("PET_" + names[-1][2:].replace("-", "_").upper())
        if said is not None:
            options["default"] = said != "0" if options.get("action") == "store_true" else said
        parser.add_argument(*[form for name in names for form in dict.fromkeys((name, name[:2] + name[2:].replace("-", "_")))],
                            **options)

    add("--nnodes", default="1", help="number of machines")
    add("--nproc-per-node", default="1", help="processes on this machine: a number, or auto, gpu, cpu")
    add("--node-rank", type=int, default=0, help="this machine's number, from 0")
    add("--master-addr", default="127.0.0.1", help="address of machine 0")
    add("--master-port", type=int, default=29500, help="a free port of machine 0")
    add("--standalone", action="store_true", help="one machine, on a port that is free")
    add("--rdzv-backend", default="static", choices=["static", "c10d"], help="static: --master-addr; c10d: --rdzv-endpoint")
    add("--rdzv-endpoint", default="", help="host:port where the machines meet; they number themselves")
    add("--rdzv-id", default="none", help="a name for the job")
    add("--local-addr", default=None, help="this machine's address, where its name is not one")
    add("--max-restarts", type=int, default=0, help="how often all processes are started anew after one has failed")
    add("--monitor-interval", type=float, default=0.1, help="seconds between looks at the processes")
    add("--start-method", default="spawn", choices=["spawn"], help="fresh processes")
    add("--role", default="default", help="a name for the processes")
    add("--log-dir", default=None, help="folder for redirected output")
    add("-r", "--redirects", default="0", help="output into files: 1 stdout, 2 stderr, 3 both; 0:3,1:1 by rank")
    add("-t", "--tee", default="0", help="output into files and to the terminal, as --redirects")
    add("--local-ranks-filter", default="", help="show the output of these local ranks only: 0,2")
    add("-m", "--module", action="store_true", help="the program is a module, as with python -m")
    add("--signals-to-handle", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT", help="signals at which the launcher ends its processes")
    add("--shutdown-timeout", type=float, default=2.0, help="seconds that a process has to end before it is killed")
    add("--virtual-local-rank", action="store_true", help="each process sees one GPU, and LOCAL_RANK 0")
    for name, default in _REFUSED.items():
        add(name, default=default, help="not implemented")
    add("--no-python", action="store_true", help="the program is no Python file: run it as it is")
    add("--run-path", action="store_true", help="the same as without it: every process has an interpreter of its own")
    parser.add_argument("training_script", help="the program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    return get_args_parser().parse_args(args)


def _processes(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text not in ("auto", "gpu", "cpu"):
        raise ValueError(f"--nproc-per-node: expected a number, auto, gpu or cpu, got {text!r}")
    from ..cuda import device_count
    devices = 0 if text == "cpu" else device_count()
    if text == "gpu" and not devices:
        raise ValueError("--nproc-per-node gpu: there is no GPU")
    return devices or os.cpu_count() or 1


def _nodes(text: str) -> int:
    low, _, high = text.partition(":")
    if high and high != low:
        raise NotImplementedError(f"--nnodes {text}: a number of machines that changes is not implemented in flambeau; give "
                                  "one number")
    return int(low)


def _streams(text: str, workers: int) -> dict[int, int]:
    """By local rank, which output: 1 stdout, 2 stderr, 3 both."""
    if text.isdecimal():
        return dict.fromkeys(range(workers), int(text))
    return {int(rank): int(what) for rank, what in (pair.split(":") for pair in text.split(","))}


def _signals(text: str) -> list[int]:
    unknown = [name for name in text.split(",") if not hasattr(signal, name)]
    if unknown:
        raise ValueError(f"--signals-to-handle: there is no signal {unknown[0]!r}")
    return [getattr(signal, name) for name in text.split(",")]


def _command(args: argparse.Namespace) -> list[str]:
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return [args.training_script, *args.training_script_args]
    return [sys.executable, "-u", *(["-m"] if args.module else []), args.training_script, *args.training_script_args]


def config_from_args(args: argparse.Namespace) -> Plan:
    """What is to be started; address and number of this machine are settled when they meet."""
    for name, default in _REFUSED.items():
        if (given := getattr(args, name[2:].replace("-", "_"))) != default:
            raise NotImplementedError(f"{name} {given} is not implemented in flambeau")
    workers = _processes(args.nproc_per_node)
    shown = {int(r) for r in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    return Plan(_command(args), workers, _nodes(args.nnodes), args.node_rank, args.master_addr, args.master_port,
                args.rdzv_id, args.role, args.max_restarts, args.monitor_interval, args.log_dir,
                _streams(args.redirects, workers), _streams(args.tee, workers), shown, _signals(args.signals_to_handle),
                args.shutdown_timeout, args.virtual_local_rank)


def _is_here(host: str, local: str | None) -> bool:
    """Whether a host name is this machine's."""
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn(), local):
        return True
    try:
        own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        return bool(own & {info[4][0] for info in socket.getaddrinfo(host, None)})
    except OSError:
        return False


def _meet(args: argparse.Namespace, plan: Plan) -> Store:
    """The store of all agents; fills in where it is and which machine this is."""
    if args.standalone:
        if plan.nodes != 1:
            raise ValueError("--standalone is for one machine")
        plan.run_id = str(uuid.uuid4())
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        plan.address, plan.port, plan.node = "localhost", store.port, 0
        return store
    if not args.rdzv_endpoint:
        if not 0 <= plan.node < plan.nodes:
            raise ValueError(f"--node-rank {plan.node}: there are {plan.nodes} machines, numbered from 0")
        store = TCPStore(plan.address, plan.port, is_master=plan.node == 0, wait_for_workers=False)
        plan.port = store.port
        return store
    host, _, port = args.rdzv_endpoint.rpartition(":") if ":" in args.rdzv_endpoint else (args.rdzv_endpoint, ":", "29400")
    plan.address, store = host, None
    if _is_here(host, args.local_addr):
        try:
            store = TCPStore(host, int(port), is_master=True, wait_for_workers=False)
        except RuntimeError:  # another agent of this machine serves it
            pass
    store = store or TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    plan.port = store.port
    if args.rdzv_backend == "c10d":
        plan.node = store.add(f"nodes of {plan.run_id}", 1) - 1
        if plan.node >= plan.nodes:
            raise RuntimeError(f"{plan.nodes} machines have come already for the job {plan.run_id!r}")
    return store


def run(args: argparse.Namespace) -> None:
    plan = config_from_args(args)
    store = _meet(args, plan)
    Agent(plan, store).run()
    if plan.nodes > 1:  # whoever serves the store leaves last
        served = store.add("agents that are done", 1)
        while getattr(store, "_server", None) is not None and served < plan.nodes:
            import time
            time.sleep(0.05)
            served = store.add("agents that are done", 0)


def main(args: list[str] | None = None) -> None:
    """Runs the launcher; ends with the exit code of the process that failed first."""
    try:
        run(parse_args(args))
    except WorkersFailed as error:
        print(f"[flambeau.distributed.run] the job has failed: {error}", file=sys.stderr, flush=True)
        code = error.failures[0].code
        raise SystemExit(code if code > 0 else 128 - code) from None
    except (AgentGone, DistError) as error:
        print(f"[flambeau.distributed.run] the job has failed: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
