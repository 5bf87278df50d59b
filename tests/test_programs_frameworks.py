"""What training frameworks and science libraries ask of PyTorch beyond its layers: names, tables, overrides."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
import typing
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
import torch.nn.utils._named_member_accessor as torch_members
import torch.utils._pytree as torch_trees

import flambeau
import flambeau.nn.utils._named_member_accessor as flambeau_members
import flambeau.utils._pytree as flambeau_trees

LIBRARIES = (torch, flambeau)


def both(function):
    """What a function of the library returns with PyTorch and with flambeau."""
    return function(torch), function(flambeau)


def listed(value):
    return value.to_dense().tolist() if value.is_sparse else value.tolist()


def run(code: str) -> str:
    made = subprocess.run([sys.executable, "-m", "flambeau", "-c", code], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout


# --------------------------------------------------------------------------------------------------- what modules show
@pytest.mark.parametrize("name", ["nn", "optim", "nn.modules", "nn.modules.loss", "nn.modules.conv"])
def test_a_module_has_all_its_names_in_its_dictionary(name):
    code = (f"import importlib; m = importlib.import_module('torch.{name}')\n"
            "print(*sorted(n for n, v in vars(m).items() if isinstance(v, type)), '|', *dir(m))")
    found, _, directory = run(code).partition("|")
    module = __import__(f"torch.{name}", fromlist=["x"])
    wanted = {n for n in getattr(module, '__all__', vars(module)) if isinstance(getattr(module, n), type)}
    assert wanted <= set(found.split()) and wanted <= set(directory.split())


def test_an_alias_module_follows_what_is_set_in_it():
    code = ("import torch.nn.modules.loss as l; vars(l); l.MSELoss = int\n"
            "print(l.MSELoss is int, l.L1Loss.__name__)")
    assert run(code) == "True L1Loss\n"


def test_the_module_and_its_classes_are_called_torch():
    code = ("import torch, pickle\n"
            "print(torch.__name__, torch.Tensor.__module__, type(torch.float32), type(torch.nn.Parameter(torch.ones(1))))\n"
            "print(torch.nn.Parameter(torch.ones(1)), pickle.loads(pickle.dumps(torch.ones(2))))")
    assert run(code) == ("torch torch <class 'torch.dtype'> <class 'torch.nn.parameter.Parameter'>\n"
                         "Parameter containing:\ntensor([1.], requires_grad=True) tensor([1., 1.])\n")
    assert flambeau.__name__ == "flambeau" and flambeau.Tensor.__module__ == "flambeau"


def test_any_namespace_of_operations_can_be_asked_for():
    assert both(lambda t: (hasattr(t.ops, "nobody_has_this"), hasattr(t.ops.nobody_has_this, "op")))[1] == (True, False)
    for t in LIBRARIES:
        with pytest.raises(OSError, match="Could not load this library: /no/such"):
            t.ops.load_library("/no/such.so")


def test_names_for_type_hints():
    assert str in typing.get_args(flambeau.serialization.MAP_LOCATION)
    assert flambeau.futures.Future[int] is not None
    assert inspect.isclass(flambeau.DeviceObjType) and flambeau.jit.TracerWarning.__mro__[1] is Warning
    assert isinstance(flambeau.distributed.ReduceOp.SUM, flambeau.distributed.ReduceOp.RedOpType)
    assert flambeau._dynamo.OptimizedModule is type(flambeau.compile(flambeau.nn.Linear(1, 1)))


def test_a_compiled_module_can_be_told():
    for t in LIBRARIES:
        assert hasattr(t.compile(t.nn.Linear(1, 1)), "dynamo_ctx") and not hasattr(t.nn.Linear(1, 1), "dynamo_ctx")


def test_scalars_of_summaries_are_numbers(tmp_path):
    from flambeau.utils.tensorboard import SummaryWriter
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", flambeau.tensor(0.5), 1)
        with pytest.raises(NotImplementedError, match="Got <class 'list'>, but numpy array or torch tensor are expected."):
            writer.add_scalar("loss", [1], 2)


def test_numbers_that_identify_tensors_and_storages():
    for t in LIBRARIES:
        a = t.ones(3)
        b = a[1:]
        assert a._cdata == a._cdata != b._cdata
        assert a.untyped_storage()._cdata == b.untyped_storage()._cdata != t.ones(3).untyped_storage()._cdata


# ----------------------------------------------------------------------------------------------------------------- trees
Pair = namedtuple("Pair", "a b")
TREE = [1, {"a": (2, 3), "z": Pair(1, [2])}, deque([3], maxlen=4), OrderedDict(x=3), defaultdict(list, k=3)]


class Box(list):
    """A container of its own."""


def test_paths_of_trees():
    def paths(trees):
        return [(trees.keystr(path), leaf) for path, leaf in trees.tree_leaves_with_path(TREE)]

    assert paths(flambeau_trees) == paths(torch_trees)
    for trees in (torch_trees, flambeau_trees):
        assert trees.tree_map_with_path(lambda path, x, y: x + y, TREE, TREE) == trees.tree_map(lambda x: 2 * x, TREE)


def test_a_registered_container_gives_its_own_paths():
    def paths(trees):
        trees.register_pytree_node(Box, trees._list_flatten, lambda c, _: Box(c), flatten_with_keys_fn=None)
        try:
            with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn"):
                trees.tree_leaves_with_path([Box([1])])
        finally:
            trees._deregister_pytree_node(Box)
        def steps(d):
            return [(trees.MappingKey(f"n{i}"), v) for i, v in enumerate(d)], None

        trees.register_pytree_node(Box, trees._list_flatten, lambda c, _: Box(c), flatten_with_keys_fn=steps)
        try:
            return [trees.keystr(path) for path, _ in trees.tree_leaves_with_path([Box([1, 2])])]
        finally:
            trees._deregister_pytree_node(Box)

    assert paths(torch_trees) == paths(flambeau_trees) == ["[0]['n0']", "[0]['n1']"]


@pytest.mark.parametrize("value", [time.gmtime(), time.struct_time, Pair(1, 2), (1, 2), 3])
def test_the_interpreters_own_named_tuples(value):
    assert flambeau_trees.is_structseq(value) == torch_trees.is_structseq(value)
    assert flambeau_trees._get_node_type(value) == torch_trees._get_node_type(value)


def test_members_by_name():
    def changed(t, members):
        module = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
        access = members.NamedMemberAccessor(module)
        before = access.swap_tensor("0.weight", t.zeros(2, 2))
        access.set_tensors_dict({"1.running_mean": t.ones(2)})
        texts = []
        for wrong in (lambda: access.get_tensor("0.nothing"), lambda: members.swap_tensor(module, "a.b", t.ones(1)),
                      lambda: members.swap_tensor(module[0], "in_features", t.ones(1)),
                      lambda: members.swap_submodule(module, "7", module), lambda: members.swap_tensor(3, "x", None)):
            with pytest.raises((AttributeError, KeyError, TypeError)) as caught:
                wrong()
            texts.append((caught.type, str(caught.value)))
        return (list(before.shape), module[0].weight.tolist(), module[1].running_mean.tolist(),
                access.check_keys(["0.weight", "q"]), texts)

    assert changed(torch, torch_members) == changed(flambeau, flambeau_members)


# ------------------------------------------------------------------------------------------------------------- overrides
def made_class(seen):
    class Operator:
        """Not a tensor, but it takes part in operations."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, [isinstance(a, cls) for a in args]))
            return "asked"

    return Operator


