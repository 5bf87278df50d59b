"""Programs whose operations below autograd are compared: program(m) prepares one with m and returns what to watch."""

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def step_of_an_mlp(m):
    model = m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Linear(8, 3))
    optimizer = m.optim.SGD(model.parameters(), 0.1)
    x, y = m.randn(5, 4), m.tensor([0, 1, 2, 0, 1])

    def run():
        optimizer.zero_grad()
        m.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return run


def _optimizer(name, **options):
    def prepare(m):
        p = m.nn.Parameter(m.ones(3))
        p.grad = m.full((3,), 0.5)
        optimizer = getattr(m.optim, name)([p], lr=0.1, foreach=False, **options)
        optimizer.step()
        return optimizer.step
    prepare.__name__ = f"optimizer_{name}"
    program(prepare)


for _name, _options in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {})):
    _optimizer(_name, **_options)


@program
def attention_by_hand(m):
    q = m.randn(2, 3, 4, 8, requires_grad=True)

    def run():
        scores = q @ q.transpose(-2, -1) / 8 ** 0.5
        (scores.softmax(-1) @ q).sum().backward()
    return run


@program
def fused_attention(m):
    q, k = m.randn(2, 3, 4, 8, requires_grad=True), m.randn(2, 3, 4, 8, requires_grad=True)
    return lambda: m.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True).sum().backward()


@program
def convolutions(m):
    model = m.nn.Sequential(m.nn.Conv2d(3, 4, 3, padding=1), m.nn.BatchNorm2d(4), m.nn.ReLU(), m.nn.MaxPool2d(2),
                            m.nn.Flatten(), m.nn.Linear(64, 2))
    x = m.randn(2, 3, 8, 8)
    return lambda: model(x).pow(2).mean().backward()


@program
def convolutions_of_one_dimension(m):
    model = m.nn.Sequential(m.nn.Conv1d(3, 4, 3, bias=False), m.nn.SiLU(), m.nn.AvgPool1d(2), m.nn.GroupNorm(2, 4),
                            m.nn.AdaptiveAvgPool1d(1))
    x = m.randn(2, 3, 8)
    return lambda: model(x).sum().backward()


@program
def a_model_in_eval(m):
    model = m.nn.Sequential(m.nn.Conv2d(3, 4, 3, stride=2), m.nn.BatchNorm2d(4), m.nn.LeakyReLU(), m.nn.AdaptiveAvgPool2d(1),
                            m.nn.Flatten(1), m.nn.Linear(4, 2)).eval()
    x = m.randn(2, 3, 8, 8)

    def run():
        with m.no_grad():
            model(x).softmax(1)
    return run


@program
def a_block_of_a_transformer(m):
    linear, norm, x = m.nn.Linear(8, 8), m.nn.LayerNorm(8), m.randn(2, 4, 8)
    return lambda: (x + m.nn.functional.gelu(linear(norm(x)))).mean().backward()


@program
def changes_in_place(m):
    x = m.ones(3, requires_grad=True)

    def run():
        y = x * 2
        y.add_(1)
        y.mul_(3)
        y[0] = 5
        y.clamp_(min=0)
        y.relu_()
        y.sum().backward()
    return run


@program
def views(m):
    x = m.ones(2, 3, 4, requires_grad=True)

    def run():
        y = x.view(6, 4).t().reshape(2, 12).unsqueeze(0).squeeze(0).transpose(0, 1).permute(1, 0).expand(2, 12)
        z, w = x.reshape(-1).flatten(), x.permute(2, 0, 1).contiguous().view(-1)
        a, b = y.chunk(2, 1)
        c, d = y.split(6, 1)
        e, g = y.select(0, 1), y.narrow(1, 0, 3)
        (a + b + c + d).sum().backward()
        (e.sum() + g.sum() + z.sum() + w.sum()).backward()
        x.unbind(0)[0].sum().backward()
    return run


