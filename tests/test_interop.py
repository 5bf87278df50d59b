"""NumPy, DLPack, Python numbers, copying and pickling."""

import copy
import io
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from compare import agree_on

import flambeau
from flambeau.tensors.parameter import Parameter

PYTHON = """
__import__('operator').index(torch.tensor(True))
__import__('operator').index(torch.tensor([3]))
__import__('operator').index(torch.tensor(3.))
__import__('operator').index(torch.tensor([3,4]))
int(torch.tensor(3.7))
int(torch.tensor([3,4]))
int(torch.tensor(3j))
int(torch.tensor(inf))
float(torch.tensor(3j))
float(torch.tensor(3+0j))
float(torch.tensor([1,2.]))
float(torch.tensor([2]))
complex(torch.tensor(3.))
bool(torch.tensor([]))
bool(torch.tensor([1,2]))
bool(torch.tensor([[0.]]))
torch.tensor([1,2]).item()
torch.tensor([]).item()
torch.tensor(2., dtype=torch.bfloat16).item()
torch.tensor([[2]]).item()
torch.tensor(True).item()
torch.tensor([1.5], dtype=torch.bfloat16).tolist()
torch.tensor(1.5).tolist()
torch.tensor([[1, 2], [3, 4]]).tolist()
3 in torch.tensor([1,2,3])
7 in torch.tensor([1,2,3])
torch.tensor(3) in torch.tensor([1,2,3])
'a' in torch.tensor([1,2,3])
None in torch.tensor([1,2,3])
[1, 2, 3][torch.tensor(1)]
list(range(torch.tensor(3)))
torch.ones(2, requires_grad=True).numpy()
torch.ones(2, requires_grad=True).numpy(force=True)
(torch.ones(2, requires_grad=True) * 2).numpy()
np.asarray(torch.ones(2, requires_grad=True))
np.asarray(torch.ones(2))
np.asarray(torch.ones(2), dtype=np.int64)
np.array(torch.ones(2, 3).t())
np.asarray(torch.tensor([True]))
np.asarray(torch.tensor(3))
torch.ones(2, dtype=torch.bfloat16).numpy()
np.asarray(torch.ones(2, dtype=torch.bfloat16))
torch.ones(2).__array__(np.float64)
np.sin(torch.ones(2))
np.sum(torch.ones(2).numpy())
torch.ones(2) * np.float64(2)
torch.ones(2) * np.ones(2)
torch.tensor([1, 2]) == np.array([1, 3])
np.array([1, 3]) == torch.tensor([1, 2])
torch.tensor([1, 2]) != np.array([1, 3])
torch.tensor([1, 2]) == np.ones(3)
torch.tensor([1, 2]) == None
torch.tensor([1, 2]) == 'a'
np.ones(2) + torch.ones(2)
np.float64(2) * torch.ones(2)
torch.ones(2).apply_(lambda x: x+1)
torch.tensor([1, 2]).apply_(lambda x: x*3)
torch.ones(2).map_(torch.full((2,), 3.), lambda x,y: x+y)
torch.ones(2,requires_grad=True).apply_(lambda x: x+1)
torch.is_nonzero(torch.tensor([1,2]))
torch.is_nonzero(torch.tensor([]))
torch.is_nonzero(torch.tensor([0.]))
torch.is_nonzero(1)
torch.numel(torch.ones(2, 3))
torch.numel(1)
torch.is_floating_point(torch.ones(2))
torch.is_floating_point(1)
torch.is_complex(torch.ones(2))
torch.is_tensor(torch.ones(2))
torch.is_tensor(1)
torch.ones(2).is_same_size(torch.ones(3))
torch.is_same_size(torch.ones(2), torch.ones(2))
f"{torch.tensor(1.5):.3f}"
f"{torch.tensor([1.5]):.3f}"
f"{torch.tensor([1.5])}"
str(torch.tensor(1.5))
round(torch.tensor(1.567), 2)
len(torch.ones(3, 2))
len(torch.tensor(1))
list(reversed(torch.arange(3)))
[x for x in torch.tensor(1)]
torch.ones(2,requires_grad=True).__dlpack__()
torch.ones(2,device='meta').__dlpack__()
torch.ones(2,device='meta').__dlpack_device__()
tuple(map(int, torch.ones(2).__dlpack_device__()))
torch.from_dlpack(np.arange(3))
torch.from_dlpack([1])
torch.from_numpy(np.ones(2)[::-1])
torch.from_numpy(np.array(['a']))
torch.from_numpy([1])
torch.from_numpy(np.array([1,2],dtype='>i4'))
torch.from_numpy(np.arange(6).reshape(2,3).T)
torch.from_numpy(np.arange(6)[::2])
torch.from_numpy(np.array(3.))
torch.from_numpy(np.zeros((0, 3)))
torch.from_numpy(np.arange(3, dtype=np.uint16))
torch.from_numpy(np.frombuffer(b'abc', np.uint8))
__import__('copy').deepcopy(torch.ones(2,requires_grad=True)*2)
__import__('copy').copy(torch.ones(2,requires_grad=True)*2)
__import__('copy').deepcopy(torch.ones(2,3).t())
__import__('pickle').loads(__import__('pickle').dumps(torch.ones(2,requires_grad=True)*2))
__import__('pickle').loads(__import__('pickle').dumps(torch.ones(2,3).t()))
__import__('pickle').loads(__import__('pickle').dumps(torch.tensor(3)))
__import__('pickle').loads(__import__('pickle').dumps(torch.zeros(0, 3)))
__import__('pickle').loads(__import__('pickle').dumps(torch.tensor([1.5], dtype=torch.bfloat16)))
__import__('pickle').loads(__import__('pickle').dumps(torch.float32))
__import__('pickle').loads(__import__('pickle').dumps(torch.Size([1, 2])))
__import__('pickle').loads(__import__('pickle').dumps(torch.device('cuda:1')))
"""


