# ruff: noqa: B023  each check is called before the loop that made it goes on
"""What PyTorch's test files ask of an operation (OpInfo), a module (ModuleInfo) and an optimizer (OptimizerInfo).

A check is a generator of (case, function that raises where something is wrong). `torch` is whichever library the process has
under that name, and is imported when a check runs.
"""

from __future__ import annotations

CHECKS: dict[str, object] = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def kind(d):
    return str(d).rpartition(".")[2]


def must_raise(function, error, words=None):
    import re
    try:
        function()
    except error as e:
        if words and not re.search(words, str(e)):
            raise AssertionError(f"{words!r} is not in {str(e)!r}") from None
    except Exception as e:
        raise AssertionError(f"{type(e).__name__} for {error if isinstance(error, tuple) else error.__name__}: {e}") from None
    else:
        raise AssertionError(f"did not raise {error}: {words!r}")


def equal(a, b, **options):
    import torch
    from torch.testing._internal.common_utils import TestCase
    with torch.no_grad():
        TestCase().assertEqual(a, b, **options)


@check
def errors(op):
    """Samples that must raise, with words of the message."""
    import torch
    for layout in (None, torch.sparse_coo, torch.sparse_csr):
        if layout is None:
            made = op.error_inputs("cpu") if op.error_inputs_func is not None else ()
        else:
            made = op.error_inputs_sparse("cpu", layout) if getattr(op, "error_inputs_sparse_func", None) is not None else ()
        for i, e in enumerate(made):
            s = e.sample_input
            yield f"{kind(layout) if layout else ''}{i}", lambda s=s, e=e: must_raise(
                lambda: op(s.input, *s.args, **s.kwargs), e.error_type, e.error_regex)


@check
def dtypes(op):
    """Which dtypes an operation takes, and which of them it differentiates."""
    import torch
    from torch.testing._internal.common_dtype import all_types_and_complex_and
    if op.dtypesIfCUDA is None:
        return
    backward = op.supported_backward_dtypes("cpu")
    for d in sorted(all_types_and_complex_and(torch.half, torch.bfloat16, torch.bool), key=str):
        def forward(d=d):
            try:
                samples = list(op.sample_inputs("cpu", d, False))
            except Exception:
                samples = []
            worked, error = bool(samples), None
            for s in samples:
                try:
                    op(s.input, *s.args, **s.kwargs)
                except Exception as e:
                    worked, error = False, e
            if worked != op.supports_dtype(d, "cpu"):
                raise AssertionError(f"taken: {worked} ({type(error).__name__}: {error})")
        yield kind(d), forward

        def back(d=d):
            worked, error = False, None
            try:
                samples = list(op.sample_inputs("cpu", d, True))
                for s in samples:
                    made = op(s.input, *s.args, **s.kwargs)
                    made = s.output_process_fn_grad(made)
                    tensors = [t for t in (made if isinstance(made, (tuple, list)) else [made])
                               if isinstance(t, torch.Tensor) and t.requires_grad]
                    if tensors:
                        worked = True
                        t = tensors[0]
                        t.backward(torch.ones_like(t))
            except Exception as e:
                worked, error = False, e
            if worked != (d in backward):
                raise AssertionError(f"differentiated: {worked} ({type(error).__name__}: {error})")
        if (d.is_floating_point or d.is_complex) and op.supports_autograd and op.supports_dtype(d, "cpu"):
            yield f"{kind(d)} backward", back


@check
def reference(op):
    """Values against NumPy's, over the larger set of samples."""
    from torch.testing._internal import opinfo
    if getattr(op, "ref", None) in (None, opinfo.core._NOTHING):
        return
    from torch.testing._internal.common_utils import TestCase
    for d in sorted(op.supported_dtypes("cpu"), key=str):
        if kind(d) not in ("float32", "complex64", "int64", "bool", "uint8"):
            continue
        for _, s in zip(range(60), op.reference_inputs("cpu", d)):
            yield kind(d), lambda s=s: TestCase().compare_with_reference(op, op.ref, s, exact_dtype=False)


