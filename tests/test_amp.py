"""autocast and GradScaler against PyTorch."""

import pickle
import warnings

import pytest
from compare import agree_in_words

import flambeau


def values(torch):
    torch.manual_seed(0)
    return torch.rand(3, 3), torch.rand(2, 3, 3), torch.rand(2, 3, 6, 6), torch.rand(2, 3, 4, 4, 4)


OPERATIONS = {
    "mm": lambda t, F, a, b, c, d: t.mm(a, a), "matmul": lambda t, F, a, b, c, d: b @ a,
    "bmm": lambda t, F, a, b, c, d: t.bmm(b, b), "addmm": lambda t, F, a, b, c, d: t.addmm(a, a, a),
    "baddbmm": lambda t, F, a, b, c, d: t.baddbmm(b, b, b), "linear": lambda t, F, a, b, c, d: F.linear(a, a, a[0]),
    "conv2d": lambda t, F, a, b, c, d: F.conv2d(c, c[:, :, :3, :3]),
    "conv_transpose2d": lambda t, F, a, b, c, d: F.conv_transpose2d(c, c[:1].transpose(0, 1)),
    "attention": lambda t, F, a, b, c, d: F.scaled_dot_product_attention(b, b, b),
    "prelu": lambda t, F, a, b, c, d: F.prelu(a, a[0]), "add": lambda t, F, a, b, c, d: a + a.bfloat16(),
    "softmax": lambda t, F, a, b, c, d: a.bfloat16().softmax(1), "relu": lambda t, F, a, b, c, d: F.relu(a.bfloat16()),
    "layer_norm": lambda t, F, a, b, c, d: F.layer_norm(a, (3,)), "exp": lambda t, F, a, b, c, d: a.bfloat16().exp(),
    "sum": lambda t, F, a, b, c, d: a.bfloat16().sum(), "prod": lambda t, F, a, b, c, d: a.bfloat16().prod(),
    "mse_loss": lambda t, F, a, b, c, d: F.mse_loss(a.bfloat16(), a.bfloat16()),
    "cross_entropy": lambda t, F, a, b, c, d: F.cross_entropy(a.bfloat16(), t.tensor([0, 1, 2])),
    "nll_loss": lambda t, F, a, b, c, d: F.nll_loss(a.bfloat16(), t.tensor([0, 1, 2])),
    "smooth_l1": lambda t, F, a, b, c, d: F.smooth_l1_loss(a.bfloat16(), a.bfloat16()),
    "bce": lambda t, F, a, b, c, d: F.binary_cross_entropy(a.bfloat16(), a.bfloat16()),
    "kl_div": lambda t, F, a, b, c, d: F.kl_div(a.bfloat16(), a.bfloat16(), reduction="sum"),
    "avg_pool3d": lambda t, F, a, b, c, d: F.avg_pool3d(d.bfloat16(), 2),
    "inverse": lambda t, F, a, b, c, d: t.linalg.inv((a + t.eye(3)).bfloat16()),
    "cat": lambda t, F, a, b, c, d: t.cat([a, a.bfloat16()]), "stack": lambda t, F, a, b, c, d: t.stack([a, a.bfloat16()]),
    "double": lambda t, F, a, b, c, d: t.mm(a.double(), a.double()),
    "trace": lambda t, F, a, b, c, d: t.trace(a.bfloat16()),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lists(name, dtype):
    def program(torch):
        given = values(torch)
        with torch.autocast("cpu", dtype=getattr(torch, dtype)):
            return OPERATIONS[name](torch, torch.nn.functional, *given)

    agree_in_words(program, tolerance=2e-2)


def test_a_training_step():
    def program(torch):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        x, y = torch.rand(5, 4), torch.tensor([0, 1, 0, 1, 1])
        with torch.autocast("cpu"):
            out = model(x)
            loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        return out, loss, [p.grad for p in model.parameters()]

    agree_in_words(program, tolerance=2e-2)


def test_nesting_and_switches():
    def program(torch):
        a = torch.ones(2, 2)
        seen = [torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()]
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False) as block:
            seen += [torch.mm(a, a).dtype, torch.get_autocast_dtype("cpu"), torch.is_autocast_cpu_enabled(), block is None]
            with torch.autocast("cpu", enabled=False):
                seen += [torch.mm(a, a).dtype, torch.is_autocast_enabled("cpu")]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                seen.append(torch.mm(a, a).dtype)
            seen += [torch.mm(a, a).dtype, torch.is_autocast_cache_enabled()]
        return [str(s) for s in seen], torch.mm(a, a), torch.get_autocast_dtype("cpu") is torch.bfloat16

    agree_in_words(program, warned=False)


