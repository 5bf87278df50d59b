"""Where a graph was cut, going by the user's source: for the error of a backward pass from a tensor without history.

From the call of backward the reader goes back through assignments, and into functions and modules of the user's that were
called on the way. Variables of the function that is under way are looked at as they are: what requires grad now ends the search
there. It is a reading of text, run only when the error is raised; under anomaly detection the error knows instead of reading
(cuts.py).
"""

from __future__ import annotations

import ast
import functools
import linecache
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from ..ops.core.row import ROWS
from .cuts import advice
from .frames import source_line

_CUTTERS = {  # methods and functions that end a graph: the kind of advice (cuts.py)
    "detach": "detach", "detach_": "detach", "numpy": "numpy", "item": "number", "tolist": "number", "float": "number_or_cast",
    **dict.fromkeys(["long", "int", "short", "byte", "char", "bool"], "integer")}
_MAKERS = frozenset(["tensor", "as_tensor", "asarray", "from_numpy", "Tensor", "FloatTensor", "DoubleTensor", "array"])
_INTEGERS = frozenset(["long", "int", "short", "int8", "int16", "int32", "int64", "uint8", "bool"])
_OFF = frozenset(["no_grad", "inference_mode"])
_DEEPEST = 4  # functions inside of functions
_UNKNOWN = object()


def find(frame: FrameType) -> list[str]:
    """Lines of a message about a tensor without history that backward was called on, in a frame of the user's."""
    scope = _scope(frame.f_code, frame.f_lineno)
    start = None if scope is None else _backward_call(scope, frame.f_lineno)
    if start is None:
        return []
    reader = _Reader(scope, frame.f_code.co_filename, frame)
    reader.expression(start, frame.f_lineno)
    if reader.cuts:
        kind, what, (file, line, name) = reader.cuts[0]
        place = f'File "{file}", line {line}, in {name}\n    {source_line(file, line)}'
        return [f"Going by the source, the graph was cut by {what} at {place}", advice(kind)]
    if reader.frozen:
        return [f"No parameter of `{reader.frozen[0]}` requires grad.", advice("frozen")]
    if reader.leaves:
        names = ", ".join([f"`{n}`" for n in dict.fromkeys(reader.leaves)])
        if names == f"`{_name(start)}`":
            return []  # of which nothing is known
        return [f"It was computed from {names}, and none of that requires grad.", advice("leaf")]
    return []


