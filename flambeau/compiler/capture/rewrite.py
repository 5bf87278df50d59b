"""Functions whose every read and effect of Python state reports itself.

`rewritten(function)` gives a function that does the same, with the same globals, closure, defaults and line numbers, but in
whose code each attribute, subscript, call, operator, loop, test and store goes through a function of helpers.py: `o.a` becomes
`_fl_attribute(o, "a")`, `f(x)` becomes `_fl_call(f)(x)`, and so on. What is called in the end, and in which order, stays as
it was; `_fl_call` gives back the function itself wherever there is nothing to add, so that frames look as they always do.

The source is found by file and line, and it counts only if it compiles to the very code that the function has: a file that
was edited meanwhile, or code without a source, cannot be rewritten, and nothing is known about it then.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import copy
import dis
import linecache
import re
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
           ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or_",
           ast.BitXor: "xor", ast.BitAnd: "and_"}
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.Is: "is",
            ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
_FRAMES = frozenset(("locals", "vars", "dir", "eval", "exec", "globals", "breakpoint", "__import__"))  # look at their caller's
_REFUSED = (ast.ClassDef, ast.Global, ast.Nonlocal, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Match,
            ast.Import, ast.ImportFrom, *([ast.TryStar] if hasattr(ast, "TryStar") else []),
            *([ast.TemplateStr] if hasattr(ast, "TemplateStr") else []))
_WORDS = {ast.Global: "a global statement", ast.Nonlocal: "a nonlocal statement", ast.ClassDef: "a class statement",
          ast.Match: "a match statement", ast.Import: "an import statement", ast.ImportFrom: "an import statement"}


class Unsupported(Exception):
    """The function cannot be rewritten; the text says why."""


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Python has said once what it thinks of a file. (`catch_warnings` would make it repeat what it said of others, too.)"""
    filters, mine = warnings.filters, [("ignore", None, SyntaxWarning, None, 0),
                                       ("ignore", re.compile("invalid escape"), DeprecationWarning, None, 0)]
    filters[:0] = mine
    try:
        yield
    finally:
        for one in mine:
            filters.remove(one)


# ------------------------------------------------------------------------------------------------------ finding the source
class _File:
    """A source file: its functions as trees, and the code that they compile to."""

    def __init__(self, file: str, lines: list[str]):
        self.lines = lines
        with _quietly():
            self._read(file, ast.parse("".join(lines)))

    def _read(self, file: str, tree: ast.Module) -> None:
        self.nodes: dict[tuple[str, int], list[Any]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
                self.nodes.setdefault((node.name, first), []).append(node)
            elif isinstance(node, ast.Lambda):
                self.nodes.setdefault(("<lambda>", node.lineno), []).append(node)
        self.codes: dict[tuple[str, int], list[CodeType]] = {}
        stack = [compile(tree, file, "exec", 0, True)]
        while stack:
            code = stack.pop()
            self.codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
            stack += [c for c in code.co_consts if isinstance(c, CodeType)]

    def node(self, code: CodeType) -> Any:
        """The tree of a function, if the file still says what the function does."""
        place = code.co_name, code.co_firstlineno
        if not any(_same(code, found) for found in self.codes.get(place, ())):
            return None
        found = self.nodes.get(place, [])
        if len(found) > 1:  # functions on one line are told apart by their columns and their arguments
            given = list(code.co_varnames[:code.co_argcount])
            found = [n for n in found if _holds(n, code) and [a.arg for a in (*n.args.posonlyargs, *n.args.args)] == given]
            if len({ast.dump(n) for n in found}) > 1:
                return None
        return found[0] if found else None


def _holds(node: Any, code: CodeType) -> bool:
    """Whether a lambda's body is where this code comes from."""
    body = node.body
    if not isinstance(node, ast.Lambda):
        return False
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [p for p in code.co_positions() if None not in p and (p[2], p[3]) != (0, 0)]
    return bool(places) and all(first <= (p[0], p[2]) and (p[1], p[3]) <= last for p in places) and (
        min((p[0], p[2]) for p in places) == first or max((p[1], p[3]) for p in places) == last)


_files: dict[str, _File] = {}


def _node(code: CodeType, table: dict[str, Any]) -> Any:
    lines = linecache.getlines(code.co_filename, table)
    known = _files.get(code.co_filename)
    if lines and (known is None or (known.lines is not lines and known.lines != lines)):
        try:
            _files[code.co_filename] = known = _File(code.co_filename, lines)
        except (SyntaxError, ValueError):
            known = None
    if not lines or known is None:
        raise Unsupported(f"the source of '{code.co_name}' is not to be had")
    found = known.node(code)
    if found is None:
        raise Unsupported(f"the source of '{code.co_name}' is not what it was when it was loaded")
    return found


def _wrapped(node: Any, code: CodeType, names: list[str]) -> ast.Module:
    """A module that holds the function where its free variables and `super()` mean what they did."""
    body: list[Any] = [node if isinstance(node, ast.FunctionDef) else ast.Expr(node)]
    if isinstance(node, ast.FunctionDef):
        node.name = _NAME  # its own would be a variable here, and the function could not call itself
    if "__class__" in code.co_freevars:
        names = ["__class__", *names]
    factory = ast.FunctionDef("factory", ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, []), body, [],
                              **_types())
    return ast.fix_missing_locations(ast.Module([factory], []))


