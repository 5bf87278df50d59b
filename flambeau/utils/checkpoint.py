"""Checkpointing: a part of the forward pass is computed again in backward instead of keeping what it saved.

Without reentry (the recommended form), the part's operations save numbered *holders* in place of tensors. The first
holder that backward opens runs the part again; what its operations save this time, in the same order, fills the
holders. A checkpoint inside a checkpoint works because it keeps its own inputs the same way: as tensors saved under the
outer one. With reentry, one custom Function runs the part without recording, and in its backward runs it again and
calls backward.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd import Function, backward
from ..autograd.engine import current_task
from ..autograd.graph import saved_tensors_hooks
from ..autograd.modes import enable_grad, no_grad
from ..autograd.state import grad_enabled, state
from ..creation.random import default_generator, device_generators, set_rng_state
from ..tensors.tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointFunction", "check_backward_validity",
           "detach_variable", "get_device_states", "set_device_states", "noop_context_fn", "set_checkpoint_early_stop",
           "DefaultDeviceType", "set_checkpoint_debug_enabled", "CheckpointPolicy", "SelectiveCheckpointContext",
           "create_selective_checkpoint_contexts", "SAC_IGNORED_OPS", "GraphExecGroup"]
_DEFAULT_DETERMINISM_MODE = "default"
_early_stop: bool | None = None  # what set_checkpoint_early_stop says, where it is in force
_debug: bool | None = None


class CheckpointError(RuntimeError):
    """The recomputation did not do what the forward pass did.

    >>> issubclass(torch.utils.checkpoint.CheckpointError, RuntimeError)
    True
    """


class _StopRecomputationError(Exception):
    """All holders are filled: the rest of the part need not run."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing: the forward's and the recomputation's.

    >>> forward, again = torch.utils.checkpoint.noop_context_fn()
    >>> with forward:
    ...     pass
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool):
    """Whether recomputation may stop as soon as it has what backward needs, for checkpoints made in the block.

    >>> from flambeau.utils.checkpoint import checkpoint, set_checkpoint_early_stop
    >>> with set_checkpoint_early_stop(False):
    ...     y = checkpoint(torch.exp, torch.ones(2, requires_grad=True), use_reentrant=False)
    """
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None):
    """Overrides `debug=` of the checkpoints made in the block.

    >>> from flambeau.utils.checkpoint import checkpoint, set_checkpoint_debug_enabled
    >>> with set_checkpoint_debug_enabled(True):
    ...     y = checkpoint(torch.exp, torch.ones(2, requires_grad=True), use_reentrant=False)
    """
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


def _infer_device_type(*args: Any) -> str:
    """The type of the device whose random state a checkpoint keeps: the processor's."""
    return "cpu"


class DefaultDeviceType:
    """The device whose random state is kept where the inputs do not say.

    >>> torch.utils.checkpoint.DefaultDeviceType.get_device_type()
    'cuda'
    """

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        return DefaultDeviceType._default_device_type


# --------------------------------------------------------------------------------------------- what both forms share
class _Surroundings:
    """The random state and the autocast mode of the forward pass, to be had again in backward."""

    def __init__(self, preserve_rng_state: bool):
        self.rng = _random_state() if preserve_rng_state else None
        self.autocast = _autocast_options()

    @contextlib.contextmanager
    def again(self):
        before = _random_state() if self.rng is not None else None
        if self.rng is not None:
            _back_to(self.rng)
        try:
            with _autocast(self.autocast):
                yield
        finally:
            if before is not None:
                _back_to(before)


def _random_state() -> tuple[Any, Any]:
    """Where the default generators are, the CPU's and the devices'."""
    return default_generator.mark(), device_generators.mark()


def _back_to(mark: tuple[Any, Any]) -> None:
    set_rng_state(mark[0])
    device_generators.back(mark[1])


def _autocast_options() -> list[dict[str, Any]]:
    import flambeau
    return [{"device_type": kind, "dtype": flambeau.get_autocast_dtype(kind),
             "cache_enabled": flambeau.is_autocast_cache_enabled()}
            for kind in ("cpu", "cuda") if flambeau.is_autocast_enabled(kind)]


