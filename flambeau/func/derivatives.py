"""Derivatives of functions: each of these takes a function and gives back another one.

All are made of backward passes that can be differentiated again, so they nest. What a function closes over keeps its
history: a result that depends on a tensor outside that requires grad requires grad too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.modes import enable_grad
from ..autograd.node import AccumulateGrad, Edge
from ..autograd.passes import grad as _differentiate
from ..autograd.state import grad_enabled, state
from ..autograd.views import history_of
from ..creation.factories import eye, ones, zeros, zeros_like
from ..tensors.tensor import Tensor
from ..utils._pytree import tree_flatten, tree_map, tree_unflatten
from .batching import vmap

argnums_t = Any
_NO_HOOKS = ("torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use "
             "case.")


# ---------------------------------------------------------------------------------------------------------- the machinery
class _Level:
    """One transformation under way: its inputs as it sees them, and what may leave it with a history."""

    def __init__(self) -> None:
        self.record = grad_enabled()
        self.own: list[Tensor] = []
        self.position = 1 + len(state.levels) + len(state.transforms)  # counted from the outermost

    def call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], reverse: bool = True) -> Any:
        """The function, called as part of this transformation. reverse: it is to be differentiated backwards."""
        off, self.reverse = state.saved_hooks_off, reverse
        if reverse:
            if state.saved_hooks:
                raise RuntimeError(_NO_HOOKS)
            state.saved_hooks_off = _NO_HOOKS
        state.transforms = [*state.transforms, self]
        try:
            return func(*args, **kwargs)
        finally:
            state.saved_hooks_off = off
            state.transforms = state.transforms[:-1]

    def check_function(self, cls: type, args: Any) -> None:
        """A custom Function is called inside."""
        from ..autograd.function import Function
        from .functions import check_setup
        check_setup(cls)
        if not self.reverse and cls.jvp is Function.jvp and any(isinstance(a, Tensor) and a.requires_grad for a in args):
            Function.jvp(None)  # says that it is missing

    def enter(self, value: Any) -> Any:
        """The input as a variable of this level: joined to the outer graph where there is one."""
        if not isinstance(value, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(value)}")
        if not value.is_floating_point() and not value.is_complex():
            raise RuntimeError("only Tensors of floating point dtype can require gradients (or of complex dtype), got "
                               f"{value.dtype}")
        if value.requires_grad and self.record:
            return value.view_as(value)
        made = value.detach().requires_grad_(True)
        self.own.append(made)
        return made

    def leave(self, value: Any) -> Any:
        """A result: without history, unless that leads out of this level."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        return value if self.record and self._leads_out([value]) else value.detach()

    def recorded(self, outputs: list[Tensor], given: Any = ()) -> bool:
        """Whether derivatives of these results have a history outside: only then the backward pass has to be recorded."""
        return self.record and (any([g.requires_grad for g in given]) or self._leads_out(
            [o for o in outputs if o.requires_grad]))

    def _leads_out(self, values: list[Tensor]) -> bool:
        mine = {id(t) for t in self.own}
        todo, seen = [], set()
        for value in values:
            node = history_of(value)
            if node.__class__ is AccumulateGrad and id(value) not in mine:
                return True
            if node is not None:  # else it requires grad as a view of something, and leads nowhere
                todo.append(node)
        while todo:
            node = todo.pop()
            node = node.node if node.__class__ is Edge else node
            if node in seen:
                continue
            seen.add(node)
            if node.__class__ is AccumulateGrad:
                if id(node.variable) not in mine:
                    return True
            else:
                todo += [n for n in node.next if n is not None]
        return False