def _types() -> dict[str, Any]:
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


def _compiled(module: ast.Module, code: CodeType) -> CodeType:
    flags = code.co_flags & _FUTURE
    with _quietly():
        stack = [compile(module, code.co_filename, "exec", flags, True)]
    while stack:
        part = stack.pop()
        if part.co_name in ("<lambda>", _NAME) and part.co_firstlineno == code.co_firstlineno:
            return _named(part.replace(co_name=code.co_name), part.co_qualname, code.co_qualname)
        stack += [c for c in part.co_consts if isinstance(c, CodeType)]
    raise Unsupported(f"the source of '{code.co_name}' is not to be had")


def _named(code: CodeType, old: str, new: str) -> CodeType:
    """The code, and the functions inside it, under the names that they have where they come from."""
    consts = [_named(c, old, new) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_qualname=new + code.co_qualname[len(old):], co_consts=tuple(consts))


_NAME = "_fl_function"
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


def _same(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same."""
    if (a.co_code != b.co_code or a.co_names != b.co_names or a.co_varnames != b.co_varnames
            or a.co_freevars != b.co_freevars or len(a.co_consts) != len(b.co_consts) or a.co_flags != b.co_flags):
        return False
    return all(_same(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else repr(x) == repr(y)
               for x, y in zip(a.co_consts, b.co_consts))


def _bare(node: Any) -> Any:
    """A copy of the function alone: its decorators ran long ago, its defaults and annotations are values by now."""
    node = copy.deepcopy(node)
    if isinstance(node, ast.FunctionDef):
        node.lineno = min([node.lineno, *[d.lineno for d in node.decorator_list]])
        node.decorator_list, node.returns = [], None
        for a in _arguments(node.args):
            a.annotation = None
    node.args.defaults = [ast.copy_location(ast.Constant(None), node) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.copy_location(ast.Constant(None), node) for d in node.args.kw_defaults]
    return node


def _arguments(args: ast.arguments) -> list[ast.arg]:
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *[a for a in (args.vararg, args.kwarg) if a]]


# -------------------------------------------------------------------------------------------------------------- rewriting
class _Rewriter(ast.NodeTransformer):
    """Puts the helpers in. (`helpers` collects the names that are used.)"""

    def __init__(self, owner: str | None, ours: bool, texts: bool):
        self.owner, self.ours, self.helpers, self.temporaries = owner, ours, set(), 0
        self.texts = texts  # annotations are not evaluated

    def call(self, at: ast.AST, helper: str, *args: Any) -> Any:
        """helper(*args) as an expression; strings are constants."""
        self.helpers.add(f"_fl_{helper}")
        given = [ast.Constant(a) if isinstance(a, str) else a for a in args]
        made = ast.Call(ast.Name(f"_fl_{helper}", ast.Load()), given, [])
        for part in (made, made.func, *[a for a, b in zip(given, args) if isinstance(b, str)]):
            ast.copy_location(part, at)
        return made

    def mangled(self, name: str) -> str:
        if self.owner and name.startswith("__") and not name.endswith("__") and self.owner.strip("_"):
            return f"_{self.owner.lstrip('_')}{name}"
        return name

    def generic_visit(self, node: Any) -> Any:
        if isinstance(node, _REFUSED) and not (self.ours and isinstance(node, (ast.Import, ast.ImportFrom))):
            raise Unsupported(f"it has {_WORDS.get(type(node), 'an asynchronous or unknown statement')}")
        return super().generic_visit(node)

    # ------------------------------------------------------------------------------------------------- expressions
    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in _FRAMES and isinstance(node.ctx, ast.Load):
            raise Unsupported(f"it uses {node.id}()")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return self.call(node, "attribute", self.visit(node.value), self.mangled(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        return self.call(node, "item", self.visit(node.value), self.index(node.slice))

    def index(self, key: Any) -> Any:
        if isinstance(key, ast.Slice):
            parts = [ast.copy_location(ast.Constant(None), key) if p is None else self.visit(p)
                     for p in (key.lower, key.upper, key.step)]
            return self.call(key, "slice", *parts)
        if isinstance(key, ast.Tuple):
            return ast.copy_location(ast.Tuple([self.index(k) for k in key.elts], ast.Load()), key)
        return self.visit(key)

    def visit_Call(self, node: ast.Call) -> Any:
        called = node.func
        if isinstance(called, ast.Name) and called.id == "super":  # reads its caller's first argument
            return self.generic_visit(node)
        node.func = self.call(called, "call", self.visit(called))
        node.args = [self.spread(a) for a in node.args]
        for k in node.keywords:
            k.value = self.visit(k.value) if k.arg else self.call(k.value, "keywords", self.visit(k.value))
        return node

    def spread(self, node: Any) -> Any:
        if isinstance(node, ast.Starred):
            node.value = self.call(node.value, "collected", self.visit(node.value))
            return node
        return self.visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.call(node, "binary", _BINARY[type(node.op)], self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            node.operand = self.test(node.operand)
            return node
        if isinstance(node.operand, ast.Constant):
            return node
        return self.call(node, "unary", _UNARY[type(node.op)], self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        kinds = [_COMPARE[type(op)] for op in node.ops]
        if len(kinds) == 1:
            return self.call(node, "compare", kinds[0], self.visit(node.left), self.visit(node.comparators[0]))
        node.left = self.call(node.left, "compared", self.visit(node.left))
        node.comparators = [self.call(c, "compared", self.visit(c)) for c in node.comparators]
        return node

    def test(self, node: Any) -> Any:
        made = self.visit(node)
        return made if isinstance(node, (ast.Constant, ast.Compare)) and len(getattr(node, "ops", "1")) == 1 else (
            self.call(node, "test", made))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        node.values = [*[self.test(v) for v in node.values[:-1]], self.visit(node.values[-1])]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test, node.body, node.orelse = self.test(node.test), self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_List(self, node: ast.List) -> Any:
        node.elts = [self.spread(e) for e in node.elts]
        return self.call(node, "made", node) if isinstance(node.ctx, ast.Load) else node

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        node.elts = [self.spread(e) for e in node.elts]
        return node

    def visit_Set(self, node: ast.Set) -> Any:
        node.elts = [self.spread(e) for e in node.elts]
        return self.call(node, "made", node)

    def visit_Dict(self, node: ast.Dict) -> Any:
        node.values = [self.visit(v) if k else self.call(v, "keywords", self.visit(v)) for k, v in zip(node.keys, node.values)]
        node.keys = [k and self.visit(k) for k in node.keys]
        return self.call(node, "made", node)

    def _comprehension(self, node: Any) -> Any:
        for part in node.generators:
            if part.is_async:
                raise Unsupported("it has an asynchronous or unknown statement")
            part.iter = self.loop(part.target, part.iter)
            part.ifs = [self.test(t) for t in part.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        return self.call(node, "made", node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = self.call(node.value, "shown", self.visit(node.value))
        node.format_spec = node.format_spec and self.visit(node.format_spec)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        node.value = self.call(node.value, "iterable", self.visit(node.value))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        node.body = self.visit(node.body)
        if node.args.kwarg:  # fresh at each call
            fresh = self.call(node, "made", ast.copy_location(ast.Name(node.args.kwarg.arg, ast.Load()), node))
            pair = ast.copy_location(ast.Tuple([fresh, node.body], ast.Load()), node)
            node.body = ast.copy_location(ast.Subscript(pair, ast.copy_location(ast.Constant(1), node), ast.Load()), node)
        return node

    # -------------------------------------------------------------------------------------------------- statements
    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if node.decorator_list:
            raise Unsupported("it defines a decorated function")
        if not self.texts:
            for a in _arguments(node.args):
                a.annotation = a.annotation and self.visit(a.annotation)
            node.returns = node.returns and self.visit(node.returns)
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        node.body = self.block(node.body)
        if node.args.kwarg:
            fresh = self.call(node, "made", ast.copy_location(ast.Name(node.args.kwarg.arg, ast.Load()), node))
            node.body.insert(0, ast.copy_location(ast.Expr(fresh), node))
        return node

    def block(self, statements: list[Any]) -> list[Any]:
        made: list[Any] = []
        for s in statements:
            new = self.visit(s)
            made += new if isinstance(new, list) else [] if new is None else [new]
        return made

    def visit_If(self, node: Any) -> Any:
        node.test, node.body, node.orelse = self.test(node.test), self.block(node.body), self.block(node.orelse)
        return node

    visit_While = visit_If

    def visit_Assert(self, node: ast.Assert) -> Any:
        node.test, node.msg = self.test(node.test), node.msg and self.visit(node.msg)
        return node

    def loop(self, target: Any, iterable: Any) -> Any:
        if any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(target)):
            raise Unsupported("a loop stores into an object")
        kind = "iterable" if isinstance(target, ast.Name) else "iterables"
        return self.call(iterable, kind, self.visit(iterable))

    def visit_For(self, node: ast.For) -> Any:
        node.iter = self.loop(node.target, node.iter)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            if item.optional_vars is not None and not isinstance(item.optional_vars, ast.Name):
                raise Unsupported("a with statement stores into an object")
            item.context_expr = self.call(item.context_expr, "manager", self.visit(item.context_expr))
        node.body = self.block(node.body)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = value
            return node
        if len(node.targets) == 1:
            return self.stored(node, node.targets[0], value)
        name, first = self.temporary(node, value)
        return [first, *[s for t in node.targets for s in self.stored(node, t, self.loaded(node, name))]]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:  # of `x.a: int` nothing is done but looking x up
            parts = [] if isinstance(node.target, ast.Name) else [self.visit(node.target.value)]
            if isinstance(node.target, ast.Subscript):
                parts.append(self.index(node.target.slice))
            return [ast.copy_location(ast.Expr(p), node) for p in parts] or ast.copy_location(ast.Pass(), node)
        return self.stored(node, node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        kind, target = _BINARY[type(node.op)].rstrip("_"), node.target
        if isinstance(target, ast.Name):
            new = self.call(node, "augmented", f"i{kind}", self.loaded(node, target.id), self.visit(node.value))
            return self.stored(node, target, new)
        name, first = self.temporary(node, self.visit(target.value))
        before = [first]
        if isinstance(target, ast.Attribute):
            where: list[Any] = [self.mangled(target.attr)]
            old, first = self.temporary(node, self.call(node, "attribute", self.loaded(node, name), *where))
            store = "store_attribute"
        else:
            key, first = self.temporary(node, self.index(target.slice))
            before.append(first)
            where = [self.loaded(node, key)]
            old, first = self.temporary(node, self.call(node, "item", self.loaded(node, name), self.loaded(node, key)))
            store = "store_item"
        before.append(first)
        new = self.call(node, "augmented", f"i{kind}", self.loaded(node, old), self.visit(node.value))
        return [*before, ast.copy_location(ast.Expr(self.call(node, store, new, self.loaded(node, name), *where)), node)]

    def stored(self, at: ast.AST, target: Any, value: Any) -> list[Any]:
        """Statements for target = value (which is rewritten already)."""
        if isinstance(target, ast.Name):
            return [ast.copy_location(ast.Assign([target], value), at)]
        if isinstance(target, ast.Attribute):
            made = self.call(at, "store_attribute", value, self.visit(target.value), self.mangled(target.attr))
            return [ast.copy_location(ast.Expr(made), at)]
        if isinstance(target, ast.Subscript):
            made = self.call(at, "store_item", value, self.visit(target.value), self.index(target.slice))
            return [ast.copy_location(ast.Expr(made), at)]
        value = self.call(at, "iterable", value)
        if not any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(target)):
            if any(isinstance(e, (ast.Tuple, ast.List)) for e in target.elts):
                return self._unpacked(at, target, value)
            return [ast.copy_location(ast.Assign([target], value), at)]
        return self._unpacked(at, target, value)

    def _unpacked(self, at: ast.AST, target: Any, value: Any) -> list[Any]:
        names, parts = [], []
        for e in target.elts:
            names.append(f"_fl_t{self.temporaries}")
            self.temporaries += 1
            name = ast.Name(names[-1], ast.Store())
            parts.append(ast.Starred(name, ast.Store()) if isinstance(e, ast.Starred) else name)
        first = ast.Assign([ast.Tuple(parts, ast.Store())], value)
        for n in ast.walk(first.targets[0]):
            ast.copy_location(n, at)
        made = [ast.copy_location(first, at)]
        for e, name in zip(target.elts, names):
            inner = e.value if isinstance(e, ast.Starred) else e
            given = self.loaded(at, name)
            made += self.stored(at, inner, self.call(at, "made", given) if isinstance(e, ast.Starred) else given)
        return made

    def temporary(self, at: ast.AST, value: Any) -> tuple[str, Any]:
        name = f"_fl_t{self.temporaries}"
        self.temporaries += 1
        target = ast.copy_location(ast.Name(name, ast.Store()), at)
        return name, ast.copy_location(ast.Assign([target], value), at)

    def loaded(self, at: ast.AST, name: str) -> Any:
        return ast.copy_location(ast.Name(name, ast.Load()), at)

    def visit_Delete(self, node: ast.Delete) -> Any:
        made: list[Any] = []
        for t in node.targets:
            if isinstance(t, ast.Name):
                made.append(ast.copy_location(ast.Delete([t]), node))
            elif isinstance(t, ast.Attribute):
                call = self.call(node, "delete_attribute", self.visit(t.value), self.mangled(t.attr))
                made.append(ast.copy_location(ast.Expr(call), node))
            elif isinstance(t, ast.Subscript):
                call = self.call(node, "delete_item", self.visit(t.value), self.index(t.slice))
                made.append(ast.copy_location(ast.Expr(call), node))
            else:
                raise Unsupported("it deletes several things at once")
        return made


# A function's code, and its file (which does not count where Python compares code) -> the rewritten one, or why there is none.
_codes: dict[tuple[CodeType, str], tuple[CodeType | None, str]] = {}
REWRITTEN: set[CodeType] = set()                          # code that reports itself
NAMES: dict[CodeType, tuple[str, ...]] = {}               # the global names that code reads, functions inside it included


def _transformed(code: CodeType, table: dict[str, Any]) -> CodeType:
    free = [n for n in code.co_freevars if n != "__class__"]
    node = _bare(_node(code, table))
    owner = code.co_qualname.split(".")[-2:-1]
    ours = str(table.get("__name__")).partition(".")[0] == __package__.partition(".")[0]
    texts = bool(code.co_flags & __future__.annotations.compiler_flag)
    rewriter = _Rewriter(owner[0] if owner and owner[0] != "<locals>" else None, ours, texts)
    made = _compiled(_wrapped(rewriter.visit(node), code, [*free, *sorted(rewriter.helpers)]), code)
    if set(made.co_freevars) - set(free) - rewriter.helpers - {"__class__"} or made.co_varnames[:code.co_argcount] != (
            code.co_varnames[:code.co_argcount]):
        raise Unsupported(f"'{code.co_name}' has variables that cannot be told apart")
    _enter(made)
    return made


def _enter(code: CodeType) -> None:
    REWRITTEN.add(code)
    for c in code.co_consts:
        if isinstance(c, CodeType):
            _enter(c)


def rewritten(function: FunctionType, helpers: dict[str, Callable[..., Any]]) -> FunctionType:
    """The function that reports itself; raises Unsupported where there is none."""
    code = function.__code__
    known = _codes.get((code, code.co_filename))
    if known is None:
        try:
            known = _transformed(code, function.__globals__), ""
        except (Unsupported, RecursionError) as error:
            known = None, str(error) or "it is nested too deeply"
        except Exception as error:  # a form of Python that this file does not know: nothing is lost but speed
            known = None, f"it could not be rewritten ({type(error).__name__}: {error})"
        _codes[code, code.co_filename] = known
    new, why = known
    if new is None:
        raise Unsupported(why)
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    closure = tuple([cells[n] if n in cells else _cell(helpers[n]) for n in new.co_freevars])
    made = FunctionType(new, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    return made


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]


def global_names(code: CodeType) -> tuple[str, ...]:
    """The names that code looks up among globals and builtins, functions inside it included."""
    found = NAMES.get(code)
    if found is None:
        names = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
        for c in code.co_consts:
            if isinstance(c, CodeType):
                names += global_names(c)
        NAMES[code] = found = tuple(dict.fromkeys(names))
    return found


BUILTINS = vars(builtins)
