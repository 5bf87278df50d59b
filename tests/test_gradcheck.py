"""gradcheck and gradgradcheck: what passes, what fails, and what the message says."""

import pytest
from compare import Programs, agree

import flambeau as fl
from flambeau.autograd.gradcheck import GradcheckError

programs = Programs()


def inputs(mod):
    return (mod.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=mod.float64, requires_grad=True),
            mod.tensor([0.5, 2.0], dtype=mod.float64, requires_grad=True),
            mod.tensor([1 + 2j, 0.5 - 1j], dtype=mod.complex128, requires_grad=True))


def wrong(mod):
    class Wrong(mod.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    return Wrong.apply


CASES = {
    "real": lambda A, m, x, y, z: A.gradcheck(lambda a, b: a * b.exp(), (x, y)),
    "second": lambda A, m, x, y, z: A.gradgradcheck(lambda a, b: a * b.exp(), (x, y)),
    "complex": lambda A, m, x, y, z: A.gradcheck(lambda a: a * a * 2j, (z,)),
    "complex_to_real": lambda A, m, x, y, z: A.gradcheck(lambda a: a.abs(), z),
    "real_to_complex": lambda A, m, x, y, z: A.gradcheck(lambda a: a * 2j, y),
    "complex_second": lambda A, m, x, y, z: A.gradgradcheck(lambda a: a * a, z),
    "wrong": lambda A, m, x, y, z: A.gradcheck(wrong(m), (y,)),
    "wrong_quietly": lambda A, m, x, y, z: A.gradcheck(wrong(m), (y,), raise_exception=False),
    "wrong_complex": lambda A, m, x, y, z: A.gradcheck(wrong(m), (z,), raise_exception=False),
    "nothing_requires_grad": lambda A, m, x, y, z: A.gradcheck(lambda a: a * 2, (y.detach(),)),
    "several_outputs": lambda A, m, x, y, z: A.gradcheck(lambda a: (a * 2, a.sum()), (y,)),
    "batched": lambda A, m, x, y, z: A.gradcheck(lambda a: a * a, (y,), check_batched_grad=True),
    "forward": lambda A, m, x, y, z: A.gradcheck(lambda a: a.sin().sum(), (y,), check_forward_ad=True),
    "forward_complex": lambda A, m, x, y, z: A.gradcheck(lambda a: a * a.conj(), (z,), check_forward_ad=True),
    "forward_over_reverse": lambda A, m, x, y, z: A.gradgradcheck(lambda a: a.sin() * a, (y,), check_fwd_over_rev=True),
    "detached": lambda A, m, x, y, z: A.gradcheck(lambda a: a.detach(), (y,)),
    "overlapping": lambda A, m, x, y, z: A.gradcheck(lambda a: a * 1, (y.expand(2, 2),)),
    "fast": lambda A, m, x, y, z: A.gradcheck(lambda a: a * a, (y,), fast_mode=True),
    "fast_complex": lambda A, m, x, y, z: A.gradcheck(lambda a: a * a.conj() * 2j, (z,), fast_mode=True),
    "fast_wrong": lambda A, m, x, y, z: A.gradcheck(wrong(m), (y,), fast_mode=True),
    "fast_forward": lambda A, m, x, y, z: A.gradcheck(lambda a, b: (a @ b).sin(), (x, y), fast_mode=True,
                                                      check_forward_ad=True),
    "fast_second": lambda A, m, x, y, z: A.gradgradcheck(lambda a: a ** 3, (y,), fast_mode=True),
    "no_check_asked": lambda A, m, x, y, z: A.gradcheck(lambda a: a, (y,), check_backward_ad=False),
    "given_grad_outputs": lambda A, m, x, y, z: A.gradgradcheck(lambda a: a ** 3, (y,),
                                                                (m.ones(2).double().requires_grad_(),)),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name):
    agree(lambda mod: CASES[name](mod.autograd, mod, *inputs(mod)))


def test_inputs_are_put_back():
    x, _, _ = inputs(fl)
    before = x.tolist()
    fl.autograd.gradcheck(lambda a: a ** 3, (x,))
    assert x.tolist() == before and x._version == 0


def test_message_names_output_input_and_values():
    _, y, _ = inputs(fl)
    with pytest.raises(GradcheckError, match=r"output 0 with respect to input 0(.|\n)*numerical:(.|\n)*analytical:"):
        fl.autograd.gradcheck(wrong(fl), (y,))


def test_non_deterministic_backward_is_noticed():
    class Unsteady(fl.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            Unsteady.calls += 1
            return g * (2 + 1e-7 * Unsteady.calls)

    _, y, _ = inputs(fl)
    with pytest.raises(GradcheckError, match="not reentrant"):
        fl.autograd.gradcheck(Unsteady.apply, (y,))
    assert fl.autograd.gradcheck(Unsteady.apply, (y,), nondet_tol=1e-3)


def test_single_precision_is_warned_about():
    x = fl.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="double precision"):
        fl.autograd.gradcheck(lambda a: a * 1, (x,), eps=1e-2, atol=1e-2)


def test_module_and_function_share_their_name():
    import flambeau.autograd.gradcheck as module
    assert module(lambda a: a * 2, (inputs(fl)[1],))
    assert fl.autograd.gradcheck(lambda a: a * 2, (inputs(fl)[1],))
