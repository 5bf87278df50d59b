"""What large libraries ask of PyTorch beyond its documented functions: versions, private modules, storages, containers."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

import flambeau
from flambeau import compat

BOTH = pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])


@pytest.fixture
def installed():
    compat.install()
    yield
    compat.uninstall()


def part(t, name):
    return importlib.import_module(f"{t.__name__}.{name}")


def outcome(function, *args, **kwargs):
    """What a call gives, or the kind of its error and its first line."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error).splitlines()[0]


# ------------------------------------------------------------------------------------------------------------ versions
def test_metadata_and_version_tell_of_pytorch_while_installed(installed):
    import torch as t
    assert importlib.metadata.version("torch") == compat.STANDS_FOR == str(t.__version__)
    assert importlib.metadata.distribution("torch").metadata["Name"] == "torch"
    assert "torch" in importlib.metadata.packages_distributions()["torch"]
    assert t.__version__ >= "2.10" and t.__version__ > (2, 9) and t.version.__version__ == compat.STANDS_FOR


def test_the_own_version_comes_back():
    before, pytorch = (flambeau.__version__, flambeau.version.__version__), importlib.metadata.version("torch")
    compat.install()
    compat.uninstall()
    assert (flambeau.__version__, flambeau.version.__version__) == before
    assert importlib.metadata.version("torch") == pytorch


def test_specs_of_modules_that_are_there_and_that_are_not(installed):
    assert importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch.nn.utils.rnn") is not None
    assert importlib.util.find_spec("torch.no_such_part") is None
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'torch\.no_such_part'"):
        import torch.no_such_part  # noqa: F401


def test_metadata_without_an_installed_pytorch(tmp_path):
    program = tmp_path / "ask.py"
    program.write_text("import importlib.metadata as m, importlib.util as u\n"
                       "print(m.version('torch'), u.find_spec('torch') is not None, m.files('torch'))\n")
    for package in ("numpy", "ml_dtypes"):
        (tmp_path / package).symlink_to(Path(importlib.import_module(package).__file__).parent)
    hide = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(tmp_path)!r}]"
    command = f"{hide}; from flambeau.__main__ import main; main([{str(program)!r}])"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True,
                          cwd=Path(flambeau.__file__).parents[1])
    assert done.stdout.split() == [compat.STANDS_FOR, "True", "None"], done.stderr


# ------------------------------------------------------------------------------------------------- modules and classes
@pytest.mark.parametrize("path", [
    "distributed.tensor.placement_types.Shard", "distributed.tensor._utils.compute_local_shape_and_global_offset",
    "distributed.checkpoint.default_planner.DefaultLoadPlanner", "distributed.launcher.api.elastic_launch",
    "distributed._composable.fsdp.fully_shard", "distributed.fsdp.fully_sharded_data_parallel.ShardedOptimStateDictConfig",
    "_dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex", "_higher_order_ops.associative_scan.associative_scan",
    "onnx.symbolic_opset11.unsqueeze", "onnx.symbolic_helper.parse_args", "onnx.operators.shape_as_tensor",
    "jit.annotations.BroadcastingList2", "jit.annotations.List", "hub.urlparse", "hub._get_torch_home", "hub.tqdm",
    "utils.model_zoo.tqdm", "fx.graph_module._copy_attr", "fx.graph_module._CodeOnlyModule",
    "nn.attention.flex_attention._DEFAULT_SPARSE_BLOCK_SIZE"])
def test_names_that_libraries_import(path):
    module, _, name = path.rpartition(".")
    for t in (torch, flambeau):
        exec(f"from {t.__name__}.{module} import {name}")


@BOTH
def test_private_modules_are_attributes(t):
    assert isinstance(t.compile(t.nn.Linear(1, 1)), t._dynamo.eval_frame.OptimizedModule)
    assert t._dynamo.mark_static_address(t.ones(1)) is None
    assert t._dynamo.utils.is_compile_supported("cpu")


@BOTH
def test_classes_of_devices_that_are_not_there_can_be_named(t):
    for kind in (t.cuda.Stream, t.cuda.Event, t.cuda.CUDAGraph, part(t, "nn.attention.flex_attention").BlockMask):
        assert not isinstance(1, kind) and (kind | None)
    with pytest.raises(RuntimeError):
        t.cuda.Stream()