@program
def indexing(m):
    x, i, mask = m.ones(4, 5, requires_grad=True), m.tensor([0, 2]), m.tensor([True, False, True, False])

    def run():
        (x[0].sum() + x[1:3].sum() + x[:, 1].sum() + x[..., None].sum() + x[i].sum() + x[mask].sum() + x[0, 1]
         + x[::2, 1:].sum()).backward()
        x.detach()[1] = 0
        x.gather(1, m.zeros(4, 1, dtype=m.long)).sum().backward()
        x.index_select(0, i).sum().backward()
        m.where(x > 0, x, 0.0).sum().backward()
        x.masked_fill(mask[:, None], 0.0).sum().backward()
    return run


@program
def comparisons_and_conversions(m):
    x, y = m.full((3,), 0.5), m.full((3,), 1.0)

    def run():
        _ = (x > y, x >= 1, x < y, x <= y, x == y, x != 0, ~(x > y), (x > y) & (x < y), (x > y) | (x < y), x.isnan(),
             x.isfinite(), m.logical_not(x), x.bool(), x.float(), x.double(), x.long(), x.to(m.float16), x.type_as(y),
             x.equal(y), m.allclose(x, y), x.any(), x.all(), x.sum().item(), float(x[0]))
    return run


@program
def embeddings(m):
    embedding, i = m.nn.Embedding(5, 3), m.tensor([[0, 1], [2, 0]])
    return lambda: embedding(i).sum().backward()


@program
def new_tensors(m):
    x = m.ones(2)

    def run():
        _ = (m.zeros(2), m.ones(2, 3), m.empty(2), m.full((2,), 3.0), m.arange(3), m.arange(1, 3), m.arange(0, 4, 2), m.eye(2),
             m.linspace(0, 1, 3), m.zeros_like(x), m.ones_like(x), m.empty_like(x), m.full_like(x, 2.0), x.new_zeros(3),
             x.new_ones(3), x.new_empty(2), x.new_full((2,), 1.0), x.new_tensor([1.0]), m.tensor([1.0, 2.0]), m.tensor(3),
             m.randn(2), m.rand(2), m.randint(0, 3, (2,)), m.randperm(3), m.randn_like(x), m.rand_like(x), m.bernoulli(x / 2),
             x.clone(), x.detach(), x.uniform_(), x.normal_(), x.zero_(), x.fill_(2.0), x.copy_(x.clone()),
             m.scalar_tensor(2.0), x.bernoulli_(0.5), m.empty(2, 2).exponential_(), m.multinomial(m.ones(3), 2))
    return run


@program
def dropout(m):
    x = m.ones(4, requires_grad=True)
    return lambda: m.nn.functional.dropout(x, 0.5).sum().backward()


@program
def the_derivative_of_a_derivative(m):
    x = m.full((3,), 0.5, requires_grad=True)

    def run():
        g, = m.autograd.grad((x * x * x).sum(), x, create_graph=True)
        g.sum().backward()
    return run


@program
def losses(m):
    f, x, t, i = m.nn.functional, m.full((3, 4), 0.3, requires_grad=True), m.full((3, 4), 0.6), m.tensor([0, 1, 2])

    def run():
        for z in (f.mse_loss(x, t), f.l1_loss(x, t), f.smooth_l1_loss(x, t), f.huber_loss(x, t), f.binary_cross_entropy(x, t),
                  f.binary_cross_entropy_with_logits(x, t), f.nll_loss(x, i), f.cross_entropy(x, i), f.cross_entropy(x, t),
                  f.cross_entropy(x, i, label_smoothing=0.1), f.kl_div(x, t, reduction="batchmean"),
                  f.mse_loss(x, t, reduction="sum"), f.mse_loss(x, t, reduction="none").sum()):
            z.backward()
    return run


# In these the gradients of two leaves are complete at once, and PyTorch's order is another.
@program
def products_in_any_order(m):
    a, b, v, c = [m.ones(*s, requires_grad=True) for s in ((2, 3), (3, 4), (3,), (5, 2, 3))]
    f = m.nn.functional

    def run():
        for z in (a @ b, a @ v, v @ b, v @ v, c @ b, c @ v, m.bmm(c, c.mT), c @ c.mT, a.mm(b), a.mv(v), v.dot(v),
                  m.addmm(v.new_ones(4), a, b), m.baddbmm(c @ c.mT, c, c.mT), f.linear(c, a), f.linear(v, a),
                  f.linear(a, a, v[:2]), f.linear(c, a, v[:2])):
            z.sum().backward()
    return run


