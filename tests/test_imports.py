"""Module paths of PyTorch's that programs import, and tools around training."""

import importlib

import pytest
import torch
from compare import agree

import flambeau

MODULES = """
    ao.quantization ao.quantization.quantize_fx ao.nn.quantized ao.pruning quantization nn.quantized nn.intrinsic
    export package nested library monitor fx fx.passes.shape_prop fx.graph fx.node fx.proxy
    fx.experimental.proxy_tensor quasirandom masked.maskedtensor masked.maskedtensor.core distributed.rpc
    distributed.fsdp distributed.fsdp.wrap distributed.optim distributed.tensor.parallel
    distributed.checkpoint.state_dict distributed.elastic.multiprocessing.errors distributed.algorithms.join
    distributed.distributed_c10d distributed.device_mesh distributed.pipelining distributed.run
    nn.parallel.distributed nn.parallel.data_parallel nn.parallel.replicate nn.parallel.scatter_gather
    nn.parallel.parallel_apply nn.parallel.comm utils.benchmark utils.flop_counter utils.cpp_extension
    utils.collect_env utils.tensorboard utils.weak utils.mobile_optimizer utils.bundled_inputs utils.module_tracker
    utils._python_dispatch cuda.nvtx cuda.comm cuda.nccl cuda.memory cuda.random cuda.amp multiprocessing.pool _C._nn
    hub
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_importable(name):
    importlib.import_module(f"torch.{name}") if name != "utils.tensorboard" else None
    assert importlib.import_module(f"flambeau.{name}")


@pytest.mark.parametrize("name", ["export.export", "ao.quantization.QuantStub", "package.PackageExporter",
                                  "utils.cpp_extension.load", "nn.quantized.Linear"])
def test_refused_names(name):
    path, _, attribute = name.rpartition(".")
    refused = getattr(importlib.import_module(f"flambeau.{path}"), attribute)
    with pytest.raises(NotImplementedError, match=attribute):
        refused(1)

    class Derived(refused):
        pass

    with pytest.raises(NotImplementedError):
        Derived()


def test_unknown_names_are_errors():
    with pytest.raises(ImportError):
        importlib.import_module("flambeau.ao.quantization.no_such_module")
    with pytest.raises(AttributeError):
        _ = flambeau.ao.quantization.no_such_name


def test_nvtx_without_cuda():
    with pytest.raises(RuntimeError, match="NVTX"):
        flambeau.cuda.nvtx.range_push("a")


@pytest.mark.parametrize("name", ["gelu", "softplus", "softshrink", "log_sigmoid", "hardsigmoid", "hardtanh", "silu", "mish"])
def test_compiled_names(name):
    agree(lambda m: getattr(m._C._nn, name)(m.tensor([-1.0, 0.5])))


def test_paths_in_trees():
    def program(m):
        tree = importlib.import_module(f"{m.__name__}.utils._pytree")
        value = {"x": [1, (2, 3)], "y": {"z": 4}}
        return ([(tree.keystr(path), leaf) for path, leaf in tree.tree_flatten_with_path(value)[0]],
                tree.tree_map_with_path(lambda path, leaf: (tree.keystr(path), leaf), value))

    assert program(flambeau) == program(torch)


def test_weak_dictionary():
    from flambeau.utils.weak import WeakTensorKeyDictionary
    key, other = flambeau.ones(2), flambeau.ones(2)
    found = WeakTensorKeyDictionary({key: 1})
    assert found[key] == 1 and other not in found and len(found) == 1
    del key
    assert len(found) == 0


# -------------------------------------------------------------------------------------------------------------- tools
def test_timer():
    benchmark = importlib.import_module("flambeau.utils.benchmark")
    made = benchmark.Timer("x + x", globals={"x": flambeau.ones(2)}, label="add", sub_label="two", description="plain")
    results = [made.timeit(10), made.blocked_autorange(min_run_time=0.001)]
    assert all(r.median > 0 and r.mean > 0 and r.iqr >= 0 for r in results) and results[0].number_per_run == 10
    table = str(benchmark.Compare(results))
    assert "add" in table and "two" in table and "plain" in table and "Times are in" in table


def flops(m, program):
    counter = importlib.import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode(display=False)
    with counter:
        program(m)
    return {k: {str(op): n for op, n in v.items()} for k, v in counter.get_flop_counts().items()}


@pytest.mark.parametrize("backward", [False, True])
def test_flop_counts(backward):
    def program(m):
        class Net(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = m.nn.Conv2d(3, 8, 3, padding=1)
                self.body = m.nn.Sequential(m.nn.Linear(8, 16), m.nn.ReLU())
                self.attention = m.nn.MultiheadAttention(16, 2, batch_first=True)
                self.head = m.nn.Linear(16, 4, bias=False)

            def forward(self, x):
                x = self.body(self.conv(x).flatten(2).transpose(1, 2))
                return self.head((x + self.attention(x, x, x)[0]).mean(1))

        y = Net()(m.randn(2, 3, 8, 8))
        if backward:
            y.sum().backward()

    ours, theirs = flops(flambeau, program), flops(torch, program)
    assert ours["Global"] == theirs["Global"]
    if not backward:
        assert ours == theirs


def test_hub(tmp_path):
    (tmp_path / "hubconf.py").write_text('dependencies = ["flambeau"]\nimport flambeau\ndef tiny(n=2):\n    "A layer."\n'
                                         "    return flambeau.nn.Linear(n, 1)\n")
    assert flambeau.hub.list(str(tmp_path), source="local") == ["tiny"]
    assert flambeau.hub.help(str(tmp_path), "tiny", source="local") == "A layer."
    assert flambeau.hub.load(str(tmp_path), "tiny", 3, source="local").in_features == 3
    with pytest.raises(RuntimeError):
        flambeau.hub.load(str(tmp_path), "huge", source="local")
    flambeau.save({"a": flambeau.ones(2)}, tmp_path / "there.pth")
    assert flambeau.hub.load_state_dict_from_url("http://nowhere.invalid/there.pth", str(tmp_path))["a"].tolist() == [1, 1]
    with pytest.raises(OSError, match="missing.pth"):
        flambeau.hub.load_state_dict_from_url("http://127.0.0.1:9/missing.pth", str(tmp_path))


def test_environment():
    assert "flambeau version" in flambeau.utils.collect_env.get_pretty_env_info()
