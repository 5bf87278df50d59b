"""How the derivative of an operation is looked up, and what its node keeps.

The formulas of derivatives.py come first; then a backward operation of the same name; then the formulas of the row of that
name; then the function is run once more, with plain tensors, and differentiated by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ...autograd.state import NO_GRAD, state
from ...backends.facts import POINTWISE
from ...tensors.tensor import Tensor
from ..core.row import ROWS, node_name
from .calls import DispatchNode, edges_of, no_dispatch, operation, run_operation, tensors_in

_GIVEN = ("grad", "grads", "needs")


class Rule:
    """A formula per argument; the names of its own arguments say what is kept."""

    keeps_all = False

    def __init__(self, formulas: dict[str, Callable[..., Any]], constant: tuple[int, ...] = (), targets: tuple[str, ...] = (),
                 only: Callable[..., bool] | None = None):
        self.formulas, self.constant, self.only = formulas, constant, only
        self.targets = targets or tuple(formulas)

    def serves(self, values: dict[str, Any]) -> bool:
        """Whether the formulas are those of this call, and there is one for every argument that requires grad."""
        if self.only is not None and not self.only(values):
            return False
        return not self.targets or all([k in self.targets or not any([t.requires_grad for t in tensors_in([v])])
                                        for k, v in values.items()])

    def names(self, needed: Any) -> set[str]:
        """What the formulas of some arguments refer to."""
        return {name for t, f in self.formulas.items() if t in needed for name in parameters(f) if name not in _GIVEN}

    def results_wanted(self, needed: Any) -> set[int]:
        return {int(n[6:] or 0) for n in self.names(needed) if n.startswith("result") and (n[6:].isdigit() or not n[6:])}

    def gradients(self, node: Any, grads: Any, needed: list[str]) -> dict[str, Any]:
        given = {"grads": grads, "needs": needed,
                 "grad": next((g for g in grads if g is not None), None) if grads.__class__ in (list, tuple) else grads}

        def value(name: str) -> Any:  # what was saved is unpacked once
            if name not in given:
                given[name] = node.value(name)
            return given[name]

        return {t: self.formulas[t](*[value(n) for n in parameters(self.formulas[t])]) for t in sorted(needed)}


@functools.cache
def parameters(function: Any) -> tuple[str, ...]:
    """The names of a formula's arguments."""
    code = getattr(function, "__code__", None)
    return code.co_varnames[:code.co_argcount] if code is not None else tuple(inspect.signature(function).parameters)


class RowRule(Rule):
    """The formulas of a row whose arguments are those of the operation, by their order."""

    def __init__(self, row: Any, schema: Any):
        names = [a.name for a in schema.arguments]
        self.real = dict(zip(row.args, names))
        super().__init__({self.real[row.args[i]]: f for i, f, _ in row.formulas})
        self.constant = row.constant

    def names(self, needed: Any) -> set[str]:
        return {self._real(n) for n in super().names(needed)}

    def _real(self, name: str) -> str:
        stem, _, kind = name.rpartition("_")
        return f"{self.real[stem]}_{kind}" if stem in self.real else self.real.get(name, name)

    def gradients(self, node: Any, grads: Any, needed: list[str]) -> dict[str, Any]:
        given = {"grad": grads, "grads": grads, "needs": tuple([t in needed for t in self.formulas])}
        found = {}
        for target in sorted(needed):
            formula = self.formulas[target]
            for n in parameters(formula):
                if n not in given:
                    given[n] = node.value(self._real(n))
            found[target] = formula(*[given[n] for n in parameters(formula)])
        return found


class Again(Rule):
    """Runs the operation again, recorded as in a program without modes, and sends the gradient through that."""

    keeps_all = True

    def __init__(self, targets: tuple[str, ...], op: Any):
        """op: what is run again; of an operation that writes, its form that does not."""
        super().__init__({}, targets=targets)
        self.op = op

    def names(self, needed: Any) -> set[str]:
        return set()

    def without_gradient(self, op: Any, values: dict[str, Any]) -> tuple[int, ...]:
        """The results that have no gradient, found by a call without elements; none if there is no such call."""
        import flambeau
        try:
            with flambeau.enable_grad(), no_dispatch():
                made = run_operation(op, {k: _on_meta(v) for k, v in values.items()})
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            return ()
        return tuple([i for i, t in enumerate(made) if isinstance(t, Tensor) and not t.requires_grad]) if isinstance(
            made, (list, tuple)) else ()

    def gradients(self, node: Any, grads: Any, needed: list[str]) -> dict[str, Any]:
        import flambeau
        values, op = node.all, self.op
        if any([type(t)._dispatches for t in tensors_in(values.values())]):
            raise NotImplementedError(f"the derivative of {op} is not known to __torch_dispatch__: it is computed from plain "
                                      "tensors only. Write it with other operations, or as an autograd.Function")
        create = not state.mode & NO_GRAD
        with flambeau.enable_grad():
            fresh = {k: _alias(v, create) if k in needed else v for k, v in values.items()}
            with no_dispatch():
                made = run_operation(op, fresh)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        several = grads if grads.__class__ in (list, tuple) else [grads]
        pairs = [(m, g) for m, g in zip(made, several) if g is not None and isinstance(m, Tensor) and m.requires_grad]
        wanted = [t for k in needed for t in (fresh[k] if fresh[k].__class__ in (list, tuple) else [fresh[k]])
                  if isinstance(t, Tensor)]
        found = iter(flambeau.autograd.grad([m for m, _ in pairs], wanted, [g for _, g in pairs], create_graph=create,
                                            allow_unused=True))
        return {k: [next(found) if isinstance(t, Tensor) else None for t in fresh[k]] if fresh[k].__class__ in (
            list, tuple) else next(found) for k in needed}


