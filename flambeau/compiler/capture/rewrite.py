"""Functions whose every read and effect of Python state reports itself.

`rewritten(function)` gives a function that does the same, with the same globals, closure, defaults and line numbers, but in
whose code each attribute, subscript, call, operator, loop, test and store goes through a function of helpers.py: `o.a` becomes
`attribute(o, "a")`, `f(x)` becomes `call(f)(x)`, and so on. What is called in the end, and in which order, stays as it was;
`call` gives back the function itself wherever there is nothing to add, so that frames look as they always do. Helpers are
constants of the code, so that it has no variables but the function's own. Nothing is known of a function whose source is not
to be had (source.py).
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .source import Unsupported, node_of, quietly

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
    with quietly():
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
_OURS = object()
_HELPER = "\0the helper "  # with a name: a constant that no source has
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


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
    """Puts the helpers in: as constants that are no names yet."""

    def __init__(self, owner: str | None, ours: bool, texts: bool):
        self.owner, self.ours, self.temporaries = owner, ours, 0
        self.texts = texts  # annotations are not evaluated

    def call(self, at: ast.AST, helper: str, *args: Any) -> Any:
        """helper(*args) as an expression; strings are constants."""
        given = [ast.Constant(a) if isinstance(a, str) else a for a in args]
        made = ast.Call(ast.Constant(_HELPER + helper), given, [])
        for part in (made, made.func, *[a for a, b in zip(given, args) if isinstance(b, str)]):
            ast.copy_location(part, at)
        return made

    def mangled(self, name: str) -> str:
        if self.owner and name.startswith("__") and not name.endswith("__") and self.owner.strip("_"):
            return f"_{self.owner.lstrip('_')}{name}"
        return name

    def renamed(self, tree: Any) -> Any:
        """A class's private names are other ones than its source says, those of variables too."""
        for node in ast.walk(tree):
            for field in ("id", "arg", "name") if not isinstance(node, (ast.keyword, ast.alias)) else ():
                if isinstance(name := getattr(node, field, None), str):
                    setattr(node, field, self.mangled(name))
        return tree

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
        if not {"is", "is not", "in", "not in"}.isdisjoint(kinds):
            return self.chain(node, kinds)
        node.left = self.call(node.left, "compared", self.visit(node.left))
        node.comparators = [self.call(c, "compared", self.visit(c)) for c in node.comparators]
        return node

    def chain(self, node: ast.Compare, kinds: list[str]) -> Any:
        """a < b is c, as (a < b) and (b is c) with one b."""
        left, made = self.visit(node.left), []
        for kind, part in zip(kinds, node.comparators):
            name, right = f".t{self.temporaries}", self.visit(part)
            self.temporaries += 1
            if part is not node.comparators[-1]:
                right = ast.copy_location(ast.NamedExpr(ast.copy_location(ast.Name(name, ast.Store()), part), right), part)
            made.append(self.call(node, "compare", kind, left, right))
            left = self.loaded(part, name)
        return ast.copy_location(ast.BoolOp(ast.And(), [*[self.call(node, "test", m) for m in made[:-1]], made[-1]]), node)

    def test(self, node: Any) -> Any:
        """An expression whose truth is asked: once, of each part of it that Python asks."""
        if isinstance(node, ast.BoolOp):
            node.values = [self.test(v) for v in node.values]
            return node
        plain = isinstance(node, (ast.Constant, ast.Compare)) and len(getattr(node, "ops", "1")) == 1
        made = self.visit(node)
        return made if plain or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) else (
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
        last = node.format_spec and node.format_spec.values[-1:]
        if last and (not isinstance(last[0], ast.Constant) or str(last[0].value).endswith("n")):
            raise Unsupported("a number is shown as the locale wants it")
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
            node.body.insert(ast.get_docstring(node, False) is not None, ast.copy_location(ast.Expr(fresh), node))
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

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        node.body = self.block(node.body)
        if node.type is None:
            nothing = ast.copy_location(ast.Constant(None), node)
            node.body.insert(0, ast.copy_location(ast.Expr(self.call(node, "caught", nothing)), node))
        else:
            node.type = self.call(node.type, "caught", self.visit(node.type))
        return node

    def visit_Raise(self, node: ast.Raise) -> Any:
        node.exc = node.exc and self.call(node.exc, "raised", self.visit(node.exc))
        node.cause = node.cause and self.call(node.cause, "raised", self.visit(node.cause))
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
        return [first, *[s for t in node.targets for s in self.stored(node, t, self.loaded(node, name))],
                self.forgotten(node, name)]

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
        done = self.call(node, store, new, self.loaded(node, name), *where)
        return [*before, ast.copy_location(ast.Expr(done), node), self.forgotten(node, *[s.targets[0].id for s in before])]

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
            names.append(f".t{self.temporaries}")
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
        return [*made, self.forgotten(at, *names)] if names else made

    def temporary(self, at: ast.AST, value: Any) -> tuple[str, Any]:
        name = f".t{self.temporaries}"
        self.temporaries += 1
        target = ast.copy_location(ast.Name(name, ast.Store()), at)
        return name, ast.copy_location(ast.Assign([target], value), at)

    def forgotten(self, at: ast.AST, *names: str) -> Any:
        return ast.copy_location(ast.Delete([ast.copy_location(ast.Name(n, ast.Del()), at) for n in names]), at)

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


def _class_around(qualname: str) -> str | None:
    """The innermost class that a function is written in: of `f.<locals>.A.m.<locals>.g` it is A."""
    parts = qualname.split(".")
    return next((name for name, inside in zip(parts[-2::-1], parts[:0:-1]) if "<locals>" not in (name, inside)), None)


def _transformed(code: CodeType, table: dict[str, Any], helpers: dict[str, Callable[..., Any]]) -> CodeType:
    free = [n for n in code.co_freevars if n != "__class__"]
    node = _bare(node_of(code, table))
    ours = str(table.get("__name__")).partition(".")[0] == __package__.partition(".")[0]
    texts = bool(code.co_flags & __future__.annotations.compiler_flag)
    rewriter = _Rewriter(_class_around(code.co_qualname), ours, texts)
    made = _with_helpers(_compiled(_wrapped(rewriter.visit(rewriter.renamed(node)), code, free), code), helpers)
    if set(made.co_freevars) - set(code.co_freevars) or (
            made.co_varnames[:code.co_argcount] != code.co_varnames[:code.co_argcount]):
        raise Unsupported(f"'{code.co_name}' has variables that cannot be told apart")
    _enter(made)
    return made


def _with_helpers(code: CodeType, helpers: dict[str, Callable[..., Any]]) -> CodeType:
    """The code with helpers in place of the constants that stand for them, and a constant that says whose it is: without one
    the code of `lambda: k`, in which there is nothing to rewrite, equals the function's own."""
    consts = [_with_helpers(c, helpers) if isinstance(c, CodeType) else helpers[c[len(_HELPER):]] if (
        isinstance(c, str) and c.startswith(_HELPER)) else c for c in code.co_consts]
    return code.replace(co_consts=(*consts, _OURS))


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
            known = _transformed(code, function.__globals__, helpers), ""
        except (Unsupported, RecursionError) as error:
            known = None, str(error) or "it is nested too deeply"
        except Exception as error:  # a form of Python that this file does not know: nothing is lost but speed
            known = None, f"it could not be rewritten ({type(error).__name__}: {error})"
        _codes[code, code.co_filename] = known
    new, why = known
    if new is None:
        raise Unsupported(why)
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    closure = tuple([cells[n] for n in new.co_freevars])
    made = FunctionType(new, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    return made


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
