"""Parameters, buffers, lazy modules and uninitialized parameters; against PyTorch."""

import copy
import pickle

import pytest
from compare import agree_in_words


# -------------------------------------------------------------------------------------------- Parameter, Buffer, lazies
def test_parameters_and_buffers():
    def program(torch):
        nn = torch.nn
        p = nn.Parameter(torch.ones(2))
        b = nn.Buffer(torch.ones(2), persistent=False)
        return [p, nn.Parameter(), nn.Parameter(torch.ones(1), requires_grad=False), isinstance(p, torch.Tensor),
                repr(p),
                isinstance(torch.ones(1), nn.Parameter), isinstance(p, nn.Buffer), isinstance(b, nn.Buffer),
                type(b).__name__,
                isinstance(b, nn.Parameter), b.persistent, (p * 2).requires_grad, type(p * 2).__name__,
                type(p.data).__name__,
                type(p.detach()).__name__, nn.Parameter(p * 2).is_leaf]

    agree_in_words(program)
    agree_in_words(lambda torch: torch.nn.Parameter(torch.ones(2, dtype=torch.int64)), text=False)
    agree_in_words(lambda torch: torch.nn.Parameter([1]), text=False)


def test_a_tensor_subclass_stays_itself_as_a_parameter():
    def program(torch):
        class Special(torch.Tensor):
            pass

        s = torch.ones(2).as_subclass(Special)
        p = torch.nn.Parameter(s)
        m = torch.nn.Module()
        m.p = p
        return type(p).__name__, isinstance(p, torch.nn.Parameter), p.requires_grad, [n for n,
                                                                                      _ in m.named_parameters()]

    agree_in_words(program)


def lazy_dense(torch):
    class Grown(torch.nn.Module):
        def forward(self, x):
            return x @ self.weight + self.bias

    class Lazy(torch.nn.modules.lazy.LazyModuleMixin, Grown):
        cls_to_become = Grown

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.UninitializedParameter()
            self.bias = torch.nn.UninitializedParameter(requires_grad=False)
            self.register_buffer("seen", torch.nn.UninitializedBuffer())

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                with torch.no_grad():
                    self.weight.materialize((x.shape[-1], 2))
                    self.weight.fill_(1.0)
                    self.bias.materialize((2,))
                    self.bias.zero_()
                    self.seen.materialize((1,))
                    self.seen.zero_()

    return Lazy


def test_lazy_modules():
    def program(torch):
        m = lazy_dense(torch)()
        before = repr(m.weight), repr(m.seen), list(m.state_dict()), m.has_uninitialized_params()
        copied = copy.deepcopy(m.weight)
        m.double()
        out = m(torch.ones(1, 3, dtype=torch.float64))
        again = m(torch.ones(1, 3, dtype=torch.float64))
        return (before, out, again, type(m).__name__, type(m.weight).__name__, type(m.seen).__name__,
                dict(m.state_dict()),
                m.bias.requires_grad, repr(copied), len(m._forward_pre_hooks), len(m._load_state_dict_pre_hooks))

    agree_in_words(program)


def test_lazy_modules_take_shapes_from_a_state_dict():
    def program(torch):
        grown = lazy_dense(torch)()
        grown(torch.ones(1, 3))
        m = lazy_dense(torch)()
        answer = str(m.load_state_dict(grown.state_dict()))
        m2 = lazy_dense(torch)()
        m2.load_state_dict(lazy_dense(torch)().state_dict())
        return answer, dict(m.state_dict()), repr(m2.weight)

    agree_in_words(program)

    def backwards(torch):
        grown = lazy_dense(torch)()
        grown(torch.ones(1, 3))
        grown.load_state_dict(lazy_dense(torch)().state_dict())

    agree_in_words(backwards)


UNINITIALIZED = {
    "shape": lambda u: u.shape, "sum": lambda u: u.sum(), "add": lambda u: u + 1, "numel": lambda u: u.numel(),
    "len": lambda u: len(u), "index": lambda u: u[0], "view": lambda u: u.view(1), "share": lambda u: u.share_memory_(),
    "fill_": lambda u: u.fill_(1)}


@pytest.mark.parametrize("case", UNINITIALIZED)
def test_uninitialized_parameters_refuse_use(case):
    agree_in_words(lambda torch: UNINITIALIZED[case](torch.nn.UninitializedParameter()), text=case in ("shape", "share"))


def test_uninitialized_parameters_know_dtype_and_device():
    def program(torch):
        u = torch.nn.UninitializedParameter(dtype=torch.float64)
        return repr(u), str(u.dtype), str(u.device), u.requires_grad, u.is_leaf, isinstance(u,
                                                                                            torch.nn.Parameter), repr(
            pickle.loads(pickle.dumps(torch.nn.UninitializedBuffer())))

    agree_in_words(program)


def test_a_lazy_module_that_stays_uninitialized_says_so():
    def program(torch):
        class Lazy(torch.nn.modules.lazy.LazyModuleMixin, torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.UninitializedParameter()

            def initialize_parameters(self, x):
                pass

            def forward(self, x):
                return x

        Lazy()(torch.ones(1))

    agree_in_words(program)
