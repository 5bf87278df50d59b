"""What programs do with a CUDA device besides computing: move, save, pin, share, ask. Without a GPU the host plays one."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from cuda_host import HostMachine, needs_gxx

import flambeau as fl
from flambeau import nn

pytestmark = needs_gxx


def same(x, y):
    fl.testing.assert_close(x.cpu(), y.cpu())


# ------------------------------------------------------------------------------------------------------------- devices
def test_start_of_a_program(cuda):
    device = "cuda" if fl.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to(device)
    assert all(p.is_cuda and p.is_leaf for p in model.parameters())
    assert model(fl.ones(2, 3, device=device)).device == fl.device("cuda:0")
    assert model.cuda() is model
    assert not model.cpu()[0].weight.is_cuda
    assert model.to(device=cuda, dtype=fl.float64)[0].weight.dtype is fl.float64
    assert fl.get_device_module() is fl.cuda
    assert fl.get_device_module("cuda") is fl.cuda


def test_default_device(cuda):
    fl.set_default_device(cuda)
    try:
        for made in (fl.zeros(3), fl.tensor([1.0]), fl.rand(3), fl.randperm(4), fl.arange(3), nn.Linear(2, 2).weight):
            assert made.is_cuda
    finally:
        fl.set_default_device(None)
    with fl.device(cuda):
        assert fl.ones(2).is_cuda
    assert not fl.ones(2).is_cuda


def test_names_of_devices_and_types(cuda):
    x = fl.ones(3, device=cuda)
    assert (x.get_device(), fl.ones(3).get_device()) == (0, -1)
    assert x.device == fl.device("cuda:0") != fl.device("cuda")
    assert x.type() == "torch.cuda.FloatTensor"
    assert fl.ones(3).type("torch.cuda.DoubleTensor").type() == "torch.cuda.DoubleTensor"
    assert x.type(fl.FloatTensor).device.type == "cpu"
    assert x.type(fl.float64).is_cuda
    assert isinstance(x, fl.cuda.FloatTensor)
    assert not isinstance(x, fl.FloatTensor)
    assert fl.cuda.LongTensor([1, 2]).tolist() == [1, 2]
    assert x.new([1.0, 2.0]).is_cuda
    with fl.cuda.device(0):
        assert fl.cuda.current_device() == 0
    assert x.cuda(non_blocking=True) is x
    assert fl.ones(3).cuda(0, non_blocking=True).is_cuda


def test_accelerator(cuda):
    a = fl.accelerator
    assert a.is_available()
    assert a.current_accelerator() == fl.device("cuda")
    assert (a.device_count(), a.current_device_index()) == (fl.cuda.device_count(), 0)
    with a.device_index(0):
        a.synchronize()
    assert a.current_stream() == fl.cuda.current_stream()
    assert a.memory_reserved() >= a.memory_allocated()


def test_two_devices_in_one_operation(cuda):
    x, y = fl.ones(3, device=cuda), fl.ones(3)
    for mixed in (lambda: x + y, lambda: y + x, lambda: fl.cat([x, y]), lambda: x @ y, lambda: x.add_(y),
                  lambda: fl.stack([x, y]), lambda: nn.Linear(3, 3)(x), lambda: nn.functional.mse_loss(x, y),
                  lambda: fl.where(x > 0, x, y)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices, "
                                               "cuda:0 and cpu!"):
            mixed()
    same(x * fl.tensor(2.0), y * 2)


def test_devices_that_are_not_there(cuda):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        fl.ones(3, device="cuda:77")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        fl.cuda.set_device(77)


# ---------------------------------------------------------------------------------------------------- files and copies
def test_checkpoints(cuda):
    x = fl.arange(6.0, device=cuda).reshape(2, 3)
    file = io.BytesIO()
    fl.save({"x": x, "row": x[0]}, file)

    def loaded(**options):
        file.seek(0)
        return fl.load(file, **options)
    back = loaded()
    assert back["x"].device == x.device
    assert back["row"].data_ptr() == back["x"].data_ptr()
    same(back["x"], x)
    for place in ("cpu", fl.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage.cpu()):
        assert loaded(map_location=place)["x"].device.type == "cpu"
    file = io.BytesIO()
    fl.save(x.cpu(), file)
    for place in (cuda, "cuda:0", fl.device(cuda), {"cpu": "cuda:0"}, lambda storage, location: storage.cuda()):
        assert loaded(map_location=place).is_cuda
    file.seek(0)
    same(fl.load(file), x)


def test_pickles_and_copies(cuda):
    x = fl.arange(6.0, device=cuda).reshape(2, 3).t()
    layer = nn.Linear(3, 2).cuda()
    for copied in (lambda v: pickle.loads(pickle.dumps(v)), copy.deepcopy):
        other = copied(x)
        assert (other.device, other.stride(), other.data_ptr() == x.data_ptr()) == (x.device, x.stride(), False)
        same(other, x)
        assert copied(layer).weight.is_cuda
    assert copy.copy(x).data_ptr() == x.data_ptr()
    both = copy.deepcopy([x, x[1:]])
    both[0].zero_()
    assert not both[1].cpu().any()


def test_storages(cuda):
    x = fl.arange(4.0, device=cuda)
    storage = x.untyped_storage()
    assert (storage.is_cuda, storage.device, storage.nbytes(), storage.data_ptr()) == (True, x.device, 16, x.data_ptr())
    assert storage.cpu().tolist() == x.cpu().untyped_storage().tolist()
    assert storage.cpu().cuda().is_cuda
    assert fl.UntypedStorage(8, device=cuda).is_cuda
    assert fl.empty(0, device=cuda).set_(storage).numel() == 4
    same(pickle.loads(pickle.dumps(storage)).cpu()[0] * fl.ones(1), storage.cpu()[0] * fl.ones(1))
    assert x.clone().untyped_storage().resize_(0).nbytes() == 0


def test_optimizer_state_follows_its_parameters(cuda):
    layer = nn.Linear(3, 2)
    optimizer = fl.optim.Adam(layer.parameters())
    layer(fl.ones(1, 3)).sum().backward()
    optimizer.step()
    there = nn.Linear(3, 2).cuda()
    other = fl.optim.Adam(there.parameters())
    other.load_state_dict(optimizer.state_dict())
    assert other.state[there.weight]["exp_avg"].is_cuda
    assert not other.state[there.weight]["step"].is_cuda


# ---------------------------------------------------------------------------------------------------- shared memory
def test_dlpack(cuda):
    for dtype in (fl.float32, fl.bfloat16, fl.int64, fl.bool, fl.complex64):
        x = fl.ones(2, 3, device=cuda).to(dtype).t()
        assert x.__dlpack_device__() == (2, 0)
        other = fl.from_dlpack(x)
        assert (other.dtype, other.stride(), other.data_ptr()) == (dtype, x.stride(), x.data_ptr())
        same(other, x)
    capsule = fl.utils.dlpack.to_dlpack(x)
    other = fl.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        fl.utils.dlpack.from_dlpack(capsule)
    before = fl.cuda.memory_allocated()
    del x, capsule
    assert other.cpu().all()
    assert fl.cuda.memory_allocated() == before
    del other
    assert fl.cuda.memory_allocated() < before
    fl.ones(3, device=cuda).__dlpack__()  # nobody takes it: it is freed


def test_cuda_array_interface(cuda):
    x = fl.arange(6.0, device=cuda).reshape(2, 3).t()
    about = x.__cuda_array_interface__
    assert (about["shape"], about["typestr"], about["strides"]) == ((3, 2), "<f4", (4, 12))
    assert about["data"] == (x.data_ptr(), False)

    class Other:
        __cuda_array_interface__ = about
    other = fl.as_tensor(Other(), device=cuda)
    assert other.data_ptr() == x.data_ptr()
    same(other, x)
    assert fl.tensor(Other()).data_ptr() != x.data_ptr()
    assert not hasattr(fl.ones(3), "__cuda_array_interface__")


def test_data_of_all_kinds(cuda):
    x = fl.ones(3, device=cuda)
    assert fl.as_tensor(x) is x
    assert fl.asarray(x) is x
    assert fl.as_tensor(np.arange(3), device=cuda).is_cuda
    assert fl.as_tensor([1.0], device=cuda).is_cuda
    assert x.new_tensor([1.0]).is_cuda
    assert float(x[0]) == 1
    assert [float(v) for v in x] == [1.0] * 3


# ----------------------------------------------------------------------------------------------------------- pinned
def test_pinned_memory(cuda):
    x = fl.arange(6.0).reshape(2, 3)
    pinned = x.pin_memory()
    assert (x.is_pinned(), pinned.is_pinned(), pinned[1:, ::2].is_pinned()) == (False, True, True)
    assert pinned.pin_memory() is pinned
    assert x.t().pin_memory().stride() == (1, 3)
    same(pinned, x)
    same(pinned.to(cuda, non_blocking=True), x)
    many = [fl.full((1000,), float(i)).pin_memory().to(cuda, non_blocking=True) for i in range(20)]
    assert [float(t.cpu().mean()) for t in many] == list(map(float, range(20)))  # memory is not used again too early
    for made in (fl.zeros(3, pin_memory=True), fl.empty(3, pin_memory=True), fl.full((3,), 2.0, pin_memory=True),
                 fl.tensor([1.0], pin_memory=True), fl.ones(3, pin_memory=True)):
        assert made.is_pinned()
    assert x.untyped_storage().pin_memory().is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin"):
        x.to(cuda).pin_memory()


def test_loader_pins(cuda):
    data = fl.utils.data.TensorDataset(fl.arange(10.0), fl.arange(10))
    for batch in fl.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert all(t.is_pinned() for t in batch)


# ----------------------------------------------------------------------------------------------------------- memory
def test_record_stream(cuda):
    x = fl.ones(1000, device=cuda)
    side = fl.cuda.Stream()
    with fl.cuda.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    fl.cuda.current_stream().wait_stream(side)
    assert y.cpu().sum() == 2000
    with pytest.raises(NotImplementedError, match="CUDA devices"):
        fl.ones(3).record_stream(side)


def test_out_of_memory(cuda):
    from flambeau.backends.cuda import driver
    machine = driver.machine()
    keep = fl.ones(1 << 19, device=cuda)
    if not isinstance(machine, HostMachine):
        fl.cuda.set_per_process_memory_fraction(0.01)
    else:
        machine.limit, before = sum(machine.sizes.values()) + (8 << 20), machine.limit
    try:
        with pytest.raises(fl.OutOfMemoryError, match="Tried to allocate .* of which .* is free.*held by: .*of .524288"):
            fl.ones(1 << 30, device=cuda)
        fl.cuda.memory._record_memory_history()
        noted = fl.ones(1 << 18, device=cuda)
        with pytest.raises(fl.cuda.OutOfMemoryError, match=r"test_cuda_device.py:\d+"):
            fl.ones(1 << 30, device=cuda)
    finally:
        fl.cuda.memory._record_memory_history(None)
        if isinstance(machine, HostMachine):
            machine.limit = before
        fl.cuda.set_per_process_memory_fraction(1.0)
    assert (keep + 1).cpu().sum() == 2 << 19  # all goes on
    assert noted.cpu().sum() == 1 << 18


def test_a_share_of_the_memory(cuda):
    fl.cuda.empty_cache()
    fl.cuda.set_per_process_memory_fraction(0.0)
    try:
        with pytest.raises(fl.OutOfMemoryError, match="may take 0%"):
            fl.ones(1 << 28, device=cuda)
    finally:
        fl.cuda.set_per_process_memory_fraction(1.0)
    assert fl.cuda.get_per_process_memory_fraction() == 1.0


def test_ranges(cuda):
    assert fl.cuda.nvtx.range_push("outer") in (0, -1)
    with fl.cuda.nvtx.range("step {}", 3):
        fl.cuda.nvtx.mark("here")
    fl.cuda.nvtx.range_pop()


# ------------------------------------------------------------------------------------------------------ two devices
@pytest.fixture
def second(cuda, monkeypatch):
    """The name of a second device: the host can play as many as one likes."""
    from flambeau.backends.cuda import driver, launch
    machine = driver.machine()
    if isinstance(machine, HostMachine):
        monkeypatch.setattr(machine, "count", 2, raising=False)
        launch.library().fl_cuda_devices(2)
    elif machine.count < 2:
        pytest.skip("needs two GPUs")
    yield "cuda:1"
    launch.library().fl_cuda_devices(machine.count if not isinstance(machine, HostMachine) else 1)


def test_moves_between_devices(second):
    x = fl.arange(6.0).reshape(2, 3)
    first, other = x.to("cuda:0"), x.to(second)
    assert (first.device.index, other.device.index) == (0, 1)
    assert (other * 2 + 1).device == other.device
    same(other * 2 + 1, x * 2 + 1)
    back = other.t().to("cuda:0")
    assert (back.device.index, back.stride()) == (0, (1, 3))
    same(back, x.t())
    assert other.to(second) is other
    assert first.cuda(1).device == other.device
    with fl.cuda.device(1):
        assert fl.cuda.current_device() == 1
        assert fl.ones(2, device="cuda").device == other.device
        assert first.cuda().device == other.device
        assert (first + 1).device.index == 0
        assert other.to("cuda:0").device.index == 0
    assert fl.cuda.current_device() == 0
    assert copy.deepcopy(other).device == other.device
    assert pickle.loads(pickle.dumps(other)).device == other.device
    assert fl.from_dlpack(other).device == other.device
    assert fl.empty_like(other).device == other.device
    other[0].fill_(5)
    same(other, fl.tensor([[5.0, 5, 5], [3, 4, 5]]))


def test_operations_across_devices(second):
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cuda:1!"):
        fl.ones(3, device="cuda:0") + fl.ones(3, device=second)
    leaf = fl.ones(3, device="cuda:0", requires_grad=True)
    (leaf.to(second) * 3).sum().backward()
    assert leaf.grad.device == leaf.device
    same(leaf.grad, fl.full((3,), 3.0))


def test_generators_of_devices(second):
    fl.manual_seed(3)
    here, there = fl.rand(9, device="cuda:0"), fl.rand(9, device=second)
    assert there.device.index == 1
    same(here, there)
    assert len(fl.cuda.get_rng_state_all()) == fl.cuda.device_count() >= 2
    fl.cuda.manual_seed(4)  # the current device's alone
    assert [g.initial_seed() for g in fl.cuda.default_generators[:2]] == [4, 3]
