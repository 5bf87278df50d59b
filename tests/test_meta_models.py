"""Models without memory: layers give the shape, dtype and strides that they give on the CPU; large models run in no time."""

import resource
import time

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.backends import facts, registry
from flambeau.backends.cpu.table import KERNELS
from flambeau.nn import functional as F

IMAGE, ROWS, SIGNAL, VOLUME = (2, 4, 12, 10), (6, 5, 8), (2, 4, 30), (2, 4, 6, 8, 8)

# (layer, shape of the input)
LAYERS = [
    ("Linear(8, 3)", ROWS), ("Bilinear(8, 8, 3)", (ROWS, ROWS)), ("Conv1d(4, 6, 3, stride=2)", SIGNAL),
    ("Conv2d(4, 6, 3, padding=1, groups=2)", IMAGE), ("Conv3d(4, 6, 3, dilation=2)", VOLUME),
    ("Conv2d(4, 6, 3, padding='same', padding_mode='reflect')", IMAGE), ("ConvTranspose1d(4, 6, 3)", SIGNAL),
    ("ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)", IMAGE), ("ConvTranspose3d(4, 6, 3)", VOLUME),
    ("Unfold(3)", IMAGE), ("Fold((12, 10), 3)", (2, 9, 80)), ("MaxPool1d(3)", SIGNAL),
    ("MaxPool2d(3, 2, 1, ceil_mode=True)", IMAGE),
    ("MaxPool2d(2, return_indices=True)", IMAGE), ("MaxPool3d(2)", VOLUME), ("AvgPool1d(3)", SIGNAL), ("AvgPool2d(3)", IMAGE),
    ("AvgPool3d(2)", VOLUME), ("LPPool2d(2, 3)", IMAGE), ("AdaptiveAvgPool1d(7)", SIGNAL),
    ("AdaptiveAvgPool2d((None, 3))", IMAGE),
    ("AdaptiveMaxPool2d(5)", IMAGE), ("AdaptiveMaxPool3d(3)", VOLUME), ("FractionalMaxPool2d(2, output_size=5)", IMAGE),
    ("ReflectionPad1d(2)", SIGNAL), ("ReflectionPad2d((1, 2, 3, 4))", IMAGE), ("ReplicationPad3d(1)", VOLUME),
    ("ConstantPad2d(3, 1.)", IMAGE), ("ZeroPad2d((1, -1, 0, 2))", IMAGE), ("CircularPad2d(2)", IMAGE),
    ("Upsample(scale_factor=2)", IMAGE), ("Upsample(size=(7, 9), mode='bilinear')", IMAGE), ("PixelShuffle(2)", IMAGE),
    ("PixelUnshuffle(2)", IMAGE), ("ChannelShuffle(2)", IMAGE), ("BatchNorm1d(4)", SIGNAL), ("BatchNorm2d(4)", IMAGE),
    ("BatchNorm2d(4).eval()", IMAGE), ("BatchNorm3d(4, affine=False)", VOLUME), ("GroupNorm(2, 4)", IMAGE),
    ("InstanceNorm2d(4)", IMAGE),
    ("LayerNorm(8)", ROWS), ("RMSNorm(8)", ROWS), ("LocalResponseNorm(2)", IMAGE), ("Softmax(1)", ROWS),
    ("LogSoftmax(-1)", ROWS),
    ("GLU(1)", IMAGE), ("PReLU(4)", IMAGE), ("RReLU()", IMAGE), ("Dropout(0.5)", ROWS), ("Dropout2d(0.5)", IMAGE),
    ("AlphaDropout(0.5)", ROWS), ("RNN(8, 5)", ROWS), ("LSTM(8, 5, 2, bidirectional=True, batch_first=True)", ROWS),
    ("LSTM(8, 5, proj_size=3)", ROWS), ("GRU(8, 5, 2, bias=False)", ROWS), ("LSTMCell(8, 5)", (6, 8)),
    ("GRUCell(8, 5)", (6, 8)),
    ("MultiheadAttention(8, 2)", (ROWS, ROWS, ROWS)), ("MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)",
                                                      (ROWS, ROWS, ROWS)),
    ("TransformerEncoderLayer(8, 2, 16)", ROWS), ("TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()", ROWS),
    ("TransformerDecoderLayer(8, 2, 16)", (ROWS, ROWS)), ("Transformer(8, 2, 1, 1, 16)", (ROWS, ROWS)), ("Flatten()", IMAGE),
    ("Unflatten(1, (2, 2))", IMAGE), ("CosineSimilarity()", (ROWS, ROWS)), ("PairwiseDistance()", (ROWS, ROWS)),
    ("MSELoss()", (ROWS, ROWS)), ("SmoothL1Loss(reduction='none')", (ROWS, ROWS)), ("KLDivLoss()", (ROWS, ROWS)),
    ("BCEWithLogitsLoss(reduction='none')", (ROWS, ROWS)), ("TripletMarginLoss()", (ROWS, ROWS, ROWS)),
    ("GaussianNLLLoss()", (ROWS, ROWS, ROWS)), ("CosineEmbeddingLoss()", ((6, 8), (6, 8), (6,))),
    ("Embedding(10, 3)", ("classes", 4, 5)), ("EmbeddingBag(10, 3)", ("classes", 4, 5)),
    ("EmbeddingBag(10, 3, mode='max')", ("classes", 4, 5)), ("CrossEntropyLoss()", ((6, 8), ("classes", 6))),
    ("CrossEntropyLoss(reduction='none', label_smoothing=0.1)", (IMAGE, ("classes", 2, 12, 10))),
    ("NLLLoss(reduction='none')", (IMAGE, ("classes", 2, 12, 10))), ("MultiMarginLoss()", ((6, 8), ("classes", 6))),
    ("MultiLabelMarginLoss(reduction='none')", ((6, 8), ("classes", 6, 8))),
]