@pytest.mark.parametrize("source", PYTHON.strip().split("\n"))
def test_as_pytorch(source):
    agree_on(source)


DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8",
          "uint16",
          "uint32", "uint64", "bool"]


@pytest.mark.parametrize("name", DTYPES)
def test_memory_is_shared_both_ways(name):
    source = np.zeros((2, 3), name)
    t = flambeau.from_numpy(source)
    assert t.dtype is flambeau.tensors.dtypes.ALIASES[name]
    source[0, 1] = 1
    assert t[0, 1].item() == 1
    t.numpy()[1, 2] = 1
    assert source[1, 2] == 1 and np.shares_memory(t.numpy(), source)


def test_the_tensor_keeps_its_shape_when_the_array_object_changes():
    source = np.zeros(6)
    t = flambeau.from_numpy(source)
    source.shape = (2, 3)
    view = t.numpy()
    view.shape = (3, 2)
    assert tuple(t.shape) == (6,)


def test_the_memory_outlives_its_maker():
    t = flambeau.from_numpy(np.arange(1000.)[::2])
    array = flambeau.arange(1000.).numpy()
    assert t.sum().item() == sum(range(0, 1000, 2)) and array.sum() == sum(range(1000))


@pytest.mark.parametrize("name", [*DTYPES, "bfloat16"])
def test_dlpack_with_torch_and_numpy(name):
    theirs = torch.ones(2, 3).to(getattr(torch, name)).t()
    ours = flambeau.from_dlpack(theirs)
    assert str(ours.dtype) == str(theirs.dtype) and ours.stride() == theirs.stride()
    assert ours.tolist() == theirs.tolist()
    ours[0, 0] = 0
    assert theirs[0, 0].item() == 0
    back = torch.from_dlpack(ours)
    assert back.dtype == theirs.dtype and back.data_ptr() == theirs.data_ptr()
    if name != "bfloat16":
        assert np.shares_memory(np.from_dlpack(ours), ours.numpy())
        assert flambeau.from_dlpack(ours.numpy()).tolist() == ours.tolist()


