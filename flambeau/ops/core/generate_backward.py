"""The backward pass of a node, `Node.apply`, made as text from its row (see generate.py).

There are three ways through it, and the text has those that the row gives: kernels on small plain arrays, where each derivative
is one pointwise operation; what the row says is `fused`, if nobody records this pass; and the formulas.

    >>> print(source(ROWS["mul"].apply))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ...backends.cpu.table import KERNELS
from .generate import function, in_tuple

_POINTWISE = re.compile(r"(\w+)\(grad(?:, (\w+)((?:, [^()]*)?))?\)")  # operation(grad, saved value, numbers)


def backward(row: Any) -> Callable[..., Any]:
    """The function of (node, gradients of the outputs): the gradients of the arguments, None for those without history."""
    return _Text(row).function()


class _Text:
    def __init__(self, row: Any):
        self.row = row
        self.edges = [f"{name}_edge" for name in row.args]
        self.local = {slot: f"{slot}_" if slot in ("node", "kept", "made", "state", "t", "g") else slot for slot in row.slots}
        self.using: dict[str, Any] = {}  # what the text refers to

    def function(self) -> Callable[..., Any]:
        ways = ["*" * (i in self.row.lists) + edge for i, edge in enumerate(self.edges)]
        body = [] if self.row.single else ["grad = grads if node.outputs is None else grads[0]"]
        body.append(f"{in_tuple(ways)} = node.next")
        bare = []
        if self.row.slots:
            body += ["kept = node.saved", "if kept is None:", "    raise freed_error(node)"]
        for number, (slot, (kind, _, _)) in enumerate(zip(self.row.slots, self.row.saving)):
            name = self.local[slot]
            body.append(f"{name} = {f'kept[{number}]' if kind != 'needs' else 'tuple([e is not None for e in node.next])'}")
            if slot == "result":  # mostly kept as a bare array
                bare += [f"if type({name}) in ARRAY_TYPES and node.holder is None:", "    t = new(Tensor)",
                         f"    t._array, t._node, t._counter = {name}, node, None", f"    {name} = t",
                         f"elif {name} is not None:", f"    {name} = unpack(node, {number})"]
            elif kind in ("argument", "result"):
                body += [f"if {name}.__class__ is not Tensor:", f"    if {name}.__class__ not in PLAIN:",
                         f"        {name} = unpack(node, {number})", f"elif {name}._counter is not None:  # compares versions",
                         f"    {name} = unpack(node, {number})"]
        formulas = {}
        for n, (index, formula, picks) in enumerate(self.row.formulas):
            formulas[index] = self.unless(index, self.called(f"formula{n}", formula, self.row.named(picks)), "grad" in picks)
        body += [*self.pointwise(), *bare, *self.fused(formulas), *self.returned(formulas)]
        return function(f"backward_{self.row.name}", f"node, {'grad' if self.row.single else 'grads'}", body, **self.using)

    def unless(self, index: int, text: str, one: bool = False) -> str:
        """The gradient of an argument, if it has a history."""
        edge = self.edges[index]
        if index in self.row.lists:  # each of the tensors has an edge of its own
            return f"*([None] * len({edge}) if not any({edge}) or grad is None else {text})"
        conditions = [f"{edge} is None"] * (len(self.row.targets) > 1) + ["grad is None"] * one
        return text if text == "grad" or not conditions else f"None if {' or '.join(conditions)} else {text}"

    def called(self, title: str, formula: Any, names: Iterable[str]) -> str:
        """The text of a formula: a call of a function, or what was given as text."""
        if not hasattr(formula, "text"):
            self.using[title] = formula
            return f"{title}({', '.join([self.local.get(n, n) for n in names])})"
        self.using.update(formula.operations())
        return _renamed(formula.text, self.local)

    def returned(self, results: dict[int, str]) -> list[str]:
        return ["return (", *[f"    {results.get(i)}," for i in range(len(self.row.args))], ")"]

    # ------------------------------------------------------------------------------------------ where nobody records
    def pointwise(self) -> list[str]:
        """Lines for small plain arrays: each gradient by the kernel of a pointwise operation, without tensors in between."""
        texts = {**{i: f for i, f, _ in self.row.formulas}, **{t[0]: f for t, f, _ in self.row.fused if len(t) == 1}}
        found = {i: _POINTWISE.fullmatch(getattr(f, "text", "")) for i, f in texts.items() if getattr(f, "text", "") != "grad"}
        if not found or not all(found.values()) or not all(texts[i].is_operation() for i in found):
            return []
        arrays, last = ["g = grad._array", "native = g.dtype"], []
        fits = ["(native is FLOAT32 or native is FLOAT64)", "type(g) is ndarray", "g.size < LARGE"]
        results = dict.fromkeys(texts, "grad")
        only = len(self.row.targets) == 1  # which then has a history, or there would be no node
        for i, match in found.items():
            kernel, slot, numbers = match.groups()
            self.using[f"kernel{i}"] = KERNELS[kernel]
            edge, given = self.edges[i], "g"
            if slot is not None:
                arrays.append(f"array{i} = {self.unless(i, self.array(self.local[slot]))}")
                fits.append("" if only else f"({edge} is None or (")
                fits[-1] += f"type(array{i}) is ndarray and array{i}.dtype is native" + "))" * (not only)
                given = f"g, array{i}{_renamed(numbers, self.local)}"
            results[i] = f"grad{i}"
            made = [f"grad{i} = t = new(Tensor)", f"t._array = kernel{i}({given}) if g.ndim else asarray(kernel{i}({given}))",
                    "t._node = t._counter = None"]
            last += made if only else [f"grad{i} = None", f"if {edge} is not None:", *["    " + line for line in made]]
        lines = [*arrays, f"if {' and '.join(fits)}:", *["    " + line for line in [*last, *self.returned(results)]]]
        return ["if state.mode == NO_GRAD and grad.__class__ is Tensor:", *["    " + line for line in lines]]

    @staticmethod
    def array(name: str) -> str:
        if name == "result":
            return "result if type(result) is ndarray else None"
        return (f"{name}._array if isinstance({name}, Tensor) else "
                f"constants.get(({name}, native)) if {name}.__class__ is float or {name}.__class__ is int else None")

    def fused(self, formulas: dict[int, str]) -> list[str]:
        """Lines that give the gradients by what the row says is fused; what that leaves out comes from formulas."""
        if not self.row.fused:
            return []
        results, lines, names, wrapped, conditions = dict(formulas), [], set(), "{}", ""
        for n, (targets, formula, picks) in enumerate(self.row.fused):
            names.update(picks)
            if hasattr(formula, "text") and formula.is_operation():
                results[targets[0]] = self.unless(targets[0], self.called("", formula, ()))
                continue
            if len(targets) < len(self.row.targets):
                conditions = f" and ({' or '.join([f'{self.edges[t]} is not None' for t in targets])})"
            if "needs" in picks:
                lines.append(f"needs = {in_tuple([f'{self.edges[t]} is not None' for t in targets])}")
            if hasattr(formula, "text"):
                lines += self.kernel(formula, picks)
                wrapped = "wrapped({})"
            else:
                lines.append(f"made = {self.called(f'fused{n}', formula, picks)}")
            for k, t in enumerate(targets):
                results[t] = self.unless(t, wrapped.format("made" if len(targets) == 1 else f"made[{k}]"))
        last = self.returned(results)
        if lines and wrapped == "{}":  # a function may leave it to the formulas
            last = ["if made is not None:", *["    " + line for line in last]]
        real = " and grad is not None and grad._array.dtype.kind not in 'cW'" * ("grad" in names)
        return [f"if state.mode & WATCHED == NO_GRAD{real}{conditions}:", *["    " + line for line in [*lines, *last]]]

    def kernel(self, formula: Any, picks: Iterable[str]) -> list[str]:
        """Lines that call a kernel on the arrays of the tensors that a text names."""
        names, lines = dict(self.local), []
        for pick in picks:
            name = self.local.get(pick)
            if pick == "grad" or pick.startswith("result"):
                names[pick] = f"{name or pick}._array"
            elif pick == "grads":
                names[pick] = "arrays"
                lines.append("arrays = [None if g is None else g._array for g in grads]")
            elif pick in self.row.args:  # formulas of other arguments may need the tensor
                names[pick] = f"{pick}_array"
                lines.append(f"{pick}_array = {name}._array if isinstance({name}, Tensor) else {name}")
        kernel, _, rest = _renamed(formula.text, names).partition("(")
        return [*lines, f"made = run({kernel!r}, ({rest.removesuffix(')')},))"]


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"(?<![\w.])[a-z_]\w*", lambda found: names.get(found[0], found[0]), text)