@pytest.mark.parametrize("call, method", [
    (lambda t, x, o: x + o, "add"), (lambda t, x, o: o + x, "add"), (lambda t, x, o: x - o, "sub"),
    (lambda t, x, o: o - x, "__rsub__"), (lambda t, x, o: x * o, "mul"), (lambda t, x, o: x / o, "div"),
    (lambda t, x, o: o / x, "__rtruediv__"), (lambda t, x, o: x @ o, "matmul"), (lambda t, x, o: o @ x, "__rmatmul__"),
])
def test_operators_say_which_function_they_are(call, method):
    for t in LIBRARIES:
        seen = []
        assert call(t, t.ones(2, 2), made_class(seen)()) == "asked"
        assert seen[0][0] is getattr(t.Tensor, method) and seen[0][1] == [False, True]


def test_functions_keep_their_identity_in_tables_of_overrides():
    code = ("import torch\n"
            "table = {torch.logdet: 1, torch.numel: 2, torch.matrix_exp: 3}\n"
            "class O:\n"
            "    @classmethod\n"
            "    def __torch_function__(cls, func, types, args=(), kwargs=None): return table[func]\n"
            "torch.linalg.det(torch.eye(2)); torch.logdet(torch.eye(2))\n"
            "print(torch.logdet(O()), torch.numel(O()), torch.matrix_exp(O()), torch.logdet(torch.eye(2) * 2).item())")
    assert run(code) == "1 2 3 1.3862943649291992\n"