@BOTH
def test_annotations_and_rules_for_exporting_are_accepted(t):
    assert part(t, "jit.annotations").BroadcastingList2[int] != 0
    rule = part(t, "onnx.symbolic_helper").parse_args("v", "i")(lambda g, x, n: x)
    assert callable(rule) and t.onnx.TensorProtoDataType.INT64 == 7
    assert part(t, "onnx.operators").shape_as_tensor(t.ones(2, 3)).tolist() == [2, 3]


def test_fakes_of_operations_may_come_before_them():
    @flambeau.library.register_fake("large_programs::doubled")
    def fake(x):
        return x.new_empty(x.shape)

    lib = flambeau.library.Library("large_programs", "DEF")
    lib.define("doubled(Tensor x) -> Tensor")
    lib.impl("doubled", lambda x: x * 2, "CPU")
    assert flambeau.ops.large_programs.doubled(flambeau.ones(2)).tolist() == [2.0, 2.0]
    assert flambeau.ops.large_programs.doubled(flambeau.ones(2, device="meta")).shape == (2,)


@BOTH
def test_placements_are_values(t):
    tensor = part(t, "distributed.tensor")
    Shard, Replicate, Partial = tensor.Shard, tensor.Replicate, tensor.Partial
    assert [repr(p) for p in (Shard(1), Replicate(), Partial(), Partial("avg"))] == [
        "Shard(dim=1)", "Replicate()", "Partial(sum)", "Partial(avg)"]
    assert [str(p) for p in (Shard(-1), Replicate(), Partial("max"))] == ["S(-1)", "R", "P(max)"]
    assert Shard(1) == Shard(1) != Shard(2) and hash(Replicate()) == hash(Replicate())
    assert Shard(1).is_shard(1) and not Shard(1).is_shard(0) and not Shard(0).is_replicate()
    assert Partial("avg").is_partial("avg") and not Partial("avg").is_partial("sum")
    assert isinstance(Shard(0), tensor.Placement)


@BOTH
def test_streams_and_events_of_the_cpu(t):
    if t is torch and torch.version.cuda:
        pytest.skip("streams of a PyTorch that was built for GPUs are a GPU's, whether there is one or not")
    stream, event = t.Stream(), t.Event()
    assert repr(stream) == "torch.Stream device_type=cpu, device_index=-1, stream_id=0" and stream == t.Stream(device="cpu")
    assert repr(t.Event(enable_timing=True)) == "torch.Event device_type=cpu, device_index=-1, event_flag=1, event_id=0"
    assert stream.query() and event.query() and stream.synchronize() is None and stream.wait_event(event) is None
    with stream as inside:
        assert inside is stream
    for call in (lambda: event.record(), lambda: stream.wait_stream(stream), lambda: t.Stream("cuda")):
        with pytest.raises(RuntimeError, match="doesn't support events|not linked with support for cuda"):
            call()


@BOTH
def test_dispatch_keys_of_autocast_can_be_left_out(t):
    Key, Set = t._C.DispatchKey, t._C.DispatchKeySet
    keys = Set(Key.AutocastCPU) | Set(Key.AutocastCUDA)
    assert repr(keys) == "DispatchKeySet(AutocastCPU, AutocastCUDA)" and keys.has(Key.AutocastCPU) and not keys.has(Key.CPU)
    assert keys - Set(Key.AutocastCPU) == Set(Key.AutocastCUDA)
    layer, x = t.nn.Linear(2, 2), t.ones(1, 2)
    with t.autocast("cpu", t.bfloat16):
        with t._C._ExcludeDispatchKeyGuard(keys):
            assert layer(x).dtype is t.float32
        assert layer(x).dtype is t.bfloat16


def test_the_vector_unit_has_pytorchs_name():
    assert flambeau.backends.cpu.get_cpu_capability() == torch.backends.cpu.get_cpu_capability()


# ------------------------------------------------------------------------------------------------------------ functions
OFFSETS = [1, 4, 8]
GROUPED = {"rows": ((8, 16), (3, 16, 8)), "columns": ((3, 4, 16), (16, 8)), "inner": ((16, 8), (8, 8)),
           "batch": ((3, 4, 16), (3, 16, 8))}