@program
def pointwise_in_any_order(m):
    x, y, f = m.full((3,), 0.5, requires_grad=True), m.full((2, 3), 2.0, requires_grad=True), m.nn.functional

    def run():
        for z in (x + y, x - y, x * y, x / y, x ** 2, x ** y, 2 - x, 1 / x, -x, x.exp(), x.log(), x.sqrt(), x.rsqrt(), x.sin(),
                  x.cos(), x.tanh(), x.sigmoid(), x.abs(), x.clamp(0, 1), x.clamp(min=0.0), m.maximum(x, y), x + 1, x * 2,
                  x - 1, x / 2, 1 + x, m.add(x, y, alpha=2), x.erf(), x.log1p(), x.expm1(), x.reciprocal(), x.square(),
                  x.sign(), x.neg(), m.lerp(x, y, 0.5), m.addcmul(x, x, y), m.addcdiv(x, x, y), f.softplus(x), f.elu(x),
                  f.leaky_relu(x), f.hardtanh(x), f.silu(x), f.gelu(x), f.relu(x), f.mish(x), f.hardswish(x), f.logsigmoid(x)):
            z.sum().backward()
    return run


@program
def reductions_in_any_order(m):
    x = m.arange(12.0).view(3, 4).requires_grad_()

    def run():
        for z in (x.sum(), x.sum(0), x.sum((0, 1)), x.mean(), x.mean(1, keepdim=True), x.var(), x.var(0), x.std(1), x.max(),
                  x.min(), x.max(1)[0], x.min(0).values, x.amax(1), x.amin(0), x.norm(), x.norm(dim=1), x.logsumexp(1),
                  x.cumsum(0), x.softmax(1), x.log_softmax(1), m.linalg.vector_norm(x), x.argmax(1).float() * x.sum(),
                  x.topk(2)[0], x.sort(1)[0], x.median(), x.nansum()):
            z.sum().backward()
    return run


@program
def joining_in_any_order(m):
    x, f = m.ones(2, 3, requires_grad=True), m.nn.functional

    def run():
        for z in (m.cat([x, x]), m.stack([x, x]), x.repeat(2, 1), x.flip(0), x.roll(1, 0), x.tril(), x.triu(), f.pad(x, (1, 1)),
                  x.tile((2,)), m.hstack([x, x]), m.vstack([x, x]), x.movedim(0, 1), x.swapaxes(0, 1), x.diagonal(),
                  m.diag(x[0]), m.outer(x[0], x[1]), x.T, x.mT, x.repeat_interleave(2, 0)):
            z.sum().backward()
    return run


@program
def cells_in_any_order(m):
    cell, x, state = m.nn.LSTMCell(3, 4), m.randn(2, 3), (m.zeros(2, 4), m.zeros(2, 4))
    return lambda: cell(x, state)[0].sum().backward()


@program
def activations_in_place(m):
    x, w = m.randn(4), m.randn(4, requires_grad=True)

    def run():
        for name in ("silu", "mish", "hardswish", "hardsigmoid", "selu", "elu"):
            getattr(m.nn.functional, name)(x.clone(), inplace=True)
        m.nn.functional.selu(w).sum().backward()
        for name in ("silu", "mish", "hardswish", "hardsigmoid"):
            getattr(m.nn.functional, name)(w * 2, inplace=True).sum().backward()
    return run


@program
def functions_of_other_operations(m):
    x = m.randn(3, 4, requires_grad=True)

    def run():
        m.vstack([x[0], x[1]])
        m.rsub(x, x).sum().backward()
        x.repeat_interleave(2).sum().backward()
        x.repeat(repeats=(2, 1)).sum().backward()
    return run
