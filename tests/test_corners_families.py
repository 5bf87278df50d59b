"""Whole families at their corners, as in PyTorch: sparse tensors, masked reductions, trees, fx, func, DLPack, gradgradcheck."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from compare import same

import flambeau

MODULES = (torch, flambeau)


def _sparse(m):
    """A matrix with a place that occurs twice."""
    return m.sparse_coo_tensor(m.tensor([[0, 1, 1, 0], [2, 0, 2, 2]]), m.tensor([3.0, 4.0, 5.0, 1.0]), (2, 3))


SPARSE = """x.floor_divide(2) | -x | x ** 2 | x.isposinf() | x.long() | x.bool() | +x | x.conj() | x.new_zeros(2, 2)
x.new(2, 3) | x.index_select(0, m.tensor([1, 0]))
x.index_select(1, m.tensor([2, 2])) | x.t_() | list(x)[1] | x.unbind(1)[2] | x.mul_(2)
m.smm(x, m.ones(3, 2)) | m.hspmm(x, m.ones(3, 2)) | x.smm(m.ones(3, 2)) | x.addmm | x.div(2, rounding_mode="floor")
m.sspaddmm(m.eye(2).to_sparse(), x, m.ones(3, 2), beta=2, alpha=3) | m.saddmm(m.eye(2).to_sparse(), x, m.ones(3, 2))
m.log1p(x, out=m.zeros(2, 3).to_sparse()) | m.mm(x, m.ones(3, 2), out=m.ones(2, 2)) | m._sparse_broadcast_to(x, (2, 2, 3))
x.sparse_resize_((4, 5), 2, 0) | x.sparse_resize_and_clear_((1, 2, 3), 1, 2) | x.resize_as_(x) | m.tensor(3.0).to_sparse()
m.zeros(2, 3, layout=m.sparse_csr) | m.zeros_like(x, layout=m.strided) | m.zeros_like(x, dtype=m.int32) | x.type(m.float64)
m.nn.functional.linear(m.ones(2, 3), x) | m.nn.functional.relu(-x) | m.add(x.coalesce(), x.coalesce(), alpha=3)
m.add(x, x.double()) | m.mul(x, m.tensor(2.0).to_sparse()) | m.ones_like(x.to_sparse_csr()) | x.to_sparse_csr().conj()
m.full_like(x.to_sparse_csr(), 2.0) | m.sparse.mm(x.to_sparse_csr(), m.ones(3, 2), "mean") | x.to_sparse_csr().unbind(0)[1]
m.sparse.mm(x.to_sparse_csr(), m.arange(6.0).view(3, 2), "amax")"""


@pytest.mark.parametrize("expression", [e.strip() for line in SPARSE.splitlines() for e in line.split("|")])
def test_sparse_tensors(expression):
    def run(m):
        made = eval(expression, {"m": m, "x": _sparse(m)})
        if not isinstance(made, m.Tensor):
            return None
        return str(made.layout), str(made.dtype), made.to_dense() if made.layout is not m.strided else made

    theirs, ours = map(run, MODULES)
    assert (theirs is None) == (ours is None)
    if theirs is not None:
        assert [t.replace("flambeau", "torch") for t in ours[:2]] == list(theirs[:2])
        same(ours[2], theirs[2])


REFUSED = """x.reshape(6) | x.expand(2, 2, 3) | x.data_ptr() | x.tolist() | x.item() | x.is_nonzero() | x.to_sparse(1)
x.sparse_resize_((1, 3), 2, 0) | x.sparse_resize_((2, 3, 1), 3, 0) | x.copy_(m.ones(1, 1).to_sparse()) | x.nbytes
m.log1p(x, out=m.zeros(2, 3, dtype=m.int32).to_sparse()) | m.sparse_coo_tensor(m.tensor([[0, 1, 1]]), m.tensor(3.0), (2,))
x.to_sparse_csr().expand(2, 3) | x.to_sparse_csr().narrow(0, 0, 1) | m.masked.amax(x, 1) | m.masked.mean(x, 1)
m.masked.sum(x.to_sparse_csr(), 1) | m.masked.softmax(x, 1) | m.ones(3).to_sparse().to_sparse_csr() | m.ones(2).to_sparse().tan_
m.tensor([1, 0]).to_sparse().tan_()"""


@pytest.mark.parametrize("expression", [e.strip() for line in REFUSED.splitlines() for e in line.split("|")])
def test_sparse_tensors_refuse(expression):
    errors = []
    for m in MODULES:
        try:
            eval(expression, {"m": m, "x": _sparse(m)})
            errors.append(None)
        except Exception as error:
            errors.append((type(error).__name__, str(error)[:25]))
    assert errors[0] == errors[1]


def test_sparse_numbers_and_types():
    """A sparse tensor of one element is its number; the old types tell layouts apart."""
    one = flambeau.tensor([2.0]).to_sparse()
    assert bool(one) and float(one) == 2.0 and int(one) == 2
    assert not bool(flambeau.zeros(1).to_sparse())
    assert isinstance(one, flambeau.sparse.FloatTensor) and not isinstance(one, flambeau.FloatTensor)
    assert one.type() == "torch.sparse.FloatTensor" and flambeau.sparse.FloatTensor(2, 3).shape == (2, 3)
    assert one.to(one) is one and not one.is_contiguous()
    csr = flambeau.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]]).to_sparse_csr()
    assert csr.prod().item() == 24.0
    same(csr.prod(1, keepdim=True).to_dense(), torch.tensor([[6.0], [4.0]]))


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin"])
def test_masked_reductions_of_sparse_tensors(layout, name):
    def run(m):
        x = m.tensor([[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]]).to_sparse(layout=getattr(m, layout))
        mask = m.tensor([[True, False, True], [False, True, True]])
        made = getattr(m.masked, name)(x, 1, keepdim=True, mask=mask)
        assert made.layout is getattr(m, layout)
        whole = m.masked._output_mask(getattr(m.masked, name), x.to_dense(), 1, keepdim=True, mask=mask)
        return made.to_dense(), whole, m.masked._combine_input_and_mask(getattr(m.masked, name), x.to_dense(), mask)

    for ours, theirs in zip(run(flambeau), run(torch)):
        same(ours, theirs)


def test_second_derivatives_with_strided_gradients():
    """gradgradcheck with gradients that are not contiguous, of one dimension and more."""
    for shape in ((3,), (2, 3), (1, 2, 2)):
        x = flambeau.randn(shape, dtype=flambeau.float64, requires_grad=True)
        assert flambeau.autograd.gradgradcheck(lambda t: t.sin() * t, (x,), gen_non_contig_grad_outputs=True)


# ---------------------------------------------------------------------------------------------------------------- trees
TREES = """tree.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4})
tree.tree_map(lambda a, b: (a, b), {"a": 1}, {"b": 2})
tree.tree_map(lambda a, b: (a, b), [1], (1,)) | tree.tree_map(lambda a, b: (a, b), {"a": 1}, {"a": 2, "b": 2})
tree.tree_structure((1, 2)).flatten_up_to([1, 2]) | tree.tree_structure([1, 2]).flatten_up_to([1])"""


@pytest.mark.parametrize("expression", [e.strip() for line in TREES.splitlines() for e in line.split("|")])
def test_trees(expression):
    results = []
    for m in MODULES:
        try:
            results.append(eval(expression, {"tree": m.utils._pytree}))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_trees_in_sorted_order():
    from flambeau.utils import _cxx_pytree as tree
    value = [1, {"b": 2, "a": (3,)}, None]
    leaves, spec = tree.tree_flatten(value)
    assert leaves == [1, 3, 2, None]
    assert repr(spec) == "PyTreeSpec([*, {'a': (*,), 'b': *}, *], NoneIsLeaf, namespace='torch')"
    assert tree.tree_unflatten(leaves, spec) == value and spec == tree.tree_structure([0, {"a": (0,), "b": 0}, 0])
    assert tree.treespec_loads(tree.treespec_dumps(spec)) == spec
    assert tree._broadcast_to_and_flatten([7, 8, 9], spec) == [7, 8, 8, 9]
    assert tree._broadcast_to_and_flatten((7, 8, 9), spec) is None
    with pytest.raises(NotImplementedError, match="KeyPaths"):
        tree.tree_flatten_with_path(value)
    with pytest.raises(TypeError, match="PyTreeSpec"):
        tree.tree_unflatten(leaves, 3)


# ------------------------------------------------------------------------------------------------------------------- fx
def _nested(x, b):
    return x["a"] + x["c"][0] + b, {"z": b}


def test_fx_placeholders_in_nested_arguments():
    def run(m):
        traced = m.fx.symbolic_trace(_nested, concrete_args={"x": {"a": m.fx.PH, "c": [m.fx.PH, 3]}})
        given = {"a": 1, "c": [2, 3]}
        runs = [traced(given, 3), m.fx.Interpreter(traced).run(given, 3), pickle.loads(pickle.dumps(traced))(given, 3),
                copy.deepcopy(traced)(given, 3), m.fx.Transformer(traced).transform()(given, 3)]
        return traced.code, str(traced.graph), runs

    assert run(flambeau) == run(torch)


def test_fx_writers_of_code():
    def run(m):
        class Listed(m.fx.CodeGen):
            def gen_fn_def(self, free_vars, maybe_return_annotation):
                return f"def forward(self, given){maybe_return_annotation}:\n    {', '.join(free_vars)} = given"

            def process_inputs(self, *inputs):
                return inputs[0]

            def generate_output(self, output_args):
                return f"return list({output_args!r})"

            def process_outputs(self, outputs):
                return list(outputs)

        traced = m.fx.symbolic_trace(lambda a, b: (a + b, a * b))
        traced.graph.set_codegen(Listed())
        traced.recompile()
        seen = [traced.code, traced([2, 3]), m.fx.Interpreter(traced).run([2, 3])]
        plain = m.fx.symbolic_trace(lambda x: x + 1)
        with plain.graph.on_generate_code(lambda before: lambda body: ["x = x * 2\n", *body]):
            plain.recompile()
        seen += [plain.code, plain(3)]
        plain.recompile()
        return [*seen, plain.code, plain(3)]

    assert run(flambeau) == run(torch)


def test_fx_graphs_are_checked():
    def run(m):
        class Inner(m.nn.Module):
            def forward(self, x):
                return x.relu()

        Inner.forward.__annotations__ = {"x": m.Tensor, "return": m.Tensor}

        class Outer(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x):
                return self.inner(x)

        traced = m.fx.symbolic_trace(Outer())
        seen = [[list(n.meta.get("nn_module_stack", {})) for n in traced.graph.nodes], m.fx.symbolic_trace(Inner()).code]
        graph = traced.graph
        for what in (lambda: graph.create_node("bad", "x"), lambda: graph.call_function("text"),
                     lambda: graph.call_module("nope"),
                     lambda: m.fx.Interpreter(traced).run(), lambda: m.fx.symbolic_trace(lambda a, b: a, concrete_args=(1,))):
            try:
                what()
                seen.append(None)
            except Exception as error:
                seen.append((type(error).__name__, str(error)[:30]))
        with pytest.warns(UserWarning, match="no underlying reference"):
            graph.get_attr("gone")
        with pytest.raises(RuntimeError, match="references nonexistent attribute gone"):
            graph.lint()
        return seen

    assert run(flambeau) == run(torch)


def test_fx_fuses_batch_norms():
    model = flambeau.nn.Sequential(flambeau.nn.Conv2d(1, 2, 1), flambeau.nn.BatchNorm2d(2), flambeau.nn.Dropout()).eval()
    model[1].running_mean.fill_(0.5)
    from flambeau.fx.experimental.optimization import fuse, remove_dropout
    x = flambeau.randn(2, 1, 3, 3)
    fused = fuse(model)
    assert [type(m).__name__ for m in fused.children()] == ["Conv2d", "Dropout"]
    flambeau.testing.assert_close(fused(x), model(x))
    assert not any(isinstance(m, flambeau.nn.Dropout) for m in remove_dropout(model).modules())


# ------------------------------------------------------------------------------------------------ func, DLPack, internals
def test_func_of_old_and_refusals():
    from flambeau.func import stateless
    model = flambeau.nn.Linear(2, 2)
    function, params = stateless.make_functional(model)
    x = flambeau.ones(1, 2)
    assert function(params, x).equal(model(x)) and all(p.requires_grad for p in params)
    function, params, buffers = stateless.combine_state_for_ensemble([flambeau.nn.BatchNorm1d(2).eval() for _ in range(3)])
    assert flambeau.func.vmap(function, in_dims=(0, 0, None))(params, buffers, x).shape == (3, 1, 2)
    with pytest.raises(RuntimeError, match="has buffers"):
        stateless.make_functional(flambeau.nn.BatchNorm1d(2))
    with pytest.raises(RuntimeError, match="at least one model"):
        stateless.combine_state_for_ensemble([])
    with pytest.raises(RuntimeError, match="functorch transform"):
        flambeau.func.grad(lambda t: t.requires_grad_().sum())(x)

    class Once(flambeau.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(NotImplementedError, match="implement the jvp function"):
        flambeau.func.jvp(Once.apply, (x,), (x,))
    with pytest.raises(RuntimeError, match="doesn't match the shape"):
        flambeau.func.linearize(lambda t: t.sin(), x)[1](flambeau.ones(3))


def test_dlpack():
    x = flambeau.ones(2)
    assert x.__dlpack_device__() == (flambeau.utils.dlpack.DLDeviceType.kDLCPU, 0)
    with pytest.raises(AssertionError, match="stream should be None"):
        x.__dlpack__(stream=1)
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="text")
    with pytest.raises(BufferError, match="layout other than"):
        x.to_sparse().__dlpack__()
    small = flambeau.tensor([1.0, -2.0]).to(flambeau.float8_e4m3fn)
    assert flambeau.from_dlpack(small).dtype is flambeau.float8_e4m3fn
    same(flambeau.from_dlpack(small).float(), torch.from_dlpack(small).float())


INTERNAL = """m._chunk_cat([m.ones(3, 2), m.ones(5, 2) * 2], 0, 2) | m._chunk_cat([m.ones(3, 2, 2), m.ones(3, 5)], 1, 2)
m._unsafe_masked_index(m.arange(9.0), m.tensor([True, False]), [m.tensor([1, 70])], -1.0)
m._unsafe_masked_index_put_accumulate(m.zeros(3), m.tensor([True, False]), [m.tensor([1, 9])], m.ones(2))
m._native_batch_norm_legit(m.arange(6.0).view(2, 3), None, None, m.zeros(3), m.ones(3), True, 0.1, 1e-5)[0]
m._native_batch_norm_legit(m.arange(6.0).view(2, 3), None, None, True, 0.1, 1e-5)[0]
m.ops.aten._upsample_bilinear2d_aa(m.arange(16.0).view(1, 1, 4, 4), [2, 3], False)
m.ops.aten._upsample_bilinear2d_aa(m.arange(16.0).view(1, 1, 4, 4), None, False, [0.5, 1.5])"""


@pytest.mark.parametrize("expression", [e.strip() for line in INTERNAL.splitlines() for e in line.split("|")])
def test_internal_functions(expression):
    theirs, ours = (eval(expression, {"m": m}) for m in MODULES)
    same(ours, theirs)