def test_functions_as_attributes_of_module_classes_are_no_methods():
    for t in LIBRARIES:
        class Net(t.nn.Module):
            act, join, gelu = t.tanh, t.cat, t.nn.functional.gelu

            def forward(self, x):
                return self.gelu(self.act(self.join([x, x])))

        made = Net()(t.tensor([0.5])).tolist()
        assert made == pytest.approx([0.313316, 0.313316], abs=1e-5)
        assert Net.act is t.tanh


class Table:
    """Named columns with a common first dimension, which torch.unbind and torch.stack know how to treat."""

    def __init__(self, **columns):
        self.columns = columns

    def __copy__(self):
        return Table(**self.columns)

    ndim = property(lambda self: 1)
    shape = property(lambda self: next(iter(self.columns.values())).shape[:1])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is flambeau.unbind:
            table = args[0]
            return [Table(**{k: v[i] for k, v in table.columns.items()}) for i in range(table.shape[0])]
        assert func is flambeau.stack
        return Table(**{k: flambeau.stack([t.columns[k] for t in args[0]]) for k in args[0][0].columns})


def test_vmap_maps_over_what_acts_like_a_tensor():
    def each(table, scale):
        table.columns["c"] = table.columns["a"] * scale
        return table

    made = flambeau.vmap(each)(Table(a=flambeau.arange(3.)), flambeau.tensor([1., 2., 3.]))
    assert made.columns["c"].tolist() == [0, 2, 6]
    shared = Table(a=flambeau.tensor(2.))
    made = flambeau.vmap(each, in_dims=(None, 0))(shared, flambeau.tensor([1., 5.]))
    assert made.columns["c"].tolist() == [2, 10] and list(shared.columns) == ["a"]


# -------------------------------------------------------------------------------------------------------------- functions
@pytest.mark.parametrize("seed", range(3))
def test_gamma_samples_without_dimensions(seed):
    def sample(t):
        t.manual_seed(seed)
        d = t.distributions
        return [x.sample().item() for x in (d.Gamma(t.tensor(2.), t.tensor(3.)), d.StudentT(t.tensor(3.)),
                                            d.InverseGamma(t.tensor(3.), t.tensor(2.)), d.Chi2(t.tensor(2.)))]

    expected, got = both(sample)
    assert got == pytest.approx(expected, rel=1e-5)


def test_divergences_of_classes_that_are_no_distributions():
    for t in LIBRARIES:
        class Mine:
            """Behaves like a distribution, perhaps."""

        t.distributions.register_kl(Mine, t.distributions.Normal)(lambda p, q: q.loc + 1)
        assert t.distributions.kl_divergence(Mine(), t.distributions.Normal(2., 1.)).item() == 3
        with pytest.raises(TypeError):
            t.distributions.register_kl(3, t.distributions.Normal)


@pytest.mark.parametrize("value", [3, 3.7, True])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_copy_of_a_number(value, dtype):
    expected, got = both(lambda t: t.zeros(2, dtype=getattr(t, dtype)).copy_(value).tolist())
    assert got == expected
    with pytest.raises(TypeError, match="argument 'other' .position 1. must be Tensor, not list"):
        flambeau.zeros(2).copy_([1, 2])


@pytest.mark.parametrize("code, warns", [("float(x)", True), ("complex(x)", True), ("int(x)", False),
                                         ("with torch.no_grad(): float(x)", False)])
def test_when_a_scalar_of_the_graph_is_warned_about(code, warns):
    for t in LIBRARIES:
        t.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                exec(code, {"torch": t, "x": t.ones(1, requires_grad=True) * 2})
        finally:
            t.set_warn_always(False)
        assert any("Converting a tensor with requires_grad=True" in str(w.message) for w in caught) == warns