@contextlib.contextmanager
def _autocast(options: list[dict[str, Any]]) -> Any:
    with contextlib.ExitStack() as stack:
        for one in options:
            from ..amp import autocast
            stack.enter_context(autocast(**one))
        yield


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with tensors cut off from their history; they still require grad where they did.

    >>> x, = torch.utils.checkpoint.detach_variable((torch.ones(2, requires_grad=True) * 2,))
    >>> x.is_leaf, x.requires_grad
    (True, True)
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    made = []
    for value in inputs:
        if isinstance(value, Tensor):
            wanted, value = value.requires_grad, value.detach()
            value.requires_grad_(wanted)
        made.append(value)
    return tuple(made)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns when a reentrant checkpoint has no input that requires grad.

    >>> torch.utils.checkpoint.check_backward_validity([torch.ones(2, requires_grad=True)])
    """
    if not any(t.requires_grad for t in inputs if isinstance(t, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The accelerators among the arguments and their random states (none on the CPU).

    >>> torch.utils.checkpoint.get_device_states(torch.ones(2))
    ([], [])
    """
    return [], []


def set_device_states(devices: list[int], states: list[Tensor], *, device_type: str | None = None) -> None:
    """Puts back what get_device_states returned.

    >>> torch.utils.checkpoint.set_device_states(*torch.utils.checkpoint.get_device_states(torch.ones(2)))
    """
    if devices or states:
        raise NotImplementedError("set_device_states: only CPU random state is kept")


# --------------------------------------------------------------------------------------------------------- reentrant
class CheckpointFunction(Function):
    """forward: runs the function without recording. backward: runs it again, recorded, and calls backward on it.

    >>> from flambeau.utils.checkpoint import CheckpointFunction
    >>> x = torch.ones(2, requires_grad=True)
    >>> CheckpointFunction.apply(torch.exp, True, x).sum().backward()
    >>> x.grad
    tensor([2.7183, 2.7183])
    """

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state)
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_indices])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        task = current_task()
        if task is not None and task.captures is not None:
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                               "passing an `inputs` parameter to .backward(). To resolve this error, you can either "
                               "set use_reentrant=False, or call .backward() without passing the `inputs` argument.")
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.tensor_indices, ctx.saved_tensors):
            inputs[i] = t
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.again(), enable_grad():
            outputs = ctx.run_function(*detached)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        wanted = [(o, g) for o, g in zip(outputs, grads) if isinstance(o, Tensor) and o.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in wanted], [g for _, g in wanted])
        return (None, None, *(d._grad if isinstance(d, Tensor) else None for d in detached))


# ----------------------------------------------------------------------------------------------------- not reentrant
class _Holder:
    """Stands for one tensor that an operation of the part saved; `values` has it for the backward passes under way."""

    __slots__ = ("__weakref__", "values")

    def __init__(self):
        self.values: dict[int, Tensor | None] = {}  # None: handed out already


class _Inputs:
    """A checkpoint's arguments. Its tensors are saved as an operation would save them: under an outer checkpoint's
    hooks, if there are any, so that the outer one can let go of them too."""

    def __init__(self, args: tuple[Any, ...]):
        hooks = state.saved_hooks[-1] if state.saved_hooks else None
        self.unpack = None if hooks is None else hooks[1]
        self.slots = []
        for a in args:
            tensor = isinstance(a, Tensor)
            kept = hooks[0](a) if tensor and hooks is not None else a
            self.slots.append((tensor, tensor and a.requires_grad, kept))

    def get(self) -> list[Any]:
        values = []
        for is_tensor, wanted, kept in self.slots:
            if is_tensor and self.unpack is not None:
                kept = self.unpack(kept)
                if wanted and not kept.requires_grad:
                    kept = kept.detach().requires_grad_(True)
            values.append(kept)
        return values


