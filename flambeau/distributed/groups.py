"""Process groups: which processes do something together, and who they are."""

from __future__ import annotations

import datetime
import os
from typing import Any

from ..autograd.state import not_repeatable
from .engine import Engine, Lone
from .errors import DistBackendError
from .monitor import Monitor
from .options import Methods
from .stores import PrefixStore, Store
from .work import Work

__all__ = ["Backend", "BackendConfig", "DebugLevel", "GroupMember", "GroupName", "ProcessGroup", "default_pg_timeout",
           "destroy_process_group", "get_backend", "get_backend_config", "get_debug_level", "get_default_backend_for_device",
           "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
           "get_world_size", "group", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
           "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
           "set_debug_level", "set_debug_level_from_env"]

default_pg_timeout = datetime.timedelta(minutes=30)
GroupName = str
_groups: dict[str, ProcessGroup] = {}  # all that there are, by name


class Backend(str):
    """The name of a backend, in lower case.

    "mpi" is MPI through mpi4py. "gloo" is answered by MPI, too: the name is PyTorch's for collectives between CPUs. "nccl"
    moves tensors of CUDA devices with NVIDIA's library.
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL, UCC, XCCL, MPI]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


class BackendConfig:
    """Which backend serves which device: "gloo", or "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend: str):
        if ":" in backend:
            self.device_backend_map = {}
            for pair in backend.lower().split(","):
                device, found, name = pair.partition(":")
                if not found or device in self.device_backend_map:
                    raise ValueError(f"Invalid device:backend pairing: {pair!r} in {backend!r}, expected for example "
                                     "'cpu:gloo,cuda:nccl'")
                self.device_backend_map[device] = Backend(name)
        else:
            devices = ["cuda"] if backend == Backend.NCCL else ["cpu", "cuda"]
            self.device_backend_map = dict.fromkeys(devices, Backend(backend))
        for name in self.device_backend_map.values():
            if name not in (Backend.GLOO, Backend.MPI, Backend.NCCL):
                raise NotImplementedError(f"backend {str(name)!r} is not implemented in flambeau: there are 'mpi', 'gloo' "
                                          "(which MPI answers) and 'nccl'")

    def get_device_backend_map(self) -> dict[str, Backend]:
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


class ProcessGroup(Methods):
    """Processes that do collective operations together. `ranks` are theirs in the world, in the order of the group."""

    def __init__(self, backend: str, ranks: list[int], own: int, timeout: datetime.timedelta, name: str, store: Store | None,
                 description: str = "undefined", monitor: Monitor | None = None):
        self.config = BackendConfig(backend)
        self.backend = Backend(backend) if ":" not in backend else next(iter(self.config.device_backend_map.values()))
        self.ranks, self._rank, self.timeout = ranks, ranks.index(own), timeout
        self.group_name, self.group_desc, self.store, self.monitor = name, description, store, monitor
        self.communicator: Any = None  # MPI's, where there is one
        self.engines: dict[str, Engine] = {}
        self.coalescing: list[Work] | None = None
        self.told = 0
        self.bound_device_id: Any = None

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self.ranks)

    def name(self) -> str:
        return str(self.backend)

    @property
    def home(self) -> str:
        """The device on which tensors lie that are made for the group's own purposes."""
        return "cpu" if "cpu" in self.config.device_backend_map else "cuda"

    @property
    def careful(self) -> bool:
        """Whether calls are compared before data are sent."""
        return _debug_level is DebugLevel.DETAIL

    def engine(self, device: str = "cpu") -> Engine:
        """What carries tensors of a device. Whoever asks is about to do what a compiled program cannot repeat by itself."""
        found = self.engines.get(device)
        if found is None:
            found = self._start_engine(device)
        if not found.repeatable:
            not_repeatable("a collective operation")
        return found

    def _start_engine(self, device: str) -> Engine:
        backend = self.config.device_backend_map.get(device)
        if backend is None:
            raise RuntimeError(f"No backend type associated with device type {device}: the group's backend is {self.config!r}")
        if self.size() == 1 and backend != Backend.NCCL:
            made: Engine = Lone(self)
        elif backend == Backend.NCCL:
            from .nccl import NcclEngine
            made = NcclEngine(self)
        else:
            made = next((e for d, e in self.engines.items() if self.config.device_backend_map[d] != Backend.NCCL), None)
            if made is None:
                from .mpi.engine import MpiEngine
                made = MpiEngine(self, self.communicator)
        self.engines[device] = made
        return made

    # ------------------------------------------------------------------------------------------------- what goes wrong
    def look(self, work: Any, ended: bool = False) -> None:
        """Called from time to time while an operation is waited for: raises if it cannot end any more."""
        check = getattr(work, "_check", None)
        if self.monitor is not None:
            self.monitor.look(self, work)
            if ended and check is not None:
                self.monitor.look_for_ended(self, work)
        if check is not None and check.finished():
            check.compare()
        if hasattr(work, "look"):
            work.look()

    def wrong(self, name: str, text: str) -> DistBackendError:
        return DistBackendError(f"[rank {self.ranks[self._rank]}] {name}: {text}")

    def failed(self, work: Work, error: Exception) -> Exception:
        """What an error of the library's means to the user."""
        if isinstance(error, DistBackendError):
            return error
        return self.wrong(work._name, f"MPI says: {error}")

    def timed_out(self, work: Any, seconds: float) -> DistBackendError:
        """Says who did not come."""
        check = work if hasattr(work, "describe") else getattr(work, "_check", None)
        what = work._name if check is None else check.describe()
        text = f"Timed out after {seconds * 1000:.0f} ms in {what}"
        if self.monitor is not None:
            text += "\n" + self.monitor.ask(self)
        return self.wrong(getattr(work, "_name", "") or what.partition("(")[0], text)

    def doing(self) -> str:
        """How far this process is, for others to read."""
        mpi = next((e for e in self.engines.values() if hasattr(e, "agreement")), None)
        return "nothing yet" if mpi is None or not mpi.agreement.count else mpi.agreement.last

    def tell(self, key: str, text: str, patience: float) -> dict[int, str]:
        """Tells the other ranks something and hears what they say, as far as they do in time."""
        if self.store is None:
            return {self.ranks[self._rank]: text}
        store = PrefixStore(key, self.store)
        store.set(str(self._rank), text)
        said = {}
        for number, rank in enumerate(self.ranks):
            here = store._wait([str(number)], patience)
            said[rank] = store.get(str(number)).decode() if here else "(says nothing)"
        return said

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()
        self.engines = {}

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.backend}: rank {self._rank} of {self.size()}>"


