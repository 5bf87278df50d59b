"""The exchange of gradients during a backward pass.

Each parameter tells when its gradient is complete. It is copied into its bucket, and a bucket whose gradients have all come is
sent off at once, while the backward pass goes on with earlier layers. When the last bucket is on its way, the end of the pass
waits for all of them and writes the means back. Buckets leave in the order of their numbers on every process, whatever order
gradients come in: collectives have to meet in one order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ... import distributed as dist
from ...autograd.engine import current_task
from ...autograd.modes import no_grad
from ...autograd.node import Edge
from ...autograd.variable import Variable
from ...autograd.views import history_of
from ...creation.factories import tensor, zeros
from ...tensors.dtypes import int64
from ...tensors.tensor import Tensor
from .buckets import Bucket, GradBucket, assign

_UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your "
    "module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the "
    "keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all "
    "`forward` function outputs participate in calculating loss. ")
_TWICE = ("Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) a parameter "
          "of the module is used outside of its `forward` (or is shared by several backward passes over one forward); 2) the "
          "same parameters are used by several reentrant checkpoints. If what is computed is the same in every iteration, "
          "static_graph=True lifts this limit. ")


class Reducer:
    """Averages the gradients of parameters over the processes of a group."""

    def __init__(self, parameters: Sequence[Tensor], names: Sequence[str], group: Any, limits: Sequence[int],
                 find_unused: bool, views: bool, static: bool):
        self.parameters, self.names, self.group, self.limits = list(parameters), list(names), group, limits
        self.find_unused, self.views, self.static = find_unused, views, static
        self.world = dist.get_world_size(group)
        self.divisor = self.world          # what sums are divided by (join() may know of fewer processes)
        self.hook: tuple[Any, Callable] | None = None
        self.begun = False                 # the first gradient of that pass has come
        self.next = 0                      # the bucket that leaves next
        self.expecting = False             # a forward pass announced a backward pass whose gradients are to be exchanged
        self.order: list[int] = []         # the order in which gradients came in the first pass
        self.rebuilt = False
        self.times: list[int] | None = None  # static graph: how often each gradient comes in a pass, once it is known
        self.counts: list[int] = []
        self.unused: list[int] = []
        self.used = [False] * len(self.parameters)  # who got a gradient since the last exchange, steps without one counted in
        self.map_work: Any = None
        self.map: Any = None
        self._lay(assign(self.parameters, limits, range(len(self.parameters) - 1, -1, -1)))
        for i, p in enumerate(self.parameters):
            p.register_post_accumulate_grad_hook(self._listener(i))

    def _listener(self, i: int) -> Callable[[Tensor], None]:
        reference = weakref.ref(self)  # a model that outlives its wrapper trains on alone

        def arrived(_: Tensor) -> None:
            reducer = reference()
            if reducer is not None:
                reducer.used[i] = True
                if reducer.expecting:
                    reducer._arrived(i)

        return arrived

    def _lay(self, numbers: list[list[int]]) -> None:
        """Makes the buckets."""
        self.buckets = [Bucket(n, self.parameters) for n in numbers]
        self.place = {i: (b, k) for b, bucket in enumerate(self.buckets) for k, i in enumerate(bucket.numbers)}
        if self.views:
            for bucket in self.buckets:
                for p, view in zip(bucket.parameters, bucket.views):
                    if p._grad is not None:
                        with no_grad():
                            view.copy_(p._grad)
                        p._grad = view

    # ------------------------------------------------------------------------------------------------- a pass begins
    def rebuild(self) -> bool:
        """After the first pass, buckets follow the order in which gradients came (on rank 0: it must be one for all)."""
        if self.rebuilt or self.find_unused or len(self.order) != len(self.parameters):
            return False
        order = tensor(self.order, device=self.group.home)
        dist.broadcast(order, group_src=0, group=self.group)
        self._lay(assign(self.parameters, self.limits, order.tolist()))
        self.rebuilt = True
        return True

    def prepare(self, outputs: Sequence[Tensor]) -> None:
        """The forward pass is over; gradients will come that are to be exchanged."""
        self.check_finished()
        self.expecting, self.begun = True, False
        self.next = 0
        self.counts = [0] * len(self.parameters)
        for bucket in self.buckets:
            bucket.waiting, bucket.result = set(bucket.numbers), None
        self.unused = []
        if self.static and self.times is None:
            for output in outputs:
                if output.requires_grad:
                    output.register_hook(self._await_first_end)
        elif self.static:
            self.unused = [i for i, n in enumerate(self.times or ()) if n == 0]
        elif self.find_unused:
            reached = _leaves(outputs)
            self.unused = [i for i, p in enumerate(self.parameters) if p._node not in reached]

    def _await_first_end(self, grad: Tensor) -> None:
        """Static graph, first pass: what comes how often is known when the whole pass is over."""
        if not self.begun:
            self.begun = True
            current_task().callbacks.append(self._first_end)

    def _first_end(self) -> None:
        self.times = list(self.counts)
        for i in range(len(self.parameters)):
            self._ready(i)

    def check_finished(self) -> None:
        """Raises if the gradients of the last pass have not all come."""
        if not self.begun or self.next == len(self.buckets):
            return
        missing = sorted(i for bucket in self.buckets for i in bucket.waiting)
        names = ", ".join(self.names[i] for i in missing)
        raise RuntimeError(f"{_UNFINISHED}\nParameter indices which did not receive grad for rank {dist.get_rank(self.group)}: "
                           f"{' '.join(map(str, missing))} ({names})")

    # ------------------------------------------------------------------------------------------------ gradients come
    def _arrived(self, i: int) -> None:
        self.counts[i] += 1
        if not self.rebuilt:
            self.order.append(i)
        if self.static and self.times is None:
            return
        if not self.begun:
            self.begun = True
            for missing in self.unused:
                self._ready(missing)
        if self.times is None or self.counts[i] == self.times[i]:
            self._ready(i)

    def _ready(self, i: int) -> None:
        """A gradient is complete: into its bucket, and off with all buckets that are full and next."""
        number, place = self.place[i]
        bucket = self.buckets[number]
        if i not in bucket.waiting:
            raise RuntimeError(f"{_TWICE}Parameter at index {i} ({self.names[i]}) has been marked as ready twice.")
        bucket.waiting.discard(i)
        self._fill(bucket, place)
        while self.next < len(self.buckets) and not self.buckets[self.next].waiting:
            self._send(self.next)
            self.next += 1
            if self.next == len(self.buckets):
                self._all_sent()

    def _fill(self, bucket: Bucket, place: int) -> None:
        p, view = bucket.parameters[place], bucket.views[place]
        grad = p._grad
        with no_grad():
            if grad is None:
                view.zero_()
                return
            if grad.is_sparse:
                raise NotImplementedError("DistributedDataParallel: sparse gradients are not implemented in flambeau")
            if grad._array is not view._array:
                view.copy_(grad.detach())
            if self.views:
                p._grad = view

    def _send(self, number: int) -> None:
        bucket = self.buckets[number]
        if self.hook is None:
            if self.divisor != 1:
                with no_grad():
                    bucket.buffer.mul_(1 / self.divisor)  # one pass over the bucket instead of one per gradient
            bucket.result = dist.all_reduce(bucket.buffer, group=self.group, async_op=True)
            return
        state, hook = self.hook
        bucket.result = hook(state, GradBucket(number, bucket, number == len(self.buckets) - 1))

    def _all_sent(self) -> None:
        if self.find_unused and not self.static:
            self.map = tensor([int(u) for u in self.used], dtype=int64, device=self.group.home)
            self.map_work = dist.all_reduce(self.map, group=self.group, async_op=True)
        if current_task() is None:
            self.finish()
        else:
            Variable._execution_engine.queue_callback(self.finish)

    # -------------------------------------------------------------------------------------------------- a pass ends
    def finish(self) -> None:
        """Waits for all buckets and hands the means to the parameters."""
        self.expecting = self.begun = False
        used = None
        if self.map_work is not None:
            self.map_work.wait()
            self.map_work, used = None, self.map.tolist()
        self.used = [False] * len(self.parameters)
        for bucket in self.buckets:
            self._wait(bucket)
            self._hand_over(bucket, used)

    def _hand_over(self, bucket: Bucket, used: list[int] | None) -> None:
        """The means of a bucket become the parameters' gradients."""
        with no_grad():
            for i, p, view in zip(bucket.numbers, bucket.parameters, bucket.views):
                if (used is not None and not used[i]) or (self.times is not None and not self.times[i]):
                    continue  # no process had a gradient: it stays as it was
                if self.views:
                    p._grad = view
                elif p._grad is None:
                    p._grad = view.clone()
                else:
                    p._grad.detach().copy_(view)

    def _wait(self, bucket: Bucket) -> None:
        result, bucket.result = bucket.result, None
        if self.hook is None:
            result.wait()
            return
        made = result.wait() if hasattr(result, "wait") else result
        made = made[0] if isinstance(made, (list, tuple)) else made
        if not isinstance(made, Tensor):
            raise RuntimeError("Communication hook: expected a future of a tensor with the bucket's gradients, got "
                               f"{type(made).__name__}")
        if made._array is not bucket.buffer._array:
            with no_grad():
                bucket.buffer.copy_(made.reshape(-1))

    # ------------------------------------------------------------------------------------------------------- joined
    def shadow(self) -> None:
        """A process without inputs takes part in the exchange of one pass, with zeros; an optimizer that updates a share of the
        parameters on this process finds the means of the others."""
        for number, bucket in enumerate(self.buckets):
            bucket.buffer.zero_()
            self._send(number)
        used = None
        if self.find_unused and not self.static:
            counts = zeros(len(self.parameters), dtype=int64, device=self.group.home)
            dist.all_reduce(counts, group=self.group)
            used = counts.tolist()
        for bucket in self.buckets:
            self._wait(bucket)
            self._hand_over(bucket, used)


def _leaves(outputs: Sequence[Tensor]) -> set[Any]:
    """The nodes of all leaves that the outputs depend on."""
    stack = [history_of(t) for t in outputs]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        node = node.node if node.__class__ is Edge else node
        if node is not None and node not in seen:
            seen.add(node)
            stack.extend(node.next)
    return seen