class _Frame:
    """One call of checkpoint(use_reentrant=False)."""

    def __init__(self, function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], surroundings: _Surroundings,
                 recompute_context: Any, early_stop: bool, check: Callable | None, debug: bool):
        self.function, self.kwargs, self.surroundings = function, kwargs, surroundings
        self.inputs = _Inputs(args)
        self.recompute_context, self.early_stop, self.check, self.debug = recompute_context, early_stop, check, debug
        self.holders: list[Any] = []       # weak references, in the order of saving
        self.metadata: list[Any] = []      # what check compares with
        self.passes: dict[int, Any] = {}   # backward passes that have recomputed, kept so that ids stay theirs
        self.logs: Any = None              # with debug: the operations of both runs
        self.complete = False              # whether the forward pass has ended: a backward pass may be part of it

    # ------------------------------------------------------------------------- while the forward pass is recorded
    def pack(self, tensor: Tensor) -> _Holder:
        holder = _Holder()
        self.holders.append(weakref.ref(holder))
        if self.check is not None:
            self.metadata.append(self.check(tensor))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """Called by backward: the saved tensor, after recomputing the part if this pass has not yet."""
        group, task = GraphExecGroup._get_current_group(), current_task()
        run = task if group is None else group
        number = id(run) if run is not None else -1
        if run is None or number not in self.passes:
            self.recompute(number)
            if run is not None:
                self.passes[number] = run
                frame = weakref.ref(self)
                forget = task.callbacks if group is None else group._at_exit
                forget.append(lambda: _forget(frame, number))
        if number not in holder.values:
            raise CheckpointError("torch.utils.checkpoint: the recomputation did not save a tensor that the forward "
                                  "pass had saved, so backward cannot have it")
        value = holder.values[number]
        if value is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. "
                + ("" if group is None else "Performing two backward calls that overlap (i.e. require the same saved "
                   "activation in order to compute gradients) is not allowed while under the "
                   "torch.utils.checkpoint.GraphExecGroup context. ")
                + "If you are calling ctx.saved_tensors in backward, make sure to do so only once. Otherwise please open an "
                "issue with details on your use case.")
        holder.values[number] = None
        if run is None:
            _forget(weakref.ref(self), number)  # asked for outside a backward pass: nothing else of this run is needed
        return value

    # ------------------------------------------------------------------------------------------------ recomputing
    def recompute(self, number: int) -> None:
        args = self.inputs.get()
        saved: list[Any] = []

        def pack(tensor: Tensor) -> Tensor:
            tensor = tensor.detach() if tensor.requires_grad else tensor
            position = len(saved)
            saved.append(None if self.check is None else self.check(tensor))
            if position >= len(self.holders):
                if self.check is not None and self.complete:
                    raise self._error("trying to save more tensors during recomputation than during the original "
                                      "forward pass.")
                return tensor
            holder = self.holders[position]()
            if holder is not None:
                holder.values[number] = tensor
            if self.early_stop and position + 1 == len(self.holders):
                raise _StopRecomputationError
            return tensor

        with self.surroundings.again(), self.recompute_context, enable_grad(), saved_tensors_hooks(pack, lambda t: t), (
                contextlib.nullcontext() if self.logs is None else self.logs[1]):
            try:
                self.function(*args, **self.kwargs)
            except _StopRecomputationError:
                pass
        self._compare(saved)

    def _compare(self, saved: list[Any]) -> None:
        if self.check is None or not self.complete:
            return
        if len(saved) != len(self.holders):
            raise self._error("A different number of tensors was saved during the original forward and recomputation.\n"
                              f"Number of tensors saved during forward: {len(self.holders)}\n"
                              f"Number of tensors saved during recomputation: {len(saved)}.")
        different = [(i, a, b) for i, (a, b) in enumerate(zip(self.metadata, saved))
                     if a != b and self.holders[i]() is not None]
        if different:
            lines = "".join(f"tensor at position {i}:\nsaved metadata: {a}\nrecomputed metadata: "
                            f"{b}\n" for i, a, b in different)
            raise self._error("Recomputed values for the following tensors have different metadata than during the "
                              f"forward pass.\n{lines}.")

    def _error(self, text: str) -> CheckpointError:
        hint = ""
        if not self.debug:
            hint = ("\n\nTip: To see a more detailed error message, either pass `debug=True` to "
                    "`torch.utils.checkpoint.checkpoint(...)` or wrap the code block with "
                    "`with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):`")
        name = getattr(self.function, "__qualname__", None) or type(self.function).__name__
        if self.logs is not None:
            from ._selective_checkpoint import report
            return CheckpointError(f"{report(*self.logs)}torch.utils.checkpoint: {text} (The checkpointed function is {name}.)")
        return CheckpointError(f"torch.utils.checkpoint: {text} (The checkpointed function is {name}.){hint}")


def _forget(frame: Any, number: int) -> None:
    """The end of a backward pass: its id may be another's from now on."""
    frame = frame()
    if frame is not None:
        frame.passes.pop(number, None)
        for reference in frame.holders:
            holder = reference()
            if holder is not None:
                holder.values.pop(number, None)


