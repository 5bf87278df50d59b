"""A tracer that rewrites `forward` first: an `assert` becomes a call that the graph has."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from types import FunctionType
from typing import Any

from ...nn.module import Module
from ..graph import Graph
from ..tracing import Tracer

__all__ = ["AST_Rewriter", "RewritingTracer", "normalize_source_lines"]


def normalize_source_lines(sourcelines: list[str]) -> list[str]:
    """The lines of a function, as if it were defined at the top."""
    return textwrap.dedent("".join(sourcelines)).splitlines(keepends=True)


class AST_Rewriter(ast.NodeTransformer):
    """`assert condition, message` as `torch._assert(condition, message)`; annotated assignments as plain ones."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """The function, rewritten."""
        import flambeau
        source, _ = inspect.getsourcelines(fn)
        tree = ast.fix_missing_locations(self.visit(ast.parse("".join(normalize_source_lines(source)))))
        before = dict(fn.__globals__)
        space = {**before, "torch": before.get("torch", flambeau), "__flambeau_assert__": flambeau._assert}
        exec(compile(tree, "<rewritten>", "exec"), space)
        made = space[fn.__name__]
        again = FunctionType(made.__code__, space, fn.__name__, fn.__defaults__, fn.__closure__ if (
            made.__code__.co_freevars == fn.__code__.co_freevars) else None)
        again.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
        return functools.update_wrapper(again, fn)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        message = node.msg if node.msg is not None else ast.Constant("")
        call = ast.Call(ast.Name("__flambeau_assert__", ast.Load()), [node.test, message], [])
        return ast.copy_location(ast.Expr(call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class RewritingTracer(Tracer):
    """A Tracer of modules whose `forward`, and those of their parts, are rewritten."""

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        return super().trace(_rewritten(root), concrete_args)


def _rewritten(root: Module) -> Module:
    """A copy of a module that has the same parameters and rewritten forwards."""
    made = copy.copy(root)
    made.__dict__ = dict(root.__dict__)
    made.__dict__["_modules"] = {name: None if inner is None else _rewritten(inner) if not type(inner).__module__.startswith(
        __name__.partition(".")[0] + ".nn") else inner for name, inner in root._modules.items()}
    made.__class__ = type(type(root).__name__, (type(root),), {"forward": AST_Rewriter().rewrite(type(root).forward)})
    return made
