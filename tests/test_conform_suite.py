"""What PyTorch's own tables of tests ask of operations (tools/suite_sweep.py): dtypes, transformations, overrides."""

import importlib
import subprocess
import sys

import pytest
import torch as oracle
from compare import MODULES, agree, outcome

import flambeau

# ------------------------------------------------------------------------------------------------------------- dtypes
# `ones` makes a tensor of the dtype. Which of the dtypes an operation takes is the same as in PyTorch, and so are the words.
TYPED = """
F.conv1d(ones(1, 2, 4), ones(2, 2, 2)) | F.conv3d(ones(1, 2, 4, 4, 4), ones(2, 2, 2, 2, 2))
F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 2, 2), dilation=2) | F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 2, 2))
F.conv_transpose1d(ones(1, 2, 4), ones(2, 2, 2)) | F.conv_transpose3d(ones(1, 2, 4, 4, 4), ones(2, 2, 2, 2, 2))
F.max_unpool1d(ones(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int64), 2) | F.max_pool1d(ones(1, 2, 4), 2)
F.max_unpool3d(ones(1, 2, 2, 2, 2), torch.zeros(1, 2, 2, 2, 2, dtype=torch.int64), 2) | F.avg_pool3d(ones(1, 2, 4, 4, 4), 2)
F.unfold(ones(1, 2, 4, 4), 2) | F.fold(ones(1, 4, 9), (4, 4), 2) | F.pad(ones(1, 3, 4), (1, 1), 'reflect')
F.pad(ones(1, 3, 4, 4), (1, 1, 1, 1), 'replicate') | F.embedding_bag(torch.tensor([[0]]), ones(3, 2)) | F.pdist(ones(2, 3))
F.embedding(torch.tensor([0]), ones(3, 2), max_norm=1.0) | torch.round(ones(3), decimals=0) | torch.round(ones(3))
ones(3).index_reduce(0, torch.tensor([0]), ones(1), 'mean') | ones(3).index_reduce(0, torch.tensor([0]), ones(1), 'amax')
ones(3).scatter_reduce(0, torch.tensor([0]), ones(1), 'mean') | ones(3).scatter_reduce(0, torch.tensor([0]), ones(1), 'amin')
torch.bucketize(ones(3), ones(3)) | torch.searchsorted(ones(3), ones(3)) | torch.clamp(ones(3), ones(3), ones(3))
torch.unique(ones(3)) | torch.unique_consecutive(ones(3, 2), dim=0) | F.cosine_similarity(ones(2, 3), ones(2, 3))
F.interpolate(ones(1, 2, 4, 4), (3, 3), mode='bilinear', antialias=True) | F.rrelu(ones(2, 3), training=True)
F.ctc_loss(ones(5, 1, 3), torch.tensor([[1]]), (5,), (1,)) | torch.masked.amax(ones(3), mask=torch.ones(3) > 0)
torch.masked.var(ones(3)) | torch.masked.logsumexp(ones(3), 0, mask=torch.ones(3) > 0) | torch.triu_indices(2, 2, dtype=dtype)
torch.sparse.sampled_addmm(ones(2, 2).to_sparse_csr(), ones(2, 2), ones(2, 2))
torch.sparse.mm(ones(2, 2).to_sparse_csr(), ones(2, 2), 'sum') | torch.segment_reduce(ones(3), 'sum', lengths=torch.tensor([1, 2]))
"""
DTYPES = "bool uint8 int16 int64 float16 bfloat16 float32 complex64".split()


@pytest.mark.parametrize("expression", [e.strip() for line in TYPED.strip().splitlines() for e in line.split("|")])
def test_dtypes_that_are_taken(expression):
    for name in DTYPES:
        def program(m, name=name):
            dtype = getattr(m, name)
            names = {"torch": m, "F": m.nn.functional, "dtype": dtype, "ones": lambda *size: m.ones(*size, dtype=dtype)}
            return getattr(eval(expression, names), "dtype", None)

        (expected, _), (got, _) = [outcome(program, m) for m in MODULES.values()]
        if isinstance(expected, Exception):
            assert type(got).__name__ == type(expected).__name__, (name, got)
            if "not implemented for" in str(expected):
                assert str(got).startswith(str(expected).strip()), (name, got)
        else:
            assert str(got) == str(expected), (name, got)