def test_decorator():
    def program(torch):
        @torch.autocast("cpu")
        def function(a):
            """Text."""
            return a @ a

        return function(torch.ones(2, 2)), function.__name__, function.__doc__

    agree_in_words(program)


def test_parameters_are_cast_once():
    w = flambeau.nn.Parameter(flambeau.ones(2, 2))
    from flambeau.amp import autocast_mode
    with flambeau.autocast("cpu"):
        (w @ w).sum().backward()
        assert len(autocast_mode._settings.casts) == 1
        with flambeau.no_grad():
            w.mul_(2)
        assert (w @ w).sum().item() == 32
    assert not autocast_mode._settings.casts
    assert w.grad.dtype is flambeau.float32


def test_nothing_is_left_behind():
    before = flambeau.overrides.active
    with flambeau.autocast("cpu"):
        assert flambeau.overrides.active
    with pytest.raises(ZeroDivisionError), flambeau.autocast("cpu"):
        1 / 0
    assert flambeau.overrides.active is before
    assert flambeau.mm(flambeau.ones(2, 2), flambeau.ones(2, 2)).dtype is flambeau.float32


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers(kind):
    def program(torch):
        torch.manual_seed(0)
        m = getattr(torch.nn, kind)(3, 4)
        with torch.autocast("cpu"):
            return m(torch.ones(2, 2, 3))[0].shape

    agree_in_words(program)


@pytest.mark.parametrize("mistake", [
    lambda torch: torch.autocast(3), lambda torch: torch.autocast("nowhere"), lambda torch: torch.autocast("cuda")._enabled,
    lambda torch: torch.autocast("cpu", dtype=torch.float32)._enabled])
def test_arguments(mistake):
    agree_in_words(mistake, text=False)


def test_custom_function():
    def program(torch):
        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a @ b

            @staticmethod
            @torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                return grad @ b.t(), a.t() @ grad

        a = torch.ones(2, 2, requires_grad=True)
        with torch.autocast("cpu"):
            out = Product.apply(a, a.bfloat16())
        out.sum().backward()
        return out, a.grad

    agree_in_words(program)


def test_old_names():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from flambeau.cpu.amp import autocast
        from flambeau.cuda.amp import GradScaler
        with autocast():
            assert (flambeau.ones(2, 2) @ flambeau.ones(2, 2)).dtype is flambeau.bfloat16
        assert not GradScaler().is_enabled()


# -------------------------------------------------------------------------------------------------------- GradScaler
def test_scaling_over_some_steps():
    """An infinite gradient in step 2: no update there, and the scale goes down; later it grows."""
    def program(torch):
        w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = torch.optim.SGD([w], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        seen = []
        for step in range(8):
            optimizer.zero_grad()
            loss = (w * w).sum() * (float("inf") if step == 2 else 1.0)
            scaler.scale(loss).backward()
            if step % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            seen.append((w.detach().clone(), scaler.get_scale(), scaler._get_growth_tracker()))
        return seen, scaler.state_dict()

    agree_in_words(program, tolerance=1e-6)


def test_saving():
    scaler = flambeau.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(flambeau.ones(()))
    other = flambeau.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4.0
    assert pickle.loads(pickle.dumps(scaler)).get_scale() == 4.0
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})


def scaler_and_optimizer(torch):
    w = torch.nn.Parameter(torch.ones(2))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(w.sum()).backward()
    return scaler, torch.optim.SGD([w], lr=0.1)


@pytest.mark.parametrize("calls", [
    lambda s, o: (s.unscale_(o), s.unscale_(o)), lambda s, o: (s.step(o), s.step(o)),
    lambda s, o: (s.step(o), s.unscale_(o)), lambda s, o: s.update(), lambda s, o: s.step(o, closure=None),
    lambda s, o: s.scale(3), lambda s, o: (o.zero_grad(), s.step(o))])
def test_mistakes(calls):
    agree_in_words(lambda torch: calls(*scaler_and_optimizer(torch)))


def test_disabled():
    def program(torch):
        w = torch.nn.Parameter(torch.ones(2))
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        optimizer = torch.optim.SGD([w], lr=0.1)
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return w, scaler.get_scale(), scaler.state_dict()

    agree_in_words(program)
