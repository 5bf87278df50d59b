"""detect_anomaly: NaN in backward, and the forward line in warnings and errors."""

import warnings

import pytest

import flambeau as fl
from flambeau.autograd.anomaly import is_anomaly_enabled


def test_nan_is_reported_with_the_forward_line():
    x = fl.tensor([-1.0], requires_grad=True)
    with pytest.warns(UserWarning) as caught, fl.autograd.detect_anomaly():
        y = x.sqrt()  # the culprit
        with pytest.raises(RuntimeError, match=r"Function 'SqrtBackward0' returned nan values in its 0th output."):
            (y * 0).sum().backward()
    texts = [str(w.message) for w in caught]
    assert any("Anomaly Detection has been enabled" in t for t in texts)
    assert any("Error detected in SqrtBackward0" in t and "# the culprit" in t for t in texts)


def test_check_nan_can_be_off():
    x = fl.tensor([-1.0], requires_grad=True)
    with pytest.warns(UserWarning), fl.autograd.detect_anomaly(check_nan=False):
        (x.sqrt() * 0).sum().backward()
    assert x.grad.isnan().all()


def test_an_error_in_a_custom_backward_names_the_forward_line():
    class Fails(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    x = fl.ones(2, requires_grad=True)
    with pytest.warns(UserWarning) as caught, fl.autograd.detect_anomaly():
        y = Fails.apply(x)  # here it was recorded
        with pytest.raises(KeyError):
            y.sum().backward()
    assert any("FailsBackward" in str(w.message) and "# here it was recorded" in str(w.message) for w in caught)


def test_the_saved_tensor_error_names_both_lines():
    with pytest.warns(UserWarning), fl.autograd.detect_anomaly():
        x = fl.ones(2, requires_grad=True) * 1
        y = x * x
        x.add_(1)
        with pytest.raises(RuntimeError, match=r"in-place change was made at File(.|\n)*recorded at File"):
            y.sum().backward()


def test_warnings_as_errors_do_not_hide_the_error(capsys):
    x = fl.tensor([-1.0], requires_grad=True)
    with pytest.warns(UserWarning), fl.autograd.detect_anomaly():
        y = (x.sqrt() * 0).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeError, match="returned nan"):
                y.backward()
    assert "Error detected in SqrtBackward0" in capsys.readouterr().err


def test_metadata_holds_the_traceback():
    with pytest.warns(UserWarning), fl.autograd.detect_anomaly():
        y = fl.ones(2, requires_grad=True).exp()
    assert "test_metadata_holds_the_traceback" in "".join(y.grad_fn.metadata["traceback_"])


def test_parents_of_nodes_made_in_backward():
    x = fl.tensor([0.0], requires_grad=True)
    with pytest.warns(UserWarning) as caught, fl.autograd.detect_anomaly():
        y = (x * x).pow(1.5)  # first derivative is fine, the second is not
        g, = fl.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="returned nan values"):
            fl.autograd.grad(g.sum(), x)
    assert any("Previous calculation was induced by" in str(w.message) for w in caught)


def test_switch_and_nesting():
    assert not is_anomaly_enabled()
    fl.autograd.set_detect_anomaly(True)
    assert is_anomaly_enabled()
    with fl.autograd.set_detect_anomaly(False):
        assert not is_anomaly_enabled()
    assert is_anomaly_enabled()
    fl.autograd.set_detect_anomaly(False)
    assert not is_anomaly_enabled()


def test_hooks_still_run():
    x = fl.ones(2, requires_grad=True)
    seen = []
    with pytest.warns(UserWarning), fl.autograd.detect_anomaly():
        y = x * 2
        y.grad_fn.register_prehook(lambda outs: seen.append("pre") or (outs[0] * 3,))
        y.grad_fn.register_hook(lambda ins, outs: seen.append("post"))
        y.sum().backward()
    assert seen == ["pre", "post"] and x.grad.tolist() == [6.0, 6.0]


def test_profile_measures_operations():
    from flambeau.autograd.profiler import profile, record_function
    x = fl.ones(2, requires_grad=True)
    with profile() as measured, record_function("block"):
        (x * 2).exp().sum().backward()
    found = {e.key: e for e in measured.key_averages()}
    assert {"aten::mul", "aten::exp", "aten::sum", "MulBackward0", "block"} <= found.keys()
    assert all(e.cpu_time_total > 0 for e in found.values())
    assert found["block"].cpu_time_total >= found["MulBackward0"].cpu_time_total
    assert "block" in measured.table(sort_by="cpu_time_total")