VALUES = {
    "segments of rows": lambda t: [t.segment_reduce(t.arange(12.0).reshape(3, 4), kind, axis=1, unsafe=True, initial=initial,
                                                    lengths=t.tensor([[1, 3], [2, 2], [4, 0]]))
                                   for kind in ("sum", "mean", "max", "min", "prod") for initial in (None, 1.0)],
    "offsets of rows": lambda t: t.segment_reduce(t.arange(24.0).reshape(2, 3, 4), "sum", axis=-2,
                                                  offsets=t.tensor([[0, 1, 3], [0, 3, 3]])),
    "segments that are too short": lambda t: t.segment_reduce(t.ones(2, 3), "sum", lengths=t.tensor([[1, 2], [3, 1]]), axis=1),
    "complex normal_ around a mean": lambda t: (t.manual_seed(0), t.zeros(20, dtype=t.complex64).normal_(2.0, 3.0))[1],
    "limits of formats without tensors": lambda t: [repr(t.finfo(getattr(t, f"float8_{kind}")))
                                                    for kind in ("e4m3fnuz", "e5m2fnuz", "e8m0fnu")],
    "native_dropout_backward": lambda t: t.ops.aten.native_dropout_backward(t.ones(3), t.tensor([True, False, True]), 2.0),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    expected = agree(VALUES[name])
    assert isinstance(expected, Exception) == ("too short" in name)


# -------------------------------------------------------------------------------------------------------- derivatives
def test_batched_gradients_of_rms_norm():
    x = flambeau.randn(4, 3, 5, dtype=flambeau.float64, requires_grad=True)
    weight = flambeau.rand(5, dtype=flambeau.float64, requires_grad=True)
    for given in (weight, None):
        y = flambeau.nn.functional.rms_norm(x, (5,), given)
        grads = flambeau.randn(3, *y.shape, dtype=flambeau.float64)
        together, = flambeau.autograd.grad(y, x, grads, is_grads_batched=True, retain_graph=True)
        alone = flambeau.stack([flambeau.autograd.grad(y, x, g, retain_graph=True)[0] for g in grads])
        flambeau.testing.assert_close(together, alone)


def test_safe_softmax_of_nothing_has_gradient_zero():
    def program(t):
        x = t.tensor([[1.0, 2.0], [-float("inf"), -float("inf")]], requires_grad=True)
        (t.ops.aten._safe_softmax(x, 1) * t.tensor([1.0, 3.0])).sum().backward()
        return x.grad
    assert not isinstance(agree(program), Exception)


def _hermitian(a):
    return a + a.mH


FORWARD = {
    "svdvals": lambda a: flambeau.linalg.svdvals(a),
    "svd": lambda a: flambeau.linalg.svd(a)[0].abs(),
    "eigvals": lambda a: flambeau.linalg.eigvals(a),
    "eigh": lambda a: flambeau.linalg.eigh(_hermitian(a)).eigenvectors.abs(),
    "eigvalsh": lambda a: flambeau.linalg.eigvalsh(_hermitian(a)),
    "nuclear norm": lambda a: flambeau.linalg.norm(a, "nuc"),
    "as_strided_copy": lambda a: flambeau.as_strided_copy(a, (2, 2), (1, 2), 1),
    "max_unpool1d where places meet": lambda a: flambeau.nn.functional.max_unpool1d(
        a.real[None], flambeau.tensor([[[0, 0, 3]] * 3]), 2),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode(name):
    flambeau.manual_seed(3)
    x = flambeau.randn(3, 3, dtype=flambeau.complex128, requires_grad=True)
    assert flambeau.autograd.gradcheck(FORWARD[name], (x,), check_forward_ad=True, check_backward_ad=False)


def test_views_of_a_tensor_whose_tangent_lies_otherwise():
    def program(t):
        forward = t.autograd.forward_ad
        with forward.dual_level():
            x = forward.make_dual(t.ones(2, 3), t.arange(6.0).view(3, 2).t())
            y = x.view(6)
            return forward.unpack_dual(y).tangent, forward.unpack_dual(y.view(3, 2) * 2).tangent
    assert not isinstance(agree(program), Exception)


def test_a_loss_that_depends_on_the_phase_is_still_refused():
    x = flambeau.randn(3, 3, dtype=flambeau.complex128, requires_grad=True)
    with pytest.raises(RuntimeError, match="phase"):
        (flambeau.linalg.svd(x)[0] * flambeau.arange(9.0).view(3, 3)).imag.sum().backward()


def test_as_strided_scatter_has_no_meaning_inside_vmap():
    for t in MODULES.values():
        with pytest.raises(RuntimeError, match="as_strided_scatter requires special handling"):
            t.vmap(lambda x, y: t.as_strided_scatter(x, y, (1,), (1,), 1))(t.zeros(2, 3), t.ones(2, 1))


def test_two_views_without_history_meet_in_one_pass():
    x = flambeau.randn(4, requires_grad=True)
    with flambeau.no_grad():
        views = [x[:2], x[2:]]
    scale = flambeau.ones(2, requires_grad=True)
    (views[0] * scale + views[1] * scale).sum().backward()
    flambeau.testing.assert_close(scale.grad, (views[0] + views[1]).detach())


# ---------------------------------------------------------------------------------------------------------- overrides
QUESTIONS = """size dim numel nelement element_size is_floating_point is_complex stride storage_offset data_ptr _is_view
    __len__ __repr__ __bool__ __float__ __dlpack_device__ requires_grad_ retain_grad coalesce indices""".split()


def test_methods_that_compute_nothing_ask_handlers():
    for t in MODULES.values():
        class Asked(t.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func.__name__ in QUESTIONS:
                    return func.__name__
                return super().__torch_function__(func, types, args, kwargs or {})

        x = t.ones(1).as_subclass(Asked)
        for name in QUESTIONS:
            assert getattr(t.Tensor, name)(x) in (name, {"nelement": "numel"}.get(name)), name
        assert t.ones(2).dim() == 1 and t.ones(2).as_subclass(t.Tensor).numel() == 2


def test_modes_hear_questions():
    for t in MODULES.values():
        heard = []

        class Heard(t.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                heard.append(func.__name__)
                return func(*args, **(kwargs or {}))

        x = t.ones(2)
        with Heard():
            assert (x.size(), x.dim(), x.is_floating_point()) == ((2,), 1, True)
        assert heard == ["size", "dim", "is_floating_point"]


def test_overridable_functions_take_tensors():
    known = {flambeau.overrides.resolve_name(f) for f in flambeau.overrides.get_testing_overrides()}
    assert not known & {"torch.zeros", "torch.rand", "torch.arange", "torch.eye", "torch.Tensor.__deepcopy__"}
    assert {"torch.zeros_like", "torch.Tensor.size", "torch.special.airy_ai"} <= known


# ------------------------------------------------------------------------------------------ what the tables are made of
def test_tags():
    for name in ("add.Tensor", "dropout.default", "nonzero.default", "squeeze_.dim", "sum.out", "sin.default"):
        packet, overload = name.split(".")
        theirs, ours = [getattr(getattr(t.ops.aten, packet), overload).tags for t in (oracle, flambeau)]
        assert [tag.name for tag in ours] == [tag.name for tag in theirs] and list(map(str, ours)) == list(map(str, theirs))
        assert list(map(int, ours)) == [tag.value for tag in theirs]


def test_kinds_of_promotion():
    for kind in range(6):
        made = []
        for name, t in (("torch", oracle), ("flambeau", flambeau)):
            module = importlib.import_module(f"{name}._prims_common")
            how = list(module.ELEMENTWISE_TYPE_PROMOTION_KIND)[kind]
            made.append([str(module.elementwise_dtypes(t.ones(2, dtype=getattr(t, a)), b, type_promotion_kind=how))
                         for a in DTYPES for b in (True, 1, 1.0, 1j, t.ones(2), t.ones((), dtype=t.float64))])
        assert made[0] == made[1], how


def test_private_helpers():
    from flambeau._subclasses.fake_utils import output_alias_each_other, outputs_alias_inputs, outputs_are_inputs
    from flambeau.masked.maskedtensor.core import _masks_match, _tensors_match
    from flambeau.multiprocessing.reductions import StorageWeakRef
    x = flambeau.ones(3)
    assert outputs_alias_inputs([x[1:]], (x,)) and not outputs_are_inputs(x[1:], x) and outputs_are_inputs([x], x)
    assert output_alias_each_other([x, x[1:]]) and not output_alias_each_other([x, x.clone()])
    assert _tensors_match(x, x.clone()) and not _tensors_match(x, x + 1) and _masks_match(x, x)
    reference, again = StorageWeakRef(x.untyped_storage()), StorageWeakRef(x[1:].untyped_storage())
    assert reference == again and hash(reference) == hash(again) and not reference.expired()
    del x
    assert reference.expired()


WHOLE = """import flambeau.compat
flambeau.compat.install()
import importlib
for name in '''autograd_function_db common_cuda common_device_type common_dtype common_jit common_methods_invocations
        common_modules common_nn common_optimizers common_quantization common_subclass common_utils composite_compliance
        custom_op_db generated.annotated_fn_args hop_db inductor_utils jit_metaprogramming_utils
        jit_utils logging_tensor logging_utils opinfo.definitions.nested optests torchbind_impls triton_utils
        two_tensor'''.split():
    importlib.import_module('torch.testing._internal.' + name)
from torch.fx.graph import inplace_methods, magic_methods, reflectable_magic_methods
from torch.fx.passes.infra.pass_manager import PassManager
from torch._dynamo.exc import Unsupported
from torch._dispatch.python import enable_python_dispatcher
from torch._C import _len_torch_dispatch_stack
import torch
assert torch._ops.OpOverload and torch._C._VariableFunctions.__and__ is torch.Tensor.__and__
assert _len_torch_dispatch_stack() == 0
assert magic_methods["add"] == "{} + {}" and inplace_methods["iadd"] == "{} += {}" and "lt" not in reflectable_magic_methods
print(len(torch.testing._internal.generated.annotated_fn_args.annotated_args) > 1000)
"""


def test_the_testing_package_imports_whole():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", WHOLE], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr
