"""Shape rules: results far larger than memory have PyTorch's shape, dtype and strides; what is not known raises."""

import importlib
import pkgutil
import time

import pytest
import torch
from compare import agree_on

import flambeau
from flambeau.backends import facts
from flambeau.backends.cpu.table import KERNELS

# x: 2 M x 1024 numbers; images, volumes and rows of a usual size, in large batches. l(...): integers.
SETUP = """
x = lambda *shape, **k: torch.empty(shape or (1 << 21, 1024), device='meta', **k)
l = lambda *shape: torch.empty(shape, dtype=torch.int64, device='meta')
image = lambda *more: x(512, 3, 224, 224, **dict(more))
F = torch.nn.functional
"""

REDUCTIONS = """
x().sum()
x().sum(1)
x().sum((0, 1), keepdim=True)
x().sum(dtype=torch.float64)
l(1 << 21, 1024).sum(0)
l(1 << 21, 1024).prod(0)
(x() > 0).sum(0)
x().mean(-1, keepdim=True)
x().nansum(1)
x().amax(1)
x().aminmax(dim=1)
x().max(1)
x().min(0, keepdim=True)
x().argmax()
x().argmin(1)
x().any(1)
x().all()
(x().to(torch.uint8)).any(1)
x().count_nonzero(1)
x().std(1)
torch.var_mean(x(), 0)
x(1 << 21, 1024, dtype=torch.complex64).var(1)
x().logsumexp(1)
x().norm()
x().norm(dim=1, p=1)
x(1 << 21, 1024, dtype=torch.complex64).norm(dim=1)
torch.dist(x(), x())
x().median()
x().median(1)
x().nanmedian(0)
x().mode(1)
x().quantile(0.5, dim=1)
x().kthvalue(5, 1)
x().topk(100)
x(50000).topk(100)
x().topk(7, 0, sorted=False)
x().sort(1)
x(64, 4096, 1024).permute(2, 0, 1).sort(1)
x().argsort(0)
x().msort()
x().cumsum(1)
l(1 << 21, 1024).cumprod(0)
(x() > 0).cumsum(1)
x().cummax(1)
x().logcumsumexp(0)
x().softmax(1)
x().log_softmax(0, dtype=torch.float64)
x().histc(100)
torch.searchsorted(x(1 << 20), x(1 << 21, 3))
torch.searchsorted(x(1 << 20), x(1 << 21, 3), out_int32=True)
torch.bucketize(x(), x(50))
torch.isin(x(), x(5))
torch.trapezoid(x())
torch.renorm(x(), 2, 0, 5)
"""

MOVES = """
x().t().contiguous()
x().t().clone()
x(64, 4096, 1024)[:, ::2].clone()
x().repeat(2, 3)
x().repeat_interleave(3, 0)
torch.repeat_interleave(x(), l(1 << 21), 0, output_size=5 << 20)
x().roll(5, 1)
x().t().flip(0)
x().rot90()
x().t().rot90(2)
x().tril()
x().triu(3)
x(1 << 12, 1 << 12).diag_embed()
x(1 << 20).diagflat().diagonal()
torch.block_diag(x(), x(5, 5), x(7))
torch.cat([x(), x(5, 1024)])
torch.cat([x(dtype=torch.float16), x(1 << 21, 3)], 1)
torch.stack([x()] * 5, 1)
torch.hstack([x(), x()])
torch.cartesian_prod(x(5000), x(7000))
torch.meshgrid(x(5000), x(7000), indexing='ij')
F.pad(x(), (1, 2, 3, 4))
F.pad(x(), (-1, -2))
F.pad(image(), (1, 2, 3, 4), mode='reflect')
F.pad(image(), (1, 2, 3, 4), mode='replicate')
F.pad(image(), (1, 2, 3, 4), mode='circular')
x()[l(5000)]
x()[l(5000, 7)]
x()[:, l(5000)]
x(512, 300, 400, 500)[l(7, 1), :, l(5)]
x(512, 300, 400, 500)[:, l(7, 1), l(5)]
x(512, 300, 400, 500).permute(3, 2, 1, 0)[:, l(7, 1), l(5)]
x(512, 300, 400, 500)[..., l(9), 2:, None]
x().index_select(1, l(5000))
x().gather(1, l(1 << 21, 7))
x().take(l(5, 6))
torch.take_along_dim(x(), l(1 << 21, 1), 1)
x().scatter(1, l(1 << 21, 7), x(1 << 21, 7))
x().scatter_add(1, l(1 << 21, 7), x(1 << 21, 7))
x().scatter_reduce(1, l(1 << 21, 7), x(1 << 21, 7), 'amax')
x().index_add(0, l(5), x(5, 1024))
x().index_copy(0, l(5), x(5, 1024))
x().index_fill(0, l(5), 1.)
x().t().index_put((l(5),), x(5, 1 << 21))
x().masked_fill(x() > 0, 1.)
x().masked_scatter(x() > 0, x())
x().nonzero_static(size=5000)
F.one_hot(l(1 << 20), 1000)
x().view(torch.int32)
x().view(torch.float16)
x().unfold(1, 10, 3)
torch.unfold_copy(x(), 1, 10, 3)
torch.split_copy(x(), 1 << 20)
torch.slice_scatter(x(), x(5, 1024), 0, 3, 8)
x().as_strided((1 << 20, 10), (3, 5), 7)
x().t().to(torch.float64)
x().to(torch.complex64).real
x(1 << 20, 3, 2).view_as_complex() if False else torch.view_as_complex(x(1 << 20, 3, 2))
torch.complex(x(), x())
torch.polar(x(), x())
torch.where(x() > 0, x(), x(1024))
x().t() + x(1024, 1)
x(5000, 1, 6000) * x(7000, 1)
x(5000, 6000).t() * x(6000, 5000)
x(64, 1, 4096, 8).permute(3, 1, 0, 2) + x(8, 5, 1, 4096)
torch.lerp(x().t(), x().t(), 0.5)
"""