@pytest.mark.parametrize("form", GROUPED)
def test_grouped_products_and_their_gradients(form):
    made = []
    for t in (torch, flambeau):
        values = np.random.default_rng(0)
        a, b = (t.tensor(values.standard_normal(shape), dtype=t.float32, requires_grad=True) for shape in GROUPED[form])
        offs = None if form == "batch" else t.tensor(OFFSETS, dtype=t.int32)
        out = t.nn.functional.grouped_mm(a, b, offs=offs)
        assert type(out.grad_fn).__name__ == "GroupedMmBackward0" and out.equal(t._grouped_mm(a, b, offs))
        (out * t.arange(out.numel()).reshape(out.shape)).sum().backward()
        made.append([x.detach().numpy() for x in (out, a.grad, b.grad)])
    for x, y in zip(*made):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wrong", [dict(), dict(offs="int64"), dict(bias=True), dict(out_dtype=True), dict(double=True),
                                   dict(short=True), dict(depth=True), dict(flat=True), dict(half=True)], ids=str)
def test_grouped_products_refuse_what_pytorch_refuses(wrong):
    def call(t):
        dtype = t.float64 if "double" in wrong else t.float32
        a = t.ones(8, 12 if "depth" in wrong else 16, dtype=dtype)
        b = t.ones(2 if "short" in wrong else 3, 16, 8, dtype=t.bfloat16 if "half" in wrong else dtype)
        offs = None if not wrong else t.tensor(OFFSETS, dtype=t.int64 if "offs" in wrong else t.int32)
        t.nn.functional.grouped_mm(a[0] if "flat" in wrong else a, b, offs=offs, bias=b if "bias" in wrong else None,
                                   out_dtype=t.bfloat16 if "out_dtype" in wrong else None)
    (ours, said), (theirs, words) = outcome(call, flambeau), outcome(call, torch)
    assert ours == theirs and str(said).startswith(str(words))  # ours may say more


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scans_and_their_gradients(length, reverse):
    made = []
    for t in (torch, flambeau):
        scan = part(t, "_higher_order_ops.associative_scan").associative_scan
        values = np.random.default_rng(1)
        a, b = (t.tensor(values.standard_normal((2, length, 3)), requires_grad=True) for _ in range(2))
        first, second = scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), 1, reverse, "generic")
        (first.sum() + (second * 2).sum()).backward()
        made.append([x.detach().numpy() for x in (first, second, a.grad, b.grad)])
    for x, y in zip(*made):
        np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("arguments", [(0,), (1, False, "generic"), (0, 1, "generic"), (0, False, "other")], ids=str)
def test_associative_scans_refuse_what_pytorch_refuses(arguments):
    expected, got = (outcome(part(t, "_higher_order_ops.associative_scan").associative_scan, t.add, t.ones(3), *arguments)
                     for t in (torch, flambeau))
    assert got == expected and isinstance(expected, tuple)


def test_tensors_without_dimensions_are_indices_under_vmap():
    made = []
    for t in (torch, flambeau):
        mode = part(t, "_dynamo._trace_wrapped_higher_order_op").TransformGetItemToIndex
        keep = t.arange(12).reshape(2, 6) % 5 > 0
        rule = lambda b, q, k, keep=keep: (k <= q) & keep[b, k]
        for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
            rule = t.vmap(rule, in_dims=dims, out_dims=0)
        with mode():
            made.append(rule(t.arange(2), t.arange(6), t.arange(6)).tolist())
    assert made[0] == made[1]


