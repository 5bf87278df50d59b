"""PyTorch's private modules have stand-ins, and its own testing package runs on flambeau."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import flambeau
from flambeau import internals

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted(internals.HOMES))
def test_stand_in(name):
    module = importlib.import_module(f"flambeau.{name}")
    assert not hasattr(module, "no_such_thing_here")
    found = {}
    exec(f"from flambeau.{name} import no_such_thing_here as refused", found)
    with pytest.raises(NotImplementedError, match="no_such_thing_here"):
        found["refused"]()
    del module.no_such_thing_here
    with pytest.raises(ImportError):
        importlib.import_module(f"flambeau.{name}.no_such_thing_here")
    with pytest.raises(AttributeError):
        _ = module.__no_such_thing__


def test_stand_ins_show_what_there_is():
    import flambeau._refs.nn.functional as functional
    assert flambeau._refs.add is flambeau.add and functional.relu is flambeau.nn.functional.relu
    assert flambeau._prims_common.dtype_to_type(flambeau.int8) is int
    for shape in [(2, 3), (4,), (), (2, 0, 3)]:
        assert flambeau._prims_common.make_contiguous_strides_for(shape) == torch.empty(shape).stride()
    assert flambeau.torch is flambeau and flambeau._C._LinAlgError is flambeau.linalg.LinAlgError
    assert flambeau.utils._dtype_abbrs.dtype_abbrs[flambeau.bfloat16] == "bf16"


def test_modules_that_pytorch_does_not_have_stay_missing():
    for name in ("flambeau._six", "flambeau._namedtensor_internals", "flambeau.no_such_module"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    assert not hasattr(flambeau, "_six")


def test_settings_of_the_compiler_are_remembered():
    config = flambeau._dynamo.config
    with pytest.raises(AttributeError, match="never_heard_of"):
        _ = config.never_heard_of
    with pytest.raises(AttributeError, match="never_heard_of does not exist"):
        config.never_heard_of = True
    assert flambeau._inductor.config.triton.cudagraphs is False
    with config.patch(cache_size_limit=3, verbose=True):
        assert config.cache_size_limit == 3 and config.verbose
    assert config.cache_size_limit == 8 and not config.verbose


@pytest.mark.parametrize("text, checks, found", [
    ("one\ntwo two\nthree", lambda f: f.check("one").check("three"), True),
    ("one\ntwo two\nthree", lambda f: f.check("three").check("one"), False),
    ("one\ntwo two\nthree", lambda f: f.check("one").check_next("two"), True),
    ("one\ntwo two\nthree", lambda f: f.check("one").check_same("two"), False),
    ("one\ntwo two\nthree", lambda f: f.check("one").check_not("two").check("three"), False),
    ("one\ntwo two\nthree", lambda f: f.check_count("two", 2, exactly=True).check("three"), True),
    ("one\ntwo two\nthree", lambda f: f.check_count("two", 1, exactly=True), False),
    ("one\ntwo two\nthree", lambda f: f.check_regex(r"t\w+e"), True),
])
def test_file_check(text, checks, found):
    for kind in (torch.testing.FileCheck, flambeau.testing.FileCheck):
        if found:
            checks(kind()).run(text)
        else:
            with pytest.raises(RuntimeError):
                checks(kind()).run(text)


def test_private_names_that_programs_borrow():
    functional = flambeau.nn.functional
    assert functional._pair(3) == (3, 3) and functional._Reduction.get_enum("mean") == 1
    results = []
    for mod in (torch, flambeau):
        q, k = mod.arange(8.0).view(1, 2, 4), mod.ones(1, 3, 4)
        w, b = mod.arange(48.0).view(12, 4) / 10, mod.arange(12.0)
        packed = mod.nn.functional._in_projection_packed(q, k, k, w, b)
        alone = mod.nn.functional._in_projection(q, k, k, *w.chunk(3), *b.chunk(3))
        flat = mod._utils._flatten_dense_tensors([q, k])
        parts = mod._utils._unflatten_dense_tensors(flat, [q, k])
        results.append([t.tolist() for t in (*packed, *alone, flat, *parts, mod._weight_norm(w, mod.ones(12, 1), 0))])
    assert len(results[0]) == len(results[1])
    for theirs, ours in zip(*results):
        assert torch.allclose(torch.tensor(theirs), torch.tensor(ours))


HARNESS = """
import flambeau.compat
flambeau.compat.install()
import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_nn import NewModuleTest, NNTestCase, module_tests
from torch.testing._internal.common_utils import TestCase, freeze_rng_state, make_tensor, run_tests
from torch.testing._internal.two_tensor import TwoTensor
import torch.testing._internal.common_optimizers, torch.testing._internal.common_quantization

class Plain(TestCase):
    def test_equal(self):
        self.assertEqual({"a": [torch.ones(2), 3]}, {"a": [torch.ones(2), 3]})
        with self.assertRaises(AssertionError):
            self.assertEqual(torch.ones(2), torch.ones(2, dtype=torch.double))
        with freeze_rng_state():
            torch.rand(3)
        self.assertExpectedInline(str(torch.ones(2)), "tensor([1., 1.])")

    def test_samples(self):
        for op in [o for o in op_db if o.name in ("add", "where", "acos", "div", "prod")]:
            for dtype in (torch.bool, torch.float32):
                for sample in list(op.sample_inputs("cpu", dtype))[:8] if dtype in op.dtypes else []:
                    op(sample.input, *sample.args, **sample.kwargs)

class Kinds(TestCase):
    @dtypes(*all_types_and_complex_and(torch.half, torch.bool, torch.bfloat16))
    def test_copy(self, device, dtype):
        x = make_tensor((3, 4), dtype=dtype, device=device)
        self.assertEqual(x.t().contiguous().t(), x)

class Layers(NNTestCase):
    def _forward(self, module, input):
        return module(*input) if isinstance(input, tuple) else module(input)

    def _backward(self, module, input, output, grad_output, create_graph=False):
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        return tuple(i.grad for i in input) if isinstance(input, tuple) else input.grad

    def _zero_grad_parameters(self, module):
        for p in module.parameters():
            if p.grad is not None:
                p.grad.zero_()

    def _get_parameters(self, module):
        return list(module.parameters()), [p.grad for p in module.parameters()]

    def test_linear(self):
        for case in [t for t in module_tests if t["module_name"] in ("Linear", "Tanh")]:
            case = dict(case)
            NewModuleTest(constructor=getattr(torch.nn, case.pop("module_name")), **case)(self)

instantiate_device_type_tests(Kinds, globals())
assert len(module_db) > 100
run_tests()
"""


def test_pytorchs_testing_package_runs_on_flambeau():
    plain = {name: value for name, value in os.environ.items() if name != "CI"}  # under CI it wants a writer of XML reports
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", HARNESS], cwd=ROOT, capture_output=True, text=True,
                          env=plain)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "OK" in done.stderr
