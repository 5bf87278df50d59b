"""Which names of torch a Python file uses, by line, from its text alone.

Names are followed through imports (`import torch as t`, `from torch import nn`, `import torch.nn.functional as F`) and
plain assignments (`F = torch.nn.functional`), scope by scope as Python finds them; one that is also bound to something else
in its scope is not followed. Methods are looked at only where the object is a tensor for certain: the result of a function
that says it returns one, a parameter annotated as one, or a name that is never bound to anything else.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from .names import returns_tensor

TENSOR = "torch.Tensor"


class Use(NamedTuple):
    """guarded: the program is prepared for a name that is not there (try, hasattr, getattr with a default)."""

    name: str
    line: int
    guarded: bool = False


class Import(NamedTuple):
    """A module that a file imports: its dotted name, and how many dots stood before it."""

    module: str
    level: int


class Reader(ast.NodeVisitor):
    """Reads one file: `uses` of torch's names and `imports` of other modules."""

    def __init__(self, text: str, path: Path):
        self.uses: list[Use] = []
        self.imports: list[Import] = []
        self.scopes: list[dict[str, str | None]] = []  # name -> torch's name for it, "=torch.Tensor" for a tensor, or None
        self.in_try = 0
        tree = ast.parse(text, str(path))
        self.stored = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)}
        self.probed = _probed_names(tree)
        self._scope(tree, tree.body)

    # ------------------------------------------------------------------------------------------------------------ scopes
    def _scope(self, node: ast.AST, body: list[ast.stmt], arguments: ast.arguments | None = None) -> None:
        bound: dict[str, str | None] = {}
        self.scopes.append(bound)
        for argument in _parameters(arguments):
            bound[argument.arg] = "=" + TENSOR if argument.annotation and self._chain(argument.annotation) == TENSOR else None
        found = _Bindings()
        for statement in body:
            found.visit(statement)
        bound.update(found.torch)  # `try: import torch; except ImportError: torch = None` is an import all the same
        for name in found.other:
            bound[name] = None
        for name, values in found.assigned.items():
            if name not in bound:
                kinds = {self._kind(value) for value in values}
                bound[name] = kinds.pop() if len(kinds) == 1 else None
        for statement in body:
            self.visit(statement)
        self.scopes.pop()

    def _find(self, name: str) -> str | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def _kind(self, value: ast.expr) -> str | None:
        """What a name means that is bound to a value."""
        chain = self._chain(value)
        return chain if chain is not None else "=" + TENSOR if self._is_tensor(value) else None

    def _chain(self, node: ast.expr) -> str | None:
        """torch's name for an expression, if it is nothing but a name and attributes of it."""
        if isinstance(node, ast.Name):
            found = self._find(node.id)
            return found if found is not None and not found.startswith("=") else None
        if isinstance(node, ast.Attribute):
            inner = self._chain(node.value)
            return None if inner is None else f"{inner}.{node.attr}"
        if isinstance(node, ast.Constant) and node.value == "Tensor":  # an annotation in quotes
            return self._find("Tensor")
        return None

    def _is_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return self._find(node.id) == "=" + TENSOR
        if isinstance(node, ast.Call):
            chain = self._chain(node.func)
            if chain is None and isinstance(node.func, ast.Attribute) and self._is_tensor(node.func.value):
                chain = f"{TENSOR}.{node.func.attr}"
            return chain is not None and returns_tensor(chain)
        return False

    # -------------------------------------------------------------------------------------------------------- statements
    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self._use(alias.name, node)
            else:
                self.imports.append(Import(alias.name, 0))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                self._use(node.module if alias.name == "*" else f"{node.module}.{alias.name}", node)
            return
        self.imports.append(Import(node.module or "", node.level))
        for alias in node.names:  # each may be a module
            self.imports.append(Import(".".join(filter(None, (node.module, alias.name))), node.level))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        for annotation in (node.returns, *(a.annotation for a in _parameters(node.args))):
            if annotation is not None:
                self.visit(annotation)
        self._scope(node, node.body, node.args)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self._scope(node, [ast.Expr(node.body)], node.args)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outside in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(outside)
        for statement in node.body:  # its names are not seen inside its methods: those of the file are
            self.visit(statement)

    def visit_Try(self, node: ast.Try) -> None:
        prepared = any(_catches_missing(handler) for handler in node.handlers)
        self.in_try += prepared
        for statement in node.body:
            self.visit(statement)
        self.in_try -= prepared
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(rest)

    # ------------------------------------------------------------------------------------------------------- expressions
    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = self._chain(node)
        if chain is not None:
            if isinstance(node.ctx, ast.Load) and node.attr not in self.stored:
                self._use(chain, node)
            return
        if self._is_tensor(node.value) and node.attr not in self.stored:
            self._use(f"{TENSOR}.{node.attr}", node)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2 and (
                isinstance(node.args[1], ast.Constant) and (chain := self._chain(node.args[0])) is not None):
            self._use(f"{chain}.{node.args[1].value}", node, len(node.args) > 2)
        self.generic_visit(node)

    def _use(self, name: str, node: ast.AST, guarded: bool = False) -> None:
        guarded = guarded or bool(self.in_try) or any(name.split(".")[-1] == a or f".{a}." in name for a in self.probed)
        self.uses.append(Use(name, node.lineno, guarded))


class _Bindings(ast.NodeVisitor):
    """What the statements of one scope bind: `torch` names by import, names `assigned` to values, and `other` ones."""

    def __init__(self) -> None:
        self.torch: dict[str, str] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.other: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.torch[alias.asname or "torch"] = alias.name if alias.asname else "torch"
            else:
                self.other.add(alias.asname or alias.name.split(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        ours = not node.level and (node.module or "").split(".")[0] == "torch"
        for alias in node.names:
            if ours and alias.name != "*":
                self.torch[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            else:
                self.other.add(alias.asname or alias.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.other.add(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass  # a scope of its own

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.assigned.setdefault(target.id, []).append(node.value)
            else:
                self.visit(target)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):  # loops, `with ... as`, `del`, unpacking, :=, in-place operators
            self.other.add(node.id)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.other.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.other.add(node.name)
        self.generic_visit(node)


def _parameters(arguments: ast.arguments | None) -> list[ast.arg]:
    if arguments is None:
        return []
    return [a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
            if a is not None]


def _probed_names(tree: ast.AST) -> set[str]:
    """The names that a file asks for with hasattr before it uses them."""
    return {str(node.args[1].value) for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr"
            and len(node.args) == 2 and isinstance(node.args[1], ast.Constant)}


def _catches_missing(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` is for names or modules that are not there."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in (
        "ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "RuntimeError", "Exception",
        "BaseException")) for kind in kinds)