PRODUCTS = """
x() @ x(1024, 5000)
x() @ x(1024)
x(64, 3000, 4000) @ x(64, 4000, 5000)
x(64, 3000, 4000) @ x(4000, 5000)
torch.addmm(x(5000), x(), x(1024, 5000))
torch.baddbmm(x(64, 3000, 5000), x(64, 3000, 4000), x(64, 4000, 5000))
torch.addbmm(x(3000, 5000), x(64, 3000, 4000), x(64, 4000, 5000))
torch.addr(x(5000, 7000), x(5000), x(7000))
torch.addr(x(7000, 5000).t(), x(5000), x(7000))
torch.dot(x(1 << 30), x(1 << 30))
torch.einsum('bhid,bhjd->bhij', x(64, 12, 1024, 64), x(64, 12, 1024, 64))
torch.tensordot(x(50, 60, 7000), x(60, 50, 8000), ([0, 1], [1, 0]))
torch.cdist(x(5, 30000, 64), x(40000, 64))
torch.cross(x(1 << 20, 3), x(1 << 20, 3))
x(5000, 5000).trace()
torch.kron(x(500, 300), x(700, 800))
torch.linalg.inv(x(64, 5000, 5000))
torch.linalg.cholesky(x(64, 5000, 5000))
torch.linalg.qr(x(64, 5000, 3000))
torch.linalg.qr(x(64, 3000, 5000), mode='complete')
torch.linalg.qr(x(3000, 5000), mode='r')
torch.linalg.svd(x(64, 5000, 3000))
torch.linalg.svd(x(64, 5000, 3000), full_matrices=False)
torch.linalg.svdvals(x(5000, 3000))
torch.linalg.eigh(x(5000, 5000))
torch.linalg.eig(x(5000, 5000))
torch.linalg.eigvals(x(5000, 5000))
torch.linalg.det(x(64, 5000, 5000))
torch.linalg.slogdet(x(64, 5000, 5000))
torch.linalg.lu(x(64, 5000, 3000))
torch.linalg.lu_factor(x(64, 5000, 5000))
torch.linalg.ldl_factor(x(5000, 5000))
torch.linalg.solve(x(64, 5000, 5000), x(64, 5000, 7))
torch.linalg.solve(x(64, 5000, 5000), x(64, 7, 5000), left=False)
torch.linalg.solve(x(64, 5000, 5000), x(64, 5000))
torch.linalg.solve_triangular(x(5000, 5000), x(64, 5000, 7), upper=True)
torch.cholesky_solve(x(5000, 7), x(5000, 5000))
torch.linalg.pinv(x(5000, 3000))
torch.linalg.matrix_exp(x(5000, 5000))
torch.linalg.matrix_rank(x(64, 5000, 3000))
torch.linalg.vander(x(50000))
torch.fft.fft(x(), dim=0)
torch.fft.fft(x())
torch.fft.rfft(x(4096))
torch.fft.rfft(x(), n=5000)
torch.fft.irfft(x(1 << 21, 513, dtype=torch.complex64))
torch.fft.rfft2(image())
torch.fft.fftn(x(50, 60, 70, 8000).permute(3, 1, 0, 2))
torch.fft.ihfftn(x(500, 600, 7000), dim=(0, 2))
torch.fft.hfft(x(4096, 300, dtype=torch.complex64), dim=0)
torch.stft(x(64, 1 << 20), 512, return_complex=True, window=x(512))
"""