@check
def ufuncs(op):
    """Pointwise operations of every dtype at ordinary, small, large and extremal values, against NumPy's."""
    import torch
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.opinfo import core
    unary = isinstance(op, core.UnaryUfuncInfo)
    if not (unary or isinstance(op, core.BinaryUfuncInfo)) or op.ref is None:
        return
    for d in sorted(op.supported_dtypes("cpu"), key=str):
        if d in (torch.bfloat16, torch.complex32):
            continue  # NumPy has neither
        kinds = ["", "_small_value", *(["_large_value"] if d not in (torch.bool, torch.uint8, torch.int8) else []),
                 *(["_extremal_value"] if d.is_floating_point or d.is_complex else [])]
        for name in kinds:
            make = getattr(core, f"generate_elementwise_{'unary' if unary else 'binary'}{name}_tensors")
            for _, s in zip(range(4), make(op, device="cpu", dtype=d, requires_grad=False)):
                def one(s=s, d=d):
                    made = op(s.input, *s.args, **s.kwargs)
                    given = [t.numpy() if isinstance(t, torch.Tensor) else t for t in (s.input, *s.args)]
                    options = op.sample_kwargs("cpu", d, s.input)[1] if unary else {}
                    TestCase().assertEqual(made, torch.as_tensor(op.ref(*given, **options)), exact_dtype=False, equal_nan=True,
                                           **(dict(rtol=2e-3, atol=2e-3) if d is torch.half else {}))
                yield f"{kind(d)}{name}", one


def tensors_in(value):
    import torch
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for t in value if isinstance(t, torch.Tensor)] if isinstance(value, (tuple, list)) else []


@check
def out(op):
    """out= of every wrong kind: other strides, other shapes (with a warning), other dtypes, other devices."""
    import warnings

    import torch
    if not op.supports_out or op.name in ("empty",):
        return
    samples = list(zip(range(3), op.sample_inputs("cpu", torch.float32 if op.supports_dtype(torch.float32, "cpu")
                                                  else sorted(op.supported_dtypes("cpu"), key=str)[0])))
    for _, s in samples:
        try:
            expected = op(s.input, *s.args, **s.kwargs)
        except Exception:
            continue
        several = not isinstance(expected, torch.Tensor)
        wanted = tensors_in(expected)
        if not wanted or any(t.layout is not torch.strided for t in wanted):
            continue

        def call(outs, s=s, several=several):
            return op(s.input, *s.args, **s.kwargs, out=tuple(outs) if several else outs[0])

        def as_given(make, resized=False, wanted=wanted, call=call):
            outs = [make(t) for t in wanted]
            strides, places = [t.stride() for t in outs], [t.data_ptr() for t in outs]
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                call(outs)
            warned = any("An output with one or more elements" in str(w.message) for w in heard)
            equal(outs, wanted)
            if resized is not None:
                if warned != resized:
                    raise AssertionError(f"warned of resizing: {warned}")
                if not resized and ([t.stride() for t in outs] != strides or [t.data_ptr() for t in outs] != places):
                    raise AssertionError("strides or memory of out changed")
        yield "same", lambda f=as_given: f(lambda t: t.clone().fill_(1))
        yield "transposed", lambda f=as_given: f(
            lambda t: t.clone().transpose(0, 1).contiguous().transpose(0, 1) if t.ndim > 1 else t.clone())
        yield "empty", lambda f=as_given: f(lambda t: t.new_empty(0), None)
        if any(t.numel() and t.ndim for t in wanted):
            yield "wrong shape", lambda f=as_given, w=wanted: f(
                lambda t: t.new_ones((*t.shape[:-1], t.shape[-1] + 1)) if t.ndim else t.new_ones(2),
                all(t.ndim for t in w) or None)
        other = torch.device("meta")
        if not op.name.startswith("_"):
            yield "wrong device", lambda c=call, w=wanted: must_raise(lambda: c([t.to(other) for t in w]), RuntimeError)
        if any(t.is_floating_point() or t.is_complex() for t in wanted):
            yield "wrong dtype", lambda c=call, w=wanted: must_raise(
                lambda: c([torch.empty_like(t, dtype=torch.long) for t in w]), RuntimeError)
        if op.supports_autograd and all(t.is_floating_point() for t in wanted):
            yield "requires grad", lambda c=call, w=wanted: must_raise(
                lambda: c([t.clone().requires_grad_() for t in w]), RuntimeError,
                r"functions with out=\.\.\. arguments don't support automatic differentiation")


