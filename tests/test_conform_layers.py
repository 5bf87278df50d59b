"""Layers, modules, optimizers and files in the details that PyTorch's own tests look at; PyTorch is the reference."""

import copy
import io
import pickle
import re
import subprocess
import sys

import pytest
import torch

import flambeau

BOTH = (torch, flambeau)

# ------------------------------------------------------------------------------------------------------ memory formats
# Layers of (batch, channels, ...): name -> (shape, shapes of parameters, the layer).
LAYERS = {
    "conv2d": ((2, 4, 6, 5), [(3, 4, 3, 3), (3,)], lambda F, x, w, b: F.conv2d(x, w, b, padding=1)),
    "depthwise": ((2, 4, 6, 5), [(4, 1, 3, 3)], lambda F, x, w: F.conv2d(x, w, groups=4)),
    "conv_transpose2d": ((2, 4, 6, 5), [(4, 3, 3, 3), (3,)], lambda F, x, w, b: F.conv_transpose2d(x, w, b, stride=2)),
    "conv3d": ((2, 4, 3, 5, 4), [(3, 4, 2, 2, 2)], lambda F, x, w: F.conv3d(x, w)),
    "max_pool2d": ((2, 4, 6, 5), [], lambda F, x: F.max_pool2d(x, 2, return_indices=True)),
    "max_pool3d": ((2, 4, 4, 5, 4), [], lambda F, x: F.max_pool3d(x, 2, return_indices=True)),
    "avg_pool2d": ((2, 4, 6, 5), [], lambda F, x: F.avg_pool2d(x, 2)),
    "avg_pool3d": ((2, 4, 4, 5, 4), [], lambda F, x: F.avg_pool3d(x, 2)),
    "adaptive_avg_pool2d": ((2, 4, 6, 5), [], lambda F, x: F.adaptive_avg_pool2d(x, (3, 2))),
    "adaptive_avg_pool2d of one": ((2, 4, 6, 5), [], lambda F, x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive_max_pool2d": ((2, 4, 6, 5), [], lambda F, x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True)),
    "adaptive_max_pool3d": ((2, 4, 4, 5, 4), [], lambda F, x: F.adaptive_max_pool3d(x, 2)),
    "batch_norm": ((2, 4, 6, 5), [(4,), (4,)], lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True)),
    "group_norm": ((2, 4, 3, 5, 4), [(4,), (4,)], lambda F, x, w, b: F.group_norm(x, 2, w, b)),
    "rms_norm": ((2, 4, 6, 5), [(5,)], lambda F, x, w: F.rms_norm(x, (5,), w)),
    "local_response_norm": ((2, 4, 6, 5), [], lambda F, x: F.local_response_norm(x, 2)),
    "pad constant": ((2, 4, 6, 5), [], lambda F, x: F.pad(x, (1, 2, 2, 1))),
    "pad reflect": ((2, 4, 6, 5), [], lambda F, x: F.pad(x, (1, 2, 2, 1), mode="reflect")),
    "pad circular": ((2, 4, 6, 5), [], lambda F, x: F.pad(x, (1, 2, 2, 1), mode="circular")),
    "pixel_shuffle": ((2, 4, 3, 5), [], lambda F, x: F.pixel_shuffle(x, 2)),
    "channel_shuffle": ((2, 4, 6, 5), [], lambda F, x: F.channel_shuffle(x, 2)),
    "interpolate": ((2, 4, 6, 5), [], lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "interpolate volumes": ((2, 4, 3, 5, 4), [], lambda F, x: F.interpolate(x, scale_factor=2, mode="trilinear")),
}


def layouts(t, name, dtype, of_input, of_weight):
    """Strides of the layer's results, and of the gradients for gradients that lie in memory as the result does."""
    shape, parameters, layer = LAYERS[name]
    last = t.channels_last if len(shape) == 4 else t.channels_last_3d
    formats = {"plain": t.contiguous_format, "last": last}
    make = lambda size, kind: t.rand(*size).to(getattr(t, dtype)).contiguous(memory_format=kind).requires_grad_()
    x = make(shape, formats[of_input])
    rest = [make(s, formats[of_weight] if len(s) == len(shape) else t.contiguous_format) for s in parameters]
    made = layer(t.nn.functional, x, *rest)
    results = made if isinstance(made, tuple) else (made,)
    grads = t.autograd.grad(results[0], [x, *rest], t.ones_like(results[0]))
    return [r.stride() for r in results], [g.is_contiguous(memory_format=last) for g in grads if g.dim() == len(shape)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYERS)
def test_channels_last_goes_through_layers(name, dtype):
    weights = ["plain", "last"] if any(len(s) == len(LAYERS[name][0]) for s in LAYERS[name][1]) else ["plain"]
    for of_input in ("plain", "last"):
        for of_weight in weights:
            expected, got = [layouts(t, name, dtype, of_input, of_weight) for t in BOTH]
            assert got == expected, (of_input, of_weight)


def test_channels_last_model_trains_as_in_pytorch():
    def losses(t):
        t.manual_seed(0)
        nn = t.nn
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).to(memory_format=t.channels_last)
        optimizer = t.optim.SGD(model.parameters(), 0.1)
        x = t.randn(4, 3, 8, 8).contiguous(memory_format=t.channels_last)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss
        return step, x

    expected = [step(x).item() for step, x in [losses(torch)] for _ in range(3)]
    for wrap in (lambda f: f, flambeau.compile):
        step, x = losses(flambeau)
        step = wrap(step)
        assert [step(x).item() for _ in range(3)] == pytest.approx(expected, rel=1e-5)