class GroupMember:
    """`WORLD` is the default group; `NON_GROUP_MEMBER` stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100
    WORLD: ProcessGroup | None = None


group = GroupMember


def world(group: Any = None) -> ProcessGroup:
    """The given group, or the default one."""
    if group is not None and group is not GroupMember.NON_GROUP_MEMBER:
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"group: expected a ProcessGroup, got {type(group).__name__}")
        if group.group_name not in _groups:
            raise ValueError(f"Invalid process group specified: {group} was destroyed")
        return group
    if GroupMember.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return GroupMember.WORLD


def _get_default_group() -> ProcessGroup:
    return world()


def _get_default_store() -> Store | None:
    return world().store


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process takes no part in the group."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def _get_process_group_name(group: ProcessGroup) -> str:
    return group.group_name


def _resolve_process_group(group_name: str) -> ProcessGroup:
    """The group of a name."""
    if group_name not in _groups:
        raise ValueError(f"there is no process group named {group_name!r}")
    return _groups[group_name]


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Forgets a group; without one, or with the default group, all of them."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    found = world(group)
    if found is not GroupMember.WORLD:
        found.close()
        del _groups[found.group_name]
        return
    for each in _groups.values():
        each.close()
    if found.communicator is not None:
        from .mpi.start import leaves_in_peace
        leaves_in_peace()
    if found.monitor is not None:
        found.monitor.stop()
    _groups.clear()
    GroupMember.WORLD = None


# ----------------------------------------------------------------------------------------------------------- questions
def is_available() -> bool:
    """Whether the package can be used."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return GroupMember.WORLD is not None


def is_torchelastic_launched() -> bool:
    """Whether the launcher (`python -m flambeau.distributed.run`) started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _installed(name: str) -> bool:
    import importlib.util
    return importlib.util.find_spec(name) is not None


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return _installed("mpi4py")


def is_gloo_available() -> bool:
    """Whether the name is accepted: MPI answers it, and a world of one process needs nothing."""
    return True


def is_nccl_available() -> bool:
    """Whether CuPy is installed with NCCL, and there is a GPU."""
    from .nccl import available
    return available()


def is_ucc_available() -> bool:
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    known = {Backend.GLOO: is_gloo_available, Backend.MPI: is_mpi_available, Backend.NCCL: is_nccl_available}
    return backend.lower() in known and known[backend.lower()]()


def get_rank(group: Any = None) -> int:
    """This process' rank in the group; -1 if it is not in it."""
    return -1 if _rank_not_in_group(group) else world(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes are in the group; -1 if this one is not."""
    return -1 if _rank_not_in_group(group) else world(group).size()


def get_backend(group: Any = None) -> Backend:
    if _rank_not_in_group(group):
        raise ValueError("Invalid process group specified")
    return world(group).backend


def get_backend_config(group: Any = None) -> str:
    return repr(world(group).config)


def get_default_backend_for_device(device: Any) -> str:
    kind = device.type if hasattr(device, "type") else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_groups)


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks, in the world, of a group's processes."""
    return list(world(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the world of a rank in a group."""
    found = world(group)
    if not 0 <= group_rank < found.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return found.ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of a rank in the world."""
    found = world(group)
    if global_rank not in found.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return found.ranks.index(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """$LOCAL_RANK."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
                           "`get_node_local_rank` to work, assuming you are not running in a multi-device context and want "
                           "the code to run locally instead.")
    return int(fallback_rank)


# --------------------------------------------------------------------------------------------------------------- debug
class DebugLevel:
    """How much is checked: with DETAIL, calls are compared before data are sent."""

    OFF: DebugLevel
    INFO: DebugLevel
    DETAIL: DebugLevel

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<DebugLevel.{self.name}>"


DebugLevel.OFF, DebugLevel.INFO, DebugLevel.DETAIL = map(DebugLevel, ("OFF", "INFO", "DETAIL"))
_debug_level = DebugLevel.OFF


def get_debug_level() -> DebugLevel:
    return _debug_level


def set_debug_level(level: DebugLevel) -> None:
    global _debug_level
    _debug_level = level


def set_debug_level_from_env() -> None:
    """$TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in ("OFF", "INFO", "DETAIL"):
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, got {name!r}")
    set_debug_level(getattr(DebugLevel, name))


set_debug_level_from_env()
