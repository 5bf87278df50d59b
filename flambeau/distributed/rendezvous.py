"""How processes find one another: an address gives a store, a rank and a number of processes."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

from .stores import FileStore, Store
from .tcp_store import TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

Found = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[Found]]] = {}
_ENV = "Error initializing torch.distributed using env:// rendezvous: "
_TIMEOUT = datetime.timedelta(minutes=30)


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Found]]) -> None:
    """Has addresses that begin with `scheme://` answered by handler(url, timeout=..., **options), which yields (store, rank,
    world size)."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Found]:
    """(store, rank, world size) for an address: env://, tcp://host:port, file:///path, or one that was registered."""
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, int):
            raise RuntimeError(f"`{name}` must be an integer. {value}")
    parts = urlparse(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value != -1:
            if name in query and int(query[name]) != value:
                raise ValueError(f"The url: {url} has node-specific arguments({name}, {query[name]}) that differ from {value}")
            query[name] = str(value)
    if parts.scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    full = parts._replace(query="&".join(f"{k}={v}" for k, v in query.items())).geturl()
    return _handlers[parts.scheme](full, **options)


def _parsed(url: str) -> tuple[Any, dict[str, str]]:
    parts = urlparse(url)
    return parts, {key: values[0] for key, values in parse_qs(parts.query).items()}


def _needed(query: dict[str, str], name: str, scheme: str) -> int:
    if name not in query:
        what = name.replace("_", " ")
        raise ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {what} parameter missing")
    return int(query[name])


def _tcp(url: str, timeout: datetime.timedelta = _TIMEOUT, **options: Any) -> Iterator[Found]:
    parts, query = _parsed(url)
    if not parts.port:
        raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
    rank, size = _needed(query, "rank", "tcp"), _needed(query, "world_size", "tcp")
    yield _tcp_store(parts.hostname, parts.port, rank, size, timeout), rank, size


def _tcp_store(host: str, port: int, rank: int, size: int, timeout: datetime.timedelta, served: bool = False) -> Store:
    """The store of rank 0, or of a launcher that serves it already."""
    return TCPStore(host, port, size, rank == 0 and not served, timeout, wait_for_workers=False, multi_tenant=True)


def _file(url: str, **options: Any) -> Iterator[Found]:
    parts, query = _parsed(url)
    path = parts.netloc + parts.path
    if not path:
        raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
    rank, size = _needed(query, "rank", "file"), _needed(query, "world_size", "file")
    yield FileStore(path, size), rank, size


def _env(url: str, timeout: datetime.timedelta = _TIMEOUT, **options: Any) -> Iterator[Found]:
    _, query = _parsed(url)
    values = {**slurm(), **os.environ}

    def value(name: str) -> str:
        if name not in values:
            raise ValueError(f"{_ENV}environment variable {name} expected, but not set")
        return values[name]

    rank = int(query["rank"] if "rank" in query else value("RANK"))
    size = int(query["world_size"] if "world_size" in query else value("WORLD_SIZE"))
    if size == 1 and "MASTER_ADDR" not in values:  # nobody has to be found
        from .stores import HashStore
        yield HashStore(), rank, size
        return
    served = values.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _tcp_store(value("MASTER_ADDR"), int(value("MASTER_PORT")), rank, size, timeout, served)
    if served:  # a launcher's store outlives its workers: those it starts anew must not find what the last ones left
        from .stores import PrefixStore
        store = PrefixStore(f"attempt {values.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    yield store, rank, size


def slurm() -> dict[str, str]:
    """What a job under Slurm's srun knows, in the names of env://; nothing elsewhere."""
    job = os.environ
    if "SLURM_PROCID" not in job or "SLURM_NTASKS" not in job or "SLURM_JOB_ID" not in job:
        return {}
    nodes = job.get("SLURM_STEP_NODELIST") or job.get("SLURM_JOB_NODELIST") or "localhost"
    return {"RANK": job["SLURM_PROCID"], "WORLD_SIZE": job["SLURM_NTASKS"], "LOCAL_RANK": job.get("SLURM_LOCALID", "0"),
            "MASTER_ADDR": first_host(nodes), "MASTER_PORT": str(20000 + int(job["SLURM_JOB_ID"]) % 20000)}


def first_host(nodes: str) -> str:
    """The first machine of a list as Slurm writes it: `node[003-006,9],other`."""
    found = re.match(r"([^,\[]+)(?:\[([^\]]*)\])?([^,]*)", nodes)
    if found is None:
        raise ValueError(f"not a list of nodes: {nodes!r}")
    name, numbers, rest = found.groups()
    return name + (re.split(r"[,-]", numbers)[0] if numbers else "") + rest


register_rendezvous_handler("tcp", _tcp)
register_rendezvous_handler("file", _file)
register_rendezvous_handler("env", _env)