def test_records_of_a_checkpoint(tmp_path):
    path = str(tmp_path / "a.pt")
    torch.save({"a": torch.arange(6.)}, path)

    def read(t):
        reader = t.PyTorchFileReader(path)
        bytes_ = reader.get_storage_from_record("data/0", 24, t.UntypedStorage)
        numbers = reader.get_storage_from_record("data/0", 6, t.float32)
        return (reader.get_all_records(), reader.get_record("version"), reader.get_record_size("data/0"),
                reader.get_record_offset("data/0"), reader.serialization_id(), reader.has_record("x"), list(bytes_.shape),
                bytes(bytes_.untyped_storage()), t.zeros(0).set_(numbers.untyped_storage()).tolist())

    expected, got = both(read)
    assert got == expected
    with pytest.raises(RuntimeError, match="failed locating file x"):
        flambeau.PyTorchFileReader(path).get_record("x")


def test_parts_of_a_tensors_text():
    def texts(t):
        x = t.arange(8.).view(2, 4)
        s = t._tensor_str
        return (s._tensor_str(x, 4), s._add_suffixes("Index([1, 2]", ["size=2", "sorted=True"], 6, False),
                s._add_suffixes("Index([1, 2]", ["size=2"], 6, True), s._str_intern(x), s.PRINT_OPTS.threshold)

    expected, got = both(texts)
    assert got == expected


# ----------------------------------------------------------------------------------------------------------------- sparse
def sparse(t):
    return t.tensor([[1., 0, 2], [0, 3, 0]]).to_sparse()


@pytest.mark.parametrize("call", [
    lambda t, s: s.mT, lambda t, s: s.T, lambda t, s: s.mH, lambda t, s: s.permute(1, 0), lambda t, s: s.unsqueeze(0),
    lambda t, s: s.unsqueeze(-1), lambda t, s: t.cat([s, s * 2]), lambda t, s: t.cat([s, s], 1),
    lambda t, s: t.stack([s, s], 1),
    lambda t, s: t.arange(6.).view(2, 3).sparse_mask(s), lambda t, s: t.dsmm(s, t.ones(3, 2)), lambda t, s: s.any(),
    lambda t, s: t.bmm(t.stack([s, s * 2]), t.arange(12.).view(2, 3, 2)), lambda t, s: s.mT @ t.arange(4.).view(2, 2),
])
def test_sparse(call):
    expected, got = both(lambda t: call(t, sparse(t)))
    assert listed(got) == listed(expected) and got.is_sparse == expected.is_sparse
    assert got.shape == expected.shape


def test_sparse_tensors_of_a_size_alone():
    for call in (lambda t: t.sparse_coo_tensor(size=(2, 3)), lambda t: t.sparse_coo_tensor((2, 3), dtype=t.float64)):
        expected, got = both(call)
        assert repr(got) == repr(expected)
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        flambeau.sparse_coo_tensor()


def test_gradients_of_stacked_sparse_products():
    def gradient(t):
        values = t.tensor([1., 2., 3.], requires_grad=True)
        s = t.sparse_coo_tensor(t.tensor([[0, 1, 1], [0, 0, 2]]), values, (2, 3))
        dense = t.arange(12.).view(2, 3, 2).requires_grad_()
        t.bmm(t.stack([s, s]), dense).pow(2).sum().backward()
        return [*values.grad.tolist(), *dense.grad.flatten().tolist()]

    expected, got = both(gradient)
    assert got == pytest.approx(expected)


def test_rows_of_compressed_matrices():
    def converted(t):
        rows, columns = t.tensor([0, 0, 2, 3]), t.tensor([1, 2, 0, 1])
        starts = t._convert_indices_from_coo_to_csr(rows, 5)
        return [starts.tolist(), str(t._convert_indices_from_coo_to_csr(rows, 5, out_int32=True).dtype),
                t._convert_indices_from_csr_to_coo(starts, columns).tolist(),
                t._convert_indices_from_csr_to_coo(starts, columns, transpose=True).tolist()]

    expected, got = both(converted)
    assert got == expected


def test_shapes_that_broadcast():
    expected, got = both(lambda t: [tuple(t.broadcast_shapes(*shapes)) for shapes in (((2, 1), 3), ([2, 1], (1, 4)), ())])
    assert got == expected