LAYERS = """
F.conv2d(x(32, 3, 224, 224), x(64, 3, 7, 7), stride=2, padding=3)
F.conv2d(image(), x(64, 3, 3, 3), x(64), padding='same')
F.conv2d(x(64, 256, 100, 90), x(256, 1, 5, 5), groups=256, dilation=2)
F.conv1d(x(64, 16, 1 << 18), x(32, 16, 9), stride=4)
F.conv3d(x(4, 3, 64, 200, 200), x(8, 3, 3, 3, 3), stride=(1, 2, 2))
F.conv_transpose2d(x(64, 256, 100, 90), x(256, 32, 4, 4), stride=2, padding=1, output_padding=1)
F.unfold(image(), 7, stride=2, padding=3)
F.fold(x(512, 147, 12544), (224, 224), 7, stride=2, padding=3)
F.max_pool2d(image(), 3, 2, 1)
F.max_pool2d(image(), 3, 2, 1, ceil_mode=True, return_indices=True)
F.max_pool1d(x(64, 16, 1 << 18), 5)
F.max_pool3d(x(4, 3, 64, 200, 200), 2)
F.avg_pool2d(image(), 3, 2, 1, count_include_pad=False)
F.lp_pool2d(image(), 2, 3)
F.adaptive_avg_pool2d(image(), 100)
F.adaptive_avg_pool2d(image(), (None, 1))
F.adaptive_max_pool2d(image(), 100, return_indices=True)
F.adaptive_avg_pool3d(x(4, 3, 64, 200, 200), (5, 6, 7))
F.fractional_max_pool2d(image(), 3, output_size=(100, 90))
F.max_unpool2d(x(64, 3, 100, 100), l(64, 3, 100, 100), 2)
F.interpolate(image(), scale_factor=2)
F.interpolate(image(), size=(300, 400), mode='bilinear', align_corners=False)
F.interpolate(image(), size=(300, 400), mode='bicubic', antialias=True)
F.interpolate(x(64, 16, 1 << 18), scale_factor=0.3, mode='linear')
F.grid_sample(image(), x(512, 100, 90, 2), align_corners=False)
F.affine_grid(x(512, 2, 3), (512, 3, 100, 90), align_corners=False)
F.pixel_shuffle(x(64, 64, 100, 90), 4)
F.pixel_unshuffle(x(64, 3, 100, 96), 4)
F.channel_shuffle(x(64, 64, 100, 90), 4)
F.batch_norm(image(), x(3), x(3), x(3), x(3), training=True)
F.batch_norm(image(), x(3), x(3))
F.layer_norm(x(512, 1024, 768), (768,), x(768), x(768))
F.rms_norm(x(512, 1024, 768), (768,), x(768))
F.group_norm(x(512, 64, 100, 90), 8)
F.instance_norm(image())
F.local_response_norm(image(), 2)
F.normalize(x(), dim=1)
F.linear(x(512, 1024, 768), x(3072, 768), x(3072))
F.bilinear(x(1 << 16, 300), x(1 << 16, 400), x(50, 300, 400))
F.glu(x(), 1)
F.glu(x().t(), 0)
F.prelu(image(), x(3))
F.rrelu(x(), training=True)
F.dropout(x())
F.dropout2d(image())
F.embedding(l(512, 1024), x(50257, 768))
F.embedding_bag(l(5000, 7), x(50257, 768))
F.embedding_bag(l(5000), x(50257, 768), l(300), mode='max')
F.scaled_dot_product_attention(x(64, 12, 1024, 64), x(64, 12, 1024, 64), x(64, 12, 1024, 80))
F.cross_entropy(x(1 << 16, 50257), l(1 << 16))
F.cross_entropy(x(1 << 16, 50257), l(1 << 16), reduction='none', label_smoothing=0.1)
F.nll_loss(x(64, 21, 300, 400), l(64, 300, 400), reduction='none')
F.mse_loss(x(), x())
F.mse_loss(x(), x(), reduction='none')
F.huber_loss(x().t(), x().t(), reduction='none')
F.binary_cross_entropy_with_logits(x(), x(), reduction='none', pos_weight=x(1024))
F.binary_cross_entropy(x(), x())
F.kl_div(x(), x(), reduction='batchmean')
F.multi_margin_loss(x(1 << 16, 1000), l(1 << 16), reduction='none')
F.multilabel_margin_loss(x(1 << 16, 1000), l(1 << 16, 1000), reduction='none')
F.triplet_margin_loss(x(), x(), x())
F.cosine_similarity(x(), x())
F.pairwise_distance(x(), x())
F.pdist(x(3000, 64))
F.ctc_loss(x(5000, 64, 100), l(64, 300), [5000] * 64, [300] * 64)
F.gumbel_softmax(x())
torch.bernoulli(x())
torch.multinomial(x(1 << 16, 1000), 500)
torch.heaviside(x(), x(1024))
torch.linspace(torch.empty((), device='meta'), torch.empty((), device='meta'), 1 << 30, device='meta')
x(5).resize_(1 << 16, 1 << 16)
"""