@check
def variants(op):
    """The function, the method, the in-place form and the operator, with gradients."""
    import torch
    forms = [f for f in (*op.aliases, op.method_variant, op.inplace_variant, op.operator_variant,
                         op.inplace_operator_variant) if f]
    if not forms:
        return
    inplace = {op.inplace_variant, op.inplace_operator_variant, *(a.inplace_variant for a in op.aliases)} - {None}
    for d in (torch.float32, torch.complex64, torch.int64):
        if not op.supports_dtype(d, "cpu"):
            continue
        grad = op.supports_autograd and d is not torch.int64
        for _, s in zip(range(6), op.sample_inputs("cpu", d, requires_grad=grad, include_conjugated_inputs=False)):
            try:
                expected = op(s.input, *s.args, **s.kwargs)
            except Exception:
                continue
            for form in forms:
                def one(form=form, s=s, expected=expected):
                    if form in inplace:
                        if s.broadcasts_input or (isinstance(expected, torch.Tensor) and expected.dtype != s.input.dtype):
                            return must_raise(lambda: form(s.input.detach().clone(), *s.args, **s.kwargs), RuntimeError)
                        target = s.input.clone()
                        made = form(target, *s.args, **s.kwargs)
                        if made is not target:
                            raise AssertionError("the in-place form returned another tensor")
                    else:
                        made = form(s.input, *s.args, **s.kwargs)
                    equal(made, expected)
                yield f"{kind(d)} {getattr(form, '__name__', '?')}", one


@check
def noncontiguous(op):
    """Samples that are not contiguous give the same results and gradients."""
    import torch
    for d in (torch.float32, torch.int64, torch.complex64):
        if not op.supports_dtype(d, "cpu"):
            continue
        for _, s in zip(range(4), op.sample_inputs("cpu", d, requires_grad=op.supports_autograd and d is not torch.int64)):
            def one(s=s):
                n = s.noncontiguous()
                torch.manual_seed(0)
                expected = op(s.input, *s.args, **s.kwargs)
                torch.manual_seed(0)
                equal(op(n.input, *n.args, **n.kwargs), expected)
            yield kind(d), one


def grad_samples(op, d, count):
    import torch
    for _, s in zip(range(count), op.sample_inputs("cpu", d, requires_grad=True)):
        if any(t.numel() > 60 for t in tensors_in([s.input, *s.args])) or any(
                t.layout is not torch.strided for t in tensors_in([s.input, *s.args])):
            continue
        yield s


def gradchecked(op, forward, second):
    import torch
    from torch.testing._internal.common_utils import gradcheck, gradgradcheck
    if not op.supports_autograd:
        return
    for d in (torch.float64, torch.complex128):
        if d not in op.supported_backward_dtypes("cpu"):
            continue
        for s in grad_samples(op, d, 4):
            def one(s=s):
                wrt = [t for t in ((s.input,) if isinstance(s.input, torch.Tensor) else s.input) if t.requires_grad]
                wrt += [t for t in s.args if isinstance(t, torch.Tensor) and t.requires_grad]
                if not wrt:
                    return

                def function(*given):
                    rest = iter(given)
                    if isinstance(s.input, torch.Tensor):
                        first = next(rest) if s.input.requires_grad else s.input
                    else:
                        first = type(s.input)(next(rest) if t.requires_grad else t for t in s.input)
                    args = [next(rest) if isinstance(t, torch.Tensor) and t.requires_grad else t for t in s.args]
                    return s.output_process_fn_grad(op.gradcheck_wrapper(op.get_op(), first, *args, **s.kwargs))
                common = dict(check_batched_grad=False, nondet_tol=op.gradcheck_nondet_tol, fast_mode=op.gradcheck_fast_mode)
                if second:
                    gradgradcheck(function, wrt, gen_non_contig_grad_outputs=True, atol=1e-4, **common)
                else:
                    gradcheck(function, wrt, check_forward_ad=forward, check_backward_ad=not forward, **common)
            yield kind(d), one