def test_dlpack_capsules():
    t = flambeau.arange(3)
    assert flambeau.from_dlpack(flambeau.to_dlpack(t)).data_ptr() == t.data_ptr()
    capsule = t.__dlpack__()
    flambeau.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        flambeau.from_dlpack(capsule)


def test_bfloat16_arrays_come_in():
    t = flambeau.from_numpy(np.array([1.5, 2], ml_dtypes.bfloat16))
    assert t.dtype is flambeau.bfloat16 and t.tolist() == [1.5, 2.0]


def test_deepcopy_keeps_what_is_shared():
    x = flambeau.arange(6.).requires_grad_()
    x.grad = flambeau.ones(6)
    x.note = ["kept"]
    y, z = copy.deepcopy([x, x])
    assert y is z and y.requires_grad and y.grad.tolist() == [1] * 6 and y.grad is not x.grad and y.note == ["kept"]
    base = flambeau.zeros(4)
    whole, part = copy.deepcopy([base, base[1:3]])
    whole.fill_(7)
    assert part.tolist() == [7, 7] and base.tolist() == [0] * 4


def test_deepcopy_and_pickle_of_parameters():
    p = Parameter(flambeau.ones(2))
    for made in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(made) is Parameter and made.requires_grad and made.tolist() == [1, 1]
        assert made.data_ptr() != p.data_ptr()


def test_pickle_to_a_file_of_nested_things():
    data = {"a": flambeau.eye(2), "b": [flambeau.tensor(1), flambeau.float64, flambeau.device("cpu")],
            "meta": flambeau.zeros(2, 3, device="meta")}
    stream = io.BytesIO()
    pickle.dump(data, stream)
    stream.seek(0)
    made = pickle.load(stream)
    assert made["a"].tolist() == data["a"].tolist() and made["b"][1] is flambeau.float64
    assert made["meta"].device.type == "meta" and tuple(made["meta"].shape) == (2, 3)


def test_hash_is_identity():
    a, b = flambeau.ones(2), flambeau.ones(2)
    assert len({a, b, a}) == 2


def test_subclass_survives_copies():
    class Mine(flambeau.Tensor):
        pass

    m = flambeau.ones(2).as_subclass(Mine) if hasattr(flambeau.Tensor, "as_subclass") else Mine([1., 1.])
    assert type(copy.deepcopy(m)) is Mine and type(copy.copy(m)) is Mine


def test_deterministic_flags():
    assert not flambeau.are_deterministic_algorithms_enabled()
    flambeau.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert flambeau.are_deterministic_algorithms_enabled()
        assert flambeau.is_deterministic_algorithms_warn_only_enabled()
    finally:
        flambeau.use_deterministic_algorithms(False)
    assert flambeau.get_num_threads() >= 1


@pytest.mark.parametrize("asked,threads", [("3", 3), ("1", 1), ("2,4", 2), ("0", None), ("many", None), ("", None)])
def test_the_environment_says_how_many_threads(asked, threads):
    code = "import os, flambeau; print(flambeau.get_num_threads(), len(os.sched_getaffinity(0)))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": asked}, capture_output=True,
                          text=True, check=True)
    got, cores = map(int, done.stdout.split())
    assert got == (threads or cores)


TRUTH = """
torch.tensor([1., 2.]) - np.bool_(True)
np.bool_(True) - torch.tensor([1., 2.])
torch.tensor([1, 2]) + np.bool_(True)
torch.tensor([1, 2]) * np.bool_(True)
torch.tensor([1, 0]) & np.bool_(True)
torch.sub(torch.tensor([1, 0]), 1, alpha=np.bool_(True))
torch.tensor([1, 0]).clamp(min=np.bool_(True))
torch.where(torch.tensor([True, False]), np.bool_(True), 0)
torch.full((2,), np.bool_(True))
torch.arange(np.bool_(True))
torch.arange(np.bool_(False), 3)
torch.tensor(np.bool_(True))
torch.zeros(2).fill_(np.bool_(True))
"""


@pytest.mark.parametrize("source", TRUTH.strip().splitlines())
def test_numpy_truth_values(source):
    """PyTorch takes NumPy's truth values for floats where a number is wanted."""
    agree_on(source)
