"""Details of autograd and tensors that PyTorch's own test files look at, each a program that PyTorch answers too."""

import copy
import pickle
import warnings
import weakref

import pytest
import torch
from compare import Programs, agree

import flambeau

programs = Programs()


def said(call, *words):
    """The type of the error that a call raises, and which of the words its message has."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, [word in str(error) for word in words]
    return "no error"


def doubled(mod):
    class Doubled(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Doubled.apply


# --------------------------------------------------------------------------------------------------- backward, grad, edges
@programs
def gradients_for_edges_are_checked(mod):
    x = mod.tensor([1.0, 2.0], requires_grad=True)
    edge = mod.autograd.graph.get_gradient_edge(x.sin())
    return [said(lambda: mod.autograd.grad(edge, x, mod.ones(3)), "Mismatch in shape: grad_output[0]"),
            said(lambda: mod.autograd.grad(edge, x, mod.ones(2, dtype=mod.complex64)), "required to have the same dtype"),
            said(lambda: mod.autograd.backward(edge, mod.ones(4)), "Mismatch in shape"),
            said(lambda: mod.autograd.grad(x.sum(), (x, edge), allow_unused=True, materialize_grads=True),
                 "materialize_grads cannot be used when the given input is a GradientEdge"),
            mod.autograd.grad(edge, x, mod.ones(2))[0]]


@programs
def backward_inputs_run_their_nodes_and_retain_their_gradients(mod):
    log, x = [], mod.tensor(1.0, requires_grad=True)
    y = x.clone()
    y.grad_fn.register_prehook(lambda g: log.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: log.append("post"))
    y.register_hook(lambda g: g * 3)
    (y * 1).backward(inputs=(y,))
    return log, y.grad, x.grad, y.retains_grad


@programs
def sparse_gradients_of_dense_tensors(mod):
    kept = []
    for create_graph in (False, True):
        for given in (mod.tensor([1.5, 1.5]), mod.sparse_coo_tensor(mod.tensor([[1, 1]]), mod.tensor([1.0, 1.0]))):
            p = mod.tensor([1.5, 1.5]).requires_grad_()
            p.grad = before = mod.sparse_coo_tensor(mod.tensor([[1, 1]]), mod.tensor([1.0, 1.0]))
            p.backward(given, create_graph=create_graph)
            kept += [p.grad is before, p.grad.to_dense().tolist()]
    return kept


@programs
def hooks_after_accumulation_return_nothing(mod):
    results = []
    for hook in (lambda p: p.grad, lambda p: p, lambda p: None):
        x = mod.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(hook)
        results.append(said(x.sum().backward, "Tensor post accumulate grad hooks should return None."))
    return results


@programs
def tensor_hooks_see_undefined_gradients(mod):
    seen, x = [], mod.ones(1, requires_grad=True)
    y = x.clone()
    y.register_hook(lambda g: seen.append(g))
    mod._C._functions.UndefinedGrad()(y).backward()
    return seen


@programs
def a_set_leaf_is_a_new_leaf_of_the_graph(mod):
    x = mod.ones(2, requires_grad=True)
    edge, y = mod.autograd.graph.get_gradient_edge(x), x.clone()
    with mod.no_grad():
        x.set_(mod.zeros(2))
    return said(lambda: mod.autograd.grad(y.sum(), x), "to not have been used in the graph"), mod.autograd.grad(y.sum(), edge)


@programs
def what_runs_inside_a_pass_may_ask_about_it(mod):
    asked = []
    x = mod.tensor(1.0, requires_grad=True)
    y = x.sin().exp()

    def hook(g):
        asked.extend([mod._C._current_autograd_node().name(), mod._C._will_engine_execute_node(y.grad_fn.next_functions[0][0]),
                      mod._C._current_graph_task_id() >= 0,
                      [n.name() for n in mod._C._current_graph_task_execution_order()]])

    y.register_hook(hook)
    with mod.autograd.set_multithreading_enabled(False):
        y.backward()
    return [asked, mod._C._current_graph_task_id(),
            said(lambda: mod._C._will_engine_execute_node(y.grad_fn), "during the backward pass"),
            said(lambda: mod._C._will_engine_execute_node(y), "expects an grad_fn, but got Tensor"),
            said(mod._C._current_graph_task_execution_order, "should only be called during the backward pass")]


@programs
def leaves_may_want_gradients_of_another_dtype(mod):
    class Wide(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.to(mod.float64)

    found = []
    for wanted in ("own", None, mod.float16):
        x = mod.tensor([1.0, 2.0], requires_grad=True)
        if wanted != "own":
            x.grad_dtype = wanted
        Wide.apply(x).sum().backward()
        found.append([str(x.grad.dtype).split(".")[-1], x.grad.tolist(), str(x.grad_dtype).split(".")[-1]])
    x = mod.tensor([1.0], requires_grad=True)
    x.grad = mod.ones(1)
    return [found, said(lambda: setattr(x, "grad_dtype", mod.float16), "Cannot set grad_dtype to 'Half' because"),
            said(lambda: (x * 2).grad_dtype, "grad_dtype can only be accessed on leaf tensors"),
            said(lambda: setattr(x, "grad_dtype", 3), "grad_dtype must be a torch.dtype or None")]


# ----------------------------------------------------------------------------------------------------- custom Functions
@programs
def constant_outputs_may_get_no_gradient(mod):
    got = []

    class Two(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.clone(), x.clone()
            ctx.mark_non_differentiable(b)
            ctx._materialize_non_diff_grads = False
            return a, b

        @staticmethod
        def backward(ctx, g, h):
            got.append(h)
            return g

    Two.apply(mod.tensor(1.0, requires_grad=True))[0].backward()
    return got


@programs
def saved_tensors_once(mod):
    class Once(mod.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ctx.saved_tensors
            return ctx.saved_tensors[0]

    return said(Once.apply(mod.ones(2, requires_grad=True)).sum().backward, "can only be accessed once")


@programs
def the_node_of_a_function_says_what_it_takes(mod):
    y = doubled(mod)(mod.ones(3, 3, requires_grad=True))
    shapes = [list(m.shape) for m in y.grad_fn._input_metadata]
    return shapes, issubclass(mod._C._functions.DelayedError, mod.autograd.graph.Node)


@programs
def dirty_must_be_inputs_and_whole_views(mod):
    def marks(which):
        class Marks(mod.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x.clone().view_as(x) if which == "view" else x.add_(1)
                ctx.mark_dirty(y)
                return y

            @staticmethod
            def backward(ctx, grad):
                return grad

        return Marks.apply

    x = mod.tensor([1.0, 2.0], requires_grad=True)
    return [said(lambda: marks("view")(x.clone()), "received a tensor that was not an input."),
            said(lambda: marks("in place")(x.split([1, 1])[0]), "output of a function that returns multiple views")]


@programs
def views_made_in_functions_of_constants(mod):
    class View(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    b = mod.ones(1, requires_grad=True)
    return said(lambda: View.apply(mod.ones(2)).add_(b), "This view was created inside a custom Function")


@pytest.mark.parametrize("kind, words", [
    ("clone", "but the jvp is not returning a view."), ("view of a clone", "not returning a view of the given grad input."),
    ("dirty", "is not modifying the forward mode gradients inplace"),
    ("constant", "You should return None at that position instead")])
def test_a_jvp_treats_tangents_as_forward_treats_tensors(kind, words):
    answers = []
    for mod in (torch, flambeau):
        class Treats(mod.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                if kind == "dirty":
                    ctx.mark_dirty(x)
                    return x.mul_(2)
                if kind == "constant":
                    y = x.clone()
                    ctx.mark_non_differentiable(y)
                    return y
                return x.narrow(0, 0, 2)

            @staticmethod
            def jvp(ctx, t):
                if kind in ("dirty", "constant"):
                    return t * 2
                t = t.narrow(0, 0, 2).clone()
                return t if kind == "clone" else t.view_as(t)

        with mod.autograd.forward_ad.dual_level():
            dual = mod.autograd.forward_ad.make_dual(mod.ones(3), mod.ones(3))
            answers.append(said(lambda: Treats.apply(dual), words))
    assert answers[0] == answers[1] == ("RuntimeError", [True])


# --------------------------------------------------------------------------------------------------------- saved tensors
@programs
def pack_hooks_get_the_very_tensor(mod):
    x, packed = mod.tensor(2.0, requires_grad=True), []
    with mod.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t is x) or t, lambda t: t):
        y = x**2
    raw = y.grad_fn._raw_saved_self
    return [packed, raw.data is x, said(lambda: raw.register_hooks(lambda t: t), "incompatible function arguments"),
            said(mod.autograd.SavedTensor, "Trying to create a SavedTensor object from Python is forbidden")]


@programs
def unpack_hooks_that_enter_or_leave_hooks_do_so_for_the_pass_alone(mod):
    hooks = mod.autograd.graph.saved_tensors_hooks
    one = hooks(lambda t: t, lambda t: one.__exit__() or t)
    for _ in range(3):
        with hooks(lambda t: t, lambda t: t):
            one.__enter__()
            mod.ones(2, requires_grad=True).sin().sum().backward()
    for _ in range(3):
        one.__exit__()
    y = mod.tensor(1.0, requires_grad=True).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    return mod._C._autograd._saved_tensors_hooks_is_enabled()


@programs
def a_saved_result_shares_its_version(mod):
    y = mod.ones(2, requires_grad=True).exp()
    saved = y.grad_fn._saved_result
    with mod.no_grad():
        y += 1
    return saved._version, y._version


@programs
def mutation_of_saved_tensors_is_counted(mod):
    with mod.autograd.graph.allow_mutation_on_saved_tensors() as context:
        x, b = mod.tensor([1.0], requires_grad=True), mod.tensor([1.0])
        y = x * b
        tracked = len(context.tid_to_weakhandle)
        mod.sin(mod.tensor([2.0]), out=b)
        copied = len(context.cloned)
        y.backward()
        return tracked, copied, len(context.cloned), x.grad


# ----------------------------------------------------------------------------------------------------------- checkpoint
@programs
def checkpoints_hand_a_tensor_out_once(mod):
    class Twice(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            ctx.saved_tensors
            return said(lambda: ctx.saved_tensors, "already unpacked once") and grad * 2

    checkpoint = mod.utils.checkpoint.checkpoint
    x = mod.ones(2, requires_grad=True)
    checkpoint(lambda x: Twice.apply(x.sin()), x, use_reentrant=False).sum().backward()
    return x.grad


@pytest.mark.parametrize("grouped, runs", [(True, 2), (False, 3)])
def test_grouped_backward_passes_recompute_once(grouped, runs):
    from contextlib import nullcontext
    for mod in (torch, flambeau):
        count = [0]

        def part(x):
            count[0] += 1
            y = x.sin().cos()
            return y, y.sin().cos()

        x = mod.ones(3, requires_grad=True)
        y, z = mod.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
        with mod.utils.checkpoint.GraphExecGroup() if grouped else nullcontext():
            g, = mod.autograd.grad(z, y, mod.ones(3))
            mod.autograd.grad(y, x, g)
        assert count[0] == runs


@programs
def a_gradient_taken_inside_a_checkpoint_without_early_stop(mod):
    def slope(x):
        with mod.enable_grad():
            return mod.autograd.grad(x.sin().exp().sin(), x, create_graph=True)[0]

    x = mod.tensor(0.5, requires_grad=True)
    with mod.utils.checkpoint.set_checkpoint_early_stop(False):
        y = mod.utils.checkpoint.checkpoint(slope, x, use_reentrant=False)
    return mod.autograd.grad(y, x)[0]


# ------------------------------------------------------------------------------------------------------------ gradcheck
def wrong(mod):
    def function(x):
        y = x.clone()
        y.register_hook(lambda g: g + 1e-2)
        return y

    return function


def changing(mod, kind):
    def function(x):
        if not (x >= 1).all():
            return x
        return mod.cat([x, x]) if kind == "shape" else x.to(mod.float32)

    return function


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("case, words", [
    ("real", "Jacobian mismatch for output 0 with respect to input 0"), ("complex", "part of complex outputs only"),
    ("zero", "backward not multiplied by grad_output"),
    ("shape", "return outputs with the same shape when inputs are perturbed"),
    ("dtype", "return outputs with the same dtype when inputs are perturbed"),
    ("constant", "Numerical gradient for function expected"),
    ("undefined", "Expected backward function to handle undefined output grads"),
    ("tangent", "Jacobian computed with forward mode mismatch for output 0 with respect to input 1")])
def test_gradcheck_says_what_is_wrong(case, words, fast):
    answers = []
    for mod in (torch, flambeau):
        x = mod.ones(1, dtype=mod.complex128 if case == "complex" else mod.float64, requires_grad=True)
        inputs, options = (x,), {"fast_mode": fast, "atol": 1e-1 if case == "zero" else 1e-5}
        if case == "undefined":
            def function(x):
                def hook(g):
                    if g is None:
                        raise RuntimeError("none")
                y = x.clone()
                y.register_hook(hook)
                return y
        elif case == "tangent":
            inputs, options = (x, x.detach().clone().requires_grad_()), {**options, "check_forward_ad": True}

            def function(x, y, ad=mod.autograd.forward_ad):
                if ad._current_level >= 0:
                    primal, tangent = ad.unpack_dual(y)
                    y = ad.make_dual(primal, tangent * 1.1)
                return x + y, y
        elif case == "constant":
            def function(x, mod=mod):
                return mod.tensor([x.item()])
        else:
            function = changing(mod, case) if case in ("shape", "dtype") else wrong(mod)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.append(said(lambda: mod.autograd.gradcheck(function, inputs, **options), words))
    assert answers[0] == answers[1] and answers[0][1] == [True]


@programs
def gradcheck_asks_every_part_once(mod):
    calls = []

    class Two(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x.clone(), y.clone()

        @staticmethod
        def jvp(ctx, x, y):
            calls.append(1)
            return x, y

    x, y = (mod.ones(1, dtype=mod.float64, requires_grad=True) for _ in range(2))
    counts = []
    for undefined in (False, True):
        calls.clear()
        mod.autograd.gradcheck(Two.apply, (x, y), check_forward_ad=True, check_backward_ad=False,
                               check_undefined_grad=undefined)
        counts.append(len(calls))
    return counts


@programs
def old_jacobians(mod):
    from importlib import import_module
    module = import_module(mod.__name__ + ".autograd.gradcheck")
    x, y = (mod.ones(2, dtype=mod.float64, requires_grad=True) for _ in range(2))
    numerical = module.get_numerical_jacobian(lambda given: (2 * given[0] + given[1], given[0]), (x, y), eps=1e-6)
    analytical = module.get_analytical_jacobian((x, y), 2 * x + y)
    return [[m.tolist() for m in numerical], [m.tolist() for m in analytical[0]], list(analytical[1:]),
            said(lambda: module.get_analytical_jacobian((x,), x * 2, grad_out=2.0), "Expected grad_out to be 1.0")]


# --------------------------------------------------------------------------------------------------------- forward mode
@programs
def duals_have_one_level_and_tangents_laid_out_like_them(mod):
    ad = mod.autograd.forward_ad
    whole, tangent = mod.arange(5.0), mod.ones(4)
    with ad.dual_level():
        dual = ad.make_dual(whole[:4].detach(), tangent)
        given = ad.unpack_dual(dual).tangent
        given *= 2
        other = ad.make_dual(mod.ones(2), mod.ones(2))
        detached = other.clone()
        detached.detach_()
        return [tangent, dual.as_strided((5,), (1,), 0).shape == (5,), ad.unpack_dual(detached * 2).tangent,
                said(lambda: ad.make_dual(mod.ones(2), other), "has a forward gradient at the same level"),
                said(lambda: ad.make_dual(other, mod.ones(2)), "that already has a forward gradient at the same level 0"),
                said(lambda: mod.add(other, other, out=mod.ones(2)), "because it is an out= function"),
                ad._is_fwd_grad_enabled(), ad._current_level]


# -------------------------------------------------------------------------------------------------------------- tensors
@programs
def powers_of_negative_numbers_have_complex_derivatives(mod):
    e = mod.tensor([0.5 + 1j, 2 - 1j], dtype=mod.complex128, requires_grad=True)
    y = mod.pow(-mod.ones(2, dtype=mod.float64), e).abs().sum()
    return mod.autograd.grad(y, e)[0]


@programs
def products_of_several_zeros_have_no_second_derivative(mod):
    x = mod.tensor([1.0], requires_grad=True)
    s = mod.tensor([0.0, 0.0], requires_grad=True)
    g, = mod.autograd.grad(mod.scatter_reduce(x, 0, mod.tensor([0, 0]), s, "prod").sum(), s, create_graph=True)
    return g.detach(), said(g.sum().backward, "Double backward is unsupported for src when >1 zeros")


@programs
def gathered_elements_have_sparse_gradients(mod):
    found = []
    for shape, index in (((3, 4), mod.tensor([[0, 2], [1, 1]])), ((), mod.tensor([0, 0])), ((3,), mod.tensor(1))):
        x = mod.ones(shape, requires_grad=True)
        y = mod.gather(x, 0, index, sparse_grad=True)
        y.backward(mod.ones_like(y) * 2)
        found += [x.grad.is_sparse, x.grad.to_dense()]
    return found


@programs
def functions_are_pickled_by_name(mod):
    return [pickle.loads(pickle.dumps(f)) is f for f in (mod.tanh, mod.add, mod.relu, mod.nn.functional.gelu, mod.is_complex)]


@programs
def storages_are_copied_with_their_tensors(mod):
    x = mod.arange(4.0)
    twin, storage, view = copy.deepcopy([x, x.untyped_storage(), x[1:]])
    twin.add_(1)
    return [view, storage.nbytes(), mod.tensor(x.storage(), dtype=mod.float32),
            mod.storage._dtype_to_storage_type_map()[mod.int16],
            mod.ShortStorage.from_buffer(bytearray([1, 2, 3, 4]), "big").tolist(), x.storage_type() is mod.FloatStorage,
            said(lambda: mod.tensor(x.storage(), dtype=mod.int32), "Expected a Storage of type Int or an UntypedStorage"),
            said(lambda: mod.tensor([], dtype=mod.int32).set_(x.storage()), "Expected a Storage of type int"),
            said(lambda: mod.FloatStorage(0, 0), "Too many positional arguments"),
            said(lambda: mod.FloatStorage(dtype=mod.float32), "'dtype' cannot be specified"),
            said(lambda: mod.TypedStorage(wrap_storage=x.untyped_storage()), "Argument 'dtype' must be specified")]


@programs
def fresh_memory_is_filled_where_programs_must_be_deterministic(mod):
    mod.use_deterministic_algorithms(True)
    try:
        unpool = mod.nn.MaxUnpool2d(3, 1)
        return [mod.empty(2).isnan().all(), mod.empty_like(mod.ones(2, dtype=mod.int32)) == mod.iinfo(mod.int32).max,
                mod.empty_strided((2, 2), (1, 2)).isnan().all(), mod.zeros(2).resize_(4)[2:].isnan().all(),
                said(lambda: mod.ones(2).put_(mod.tensor([0]), mod.ones(1)), "put_ does not have a deterministic"),
                said(lambda: unpool(mod.ones(1, 1, 7, 7), mod.zeros(1, 1, 7, 7, dtype=mod.int64)),
                     "max_unpooling2d_forward_out")]
    finally:
        mod.use_deterministic_algorithms(False)


@programs
def small_things(mod):
    x, y = mod.ones(2, requires_grad=True), mod.ones(1)
    with mod.no_grad():
        numbers = x.numpy().tolist()
        view = x[:]
        view *= 2
    y.resize_((1, 2))
    y.resize_((1, 2))
    return [numbers, repr(view), y._version, mod.tensor([]).is_set_to(mod.tensor([])),
            said(lambda: mod.broadcast_shapes(1.1), "Input shapes should be of type ints"),
            said(lambda: setattr(mod.ones(1), "data", mod.ones(1).to_sparse()), "incompatible tensor type"),
            said(lambda: mod.broadcast_shapes(-1)), [list(t.shape) for t in mod._VF.unique_dim(mod.ones(2, 2), 0)]]


@programs
def numbers_and_empties(mod):
    within = []
    within.append(within)
    pairs = [getattr(mod, name)(7, 2) for name in ("add", "sub", "mul", "div", "floor_divide", "true_divide")]
    return [pairs, mod.add(1.5, 2), mod.mul(True, True), mod.sub(1, 1, alpha=2), mod.div(7, 2, rounding_mode="floor"),
            list(mod.cat([mod.empty(0), mod.empty(0)], dim=1).shape), mod.arange(4, out=mod.zeros(2, 2)),
            mod.linspace(1, 4, 4, out=mod.zeros(2, 2)), said(lambda: mod.tensor(within), "too many dimensions 'list'"),
            said(lambda: mod.maximum(3, 2), "must be Tensor, not int")]


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_program(program):
    agree(program)


def test_an_old_view_tracking_switch_is_accepted():
    for mod in (torch, flambeau):
        with mod.autograd._force_original_view_tracking(True):
            assert mod.autograd.is_view_replay_enabled()
        assert not mod.autograd.is_view_replay_enabled()
        x = mod.ones(2).clone()
        x.add_(1)
        with mod.autograd._unsafe_preserve_version_counter(x):
            x.mul_(2)
        assert x._version == 1
        with pytest.raises(RuntimeError, match="Cannot set a version_counter to a value below 0"):
            mod._C._autograd._unsafe_set_version_counter((x,), (-1,))
        reference, gone = mod._C._WeakTensorRef(x), weakref.ref(x)
        del x
        assert reference.expired() and gone() is None