def _picked(args: tuple[Any, ...], argnums: Any, name: str) -> tuple[tuple[int, ...], bool]:
    """(numbers of the arguments, whether there is just one), checked."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    numbers = tuple([n % len(args) for n in numbers])
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return numbers, isinstance(argnums, int)


def _replaced(args: tuple[Any, ...], numbers: tuple[int, ...], values: list[Any]) -> list[Any]:
    made = list(args)
    for n, v in zip(numbers, values):
        made[n] = v
    return made


def _pull(outputs: list[Tensor], inputs: list[Tensor], given: Any, record: bool = True) -> list[Tensor]:
    """v^T J for each input, zeros where there is no connection."""
    pairs = [(o, g) for o, g in zip(outputs, given) if o.requires_grad]
    wanted = [x for x in inputs if isinstance(x, Tensor)]
    if not pairs or not wanted:
        found = [None] * len(wanted)
    else:
        found = list(_differentiate([o for o, _ in pairs], wanted, [g for _, g in pairs], retain_graph=True,
                                    create_graph=record, allow_unused=True))
    filled = iter([zeros_like(x) if g is None else g for g, x in zip(found, wanted)])
    return [next(filled) if isinstance(x, Tensor) else None for x in inputs]


def _split_aux(made: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return made, None
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for leaf in tree_flatten(made[1])[0]:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
    return made


def _check_outputs(outputs: list[Any], start: str, reverse: bool) -> None:
    """What f returned: tensors alone and, to be pulled back from, of a dtype that has derivatives."""
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(f"{start}: expected f(*primals) to return only tensors, got unsupported type {type(o)}")
    for o in outputs:
        if reverse and not (o.is_floating_point() or o.is_complex()):
            raise RuntimeError("vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                               f"{o.dtype}")


def _check_real(tensors: list[Any], what: str, name: str) -> None:
    for i, t in enumerate(tensors):
        if isinstance(t, Tensor) and t.is_complex():
            raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: "
                               f"{i}")


# ---------------------------------------------------------------------------------------------------------------- gradients
def grad_and_value(func: Callable[..., Any], argnums: argnums_t = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives (gradient, value) of a function with one number as its result.

    >>> torch.func.grad_and_value(lambda x: x ** 2)(torch.tensor(3.0))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        level = _Level()
        with enable_grad():
            numbers, single = _picked(args, argnums, "grad")
            values = [tree_map(level.enter, args[n]) for n in numbers]
            out, aux = _split_aux(level.call(func, _replaced(args, numbers, values), kwargs), has_aux,
                                  "grad_and_value(f)(*args)")
            if not isinstance(out, Tensor):
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(out)}")
            if out.ndim:
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                                   f"{out.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            if out.is_complex():
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
            leaves, spec = tree_flatten(values[0] if single else tuple(values))
            grads = tree_unflatten(_pull([out], leaves, [out.new_ones(())], level.recorded([out])), spec)
        grads, out, aux = (tree_map(level.leave, v) for v in (grads, out, aux))
        return (grads, (out, aux)) if has_aux else (grads, out)

    return wrapper


def grad(func: Callable[..., Any], argnums: argnums_t = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function with one number as its result.

    >>> torch.func.grad(lambda x: x ** 2)(torch.tensor(3.0))
    tensor(6.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), a function from cotangents to v^T J).

    >>> value, back = torch.func.vjp(lambda x: x ** 2, torch.tensor(3.0))
    >>> back(torch.tensor(1.0))
    (tensor(6.),)
    """
    level = _Level()
    with enable_grad():
        values = tree_map(level.enter, primals)
        out, aux = _split_aux(level.call(func, values, {}), has_aux, "vjp(f, *primals)")
        outputs, out_spec = tree_flatten(out)
        _check_outputs(outputs, "vjp(f, *primals)", True)
        leaves, spec = tree_flatten(values)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = tree_flatten(cotangents)
        if given_spec != out_spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to "
                               f"the function. cotangents: {given_spec}, primal output: {out_spec}")
        for g in given:
            if not isinstance(g, Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        inner = _Level()
        inner.own = level.own
        with enable_grad():
            made = _pull(outputs, leaves, given, inner.recorded(outputs, given))
        return tree_unflatten([inner.leave(v) for v in made], spec)

    out = tree_map(level.leave, out)
    return (out, pull, tree_map(level.leave, aux)) if has_aux else (out, pull)


def _push(outputs: list[Tensor], leaves: list[Tensor], tangents: list[Tensor], level: _Level) -> list[Tensor]:
    """J v: u -> J^T u is linear, and its derivative applied to v is J v."""
    probes = [zeros_like(o).requires_grad_(True) for o in outputs]
    pulled = _pull(outputs, leaves, probes)
    level.own += probes
    return _pull(pulled, probes, tangents, level.recorded(pulled, tangents))


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(func(*primals), J v).

    >>> torch.func.jvp(lambda x: x ** 2, (torch.tensor(3.0),), (torch.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call "
                           f"f(*primals). Got {type(primals)}")
    directions, tangent_spec = tree_flatten(tangents)
    if tree_flatten(primals)[1] != tangent_spec:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. For "
                           "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
                           f"{tree_flatten(primals)[1]} and tangents with structure {tangent_spec}")
    if not directions:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals to contain at least one Tensor.")
    for p, t in zip(tree_flatten(primals)[0], directions):
        for what, value in (("primals", p), ("tangents", t)):
            if not isinstance(value, Tensor):
                raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to only contain Tensors, got {type(value)}")
        if p.shape != t.shape:
            raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, "
                               f"this is not supported. Tensor is of size {list(p.shape)} while the given forward gradient is "
                               f"of size {list(t.shape)}.")
    level = _Level()
    with enable_grad():
        leaves, spec = tree_flatten(tree_map(level.enter, primals))
        out, aux = _split_aux(level.call(func, tree_unflatten(leaves, spec), {}, False), has_aux,
                              "jvp(f, primals, tangents)")
        outputs, out_spec = tree_flatten(out)
        _check_outputs(outputs, "jvp(f, primals, tangents)", False)
        pushed = _push(outputs, leaves, directions, level)
    out, made, aux = (tree_map(level.leave, v) for v in (out, tree_unflatten(pushed, out_spec), aux))
    return (out, made, aux) if has_aux else (out, made)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), a function from tangents to J v at these primals).

    >>> value, along = torch.func.linearize(lambda x: x ** 2, torch.tensor(3.0))
    >>> along(torch.tensor(1.0))
    tensor(6.)
    """
    level = _Level()
    with enable_grad():
        leaves, spec = tree_flatten(tree_map(level.enter, primals))
        out = level.call(func, tree_unflatten(leaves, spec), {}, False)
        outputs, out_spec = tree_flatten(out)

    def push(*tangents: Any) -> Any:
        given, given_spec = tree_flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same pytree structure as the primals {spec}")
        for i, (p, t) in enumerate(zip(leaves, given)):
            for what in ("shape", "dtype", "device"):
                if getattr(p, what) != getattr(t, what):
                    raise RuntimeError(f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't match the "
                                       f"{what} {getattr(p, what)} of the corresponding primal.")
        with enable_grad():
            pushed = _push(outputs, leaves, given, level)
        return tree_unflatten([level.leave(v) for v in pushed], out_spec)

    return tree_map(level.leave, out), push


# -------------------------------------------------------------------------------------------------------------- Jacobians
def _jacobian(func: Callable[..., Any], argnums: Any, has_aux: bool, block: Callable[..., Any],
              name: str) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        level = _Level()
        with enable_grad():
            numbers, single = _picked(args, argnums, name)
            values = [tree_map(level.enter, args[n]) for n in numbers]
            out, aux = _split_aux(level.call(func, _replaced(args, numbers, values), kwargs, name == "jacrev"), has_aux,
                                  f"{name}(f)(*args)")
            outputs, out_spec = tree_flatten(out)
            reverse = name == "jacrev"
            _check_outputs(outputs, "vjp(f, *primals)" if reverse else "jvp(f, primals, tangents)", reverse)
            leaves, spec = tree_flatten(values[0] if single else tuple(values))
            _check_real(outputs, "outputs", name)
            _check_real(leaves, "inputs", name)
            rows = block(outputs, leaves, level)
            made = tree_unflatten([tree_unflatten(row, spec) for row in rows], out_spec)
        made, aux = tree_map(level.leave, made), tree_map(level.leave, aux)
        return (made, aux) if has_aux else made

    return wrapper


def _basis(over: list[Tensor], start: int, stop: int) -> list[Tensor]:
    """Some of the unit vectors of all these tensors together: for each tensor its part of them, one behind the other."""
    made, first, count = [], 0, stop - start
    for x in over:
        n = x.numel()
        if first == start and n == count:
            part = eye(n, dtype=x.dtype, device=x.device)
        else:
            part = zeros(count, n, dtype=x.dtype, device=x.device)
            part.diagonal(start - first).fill_(1)
        made.append(part.reshape((count, *x.shape)))
        first += n
    return made


def _swept(pull: Callable[..., list[Tensor]], over: list[Tensor], chunk: int | None, randomness: str) -> list[list[Tensor]]:
    """pull of each unit vector, stacked: all at once, or a chunk at a time. The results, for each tensor of `over`."""
    from ..ops.shape.joining import cat
    if len(over) == 1 and not over[0].ndim:
        return [pull(ones((), dtype=over[0].dtype, device=over[0].device))]
    counts = [x.numel() for x in over]
    total = sum(counts)
    chunk = chunk or max(total, 1)
    each = vmap(pull, randomness=randomness)
    parts = [each(*_basis(over, start, min(start + chunk, total))) for start in range(0, total or 1, chunk)]
    joined = parts[0] if len(parts) == 1 else [cat(column) for column in zip(*parts)]
    if len(over) == 1:
        return [joined]
    return list(zip(*[w.split(counts) for w in joined]))


def _by_rows(outputs: list[Tensor], leaves: list[Tensor], level: _Level, chunk: int | None,
             randomness: str = "error") -> list[list[Tensor]]:
    """One backward pass for all elements of the outputs."""
    record = level.recorded(outputs)
    swept = _swept(lambda *v: _pull(outputs, leaves, v, record), outputs, chunk, randomness)
    return [[row.reshape((*out.shape, *x.shape)) if out.ndim != 1 else row for row, x in zip(rows, leaves)]
            for out, rows in zip(outputs, swept)]


def _by_columns(outputs: list[Tensor], leaves: list[Tensor], level: _Level, randomness: str) -> list[list[Tensor]]:
    """One forward derivative for all elements of the inputs. It takes two backward passes: where there are not many more rows
    than columns, the rows are the same numbers in one."""
    if sum([o.numel() for o in outputs]) <= 2 * sum([x.numel() for x in leaves]):
        return _by_rows(outputs, leaves, level, None, randomness)
    probes = [zeros_like(o).requires_grad_(True) for o in outputs]
    pulled = _pull(outputs, leaves, probes)
    level.own += probes
    record = level.recorded(pulled)
    swept = _swept(lambda *v: _pull(pulled, probes, v, record), leaves, None, randomness)
    return [[(column.movedim(0, -1) if x.ndim else column).reshape((*out.shape, *x.shape))
             for x, column in zip(leaves, [columns[i] for columns in swept])] for i, out in enumerate(outputs)]


def jacrev(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """The Jacobian by reverse mode: all rows in one backward pass, or chunk_size rows at a time.

    >>> torch.func.jacrev(lambda x: x ** 2)(torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian(func, argnums, has_aux, functools.partial(_by_rows, chunk=chunk_size), "jacrev")


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
           randomness: str = "error") -> Callable[..., Any]:
    """The Jacobian by all columns at once.

    >>> torch.func.jacfwd(lambda x: x ** 2)(torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    return _jacobian(func, argnums, has_aux, functools.partial(_by_columns, randomness=randomness), "jacfwd")


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """All second derivatives. (The gradient's rows: its columns are the same numbers, and would take two passes more.)

    >>> torch.func.hessian(lambda x: (x ** 3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