def _on_meta(value: Any) -> Any:
    import flambeau
    if value.__class__ in (list, tuple):
        return [_on_meta(v) for v in value]
    if not isinstance(value, Tensor):
        return value
    made = flambeau.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    return made.requires_grad_() if value.requires_grad else made


def _alias(value: Any, create: bool) -> Any:
    if value.__class__ in (list, tuple):
        return [_alias(v, create) for v in value]
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.view_as(value) if create and value.requires_grad else value.detach().requires_grad_()


@functools.cache
def _node_class(name: str, overload: str) -> type:
    made = node_name(name.removesuffix("_forward"))
    return type(made[:-1] + _NUMBERS.get(f"{name}.{overload}", "0"), (DispatchNode,), {"__module__": __name__})


# Overloads whose derivative is not the first that PyTorch has for the name.
_NUMBERS = dict.fromkeys("sum.dim_IntList mean.dim add.Scalar sub.Scalar mul.Scalar div.Scalar squeeze.dim pow.Tensor_Tensor "
                         "max.default min.default rsub.Scalar prod.dim_int clamp.Tensor".split(), "1")


@functools.cache
def rule_of(op: Any) -> Rule:
    """The rule of an overload."""
    from .backward import BackwardRule, backward_name
    from .derivatives import RULES
    name, in_place = op._opname, op._schema.is_mutable and op._opname.endswith("_")
    base = name[:-1] if in_place else name
    for key in (f"{name}.{op._overloadname}", name, f"{base}.{op._overloadname}", base):
        if key in RULES and _is_for(RULES[key], op):
            return RULES[key]
    if backward_name(base) is not None:
        return BackwardRule(op)
    row = ROWS.get(base)
    if row is not None and row.formulas and row.kernel in POINTWISE and len(op._schema.returns) == 1 and (
            _alike(row, op._schema)):
        return RowRule(row, op._schema)
    return again(op)


def _alike(row: Any, schema: Any) -> bool:
    """Whether the arguments of a row are those of the operation, in order."""
    names = [a.name for a in schema.arguments]
    if any([schema.arguments[i].type != "Tensor" for i in row.sure if i < len(names)]):
        return False
    return len(row.args) <= len(names) and all([r == n or (i == 0 and n in ("self", "input"))
                                                for i, (r, n) in enumerate(zip(row.args, names))])


def again(op: Any) -> Again:
    form = op
    if op._schema.is_mutable:
        form = _not_in_place(op)
        if form is None:
            raise NotImplementedError(f"the derivative of {op} is not known below autograd: use its form that is not in-place")
    return Again(tuple([a.name for a in op._schema.arguments if a.type.startswith("Tensor")]), form)


def _not_in_place(op: Any) -> Any:
    from .overloads import packet
    form = packet("aten", op._opname.removesuffix("_"))
    known = op.namespace == "aten" and op._opname.endswith("_") and op._overloadname in form.overloads()
    return getattr(form, op._overloadname) if known else None


def _is_for(rule: Rule, op: Any) -> bool:
    """Whether the overload has the arguments that the formulas are about."""
    return all([t in op._schema.by_name for t in rule.targets])


def node_for(op: Any, values: dict[str, Any], in_place: bool) -> Any:
    """The node of a call that is about to run; None if it needs none."""
    rule = rule_of(op)
    if not rule.serves(values):
        rule = again(op)
    if rule.keeps_all and len(op._schema.returns) > 1:
        rule = again(op)  # (one of its own: which results have a gradient may depend on the call)
        rule.constant = rule.without_gradient(op, values)
    edges = edges_of(values, rule.targets)
    if not edges:
        return None
    names = rule.names(set(edges))
    saved = {a.name: values[a.name] for a in op._schema.arguments
             if a.name in names and a.name in values and values[a.name].__class__ is not int and _has_tensors(values[a.name])}
    if in_place and isinstance(saved.get("self"), Tensor):
        saved["self"] = operation("clone", saved["self"])
    if in_place and rule.keeps_all:
        values = {**values, "self": operation("clone", values["self"])}
    node = _node_class(op._opname.rstrip("_") or op._opname, op._overloadname)()
    node.take(op, rule, values, edges, {k: _listed(v) for k, v in saved.items()})
    return node


def _has_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (value.__class__ in (list, tuple) and any([isinstance(v, Tensor) for v in value]))


def _listed(value: Any) -> Any:
    from ..core.row import SavedList
    return SavedList(tuple(value)) if value.__class__ in (list, tuple) else value
