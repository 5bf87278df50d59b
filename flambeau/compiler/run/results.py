"""What a captured call gives back: each leaf of its result as a window of the program, an argument, a gradient, or a value."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...autograd.node import Edge, version_of
from ...backends.pending import bits
from ...tensors.tensor import Tensor
from ..capture.memory import bytes_of
from ..capture.symbolic import SymFloat
from ..capture.tracing import Recorder
from ..capture.trees import containers, flatten_result
from ..capture.witness import Witness
from ..ir.parts import CONSTANT, INPUT, TEMPORARY
from .plan import Output
from .signature import SIMPLE

_INTERNAL = {"_base", "_seen", "_creation", "_view_fn", "_inference"}  # what a view has in its __dict__


class Unlike(Exception):
    """A result that later calls could not be given likewise; the text says why."""


def results_of(recorder: Recorder, witness: Witness, leaves: list[Any], result: Any) -> tuple[list[Any], Any]:
    """The leaves of a result, as Plan.results has them, and its shape. leaves: those of the arguments."""
    found: list[Any] = []
    shape = flatten_result(result, found)
    _check_containers(witness, result)
    by_id = {id(a): i for i, a in enumerate(leaves) if isinstance(a, Tensor)}
    born = {id(t) for t in recorder.born}
    grads = {id(leaf._grad): by_id.get(id(leaf), leaf) for leaf in recorder.leaves.values() if leaf._grad is not None}
    first: dict[int, int] = {}
    outputs: list[Any] = []
    for n, r in enumerate(found):
        if not isinstance(r, Tensor):
            _check(witness.foreign_result(r))
            outputs.append(("number", r.expression) if isinstance(r, SymFloat) else ("value", r))
        elif first.setdefault(id(r), n) != n:
            outputs.append(("again", first[id(r)]))
        elif id(r) in by_id:
            outputs.append(("arg", by_id[id(r)]))
        elif id(r) in grads:
            outputs.append(("grad", grads[id(r)]))
        elif id(r) in born:
            outputs.append(_made(recorder, r))
        else:
            _check(None if id(r) in witness.known else "it returns a tensor that was kept somewhere")
            outputs.append(("value", r))
    if any(n > 1 for n in Counter([o.value.storage.id for o in outputs if o.__class__ is Output]).values()):
        raise Unlike("results share memory")
    return outputs, shape


def _check(why: str | None) -> None:
    if why:
        raise Unlike(why)


def _check_containers(witness: Witness, result: Any) -> None:
    """Lists, tuples, dicts and objects are made anew by each call, and there once each."""
    anew = [c for c in containers(result) if type(c) is not tuple or not all([type(v) in SIMPLE for v in c])]
    if any([id(c) in witness.given or id(c) in witness.tuples for c in containers(result)]) or (
            any([id(c) not in witness.born and not issubclass(type(c), tuple) for c in anew])):
        raise Unlike("it returns a list, tuple, dict or object that was there before")
    for key in [key for c in anew if issubclass(type(c), dict) for key in c]:
        _check(witness.foreign_result(key))
    if len(set(map(id, anew))) < len(anew):
        raise Unlike("a list, dict, tuple or object is in the result twice")


def _peculiar(r: Tensor) -> str | None:
    """What a tensor that the call has made has of its own that a program's result would not have."""
    if type(r) is not Tensor or r.__dict__.keys() - _INTERNAL or (r._node is not None and r.is_leaf):
        return "a result is a leaf, or has attributes of its own"
    if r.is_sparse:
        return "a result is a sparse tensor"
    if not r._array.size:
        return "a result has no elements"
    if r._creation is not None and r._node is not None:
        return "a result is a view of a kind of its own"
    return "a result has a conjugate or negative bit" if any(bits(r._array)) else None


def _made(recorder: Recorder, r: Tensor) -> Output:
    """A tensor that the call has made, as a window of the program."""
    _check(_peculiar(r))
    value, edge = recorder.value_of(r), r._node
    if value.storage.kind is CONSTANT:  # each call's result is memory of its own
        value.storage.kind, value.storage.init = TEMPORARY, bytes_of(value.storage)
    node = edge.node if edge.__class__ is Edge else edge
    graph = None if recorder.joint is None else next((i for i, t in enumerate(recorder.joint.results) if t is r), None)
    if graph is None and node is not None and node not in recorder.reached and not node.is_leaf_node:
        raise Unlike("a result is part of a graph that began outside")
    made = Output(value, None if graph is not None else node, graph, r._inference, version_of(r))
    if r._base is not None and node is None and value.storage.kind is TEMPORARY:
        made.base = recorder.value_of(r._base)
        if made.base.storage is not value.storage or r._creation is not None:
            raise Unlike("a result is a view of a kind of its own")
    if value.storage.kind is INPUT:
        made.tie = _tie(r, value.storage.source)
        if made.tie is None or node is not None:
            raise Unlike("a result is a view of memory from outside")
    return made


def _tie(result: Any, source: Any) -> str | None:
    """How a result over a tensor's memory belongs to it: as a view, or as another name (`detach`); None: in some other way."""
    if source is None or result._array.dtype != source._array.dtype or result._creation is not None or result._inference:
        return None
    if result._base is not None:
        return "view" if result._base is (source if source._base is None else source._base) else None
    return "name" if result._counter is not None and result._counter is source._counter else None