def test_volumes_without_a_batch_are_pooled_in_their_order():
    for t in BOTH:
        x = t.rand(1, 6, 5, 4, 4).contiguous(memory_format=t.channels_last_3d).squeeze(0)
        made, indices = t.nn.functional.max_pool3d(x, 2, return_indices=True)
        assert all(r.unsqueeze(0).is_contiguous(memory_format=t.channels_last_3d) for r in (made, indices))


def test_results_keep_their_place_in_the_graph():
    x = flambeau.randn(2, 4, 6, 5).contiguous(memory_format=flambeau.channels_last).requires_grad_()
    assert flambeau.nn.functional.conv2d(x, flambeau.randn(3, 4, 3, 3)).grad_fn.name() == "ConvolutionBackward0"


# --------------------------------------------------------------------------------------------------------------- errors
RAISING = """
nn.Linear(2, 2).to('cpu', copy=True)
nn.Linear(2, 2).to(torch.device('cpu'), True)
nn.Linear(2, 2).to(None, True)
nn.Linear(2, 2).to({}, non_blocking=True)
torch.zeros(2).to(torch.int64, 3)
nn.GroupNorm(10, 10)(torch.rand(10)[None, :, None])
F.adaptive_avg_pool2d(torch.rand(1, 6, 5, 4, requires_grad=True), 0).sum().backward()
F.adaptive_max_pool1d(torch.rand(1, 6, requires_grad=True), 0).sum().backward()
F.embedding_bag(torch.tensor([[-1, 1]]), torch.rand(10, 2), padding_idx=0)
F.embedding_bag(torch.tensor([[11, 1]]), torch.rand(10, 2), mode='max')
F.embedding_bag(torch.tensor([[1, 11]]), torch.rand(10, 2), mode='sum')
torch.embedding_bag(torch.rand(2, 2, 2), torch.tensor([1, 1]), torch.tensor([0, 0]))
torch._embedding_bag(torch.rand(2, 6), torch.ones(2, 1, 1, dtype=torch.int64), torch.tensor([0]))
torch.embedding_bag(torch.rand(5, 2), torch.tensor([1, 2]), torch.tensor([0]), per_sample_weights=torch.rand(2).double())
nn.EmbeddingBag(4, 3, padding_idx=7)
F.nll_loss(torch.rand(10, 3), torch.zeros(10, 2, dtype=torch.int64))
F.nll_loss(torch.rand(2, 3, 4, 5), torch.zeros(2, 4, 6, dtype=torch.int64))
F.cross_entropy(torch.rand(2, 3, 4, 5), torch.zeros(2, 4, dtype=torch.int64))
torch.batch_norm_update_stats(torch.rand(0, 1), torch.rand(1), torch.rand(1), 0.1)
torch._C._nn.replication_pad1d(torch.rand(2), padding=[])
torch._C._nn.reflection_pad2d(torch.rand(2, 2, 3, 3, 3), (1, 1, 1, 1))
torch.optim.SGD([torch.rand(2)], 0.1, fused=True, differentiable=True)
torch.optim.Adagrad([torch.rand(2)], 0.1, fused=True, foreach=True)
torch.optim.SparseAdam([torch.rand(2, dtype=torch.complex64)])
torch.optim.SparseAdam([torch.zeros(3, layout=torch.sparse_coo)])
"""


