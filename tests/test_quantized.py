"""Quantized tensors, weights of few bits and `quantize_dynamic`, against PyTorch."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch

import flambeau
from flambeau import native

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=[1, 0], ids=["bytes", "plain"])
def multiply_bytes(request):
    """With the processor's product of bytes where it has one, and without."""
    library = native.library("quantized")
    if library is None:
        pytest.skip("no native kernels")
    library.fl_use_bytes(request.param)
    yield
    library.fl_use_bytes(1)


def pair(x):
    return torch.tensor(x), flambeau.tensor(x)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------------------- tensors
@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint32"])
@pytest.mark.parametrize("scale,zero", [(0.1, 3), (0.0123, 0), (2.0, 1)])
def test_quantizing_per_tensor(dtype, scale, zero):
    x = np.concatenate([normal(300) * 4, [0.0, np.inf, -np.inf, 0.05, 0.15, -0.05]]).astype(np.float32)
    theirs, ours = (t.quantize_per_tensor(a, scale, zero, getattr(t, dtype)) for t, a in zip((torch, flambeau), pair(x)))
    finite = np.isfinite(x)  # what infinity becomes depends on PyTorch's processor
    np.testing.assert_array_equal(ours.int_repr().numpy()[finite], theirs.int_repr().numpy()[finite])
    np.testing.assert_array_equal(ours.dequantize().numpy()[finite], theirs.dequantize().numpy()[finite])
    assert (ours.q_scale(), ours.q_zero_point(), ours.is_quantized) == (theirs.q_scale(), theirs.q_zero_point(), True)
    assert str(ours.dtype) == str(theirs.dtype) and str(ours.qscheme()) == str(theirs.qscheme())
    small = [t.quantize_per_tensor(a[:6].reshape(2, 3), scale, zero, getattr(t, dtype))
             for t, a in zip((torch, flambeau), pair(x))]
    assert repr(small[1]) == repr(small[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_quantizing_per_channel(axis):
    x = normal(3, 3)
    made = [t.quantize_per_channel(t.tensor(x), t.tensor([0.1, 0.2, 0.3]), t.tensor([0, 1, 5]), axis, t.quint8)
            for t in (torch, flambeau)]
    assert repr(made[0]) == repr(made[1])
    np.testing.assert_array_equal(made[1].int_repr().numpy(), made[0].int_repr().numpy())
    np.testing.assert_array_equal(made[1].dequantize().numpy(), made[0].dequantize().numpy())
    assert made[1].q_per_channel_axis() == axis and made[1].q_per_channel_scales().dtype is flambeau.float64
    with pytest.raises(RuntimeError, match="kPerTensorAffine"):
        made[1].q_scale()


@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_quantizing_dynamically(dtype, reduce_range):
    for x in (normal(50), np.abs(normal(50)), np.zeros(4, np.float32), np.float32([3e-7, 1e-7])):
        made = [t.quantize_per_tensor_dynamic(t.tensor(x), getattr(t, dtype), reduce_range) for t in (torch, flambeau)]
        assert made[0].q_scale() == pytest.approx(made[1].q_scale(), rel=1e-6)
        assert made[0].q_zero_point() == made[1].q_zero_point()


def test_what_keeps_the_integers_keeps_the_scale():
    q = flambeau.quantize_per_tensor(flambeau.tensor(normal(2, 6)), 0.1, 2, flambeau.qint8)
    for made in (q.reshape(3, 4), q.T, q[0], q.clone(), q.flatten(), copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert made.is_quantized and made.q_scale() == 0.1 and made.q_zero_point() == 2
    assert flambeau.equal(q, q.clone()) and (q == q).all() and q.T.dequantize().equal(q.dequantize().T)
    assert flambeau.dequantize([q])[0].equal(q.dequantize())


def test_errors_of_quantized_tensors():
    x = flambeau.ones(2)
    q = flambeau.quantize_per_tensor(x, 0.1, 0, flambeau.qint8)
    with pytest.raises(NotImplementedError, match="dequantize"):
        q + q
    with pytest.raises(NotImplementedError, match="aten::q_scale"):
        x.q_scale()
    with pytest.raises(RuntimeError, match="Quantize only works on Float Tensor, got Double"):
        flambeau.quantize_per_tensor(x.double(), 0.1, 0, flambeau.qint8)
    with pytest.raises(RuntimeError, match="above upper bound"):
        flambeau.quantize_per_tensor(x, 0.1, 300, flambeau.qint8)
    with pytest.raises(RuntimeError, match="is not supported in new_qtensor"):
        flambeau.quantize_per_tensor(x, 0.1, 0, flambeau.int8)
    with pytest.raises(TypeError, match="QInt8"):
        q.numpy()
    assert x.dequantize().equal(x)


def test_fake_quantization_and_its_gradient():
    x = np.float32([-1, 0.26, 0.25, np.nan, np.inf, 5, -5])
    for call in (lambda t, a: t.fake_quantize_per_tensor_affine(a, 0.1, 2, -8, 7),
                 lambda t, a: t.fake_quantize_per_channel_affine(a.clamp(-9, 9).reshape(7, 1), t.arange(1, 8) / 10,
                                                                 t.arange(7).int(), 0, 0, 15)):
        found = []
        for t, a in zip((torch, flambeau), pair(x)):
            made = call(t, a.requires_grad_())
            (made * 3).sum().backward()
            found.append((made.detach().numpy(), a.grad.numpy()))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_array_equal(found[0][1], found[1][1])
    with pytest.raises(RuntimeError, match="zero_point"):
        flambeau.fake_quantize_per_tensor_affine(flambeau.ones(1), 0.1, 9, -8, 7)


# -------------------------------------------------------------------------------------------------- weights of few bits
@pytest.mark.parametrize("m,n,k", [(1, 16, 32), (3, 18, 130), (20, 33, 64)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_with_int8_weights(m, n, k, dtype):
    """Rounded once from float32; PyTorch's own, for whole vectors (it reads past the end of other rows), is no closer."""
    rng = np.random.default_rng(m)
    w = rng.integers(-128, 128, (n, k)).astype(np.int8)
    given = [flambeau.tensor(a).to(getattr(flambeau, dtype)) for a in (normal(m, k), rng.random(n).astype(np.float32))]
    x, scales = (t.double().numpy() for t in given)
    made = flambeau._weight_int8pack_mm(given[0], flambeau.tensor(w), given[1])
    assert made.dtype is getattr(flambeau, dtype)
    exact, size = x @ (w * scales[:, None]).T, np.abs(x) @ np.abs(w * scales[:, None]).T
    step = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    error = np.abs(made.double().numpy() - exact)
    assert (error <= step * np.abs(exact) + size * 2.0**-19).all()
    if k % 32 == 0:
        theirs = torch._weight_int8pack_mm(*[torch.tensor(a, dtype=getattr(torch, dtype)) if a is not w else torch.tensor(w)
                                             for a in (x, w, scales)]).double().numpy()
        assert error.max() <= 1.5 * np.abs(theirs - exact).max() + step * np.abs(exact).max()


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("m", [1, 7])
def test_products_with_int4_weights(m, group):
    rng = np.random.default_rng(group)
    q = rng.integers(0, 16, (48, 256)).astype(np.int32)
    x, pairs = normal(m, 256), rng.normal(size=(256 // group, 48, 2)).astype(np.float32)
    made = [t._weight_int4pack_mm_for_cpu(t.tensor(x), t._convert_weight_to_int4pack_for_cpu(t.tensor(q), 1), group,
                                          t.tensor(pairs)) for t in (torch, flambeau)]
    packed = flambeau._convert_weight_to_int4pack_for_cpu(flambeau.tensor(q), 1)
    assert packed.numel() * packed.element_size() * 8 == q.size * 4
    np.testing.assert_allclose(made[1].numpy(), made[0].numpy(), atol=2e-3)
    with native.off():
        again = flambeau._weight_int4pack_mm_for_cpu(flambeau.tensor(x), packed, group, flambeau.tensor(pairs))
    np.testing.assert_allclose(made[1].numpy(), again.numpy(), atol=2e-3)


def test_errors_of_weights_of_few_bits():
    x, w, s = flambeau.ones(2, 4), flambeau.ones(3, 4, dtype=flambeau.int8), flambeau.ones(3)
    for args, text in (((x.double(), w, s.double()), "either 32-bit or 16-bit"), ((x, w.float(), s), "B to be int8"),
                       ((x[:, :3].contiguous(), w, s), "B.size"), ((x, w, s[:2]), "scales to be 1d"),
                       ((x, w, s.half()), "expected scalar type")):
        with pytest.raises(RuntimeError, match=text):
            flambeau._weight_int8pack_mm(*args)
    with pytest.raises(RuntimeError, match="dividable by 16"):
        flambeau._convert_weight_to_int4pack_for_cpu(flambeau.ones(3, 4, dtype=flambeau.int32), 1)
    packed = flambeau._convert_weight_to_int4pack_for_cpu(flambeau.ones(16, 64, dtype=flambeau.int32), 1)
    with pytest.raises(RuntimeError, match="qGroupSize"):
        flambeau._weight_int4pack_mm_for_cpu(flambeau.ones(1, 64), packed, 33, flambeau.ones(2, 16, 2))
    made = flambeau._weight_int8pack_mm(x.requires_grad_(), w, s)
    with pytest.raises(RuntimeError, match="derivative"):
        made.sum().backward()


# ------------------------------------------------------------------------------------------------------------- dynamic
def models(*layers):
    """The same model in PyTorch and in flambeau."""
    made = []
    for t in (torch, flambeau):
        t.manual_seed(0)
        made.append(t.nn.Sequential(*[layer(t) for layer in layers]))
    return made


SHAPES = [(5, 4), (130, 7), (64, 64), (333, 50)]


@pytest.mark.parametrize("config", [None, "per_channel_dynamic_qconfig"])
@pytest.mark.parametrize("inputs,outputs", SHAPES)
def test_a_quantized_layer_gives_pytorchs_numbers(multiply_bytes, config, inputs, outputs):
    found = []
    for t, model in zip((torch, flambeau), models(lambda t: t.nn.Linear(inputs, outputs))):
        spec = {t.nn.Linear} if config is None else {"0": getattr(t.ao.quantization, config)}
        layer = t.ao.quantization.quantize_dynamic(model, spec, dtype=t.qint8)
        x = normal(3, 9, inputs) * 2 + 0.3
        found.append((layer, layer(t.tensor(x)).numpy(), layer[0].weight()))
    (theirs, expected, weight), (ours, made, our_weight) = found
    assert repr(ours) == repr(theirs)
    np.testing.assert_array_equal(our_weight.int_repr().numpy(), weight.int_repr().numpy())
    np.testing.assert_array_equal(our_weight.dequantize().numpy(), weight.dequantize().numpy())
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)  # the same integers; float32 at the end
    with native.off():
        again = ours(flambeau.tensor(normal(3, 9, inputs) * 2 + 0.3)).numpy()
    np.testing.assert_allclose(again, made, rtol=1e-5, atol=1e-5)


def test_half_precision_weights():
    for t, model in zip((torch, flambeau), models(lambda t: t.nn.Linear(20, 10))):
        layer = t.ao.quantization.quantize_dynamic(model, dtype=t.float16)
        made, exact = layer(t.tensor(normal(4, 20))).detach().numpy(), model(t.tensor(normal(4, 20))).detach().numpy()
        assert "dtype=torch.float16" in repr(layer)
        np.testing.assert_allclose(made, exact, atol=5e-3)


def test_weights_with_a_zero_point(multiply_bytes):
    q = flambeau.quantize_per_tensor(flambeau.tensor(normal(10, 40)), 0.02, 7, flambeau.qint8)
    layer = flambeau.ao.nn.quantized.dynamic.Linear(40, 10)
    layer.set_weight_bias(q, flambeau.tensor(normal(10)))
    x = flambeau.tensor(normal(5, 40))
    exact = x @ q.dequantize().T + layer.bias()
    step = (x.max() - x.min()) / 127  # of the input
    assert ((layer(x) - exact).abs() <= step * 0.51 * q.dequantize().abs().sum(1)).all()
    with native.off():
        again = layer(x)
    np.testing.assert_allclose(again.numpy(), layer(x).numpy(), atol=1e-4)


def test_state_dicts(tmp_path):
    theirs, ours = [t.ao.quantization.quantize_dynamic(m) for t, m in zip((torch, flambeau), models(
        lambda t: t.nn.Linear(5, 4), lambda t: t.nn.ReLU(), lambda t: t.nn.Linear(4, 3, bias=False)))]
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    fresh = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.Sequential(
        flambeau.nn.Linear(5, 4), flambeau.nn.ReLU(), flambeau.nn.Linear(4, 3, bias=False)))
    file = io.BytesIO()
    flambeau.save(state, file)
    file.seek(0)
    assert str(fresh.load_state_dict(flambeau.load(file, weights_only=False))) == "<All keys matched successfully>"
    x = flambeau.tensor(normal(2, 5))
    for same in (fresh, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert same(x).equal(ours(x))
    del state["2.scale"], state["0._packed_params.dtype"]
    with pytest.raises(RuntimeError, match=r"Missing key.*0\._packed_params\.dtype"):
        fresh.load_state_dict(state)


def test_which_layers_are_replaced():
    nn, quantize = flambeau.nn, flambeau.quantization.quantize_dynamic
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Conv2d(2, 2, 1)), nn.Linear(2, 2))
    kinds = lambda m: [type(layer).__module__.endswith("dynamic") for layer in (m[0], m[1][0], m[2])]
    assert kinds(quantize(model)) == [True] * 3 and kinds(model) == [False] * 3
    assert kinds(quantize(model, {"1"})) == [False, True, False]
    assert kinds(quantize(model, {"0": flambeau.ao.quantization.default_dynamic_qconfig})) == [True, False, False]
    assert quantize(model, inplace=True) is model and kinds(model) == [True] * 3
    with pytest.raises(NotImplementedError, match="LSTM"):
        quantize(nn.Sequential(nn.LSTM(2, 2)))
    assert quantize(nn.Sequential(nn.LSTM(2, 2)), {nn.Linear}) is not None
    with pytest.raises(ValueError, match="Don't know how to quantize"):
        quantize(nn.Linear(2, 2), dtype=flambeau.int8)
    with pytest.raises(NotImplementedError, match="convert"):
        flambeau.ao.quantization.convert(model)


def test_errors_of_a_quantized_layer():
    layer = flambeau.ao.nn.quantized.dynamic.Linear(4, 3)
    for x, text in ((flambeau.ones(2, 5), "packB"), (flambeau.ones(2, 4).double(), "found Double"),
                    (flambeau.ones(4), "dimension of input")):
        with pytest.raises(RuntimeError, match=text):
            layer(x)
    assert layer(flambeau.ones(0, 4)).shape == (0, 3)


def test_a_quantized_classifier_is_as_good():
    """Digits by a small network: at most one in a hundred is seen otherwise."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 64)).astype(np.float32)
    y = rng.integers(0, 10, 600)
    x = flambeau.tensor(centres[y] + 0.9 * rng.normal(size=(600, 64)).astype(np.float32))
    flambeau.manual_seed(0)
    model = flambeau.nn.Sequential(flambeau.nn.Linear(64, 64), flambeau.nn.ReLU(), flambeau.nn.Linear(64, 10))
    optimizer = flambeau.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        flambeau.nn.functional.cross_entropy(model(x), flambeau.tensor(y)).backward()
        optimizer.step()
    small = flambeau.ao.quantization.quantize_dynamic(model)
    before, after = ((m(x).argmax(1) == flambeau.tensor(y)).float().mean().item() for m in (model, small))
    assert before > 0.95 and abs(before - after) <= 0.01


# ------------------------------------------------------------------------------------------------------------ observers
OBSERVERS = [("MinMaxObserver", {}), ("MinMaxObserver", dict(dtype="qint8", qscheme="per_tensor_symmetric")),
             ("MinMaxObserver", dict(reduce_range=True)), ("MinMaxObserver", dict(quant_min=0, quant_max=15)),
             ("MovingAverageMinMaxObserver", dict(averaging_constant=0.3)), ("PerChannelMinMaxObserver", dict(ch_axis=1)),
             ("PerChannelMinMaxObserver", dict(dtype="qint8", qscheme="per_channel_symmetric")),
             ("MovingAveragePerChannelMinMaxObserver", dict(averaging_constant=0.2)),
             ("MinMaxObserver", dict(qscheme="per_tensor_symmetric"))]


@pytest.mark.parametrize("name,options", OBSERVERS)
def test_observers(name, options):
    found = []
    for t in (torch, flambeau):
        given = {k: getattr(t, v) if isinstance(v, str) else v for k, v in options.items()}
        observer = getattr(t.ao.quantization, name).with_args(**given)()
        for seed in range(3):
            x = t.tensor(normal(4, 5, seed=seed) + 1)
            assert observer(x) is x
        scale, zero = observer.calculate_qparams()
        found.append((scale.numpy(), zero.numpy(), observer.min_val.numpy(), list(observer.state_dict())))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
    np.testing.assert_array_equal(found[1][1], found[0][1])
    np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-6)
    assert found[0][3] == found[1][3]


def test_an_observer_that_saw_nothing():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        scale, zero = flambeau.ao.quantization.MinMaxObserver().calculate_qparams()
    assert scale.item() == 1 and zero.item() == 0 and "must run observer" in str(seen[0].message)