@functools.lru_cache(maxsize=8)
def _tree(file: str, text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _scope(code: CodeType, line: int) -> Any:
    """The definition of a function in its file's tree, or the whole file."""
    tree = _tree(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            if first <= code.co_firstlineno <= node.lineno and line <= (node.end_lineno or line):
                return node
    return None


def _inside(scope: Any) -> Any:
    """The nodes of a scope, without those of functions and classes that are defined in it."""
    waiting = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting = [*ast.iter_child_nodes(node), *waiting]


def _backward_call(scope: Any, line: int) -> Any:
    """The expression that backward was called on, in the statement of a line."""
    for node in _inside(scope):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or line) and _name(node.func) in (
                "backward", "grad"):
            if not isinstance(node.func, ast.Name) and _name(node.func.value) != "autograd":
                return node.func.value
            if node.args:
                return node.args[0]
    return None


def _name(node: Any) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class _Reader:
    """Goes back from an expression to where its values come from."""

    def __init__(self, scope: Any, file: str, frame: FrameType | None, parent: _Reader | None = None):
        self.scope, self.file, self.frame = scope, file, frame
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.cuts: list[Any] = [] if parent is None else parent.cuts
        self.frozen: list[str] = [] if parent is None else parent.frozen
        self.leaves: list[str] = []  # variables with tensors that were made of no others
        self.seen: set[Any] = set()
        self.title = getattr(scope, "name", "<module>")
        self.assigned: list[tuple[int, str, Any, Any]] = []  # (line, name, statement, what was assigned)
        for node in _inside(scope):
            self._note_assignment(node)
        self.off = [node for node in _inside(scope) if isinstance(node, ast.With) and any(
            [_name(getattr(item.context_expr, "func", item.context_expr)) in _OFF for item in node.items])]

    def _note_assignment(self, node: Any) -> None:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        else:
            return
        for target in targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            alike = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(parts)
            values = value.elts if alike else [value] * len(parts)
            self.assigned += [(node.lineno, p.id, node, v) for p, v in zip(parts, values) if isinstance(p, ast.Name)]

    def cut(self, kind: str, what: str, line: int) -> None:
        self.cuts.append((kind, what, (self.file, line, self.title)))

    # ------------------------------------------------------------------------------------------------- expressions
    def expression(self, node: Any, line: int) -> None:
        if self.cuts:
            return
        if isinstance(node, ast.Name):
            self.variable(node.id, line)
        elif isinstance(node, ast.Attribute):
            if node.attr == "data" and self.may_have_history(node.value):
                self.cut("data", ".data", node.lineno)
            elif not self.has_history(node):
                self.expression(node.value, line)
        elif isinstance(node, ast.Call):
            self.call(node, line)
        elif isinstance(node, ast.Compare) and any([self.may_have_history(n) for n in (node.left, *node.comparators)]):
            self.parts(node, line)
            if not self.cuts:
                self.cut("function", "a comparison, which has no derivative,", node.lineno)
        else:
            self.parts(node, line)

    def parts(self, node: Any, line: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.comprehension):
                self.expression(child.iter, line)
            elif isinstance(child, ast.expr):
                self.expression(child, line)

    def call(self, node: ast.Call, line: int) -> None:
        name = _name(node.func)
        method = isinstance(node.func, ast.Attribute) and not isinstance(self.value(node.func.value), ModuleType)
        first = node.func.value if method else node.args[0] if node.args else None
        kind = _CUTTERS.get(name)
        if kind == "number_or_cast":  # float(x) makes a number, x.float() a tensor
            kind = None if method else "number"
        if kind is None and name in ROWS and ROWS[name].node is None:
            kind = "function"
        if name in ("to", "type") and any([_name(a) in _INTEGERS for a in [*node.args, *[k.value for k in node.keywords]]]):
            kind = "integer"
        if kind is not None and first is not None and self.may_have_history(first):
            self.cut(kind, f".{name}()" if method and name != "detach" else f"{name}()", node.lineno)
            return
        arguments = [*([node.func.value] if method else []), *node.args, *[k.value for k in node.keywords]]
        for argument in arguments:
            self.expression(argument, line)
        if name in _MAKERS and not method and not self.cuts and any([not isinstance(a, ast.Constant) for a in node.args]):
            kind = "numpy" if name == "from_numpy" else "new"
            self.cut(kind, f"{name}(...), which makes a tensor without history,", node.lineno)
        elif not self.cuts:
            self.callee(node)

    def callee(self, node: ast.Call) -> None:
        """Goes on in a function or module of the user's."""
        target = self.value(node.func)
        if "_parameters" in getattr(target, "__dict__", ()) and hasattr(target, "parameters"):  # an nn.Module
            flags = [p.requires_grad for p in target.parameters()]
            if flags and not any(flags):
                self.frozen.append(ast.unparse(node.func))
                return
            target = type(target).forward
        if isinstance(target, MethodType):
            target = target.__func__
        if not isinstance(target, FunctionType) or self.depth >= _DEEPEST or target.__module__.partition(".")[0] == "flambeau":
            return
        target = getattr(target, "__wrapped__", target)
        scope = _scope(target.__code__, target.__code__.co_firstlineno)
        if scope is None or isinstance(scope, ast.Module):
            return
        inner = _Reader(scope, target.__code__.co_filename, None, self)
        for decorator in scope.decorator_list:
            if _name(getattr(decorator, "func", decorator)) in _OFF:
                inner.cut("no_grad", f"@{ast.unparse(decorator)}", decorator.lineno)
        for part in _inside(scope):
            if isinstance(part, ast.Return) and part.value is not None:
                inner.statement(part, part.value)

    # --------------------------------------------------------------------------------------------------- variables
    def variable(self, name: str, line: int) -> None:
        """Goes on at the last assignment before a line, unless the variable has a history now."""
        value = self.value(ast.Name(name))
        if getattr(value, "requires_grad", False) is True or (name, line) in self.seen:
            return
        self.seen.add((name, line))
        before = [a for a in self.assigned if a[1] == name and a[0] < line] or [a for a in self.assigned if a[1] == name]
        if not before:
            if hasattr(value, "_array"):
                self.leaves.append(name)
            return
        at, _, statement, assigned = before[-1]
        found = len(self.leaves)
        self.statement(statement, assigned)
        if isinstance(statement, ast.AugAssign):
            self.variable(name, at)
        if len(self.leaves) == found and hasattr(value, "_array"):  # made of no other tensor that is known here
            self.leaves.append(name)

    def statement(self, statement: Any, value: Any) -> None:
        """Goes on in what a statement assigns or returns, if it does so with gradients on."""
        for block in self.off:
            if block.lineno <= statement.lineno <= (block.end_lineno or 0) and not self.within(block):
                shown = ", ".join([ast.unparse(item.context_expr) for item in block.items])
                self.cut("no_grad", f"`with {shown}:`", block.lineno)
                return
        self.expression(value, statement.lineno)

    def within(self, block: Any) -> bool:
        """Whether the call of backward is in a block itself: then it is not what cut the graph before it."""
        return self.frame is not None and block.lineno <= self.frame.f_lineno <= (block.end_lineno or 0)

    def value(self, node: Any) -> Any:
        """What a name or dotted name stands for now; nothing of the user's runs."""
        if isinstance(node, ast.Name):
            if self.frame is None:
                return _UNKNOWN
            return self.frame.f_locals.get(node.id, self.frame.f_globals.get(node.id, _UNKNOWN))
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, ModuleType):
                return getattr(owner, node.attr, _UNKNOWN)
            own = getattr(owner, "__dict__", {})
            for table in (own, *[own.get(t) or {} for t in ("_parameters", "_buffers", "_modules")]):
                if node.attr in table:
                    return table[node.attr]
            found = getattr(type(owner), node.attr, _UNKNOWN)
            return found if isinstance(found, FunctionType) else _UNKNOWN
        return _UNKNOWN

    def has_history(self, node: Any) -> bool:
        return getattr(self.value(node), "requires_grad", False) is True

    def may_have_history(self, node: Any) -> bool:
        """Whether an expression may stand for a tensor with history: all but constants and variables that have none."""
        if isinstance(node, ast.Constant):
            return False
        value = self.value(node)
        return value is _UNKNOWN or getattr(value, "requires_grad", False) is True