@pytest.mark.parametrize("line", RAISING.strip().splitlines())
def test_errors_are_those_of_pytorch(line):
    raised = []
    for t in BOTH:
        with pytest.raises(Exception) as info:  # whichever PyTorch raises
            eval(line, {"torch": t, "nn": t.nn, "F": t.nn.functional})
        raised.append(info.value)
    expected, got = raised
    assert issubclass(type(got), type(expected))
    assert str(got)[:40] == str(expected)[:40]


def test_buffer_does_not_replace_an_attribute():
    for t in BOTH:
        module = t.nn.Module()
        module.name = 5
        with pytest.raises(KeyError, match="attribute 'name' already exists"):
            module.name = t.nn.Buffer(t.rand(2))


def test_running_statistics_have_no_forward_gradient():
    for t in BOTH:
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x, mean = [ad.make_dual(t.rand(*s), t.rand(*s)) for s in ((3, 2, 5), (2,))]
            with pytest.raises(RuntimeError, match="not differentiable wrt running_mean and running_var"):
                t.nn.functional.batch_norm(x, mean, t.ones(2))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_changed_indices_of_a_pool_are_noticed(dims):
    for t in BOTH:
        pool = getattr(t.nn, f"MaxPool{dims}d")(2, return_indices=True)
        made, indices = pool(t.rand(2, 2, *[4] * dims, requires_grad=True))
        indices.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_uninitialized_modules_are_not_scripted():
    with pytest.raises(RuntimeError, match="Did you forget to run a forward pass"):
        flambeau.jit.script(flambeau.nn.LazyLinear(3))


# -------------------------------------------------------------------------------------------------------------- modules
def test_a_parameter_shares_the_version_of_its_data():
    for t in BOTH:
        data = t.zeros(2)
        data.add_(1)
        parameter = t.nn.Parameter(data)
        data.add_(1)
        assert (parameter._version, data._version) == (2, 2)


def test_conversion_to_another_layout_makes_new_parameters():
    for t in BOTH:
        module = t.nn.Linear(4, 3, bias=False)
        before = module.weight
        before.grad = t.zeros(3, 4)
        module._apply(lambda tensor, t=t: tensor.to_sparse())
        assert module.weight is not before and module.weight.is_sparse and module.weight.grad.is_sparse


def test_graphs_from_before_a_swap_are_refused():
    for t in BOTH:
        t.__future__.set_swap_module_params_on_conversion(True)
        try:
            module = t.nn.Linear(2, 3)
            made = module(t.rand(2, 2))
            module.half()
            with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
                made.sum().backward()
            module(t.rand(2, 2).half()).sum().backward()
        finally:
            t.__future__.set_swap_module_params_on_conversion(False)


