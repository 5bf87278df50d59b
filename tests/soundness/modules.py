"""Layers whose options, parameters, buffers and children change while they are used."""

from __future__ import annotations

import copy

from soundness.world import F, Thing, around, each, final, fit, item, line, nn, optim, put, task, torch, vec


def some():
    return torch.arange(12.0).reshape(4, 3) / 12


def through(compile, net, *changes, x=None):
    """Calls of a layer from a compiled function around changes, and what it has in the end."""
    yield from around(compile(lambda x: net(x)), *changes, args=(some() if x is None else x,))
    yield net.state_dict()


# ----------------------------------------------------------------------------------------------------------------- options
def train_and_eval(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    return through(compile, net, net.eval, net.train)


def eval_of_one_child(compile):
    net = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    return through(compile, net, net[0].eval, put(net[1], training=False))


def dropout_share(compile):
    net = nn.Dropout(0.5)
    return through(compile, net, put(net, p=0.1), put(net, p=0.0), put(net, p=1.0), put(net, inplace=True))


def batch_norm_options(compile):
    net = nn.BatchNorm1d(3)
    return through(compile, net, put(net, momentum=0.5), put(net, eps=0.5), net.eval, net.train, put(net, momentum=None))


def batch_norm_without_statistics(compile):
    net = nn.BatchNorm1d(3)
    return through(compile, net, put(net, track_running_stats=False), net.eval, net.reset_running_stats)


def batch_norm_count_written(compile):
    net = nn.BatchNorm1d(3, momentum=None)
    return through(compile, net, lambda: net.num_batches_tracked.fill_(100), lambda: net.running_mean.zero_())


def layer_norm_weights_gone(compile):
    net = nn.LayerNorm(3)
    return through(compile, net, put(net, weight=None, bias=None), put(net, eps=1.0))


def slope_and_power(compile):
    net = nn.Sequential(nn.LeakyReLU(0.1), nn.Softplus(), nn.Hardtanh())
    changes = put(net[0], negative_slope=0.5), put(net[1], beta=2.0), put(net[2], max_val=0.5)
    return through(compile, net, *changes, x=some() - 0.5)


def axis_of_a_softmax(compile):
    net = nn.Softmax(dim=1)
    return through(compile, net, put(net, dim=0), put(net, dim=-1))


def convolution_options(compile):
    net, x = nn.Conv1d(1, 1, 2), torch.arange(6.0).reshape(1, 1, 6)
    return through(compile, net, put(net, stride=(2,)), put(net, stride=(1,), dilation=(2,)), x=x)


def pooling_options(compile):
    net, x = nn.MaxPool1d(2), torch.arange(6.0).reshape(1, 1, 6)
    return through(compile, net, put(net, kernel_size=3), put(net, stride=1), x=x)


def options_of_a_loss(compile):
    loss, y = nn.CrossEntropyLoss(), torch.tensor([0, 1, 2, 0])
    return around(compile(lambda x: loss(x, y)), put(loss, reduction="sum"), put(loss, label_smoothing=0.3),
                  put(loss, ignore_index=0), args=(some(),))


def weight_of_a_loss(compile):
    loss, y = nn.CrossEntropyLoss(weight=torch.ones(3)), torch.tensor([0, 1, 2, 0])
    f = compile(lambda x: loss(x, y))
    return around(f, lambda: loss.weight[0].fill_(5.0), put(loss, weight=None), args=(some(),))


def embedding_options(compile):
    net, i = nn.Embedding(4, 3), torch.tensor([1, 2, 0])
    yield from through(compile, net, put(net, max_norm=0.5), put(net, max_norm=0.1), x=i)


def scale_of_an_upsampling(compile):
    net, x = nn.Upsample(scale_factor=2), torch.arange(3.0).reshape(1, 1, 3)
    return through(compile, net, put(net, scale_factor=3.0), x=x)


def dimensions_of_a_flatten(compile):
    net, x = nn.Flatten(1), torch.arange(12.0).reshape(2, 2, 3)
    return through(compile, net, put(net, start_dim=0), put(net, start_dim=1, end_dim=1), x=x)


def flag_of_ones_own(compile):
    class Net(nn.Module):
        doubled = False

        def forward(self, x):
            return x * 2.0 if self.training and not self.doubled else x * 3.0
    net = Net()
    return through(compile, net, net.eval, net.train, put(net, doubled=True))


# ----------------------------------------------------------------------------------------------------- parameters and buffers
def parameter_replaced(compile):
    net = nn.Linear(3, 1)
    return through(compile, net, put(net, weight=nn.Parameter(torch.ones(1, 3))), put(net, bias=None),
                   put(net, bias=nn.Parameter(torch.ones(1))))


def parameter_registered_later(compile):
    class Net(nn.Module):
        def forward(self, x):
            for p in self.parameters():
                x = x * p
            return x
    net = Net()
    return through(compile, net, lambda: net.register_parameter("a", nn.Parameter(vec())),
                   lambda: net.register_parameter("b", nn.Parameter(vec())), lambda: delattr(net, "a"))


def buffer_registered_later(compile):
    class Net(nn.Module):
        gain = 2.0

        def forward(self, x):
            return x * (self.scale if hasattr(self, "scale") else self.gain)
    net = Net()
    return through(compile, net, lambda: net.register_buffer("scale", vec()), lambda: delattr(net, "scale"), put(net, gain=3.0))


def buffer_set_by_assignment(compile):
    net = nn.Module()
    net.register_buffer("scale", torch.ones(3))
    f = compile(lambda x: x * net.scale)
    return around(f, put(net, scale=vec()), lambda: net.scale.add_(1), put(net, scale=torch.zeros(1)))


def buffer_rebound_by_the_call(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean = self.mean * 0.5 + x.detach().mean(0)
            return x - self.mean
    net = Net()
    return through(compile, net, lambda: net.mean.zero_())


def buffer_counts_in_the_call(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.tensor(0))

        def forward(self, x):
            self.steps += 1
            return x * self.steps
    net = Net()
    return through(compile, net, lambda: net.steps.zero_())


def buffer_of_a_power_iteration(compile):
    net = nn.utils.spectral_norm(nn.Linear(3, 3))
    return through(compile, net, net.eval)


def state_loaded(compile):
    net = nn.Linear(3, 1)
    other = {k: v + 1 for k, v in net.state_dict().items()}
    return through(compile, net, lambda: net.load_state_dict(other),
                   lambda: net.load_state_dict({k: v * 2 for k, v in other.items()}, assign=True))


def parameters_initialised_again(compile):
    net = nn.Linear(3, 3)
    return through(compile, net, net.reset_parameters, lambda: nn.init.eye_(net.weight),
                   lambda: net.apply(lambda m: nn.init.zeros_(m.bias)))


def parameters_in_another_dtype(compile):
    net = nn.Linear(3, 1)
    f = compile(lambda x: net(x.to(net.weight.dtype)))
    yield from around(f, net.double, net.float, net.bfloat16, args=(some(),))


def parameters_tied(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    opt = optim.SGD(net.parameters(), lr=0.1)
    step = compile(lambda: fit(net, opt, some(), some()))
    yield from around(step, put(net[1], weight=net[0].weight), put(net[1], weight=nn.Parameter(torch.eye(3))), args=())
    yield final(net)


def parameters_shared_in_memory(compile):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(x):
        with torch.no_grad():
            y = b(x)
            a.weight.add_(1)
            return y + b(x)
    return around(compile(f), put(b.weight, data=a.weight.data), args=(some(),))


def gradients_of_frozen_layers(compile):
    net, opt, x, y = task()
    step = compile(lambda: fit(net, opt, x, y))
    yield from around(step, lambda: net[0].requires_grad_(False), lambda: net[0].requires_grad_(True),
                      put(net[2].bias, requires_grad=False), args=())
    yield final(net)


def layer_that_makes_itself(compile):
    """A lazy layer has its parameters from its first call on."""
    net = nn.Sequential(nn.LazyLinear(2), nn.Tanh())
    f = compile(lambda x: net(x))
    for n in range(5):
        yield f(some() * n), type(net[0]).__name__
    yield net.state_dict()


# ---------------------------------------------------------------------------------------------------------------- children
def child_replaced(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    return through(compile, net, item(net, 1, nn.Sigmoid()), item(net, 0, nn.Identity()))


def child_replaced_by_name(compile):
    net = nn.Module()
    net.act = nn.Tanh()
    f = compile(lambda x: net.act(x))
    return around(f, put(net, act=nn.Sigmoid()), lambda: net.add_module("act", nn.ReLU()))


def children_walked(compile):
    net = nn.Module()
    net.a, net.b = nn.Tanh(), nn.Sigmoid()

    def f(x):
        for name, child in net.named_children():
            x = child(x) * len(name)
        return x
    return around(compile(f), lambda: net.add_module("third", nn.ReLU()), lambda: delattr(net, "a"))


def modules_counted(compile):
    net = nn.Sequential(nn.Tanh())
    f = compile(lambda x: x * len(list(net.modules())) + sum(p.numel() for p in net.parameters()))
    return around(f, lambda: net.append(nn.Linear(3, 3)), lambda: net[1].requires_grad_(False))


def child_wrapped(compile):
    class Wrapped(nn.Module):
        def __init__(self, inner, gain):
            super().__init__()
            self.inner, self.gain = inner, gain

        def forward(self, x):
            return self.inner(x) * self.gain
    net = nn.Sequential(nn.Linear(3, 3))
    return through(compile, net, lambda: item(net, 0, Wrapped(net[0], 2.0))(), lambda: put(net[0], gain=3.0)())


def children_skipped_by_chance(compile):
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def f(x):
        for layer in layers:
            if torch.rand(()).item() < 0.5:
                x = layer(x)
        return x
    return each(compile(f), some(), calls=10)


def child_chosen_by_a_count(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.calls = nn.ModuleList([nn.Tanh(), nn.Sigmoid()]), 0

        def forward(self, x):
            self.calls += 1
            return self.layers[self.calls % 2](x)
    net = Net()
    yield from through(compile, net)
    yield net.calls


def forward_patched(compile):
    net = nn.Sequential(nn.Tanh())
    plain = net[0].forward
    return through(compile, net, put(net[0], forward=lambda x: plain(x) * 2.0), lambda: delattr(net[0], "forward"))


def forward_patched_on_its_class(compile):
    class Net(nn.Module):
        def forward(self, x):
            return x * 2.0
    net, other = nn.Sequential(Net()), lambda self, x: x * 3.0
    return through(compile, net, put(Net, forward=other), put(net[0], forward=lambda x: x * 5.0))


def call_patched_on_its_class(compile):
    class Net(nn.Module):
        def forward(self, x):
            return x * 2.0
    net = Net()
    return through(compile, net, put(Net, __call__=lambda self, x: self.forward(x) + 1))


def forward_of_the_base_called(compile):
    class Base(nn.Module):
        def forward(self, x):
            return x * 2.0

    class Net(Base):
        def forward(self, x):
            return super().forward(x) + 1
    net = Net()
    return through(compile, net, put(Base, forward=lambda self, x: x * 3.0))


def two_models_in_one_function(compile):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    box = Thing(mix=0.0)
    f = compile(lambda x: a(x) * (1 - box.mix) + b(x) * box.mix)
    return around(f, put(box, mix=0.5), put(box, mix=1.0), args=(some(),))


def parametrized(compile):
    from flambeau.nn.utils import parametrize

    class Scaled(nn.Module):
        gain = 2.0

        def forward(self, w):
            return w * self.gain
    net = nn.Linear(3, 1)
    return through(compile, net, lambda: parametrize.register_parametrization(net, "weight", Scaled()), put(Scaled, gain=3.0),
                   lambda: parametrize.remove_parametrizations(net, "weight"))


def weight_normed(compile):
    from flambeau.nn.utils.parametrizations import weight_norm
    net = nn.Linear(3, 1)
    return through(compile, net, lambda: weight_norm(net), lambda: net.parametrizations.weight.original0.data.fill_(3.0))


def pruned(compile):
    def forget(module, args):
        module.weight.data[:, 0] = 0.0
    net = nn.Linear(3, 1)
    return through(compile, net, lambda: net.register_forward_pre_hook(forget), lambda: net.weight.data.fill_(1.0))


def adapters_merged(compile):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.down, self.up = nn.Linear(3, 3), nn.Parameter(torch.ones(1, 3)), nn.Parameter(torch.ones(3, 1))
            self.merged = False

        def forward(self, x):
            return self.base(x) if self.merged else self.base(x) + x @ self.down.t() @ self.up.t()

        def merge(self):
            self.base.weight.data += self.up.data @ self.down.data
            self.merged = True
    net = Adapted()
    return through(compile, net, net.merge, lambda: net.base.weight.data.mul_(2.0))


# -------------------------------------------------------------------------------------------------------- layers with state
def hidden_state_carried(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.hidden = nn.RNNCell(3, 3), None

        def forward(self, x):
            self.hidden = self.cell(x, self.hidden).detach()
            return self.hidden
    net = Net()
    yield from through(compile, net, put(net, hidden=None))
    yield net.hidden


def cache_of_keys(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = []

        def forward(self, x):
            self.keys.append(x[0])
            return torch.stack(self.keys).sum(0)
    net = Net()
    yield from through(compile, net, lambda: net.keys.clear())
    yield len(net.keys)


def cache_that_grows(compile):
    class Net(nn.Module):
        past = None

        def forward(self, x):
            self.past = x if self.past is None else torch.cat([self.past, x])
            return self.past.sum(0)
    net = Net()
    yield from through(compile, net, put(net, past=None))
    yield net.past


def table_made_when_needed(compile):
    class Net(nn.Module):
        table = None

        def forward(self, x):
            if self.table is None or len(self.table) < len(x):
                self.table = torch.arange(float(len(x)))[:, None]
                self.made = getattr(self, "made", 0) + 1
            return x + self.table[: len(x)]
    net = Net()
    f = compile(lambda x: net(x))
    for n in (4, 4, 2, 4, 6, 4, 6):
        yield f(torch.ones(n, 3)), net.made


def average_beside(compile):
    net, opt, x, y = line()
    average = copy.deepcopy(net).requires_grad_(False)
    box = Thing(decay=0.5)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                a.mul_(box.decay).add_(p, alpha=1 - box.decay)
        return loss
    yield from around(step, put(box, decay=0.9), put(box, decay=0.0), args=())
    yield final(net), average.state_dict()


def attention_with_and_without_a_mask(compile):
    box = Thing(mask=None, causal=False)
    f = compile(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=box.mask, is_causal=box.causal))
    x = torch.arange(12.0).reshape(1, 4, 3) / 12
    return around(f, put(box, causal=True), put(box, causal=False, mask=torch.eye(4).bool()), args=(x,))


def recurrent_layer_options(compile):
    net, x = nn.GRU(3, 2, batch_first=False), torch.ones(2, 4, 3)
    f = compile(lambda x: net(x)[0])
    return around(f, put(net, batch_first=True), args=(x,))