def _metadata(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


_CHECKS: dict[str, Callable | None] = {_DEFAULT_DETERMINISM_MODE: _metadata, "none": None}


def checkpoint(function: Callable, *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
               determinism_check: str = _DEFAULT_DETERMINISM_MODE, debug: bool = False, early_stop: bool = True,
               **kwargs: Any) -> Any:
    """function(*args, **kwargs), whose intermediate values are computed again in backward rather than kept.

    preserve_rng_state (default True): the second run draws the same random numbers as the first.
    context_fn: returns two contexts, for the first and for the second run. determinism_check: "none" turns off the
    comparison of what both runs saved.

    >>> from flambeau.utils.checkpoint import checkpoint
    >>> block, x = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4)), torch.ones(2, 4, requires_grad=True)
    >>> checkpoint(block, x, use_reentrant=False).sum().backward()
    >>> x.grad.shape
    torch.Size([2, 4])
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in "
                      "PyTorch 2.9, calling checkpoint without use_reentrant will raise an exception. "
                      "use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
                      "you can pass use_reentrant=True. Refer to docs for more details on the differences between the "
                      "two variants.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant:
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    forward_context, recompute_context = context_fn()
    if not grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, _Surroundings(preserve), recompute_context,
                   early_stop if _early_stop is None else _early_stop, _CHECKS[determinism_check],
                   debug if _debug is None else _debug)
    if frame.debug:
        from ._selective_checkpoint import Log
        frame.logs = Log(), Log()
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context, (
            contextlib.nullcontext() if frame.logs is None else frame.logs[0]):
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None,
                          **kwargs: Any) -> Any:
    """Runs a Sequential (or list of functions) in this many segments, all but the last of them checkpointed.

    >>> from flambeau.utils.checkpoint import checkpoint_sequential
    >>> net, x = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), torch.ones(3, 2, requires_grad=True)
    >>> checkpoint_sequential(net, 2, x, use_reentrant=False).shape
    torch.Size([3, 1])
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
                      "explicitly. In version 2.9 we will raise an exception if use_reentrant is not passed. "
                      "use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
                      "you can pass use_reentrant=True. Refer to docs for more details on the differences between the "
                      "two variants.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(start: int, end: int) -> Callable:
        def forward(value: Any) -> Any:
            for f in functions[start:end]:
                value = f(value)
            return value

        return forward

    size = len(functions) // segments
    if size == 0:
        raise ValueError(f"checkpoint_sequential: {segments} segments need at least as many functions, got {len(functions)}")
    start = 0
    for _ in range(segments - 1):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        start += size
    return run(start, len(functions))(input)


# -------------------------------------------------------------------------------------------------------- selective
class CheckpointPolicy(enum.Enum):
    """What selective checkpointing does with an operation's output.

    >>> torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE
    <CheckpointPolicy.MUST_SAVE: 0>
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


class SelectiveCheckpointContext:
    """What a selective checkpointing policy is told.

    >>> torch.utils.checkpoint.SelectiveCheckpointContext(is_recompute=True).is_recompute
    True
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None):
        self.is_recompute, self.op_output = is_recompute, op_output


class GraphExecGroup:
    """Backward passes inside one `with` block recompute each checkpoint at most once between them; no two of them may need
    the same saved tensor. Checkpoints with reentry take no notice of it.

    >>> from flambeau.utils.checkpoint import GraphExecGroup, checkpoint
    >>> x = torch.ones(2, requires_grad=True)
    >>> y = checkpoint(torch.exp, x, use_reentrant=False)
    >>> with GraphExecGroup():
    ...     y.sum().backward()
    """

    _current = threading.local()

    def __init__(self):
        self._at_exit: list[Callable[[], None]] = []

    def __enter__(self) -> GraphExecGroup:
        if self._get_current_group() is not None:
            raise RuntimeError(f"GraphExecGroup contexts cannot be nested. Already inside group {self._get_current_group()}")
        GraphExecGroup._current.group = self
        return self

    def __exit__(self, *exc: Any) -> None:
        GraphExecGroup._current.group = None
        for forget in self._at_exit:
            forget()
        self._at_exit.clear()

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return getattr(cls._current, "group", None)


SAC_IGNORED_OPS: set[Any] = set()


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> Any:
    """For `context_fn`: the results of some operations are kept, the others are computed again in backward.

    policy_fn_or_list: policy(ctx, op, *args, **kwargs) says for each operation what to do with its result (CheckpointPolicy,
    or whether to save it); or a list of the operations whose results are kept. allow_cache_entry_mutation: whether what was
    kept may be changed in place before backward.

    >>> from functools import partial
    >>> from flambeau.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> kept = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    >>> checkpoint(lambda x: (x @ x).sin().sum(), x, use_reentrant=False, context_fn=kept).backward()
    >>> x.grad.shape
    torch.Size([2, 2])
    """
    from ._selective_checkpoint import contexts
    return contexts(policy_fn_or_list, allow_cache_entry_mutation)