@check
def gradients(op):
    """gradcheck of the samples."""
    yield from gradchecked(op, False, False)


@check
def second(op):
    """gradgradcheck of the samples."""
    if op.supports_gradgrad:
        yield from gradchecked(op, False, True)


@check
def forward_ad(op):
    """gradcheck in forward mode."""
    if op.supports_forward_ad:
        yield from gradchecked(op, True, False)


def densified(x):
    import torch
    return x.to_dense() if isinstance(x, torch.Tensor) and x.layout is not torch.strided else x


@check
def sparse(op):
    """Samples of sparse tensors, against the same with dense ones."""
    import torch
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        if not op.supports_sparse_layout(layout):
            continue
        for d in (torch.float64, torch.int64):
            if not op.supports_dtype(d, "cpu"):
                continue
            samples = op.sample_inputs_sparse(layout, "cpu", d)
            for _, s in zip(range(40), samples):
                def one(s=s):
                    made = op(s.input, *s.args, **s.kwargs)
                    dense = s.transform(densified)
                    expected = op(dense.input, *dense.args, **dense.kwargs)
                    equal(densified(made), expected)
                yield f"{kind(layout)} {kind(d)}", one


# --------------------------------------------------------------------------------------------------- modules, optimizers
def modules_of(info, d, training=True):
    for m in info.module_inputs_func(info, device="cpu", dtype=d, requires_grad=True, training=training):
        if m.forward_input is not None:
            yield m


@check
def module_errors(info):
    """Modules whose construction or call must raise."""
    import torch
    if info.module_error_inputs_func is None:
        return
    from torch.testing._internal.common_modules import ModuleErrorEnum
    made = info.module_error_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=False, training=True)
    for i, e in enumerate(made):
        m = e.module_error_input

        def one(e=e, m=m):
            c = m.constructor_input
            if e.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
                return must_raise(lambda: info.module_cls(*c.args, **c.kwargs), e.error_type, e.error_regex)
            made = info.module_cls(*c.args, **c.kwargs)
            must_raise(lambda: made(*m.forward_input.args, **m.forward_input.kwargs), e.error_type, e.error_regex)
        yield str(i), one


@check
def module_calls(info):
    """A module's result against its reference, pickled, with its repr, its factory arguments, its in-place form."""
    import pickle

    import torch
    for d in (torch.float32, torch.float64):
        if d not in info.dtypes:
            continue
        for training in (True, False):
            for m in modules_of(info, d, training):
                def one(m=m, d=d, training=training):
                    c, f = m.constructor_input, m.forward_input
                    made = info.module_cls(*c.args, **c.kwargs).to("cpu").to(d)
                    made.train(training)
                    repr(made), str(made)
                    state = torch.get_rng_state()
                    result = made(*f.args, **f.kwargs)
                    if m.reference_fn is not None:
                        torch.set_rng_state(state)
                        equal(result, m.reference_fn(made, *f.args, **f.kwargs))
                    again = pickle.loads(pickle.dumps(made))
                    torch.set_rng_state(state)
                    equal(again(*f.args, **f.kwargs), result)
                yield f"{kind(d)} {training} {m.desc}", one

                def factory(m=m, d=d):
                    import inspect
                    c = m.constructor_input
                    if "dtype" not in inspect.signature(info.module_cls.__init__).parameters:
                        return
                    made = info.module_cls(*c.args, **{**c.kwargs, "dtype": d, "device": "meta"})
                    if any(p.device.type != "meta" or p.dtype != d for p in made.parameters()):
                        raise AssertionError("device= or dtype= did nothing")
                yield f"{kind(d)} {training} {m.desc} factory", factory