@BOTH
def test_powers_and_quotients_of_meta_tensors(t):
    x = t.ones(1, 4, device="meta")
    for made in (x // 2, x // x, x ** 2, x ** 0.5, x ** x, 2 ** x, t.pow(10000, 2 * (x // 2) / 4)):
        assert made.device.type == "meta" and made.shape == (1, 4) and made.dtype is t.float32


# ------------------------------------------------------------------------------------------------------- flex attention
def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return q - k < 3


MODS = {"none": None, "distance": lambda t: lambda s, b, h, q, k: s + 0.1 * (q - k),
        "soft": lambda t: lambda s, b, h, q, k: t.tanh(s / 3) * 3,
        "table": lambda t: (lambda table: lambda s, b, h, q, k: s + table[h, q - k + 7])(t.linspace(-1, 1, 60).reshape(4, 15)),
        "reduced": lambda t: (lambda table: lambda s, b, h, q, k: s * table[h].sum())(t.linspace(-1, 1, 60).reshape(4, 15))}
MASKS = {"none": None, "causal": lambda m: causal, "both": lambda m: m.and_masks(causal, near),
         "either": lambda m: m.or_masks(causal, near), "rows": lambda m: lambda b, h, q, k: (q > 3) & (k >= 0)}


def attended(t, mod, mask, dtype="float32", heads=4, **options):
    flex = part(t, "nn.attention.flex_attention")
    values = np.random.default_rng(3)
    q, k, v = (t.tensor(values.standard_normal((2, n, 8, 16)), dtype=getattr(t, dtype)) for n in (4, heads, heads))
    blocks = MASKS[mask] and flex.create_block_mask(MASKS[mask](flex), None, None, 8, 8, device="cpu", BLOCK_SIZE=4)
    if t is torch:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # without a compiler: the same numbers, at once
    out, aux = flex.flex_attention(q, k, v, MODS[mod] and MODS[mod](t), blocks, return_aux=flex.AuxRequest(lse=True), **options)
    return out, aux.lse


@pytest.mark.parametrize("mod, mask, options", [
    *((mod, "none", {}) for mod in MODS), *(("distance", mask, {}) for mask in MASKS), ("none", "causal", {"scale": 0.5}),
    ("none", "both", {"heads": 2, "enable_gqa": True}), ("none", "causal", {"dtype": "float64"}),
    ("soft", "none", {"dtype": "bfloat16"})], ids=str)
def test_flex_attention_gives_pytorchs_numbers(mod, mask, options):
    for x, y in zip(attended(torch, mod, mask, **options), attended(flambeau, mod, mask, **options)):
        assert str(y.dtype) == str(x.dtype)
        np.testing.assert_allclose(y.float().numpy(), x.float().numpy(), rtol=1e-2 if "dtype" in options else 1e-5, atol=1e-6)


def test_flex_attention_has_gradients():
    flex = part(flambeau, "nn.attention.flex_attention")
    q, k, v = (flambeau.randn(1, 2, 5, 4, dtype=flambeau.float64, requires_grad=True) for _ in range(3))
    blocks = flex.create_block_mask(causal, None, None, 5, 5, BLOCK_SIZE=2)
    made = flambeau.autograd.grad(flex.flex_attention(q, k, v, block_mask=blocks).square().sum(), (q, k, v))
    plain = flambeau.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for x, y in zip(made, flambeau.autograd.grad(plain.square().sum(), (q, k, v))):
        assert flambeau.allclose(x, y)


def test_block_masks_are_pytorchs():
    made = []
    for t in (torch, flambeau):
        flex = part(t, "nn.attention.flex_attention")
        seen = []
        for rule, length, size in ((causal, 8, 4), (causal, 300, 128), (near, 10, (4, 2))):
            for separate in (True, False):
                blocks = flex.create_block_mask(rule, None, 2, length, length, "cpu", size, separate_full_blocks=separate)
                parts = [x.tolist() if isinstance(x, t.Tensor) else x for x in blocks.as_tuple()]
                seen += [parts, blocks.as_tuple(False)[-2], blocks.shape, blocks.sparsity(), blocks.numel(), str(blocks),
                         blocks.to_dense().tolist(), blocks[0, -1].shape, blocks[:, 0].kv_indices.tolist(),
                         repr(blocks.to("cpu")), blocks._adjust(5, 4).kv_num_blocks.tolist()]
        seen.append(flex.create_mask(causal, 1, None, 3, 4, "cpu").tolist())
        made.append(seen)
    assert made[0] == made[1]


@pytest.mark.parametrize("wrong", [dict(k=(2, 2, 8, 16)), dict(k=(1, 4, 8, 16)), dict(k=(2, 4, 8, 8)), dict(q=(4, 8, 16)),
                                   dict(q=(2, 4, 4, 16), mask=True), dict(k=(2, 4, 9, 16), mask=True), dict(sliced=True),
                                   dict(k=(2, 3, 8, 16), gqa=True)], ids=str)
def test_flex_attention_refuses_what_pytorch_refuses(wrong):
    def call(t):
        flex = part(t, "nn.attention.flex_attention")
        q, k = t.ones(wrong.get("q", (2, 4, 8, 16))), t.ones(wrong.get("k", (2, 4, 8, 16)))
        blocks = flex.create_block_mask(causal, None, None, 8, 8, device="cpu", BLOCK_SIZE=4)
        mask = blocks if "mask" in wrong else blocks[0] if "sliced" in wrong else None
        flex.flex_attention(q, k if q.ndim == 4 else q, k if q.ndim == 4 else q, block_mask=mask, enable_gqa="gqa" in wrong)
    expected = outcome(call, torch)
    assert outcome(call, flambeau) == expected and isinstance(expected, tuple)


# ------------------------------------------------------------------------------------------------------------- storages
@BOTH
def test_storages_over_files(t, tmp_path):
    path = str(tmp_path / "bytes")
    Path(path).write_bytes(bytes(range(16)))
    private = t.UntypedStorage.from_file(path, False, 16)
    private[0] = 9
    assert Path(path).read_bytes()[0] == 0 and private[0] == 9 and private.filename is None and private.is_shared()
    shared = t.UntypedStorage.from_file(path, shared=True, nbytes=16)
    shared[1] = 7
    assert Path(path).read_bytes()[1] == 7 and shared.filename == path
    inner = shared[4:8]
    assert inner.nbytes() == 4 and inner.data_ptr() == shared.data_ptr() + 4
    tensor = t.asarray(inner, dtype=t.uint8)
    assert tensor.tolist() == [4, 5, 6, 7] and tensor.untyped_storage().nbytes() == 4
    tensor[0] = 50
    assert shared[4] == 50 and Path(path).read_bytes()[4] == 50
    assert t.from_file(path, size=2, dtype=t.int32).tolist() == np.frombuffer(Path(path).read_bytes(), np.int32)[:2].tolist()
    assert t.from_file(path, shared=True, size=20, dtype=t.uint8).shape == (20,) and Path(path).stat().st_size == 20


@pytest.mark.parametrize("call", [lambda t, path: t.UntypedStorage.from_file(path, False, 32),
                                  lambda t, path: t.UntypedStorage.from_file(path + "x", False, 4),
                                  lambda t, path: t.UntypedStorage.from_file(path, False, 8)[0:8:2]])
def test_storages_over_files_refuse_what_pytorch_refuses(call, tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(16))
    assert outcome(call, flambeau, str(path)) == outcome(call, torch, str(path))


def test_checkpoints_are_the_same_where_a_package_extends_python_pickler(tmp_path):
    """dill writes its own functions into pickle's table; files keep PyTorch's names all the same."""
    program = ("import pickle\n"
               "def foreign(self, obj): self.save_reduce(eval, ('1',), obj=obj)\n"
               "pickle._Pickler.dispatch.update({type: foreign, dict: foreign})\n"
               "import flambeau\n"
               f"flambeau.save({{'x': flambeau.ones(2)}}, {str(tmp_path / 'file')!r})\n")
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(flambeau.__file__).parents[1])
    assert torch.load(tmp_path / "file", weights_only=True)["x"].tolist() == [1.0, 1.0]
    assert pickle.loads(pickle.dumps({"a": int})) == {"a": int}


