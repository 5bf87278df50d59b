"""RNN, LSTM, GRU and their cells against PyTorch."""

import itertools

import pytest
from compare import agree_in_words

import flambeau


def run(torch, kind, packed=False, state=True, batched=True, **options):
    """What a layer returns, all gradients and its parameters."""
    torch.manual_seed(0)
    m = getattr(torch.nn, kind)(3, 4, dtype=torch.float64, **options)
    first = options.get("batch_first", False)
    x = torch.randn(*((3, 6, 3) if first else (6, 3, 3)), dtype=torch.float64)
    x = (x if batched else x[:, 0]).requires_grad_()
    given = x
    if packed:
        given = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 6, 3]), first, enforce_sorted=False)
    directions = 2 if options.get("bidirectional") else 1
    shape = (options.get("num_layers", 1) * directions, *((3,) if batched else ()))
    start = [torch.randn(*shape, options.get("proj_size") or 4, dtype=torch.float64).requires_grad_()]
    if kind == "LSTM":
        start.append(torch.randn(*shape, 4, dtype=torch.float64).requires_grad_())
    hx = None if not state else tuple(start) if kind == "LSTM" else start[0]
    torch.manual_seed(1)
    out, end = m(given, hx)
    rows = out.data if packed else out
    ends = list(end) if kind == "LSTM" else [end]
    (rows.sin().sum() + sum(e.cos().sum() for e in ends)).backward()
    return (rows, ends, x.grad, [s.grad for s in start] if state else None, [p.grad for p in m.parameters()],
            m.state_dict(), m, list(out.batch_sizes) if packed else out.stride())


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("bidirectional", "batch_first", "bias"), list(itertools.product([False, True], repeat=3)))
def test_layers(kind, packed, bidirectional, batch_first, bias):
    options = dict(bidirectional=bidirectional, batch_first=batch_first, bias=bias, num_layers=2, packed=packed)
    agree_in_words(lambda torch: run(torch, kind, **options), tolerance=1e-9)


@pytest.mark.parametrize("options", [
    dict(kind="RNN", nonlinearity="relu"), dict(kind="LSTM", proj_size=2, num_layers=2),
    dict(kind="LSTM", proj_size=2, bidirectional=True, packed=True), dict(kind="GRU", state=False),
    dict(kind="LSTM", state=False), dict(kind="LSTM", num_layers=3, dropout=0.5),
    dict(kind="GRU", num_layers=2, dropout=0.5, packed=True), dict(kind="RNN", dropout=0.5),
    dict(kind="LSTM", batched=False), dict(kind="GRU", batched=False, state=False, bidirectional=True)], ids=str)
def test_options(options):
    agree_in_words(lambda torch: run(torch, **options), tolerance=1e-9)


@pytest.mark.parametrize("cell", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("state", [True, False])
def test_cells(cell, bias, batched, state):
    def program(torch):
        torch.manual_seed(0)
        m = getattr(torch.nn, cell)(3, 4, bias=bias, dtype=torch.float64)
        shape = (2,) if batched else ()
        x = torch.randn(*shape, 3, dtype=torch.float64, requires_grad=True)
        h, c = (torch.randn(*shape, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
        out = m(x, (h, c) if cell == "LSTMCell" else h) if state else m(x)
        total = sum(o.sin().sum() for o in out) if cell == "LSTMCell" else out.sin().sum()
        total.backward()
        return out, x.grad, h.grad, c.grad, [p.grad for p in m.parameters()], m

    agree_in_words(program, tolerance=1e-9)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_second_derivative(kind):
    m = getattr(flambeau.nn, kind)(2, 3, dtype=flambeau.float64)
    x = flambeau.randn(3, 2, 2, dtype=flambeau.float64, requires_grad=True)
    weights = tuple(m.parameters())
    assert flambeau.autograd.gradgradcheck(lambda x, *_: m(x)[0], (x, *weights))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_gradient_penalty(kind):
    """create_graph gives the same first gradients as the fused pass."""
    m = getattr(flambeau.nn, kind)(2, 3, num_layers=2, bidirectional=True, dtype=flambeau.float64)
    x = flambeau.randn(4, 2, 2, dtype=flambeau.float64, requires_grad=True)
    loss = m(x)[0].sin().sum()
    plain = flambeau.autograd.grad(loss, [x, *m.parameters()], retain_graph=True)
    recorded = flambeau.autograd.grad(loss, [x, *m.parameters()], create_graph=True)
    assert all(flambeau.allclose(a, b) for a, b in zip(plain, recorded))
    assert all(r.requires_grad for r in recorded)


def test_half_precision():
    agree_in_words(lambda torch: torch.nn.LSTM(3, 4).bfloat16()(torch.ones(2, 2, 3).bfloat16())[0].shape)


MISTAKES = [
    lambda n, x: n.LSTM(0, 4), lambda n, x: n.GRU(3, 0), lambda n, x: n.RNN(3, 4, nonlinearity="sin"),
    lambda n, x: n.GRU(3, 4, proj_size=2), lambda n, x: n.LSTM(3, 4, proj_size=4), lambda n, x: n.LSTM(3, 4, dropout=2),
    lambda n, x: n.LSTM(3.0, 4), lambda n, x: n.LSTM(3, 4, num_layers=0), lambda n, x: n.LSTM(3, 4, bias=1),
    lambda n, x: n.LSTM(3, 4)(x[0, 0]), lambda n, x: n.LSTM(2, 4)(x), lambda n, x: n.GRU(3, 4)(x, x),
    lambda n, x: n.LSTM(3, 4)(x, (x, x)), lambda n, x: n.LSTM(3, 4)(x, (x[0], x[0])), lambda n, x: n.GRU(3, 4)(x.double()),
    lambda n, x: n.LSTMCell(3, 4)(x), lambda n, x: n.GRUCell(3, 4)(x[0], x), lambda n, x: n.RNN(3, 4)(x[:0]),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors(mistake):
    agree_in_words(lambda torch: mistake(torch.nn, torch.ones(2, 2, 3)))


def test_function_errors():
    agree_in_words(lambda torch: torch.gru_cell(torch.ones(2, 3), torch.ones(2, 4), torch.ones(12, 2), torch.ones(12, 4)))
    agree_in_words(lambda torch: torch.gru_cell(torch.ones(2, 3), torch.ones(1, 4), torch.ones(12, 3), torch.ones(12, 4)))


def test_names_of_functions():
    def program(torch):
        torch.manual_seed(0)
        m = torch.nn.GRU(3, 4)
        x, h = torch.ones(5, 2, 3), torch.zeros(1, 2, 4)
        out, end = torch._VF.gru(x, h, m._flat_weights, True, 1, 0.0, False, False, False)
        cell = torch.gru_cell(x[0], h[0], *m._flat_weights)
        return out, end, cell, [[w.shape for w in ws] for ws in m.all_weights], m.flatten_parameters()

    agree_in_words(program, tolerance=1e-5)


def test_replaced_weights_are_used():
    m = flambeau.nn.LSTM(3, 4)
    x = flambeau.ones(2, 1, 3)
    before = m(x)[0]
    m.weight_ih_l0 = flambeau.nn.Parameter(m.weight_ih_l0.detach() * 2)
    assert not flambeau.equal(before, m(x)[0])


def test_copy_and_pickle():
    import copy
    import pickle
    m = flambeau.nn.LSTM(3, 4, num_layers=2)
    x = flambeau.ones(2, 1, 3)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert flambeau.equal(other(x)[0], m(x)[0])