@check
def module_gradients(info):
    """gradcheck of modules, in inputs and parameters."""
    import torch
    from torch.testing._internal.common_utils import gradcheck
    for m in modules_of(info, torch.float64):
        def one(m=m):
            c, f = m.constructor_input, m.forward_input
            made = info.module_cls(*c.args, **c.kwargs).to(torch.float64)
            given = [a for a in f.args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_floating_point()]
            if not given or any(t.numel() > 200 for t in (*given, *made.parameters())):
                return
            state = torch.get_rng_state()

            def function(*tensors):
                rest = iter(tensors)
                torch.set_rng_state(state)
                result = made(*[next(rest) if isinstance(a, torch.Tensor) and a.requires_grad and a.is_floating_point() else a
                                for a in f.args], **f.kwargs)
                return tuple(t for t in tensors_in(result) if t.requires_grad)
            gradcheck(function, given, fast_mode=True, nondet_tol=info.gradcheck_nondet_tol)
        yield str(m.desc), one


@check
def optim_errors(info):
    """Optimizers whose construction must raise or warn."""
    import torch
    if info.optim_error_inputs_func is None:
        return
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum
    for i, e in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32)):
        def one(e=e):
            o = e.optimizer_error_input
            if e.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR:
                if issubclass(e.error_type, Warning):
                    import warnings
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        return must_raise(lambda: info.optim_cls(o.params, **o.kwargs), e.error_type, e.error_regex)
                return must_raise(lambda: info.optim_cls(o.params, **o.kwargs), e.error_type, e.error_regex)
            made = info.optim_cls(o.params, **o.kwargs)
            must_raise(made.step, e.error_type, e.error_regex)
        yield f"{i} {e.optimizer_error_input.desc}", one


@check
def optim_steps(info):
    """A few steps of every choice of arguments: all implementations give the same, and state_dict copies them."""
    import torch
    for o in info.optim_inputs_func(device="cpu"):
        def one(o=o):
            def steps(n, made=None, **flags):
                torch.manual_seed(1)
                params = [torch.nn.Parameter(torch.rand(3, 4).double()), torch.nn.Parameter(torch.rand(4, 2).double())]
                optimizer = info.optim_cls(params, **{**o.kwargs, **flags})
                for _ in range(n):
                    def closure():
                        optimizer.zero_grad()
                        loss = ((params[0] @ params[1]) ** 2).sum()
                        loss.backward()
                        return loss
                    closure()
                    optimizer.step(closure)
                return params, optimizer
            first, optimizer = steps(3)
            for name in info.supported_impls:
                if name in ("foreach", "fused") and not o.kwargs.get("differentiable") and name not in o.kwargs:
                    equal(steps(3, **{name: True})[0], first)
            state = optimizer.state_dict()
            other = info.optim_cls([p.detach().clone().requires_grad_() for p in first], **o.kwargs)
            other.load_state_dict(state)
            equal(other.state_dict(), state)
        yield o.desc, one


# --------------------------------------------------------------------------------------- conjugate views, transformations
def first_tensor(value):
    return next(iter(tensors_in(value)), None)


@check
def bits(op):
    """Inputs that are negative or conjugate views of their values give the same."""
    import torch

    def negative(t):
        return torch._neg_view(-t.detach()).requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) and (
            t.is_floating_point() or t.is_complex()) else t

    def conjugate(t):
        return t.detach().conj_physical().conj().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) and (
            t.is_complex()) else t
    for d, view in ((torch.float64, negative), (torch.complex128, conjugate), (torch.complex128, negative)):
        if not op.supports_dtype(d, "cpu"):
            continue
        for _, s in zip(range(3), op.sample_inputs("cpu", d)):
            def one(s=s, view=view):
                torch.manual_seed(0)
                expected = op(s.input, *s.args, **s.kwargs)
                n = s.transform(view)
                torch.manual_seed(0)
                equal(op(n.input, *n.args, **n.kwargs), expected)
            yield f"{view.__name__} {kind(d)}", one