# ------------------------------------------------------------------------------------------------------------- compiled
class Outcome(OrderedDict):
    """A container of a program's own, as models return them."""


def test_compiled_functions_return_registered_containers():
    from flambeau.utils import _pytree
    if Outcome not in _pytree.SUPPORTED_NODES:
        _pytree.register_pytree_node(Outcome, lambda o: (list(o.values()), list(o)), lambda v, keys: Outcome(zip(keys, v)))
    linear = flambeau.nn.Linear(3, 2)
    compiled = flambeau.compile(lambda x: Outcome(loss=linear(x).square().sum(), more=(x * 2, None, "text")))
    for i in range(4):
        x = flambeau.full((4, 3), float(i + 1))
        made = compiled(x)
        made["loss"].backward()
        assert type(made) is Outcome and made["more"][1:] == (None, "text") and made["more"][0].equal(x * 2)
        np.testing.assert_allclose(made["loss"].item(), linear(x).square().sum().item(), rtol=1e-6)
    np.testing.assert_allclose(linear.weight.grad.numpy(), sum(
        flambeau.autograd.grad(linear(flambeau.full((4, 3), float(i + 1))).square().sum(), linear.weight)[0].numpy()
        for i in range(4)), rtol=1e-4)
    assert compiled._compiled.paths.stopped is None


def test_one_tensor_as_two_arguments_that_shares_its_memory():
    whole = flambeau.arange(12.0).reshape(3, 4)
    view = whole[1:]
    compiled = flambeau.compile(lambda x, y: x * 2 + y.sum(), fullgraph=True)
    for _ in range(3):
        assert compiled(view, view).equal(view * 2 + view.sum())
    other = flambeau.ones(2, 4)
    assert compiled(view, other).equal(view * 2 + other.sum())