ERRORS = """
x().nonzero()
x().unique()
x()[x() > 0]
torch.masked_select(x(), x() > 0)
torch.bincount(l(1 << 30))
torch.repeat_interleave(x(), l(1 << 21), 0)
torch.equal(x(), x())
x() @ x(1000, 5)
F.conv2d(image(), x(64, 4, 7, 7))
x().view(5, -1)
torch.cat([x(), x(5, 1000)])
x().item()
"""

ALL = [line for block in (REDUCTIONS, MOVES, PRODUCTS, LAYERS, ERRORS) for line in block.strip().split("\n")]


def names(package):
    env = {"torch": package}
    exec(SETUP, env)
    return {k: env[k] for k in ("x", "l", "image", "F")}


@pytest.mark.parametrize("source", ALL)
def test_as_pytorch_at_any_size(source):
    began = time.process_time()
    agree_on(source, warned=False, names=names)
    assert time.process_time() - began < 5


def test_every_kernel_has_a_rule():
    """Kernels that meta tensors can reach: those of rows. A kernel without a row is called on CPU arrays only."""
    for module in pkgutil.iter_modules(flambeau.ops.__path__):
        importlib.import_module(f"flambeau.ops.{module.name}")
    from flambeau.ops.core.row import ROWS
    vars(flambeau.nn.functional)  # looking at all of it imports what waits to be asked for
    known = {*facts.SHAPES, *facts.VIEWS, *facts.POINTWISE}
    assert not {r.kernel for r in ROWS.values() if r.kernel in KERNELS} - known


@pytest.fixture
def unknown_kernel():
    from flambeau.ops.core.row import ROWS, Row
    KERNELS["without_rule"] = lambda x, n: x[:n].copy()
    yield Row("without_rule", "self n")
    del KERNELS["without_rule"], ROWS["without_rule"]


def test_a_kernel_without_a_rule_never_guesses(unknown_kernel):
    small = unknown_kernel(flambeau.empty(100, 3, device="meta"), 7)
    assert small.is_meta and small.shape == (7, 3)
    with pytest.raises(NotImplementedError, match="without_rule"):
        unknown_kernel(flambeau.empty(1 << 20, device="meta"), 7)


def test_what_needs_no_values_is_known_where_pytorch_gives_up():
    x, lengths = flambeau.empty(3000, device="meta"), flambeau.empty(64, dtype=flambeau.int64, device="meta")
    assert flambeau.combinations(x, 2).shape == (3000 * 2999 // 2, 2)
    assert flambeau.combinations(x, 2, with_replacement=True).shape == (3000 * 3001 // 2, 2)
    log_probs = flambeau.empty(5000, 64, 100, device="meta")
    targets = flambeau.empty(64, 300, dtype=flambeau.int64, device="meta")
    assert flambeau.nn.functional.ctc_loss(log_probs, targets, lengths, lengths, reduction="none").shape == (64,)
    with pytest.raises(IndexError, match="could not be broadcast together with shapes \\[5\\], \\[4\\]"):
        flambeau.empty(100, 100, device="meta")[lengths[:5], lengths[:4]]
    with pytest.raises(RuntimeError, match="cannot be broadcast to indexing result of shape \\[5, 100\\]"):
        flambeau.empty(100, 100, device="meta")[lengths[:5]] = flambeau.empty(7, 100, device="meta")


KEPT = ["conv2d(x, w)", "conv_transpose2d(x, w.transpose(0, 1))", "max_pool2d(x, 2)", "avg_pool2d(x, 3)", "batch_norm(x, m, m)",
        "adaptive_avg_pool2d(x, 5)", "interpolate(x, scale_factor=2)", "pad(x, (1, 1))", "pad(x, (1, 1, 1, 1), 'reflect')",
        "group_norm(x, 2)", "relu(x)", "dropout(x)", "pixel_shuffle(x, 2)", "softmax(x, 1)", "layer_norm(x, (9,))"]


@pytest.mark.parametrize("source", KEPT)
def test_channels_last_images_stay_so_as_on_a_cpu(source):
    """(PyTorch's own meta device says "contiguous" for some of these, and then differs from its CPU.)"""
    def strides(package, device):
        x = package.rand(2, 8, 9, 9, device=device).to(memory_format=package.channels_last)
        given = dict(x=x, w=package.rand(4, 8, 3, 3, device=device), m=package.rand(8, device=device))
        made = eval(f"F.{source}", {"F": package.nn.functional, **given})
        return tuple(made.shape), made.stride()
    assert strides(flambeau, "meta") == strides(torch, "cpu")