def of_tensors(op, s):
    """A function of the sample's differentiable tensors alone, and those."""
    import torch
    wrt = [t for t in tensors_in(s.input) + [a for a in s.args if isinstance(a, torch.Tensor)] if t.requires_grad]

    def function(*given):
        rest = iter(given)
        place = {id(t): next(rest) for t in wrt}
        first = place.get(id(s.input), s.input) if isinstance(s.input, torch.Tensor) else type(s.input)(
            place.get(id(t), t) for t in s.input)
        args = [place.get(id(a), a) if isinstance(a, torch.Tensor) else a for a in s.args]
        made = s.output_process_fn_grad(op(first, *args, **s.kwargs))
        return tuple(t for t in tensors_in(made) if t.is_floating_point() or t.is_complex())
    return function, tuple(t.detach() for t in wrt)


@check
def transforms(op):
    """torch.func: vjp, jvp, and both under vmap, against the backward pass and against loops."""
    import torch
    if not op.supports_autograd or not op.supports_dtype(torch.float64, "cpu"):
        return
    for s in grad_samples(op, torch.float64, 2):
        function, given = of_tensors(op, s)
        if not given:
            continue

        def backward(function=function, given=given):
            leaves = [t.clone().requires_grad_() for t in given]
            made = function(*leaves)
            cotangents = tuple(torch.randn_like(t) for t in made)
            expected = torch.autograd.grad(made, leaves, cotangents, allow_unused=True)
            _, pull = torch.func.vjp(function, *given)
            equal(pull(cotangents), tuple(torch.zeros_like(t) if g is None else g for g, t in zip(expected, leaves)))
        yield "vjp", backward

        def forward(function=function, given=given):
            tangents = tuple(torch.randn_like(t) for t in given)
            made, along = torch.func.jvp(function, given, tangents)
            cotangents = tuple(torch.randn_like(t) for t in made)
            _, pull = torch.func.vjp(function, *given)
            a = sum((c.conj() * t).sum().real for c, t in zip(cotangents, along))
            b = sum((g.conj() * t).sum().real for g, t in zip(pull(cotangents), tangents))
            equal(a, b, atol=1e-6, rtol=1e-6)
        if op.supports_forward_ad:
            yield "jvp", forward

        def batched(function=function, given=given):
            made, pull = torch.func.vjp(function, *given)
            cotangents = tuple(torch.randn(3, *t.shape, dtype=t.dtype) for t in made)
            expected = [pull(tuple(c[i] for c in cotangents)) for i in range(3)]
            equal(torch.vmap(pull)(cotangents), tuple(torch.stack(g) for g in zip(*expected)))
        yield "vmap of vjp", batched

        def example(function=function, given=given):
            several = [torch.stack([t, t]) for t in given]
            equal(torch.vmap(function, randomness="same")(*several), tuple(torch.stack([t, t]) for t in function(*given)))
        yield "vmap", example


@check
def fake(op):
    """Fake tensors have the shapes, dtypes and strides that the operation gives."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
    d = torch.float32 if op.supports_dtype(torch.float32, "cpu") else sorted(op.supported_dtypes("cpu"), key=str)[0]
    for _, s in zip(range(3), op.sample_inputs("cpu", d)):
        def one(s=s):
            expected = op(s.input, *s.args, **s.kwargs)
            with FakeTensorMode() as mode:
                f = s.transform(lambda t: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t)
                try:
                    made = op(f.input, *f.args, **f.kwargs)
                except (DataDependentOutputException, DynamicOutputShapeException):
                    return
            for a, b in zip(tensors_in(expected), tensors_in(made), strict=True):
                wanted, got = [(t.dtype, tuple(t.shape), t.layout) for t in (a, b)]
                if wanted != got:
                    raise AssertionError(f"{got} for {wanted}")
        yield kind(d), one