class Loading:
    """A subclass whose module_load hands back what it was given."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ == "module_load":
            return args[1]
        return super().__torch_function__(func, types, args, kwargs or {})


def test_module_load_is_asked_of_the_checkpoint_s_tensor():
    for t in BOTH:
        kind = type("Loaded", (Loading, t.Tensor), {})
        t.__future__.set_swap_module_params_on_conversion(True)
        try:
            with pytest.raises(RuntimeError, match="module_load returned one of self or other"):
                t.nn.Linear(2, 3, bias=False).load_state_dict({"weight": t.rand(3, 2).as_subclass(kind)})
        finally:
            t.__future__.set_swap_module_params_on_conversion(False)


def test_names_that_programs_reach_for():
    assert flambeau.nn.modules.utils.consume_prefix_in_state_dict_if_present
    assert flambeau._C._nn._parse_to(flambeau.zeros(2).double(), memory_format=flambeau.channels_last)[1:] == (
        flambeau.float64, False, flambeau.channels_last)
    from flambeau._subclasses.meta_utils import assert_metadata_eq
    assert_metadata_eq(lambda a, b: None, flambeau.zeros(2), flambeau.zeros(2))
    compared = []
    assert_metadata_eq(lambda a, b: compared.append(a == b), flambeau.zeros(2, 3), flambeau.zeros(2, 4))
    assert compared.count(False) == 2  # shape and stride


def test_gradients_of_a_mean_can_be_written():
    x = flambeau.rand(3, 4, requires_grad=True)
    gradient, = flambeau.autograd.grad(x.mean(), x)
    assert gradient.mul_(12).tolist() == [[1.0] * 4] * 3


# ----------------------------------------------------------------------------------------------- embeddings, statistics
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_bag_goes_on_to_the_end(mode):
    made = []
    for t in BOTH:
        weight = t.arange(30.0).reshape(10, 3).requires_grad_()
        bags = t.nn.functional.embedding_bag(t.tensor([0, 1, 2, 3, 4]), weight, t.tensor([0, 2, 3]), mode=mode,
                                             include_last_offset=True, padding_idx=7)
        bags.sum().backward()
        made.append((bags.tolist(), weight.grad.tolist()))
    assert made[0] == made[1]


def test_batch_norm_update_stats():
    made = []
    for t in BOTH:
        mean, var = t.zeros(3), t.ones(3)
        results = t.batch_norm_update_stats(t.arange(24.0).reshape(2, 3, 4) ** 1.5, mean, var, 0.1)
        made.append([r.tolist() for r in (*results, mean, var)])
    for expected, got in zip(*made):
        assert got == pytest.approx(expected, rel=1e-6)


def test_fractional_pools_of_nothing():
    for t in BOTH:
        assert t.nn.FractionalMaxPool2d([2, 2], output_size=[0, 1])(t.rand(3, 5, 8, 8)).shape == (3, 5, 0, 1)


# ----------------------------------------------------------------------------------------------------------- optimizers
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop", "ASGD",
                                  "Rprop", "Adafactor"])
def test_steps_that_were_saved_as_numbers(name):
    made = []
    for t in BOTH:
        p = t.nn.Parameter(t.arange(6.0).reshape(2, 3))
        optimizer = getattr(t.optim, name)([p], lr=0.1)

        def step(p=p, optimizer=optimizer):
            p.grad = p.detach() * 0.1 + 1
            optimizer.step()
        step()
        state = copy.deepcopy(optimizer.state_dict())
        for entry in state["state"].values():
            entry["step"] = entry["step"].item()
        optimizer.load_state_dict(state)
        step()
        assert t.is_tensor(optimizer.state[p]["step"]) and optimizer.state[p]["step"].item() == 2
        made.append(p.flatten().tolist())
    assert made[1] == pytest.approx(made[0], rel=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_fused_steps_are_for_floating_parameters(name):
    for t in BOTH:
        p = t.rand(2, dtype=t.complex64, requires_grad=True)
        p.grad = t.rand(2, dtype=t.complex64)
        with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
            getattr(t.optim, name)([p], lr=0.1, fused=True).step()


# ---------------------------------------------------------------------------------------------------------------- files
class OldTensor:
    """Pickles as tensors did in the first releases."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        t = self.tensor
        return flambeau.Tensor, (), (t.storage(), t.storage_offset(), tuple(t.size()), t.stride())


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_tensors_of_very_old_files(weights_only):
    x = flambeau.randn(30).as_strided([2, 3], [9, 3], 2)
    file = io.BytesIO()
    flambeau.save(OldTensor(x), file)
    file.seek(0)
    loaded = flambeau.load(file, weights_only=weights_only)
    assert loaded.equal(x) and loaded.stride() == x.stride() and loaded.storage_offset() == 2


def test_old_files_with_undecoded_text():
    file = io.BytesIO()
    torch.save([torch.ones(1), 2], file, _use_new_zipfile_serialization=False)
    loaded = flambeau.load(io.BytesIO(file.getvalue()), encoding="bytes", weights_only=False)
    assert loaded[0].tolist() == [1.0] and loaded[1] == 2
    keys = re.search(rb"\]q\x00X.\x00\x00\x00(\d+)q\x01a\.", file.getvalue())
    assert pickle.loads(b"\x80\x02" + keys.group(0)) == [keys.group(1).decode()]
    short = lambda text: b"U" + bytes([len(text)]) + text  # a string of Python 2: bytes where nothing decodes it
    text = keys.group(1)
    old = file.getvalue().replace(b"X" + bytes([len(text)]) + b"\0\0\0" + text, short(text))
    assert flambeau.load(io.BytesIO(old), encoding="bytes", weights_only=False)[0].tolist() == [1.0]


# ------------------------------------------------------------------------------------------------------------ processes
def test_spawned_processes_mean_flambeau_too(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import multiprocessing, torch\n"
                       "def tell(queue): queue.put(torch.__file__)\n"
                       "if __name__ == '__main__':\n"
                       "    for method in ('spawn', 'forkserver'):\n"
                       "        context = multiprocessing.get_context(method)\n"
                       "        queue = context.Queue()\n"
                       "        process = context.Process(target=tell, args=(queue,))\n"
                       "        process.start()\n"
                       "        print(queue.get() == torch.__file__)\n"
                       "        process.join()\n")
    done = subprocess.run([sys.executable, "-m", "flambeau", str(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