def argument(shape, device):
    if shape[0] == "classes":
        return flambeau.zeros(shape[1:], dtype=flambeau.int64, device=device)
    return flambeau.rand(shape, device=device, requires_grad=True)


def geometry(made):
    if isinstance(made, (list, tuple)):
        return [geometry(m) for m in made]
    return None if made is None else (tuple(made.shape), made.dtype, made.stride())


def run(source, shapes, device, flip):
    with flambeau.device(device):
        layer = eval(f"nn.{source}", {"nn": nn})
    given = [argument(s, device) for s in (shapes if isinstance(shapes[0], tuple) else (shapes,))]
    inputs = [g.transpose(0, -1).contiguous().transpose(0, -1) if flip and g.is_floating_point() else g for g in given]
    made = layer(*inputs)
    first = made[0] if isinstance(made, tuple) else made
    first.sum().backward()
    grads = [t.grad for t in (*given, *layer.parameters()) if t.requires_grad]
    return geometry(made), [None if g is None else geometry(g)[:2] for g in grads]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("source,shapes", LAYERS)
def test_layers_as_on_the_cpu(source, shapes, flip):
    (made, grads), (expected, expected_grads) = [run(source, shapes, device, flip) for device in ("meta", "cpu")]
    if flip:  # which layout a layer gives to permuted input is compared with PyTorch (test_meta_rules.py)
        made, expected = [m[:2] for m in flat(made)], [m[:2] for m in flat(expected)]
    assert made == expected and grads == expected_grads


def flat(made):
    return [m for part in made for m in flat(part)] if isinstance(made, list) else [] if made is None else [made]


@pytest.fixture(scope="module")
def compared():
    """Kernels whose rule was asked while all layers ran on meta tensors, each with what its CPU kernel made of zeros."""
    meta, seen = registry.backend_for(flambeau.device("meta")), {}
    rules = meta.call

    def real(value):
        if isinstance(value, meta.ARRAY):
            return np.zeros(value.shape, value.dtype)
        return [real(v) for v in value] if isinstance(value, list) else value

    def call(name, args):
        made = rules(name, args)
        if name in facts.SHAPES and name not in facts.VIEWS:
            seen.setdefault(name, []).append((plain(KERNELS[name](*[real(a) for a in args])), plain(made)))
        return made

    meta.call = call
    try:
        for source, shapes in LAYERS:
            run(source, shapes, "meta", False)
    finally:
        meta.call = rules
    return seen


def plain(made):
    if isinstance(made, (list, tuple)):
        return [plain(m) for m in made]
    return (made.shape, made.dtype) if isinstance(made, (np.ndarray, np.generic)) else made


# What only the backward pass gets to see: in meta tensors it has the geometry of PyTorch's meta device, or of native code.
INTERNAL = {"batch_norm": (1, 2), "lstm_layer": (3, 4, 5), "gru_layer": (2, 3), "attention": (1, 2)}


def test_rules_say_what_kernels_make(compared):
    assert len(compared) > 60
    for name, calls in compared.items():
        for expected, made in calls:
            if name in INTERNAL:
                expected, made = [[m for i, m in enumerate(part) if i not in INTERNAL[name]] for part in (expected, made)]
            assert made == expected, name


# --------------------------------------------------------------------------------------------------------- two models
class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Identity() if stride == 1 and channels == out else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(channels, width, 1 if k else stride))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.attend, self.merge = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width),
                                 nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        parts = [p.view(batch, length, self.heads, -1).transpose(1, 2) for p in self.attend(self.before(x)).split(width, 2)]
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, words=50257, context=1024, width=768, depth=12, heads=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(flambeau.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


MODELS = {
    "resnet50": (resnet50, lambda: flambeau.empty(1024, 3, 224, 224, device="meta"), (1024, 1000), 25_557_032),
    "gpt2": (GPT, lambda: flambeau.zeros(128, 1024, dtype=flambeau.int64, device="meta"), (128, 1024, 50257), 124_439_808),
}


@pytest.mark.parametrize("name", MODELS)
def test_large_models_take_no_time_and_no_memory(name):
    build, inputs, shape, count = MODELS[name]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with flambeau.device("meta"):
        model = build()
    out = model(inputs())
    F.cross_entropy(out.flatten(0, -2), flambeau.zeros(out[..., 0].numel(), dtype=flambeau.int64, device="meta")).backward()
    optimizer = flambeau.optim.AdamW(model.parameters())
    optimizer.step()
    assert time.process_time() - began < 1 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert out.shape == shape and sum(p.numel() for p in model.parameters()) == count
    assert all(p.grad.is_meta and p.grad.shape == p.shape for p in model.parameters())
