"""dtypes, promotion, limits and devices, exhaustively against PyTorch."""

import copy
import itertools
import pickle

import pytest
import torch
from compare import agree_on

import flambeau

NAMES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
         "float32",
         "float64", "complex64", "complex128"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2"]


def texts(function):
    """The function's result or kind of error with each package, as text."""
    found = []
    for package in (torch, flambeau):
        try:
            found.append(str(function(package)))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def of(package, name):
    return getattr(package, name)


@pytest.mark.parametrize("a", NAMES + SMALL_FLOATS)
def test_promotion_of_all_pairs(a):
    for b in NAMES + SMALL_FLOATS:
        theirs, ours = texts(lambda p: p.promote_types(of(p, a), of(p, b)))
        assert theirs == ours, (a, b)
        theirs, ours = texts(lambda p: p.can_cast(of(p, a), of(p, b)))
        assert theirs == ours, ("can_cast", a, b)


def tensor(package, name, shape):
    return package.ones(shape, dtype=of(package, name))


@pytest.mark.parametrize("default", ["float32", "float64", "float16"])
def test_result_type_of_categories(default):
    before = torch.get_default_dtype(), flambeau.get_default_dtype()
    torch.set_default_dtype(of(torch, default))
    flambeau.set_default_dtype(of(flambeau, default))
    try:
        numbers = [True, 2, 2.5, 1j]
        for a, b in itertools.product(NAMES, NAMES):
            for x, y in (((2,), ()), ((), (2,)), ((), ()), ((2,), (2,))):
                theirs, ours = texts(lambda p: p.result_type(tensor(p, a, x), tensor(p, b, y)))
                assert theirs == ours, (a, x, b, y)
        for a, number in itertools.product(NAMES, numbers):
            for shape in ((2,), ()):
                theirs, ours = texts(lambda p: p.result_type(tensor(p, a, shape), number))
                assert theirs == ours, (a, shape, number)
                assert texts(lambda p: p.result_type(number, tensor(p, a, shape)))[1] == theirs
        for x, y in itertools.product(numbers, numbers):
            theirs, ours = texts(lambda p: p.result_type(x, y))
            assert theirs == ours, (x, y)
    finally:
        torch.set_default_dtype(before[0])
        flambeau.set_default_dtype(before[1])


@pytest.mark.parametrize("name", NAMES + SMALL_FLOATS)
def test_attributes_and_limits(name):
    theirs, ours = of(torch, name), of(flambeau, name)
    for attribute in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(theirs, attribute) == getattr(ours, attribute), attribute
    assert repr(theirs) == repr(ours) and str(theirs.to_real()) == str(ours.to_real())
    for info, fields in (("finfo", "bits min max eps tiny smallest_normal resolution dtype"), ("iinfo", "bits min max "
                                                                                                        "dtype")):
        for field in fields.split():
            a, b = texts(lambda p: getattr(getattr(p, info)(of(p, name)), field))
            assert a == b or abs(float(a) - float(b)) <= 1e-6 * abs(float(a)), (info, field)
        a, b = texts(lambda p: repr(getattr(p, info)(of(p, name))))
        assert a == b
    assert pickle.loads(pickle.dumps(ours)) is ours and copy.deepcopy(ours) is ours and copy.copy(ours) is ours


EXPRESSIONS = """
torch.float is torch.float32
torch.double is torch.float64
torch.half is torch.float16
torch.long is torch.int64
torch.int is torch.int32
torch.short is torch.int16
torch.cfloat is torch.complex64
torch.cdouble is torch.complex128
torch.bool
torch.float32 == torch.float32
torch.float32 == 'float32'
torch.float32 != torch.float64
len({torch.float32, torch.float, torch.float64})
torch.float32.to_complex()
torch.float64.to_complex()
torch.complex128.to_real()
torch.int32.to_complex()
isinstance(torch.float32, torch.dtype)
torch.finfo()
torch.finfo(torch.int64)
torch.iinfo(torch.float32)
torch.iinfo(torch.bool)
torch.iinfo()
torch.finfo(1)
torch.set_default_dtype(torch.int64)
torch.set_default_dtype('float32')
torch.set_default_dtype(torch.complex64)
torch.get_default_dtype()
torch.result_type(1, 2)
torch.result_type('a', 2)
torch.can_cast(torch.float, torch.int)
torch.can_cast(from_=torch.int, to=torch.float)
torch.can_cast(1, torch.int)
torch.promote_types(torch.int8, 1)
torch.promote_types(type1=torch.int8, type2=torch.int16)
torch.device('cpu')
torch.device('cuda')
torch.device('cuda:1')
torch.device('cuda', 1)
torch.device('cuda:1', 1)
torch.device(type='cuda', index=1)
torch.device('cuda:-1')
torch.device('cuda:x')
torch.device('cuda:01')
torch.device('nonsense')
torch.device('')
torch.device(1.5)
torch.device(None)
torch.device('cpu:0')
torch.device('cpu', 0)
torch.device(torch.device('cuda:1'))
torch.device('meta')
torch.device('mps')
torch.device('cpu') == torch.device('cpu')
torch.device('cuda') == torch.device('cuda:0')
torch.device('cpu') == 'cpu'
hash(torch.device('cpu')) == hash(torch.device('cpu'))
str(torch.device('cuda:1'))
torch.device('cuda:1').index
torch.device('cuda').index
torch.device('cuda').type
torch.ones(2).to('cuda')
torch.ones(2).cuda()
torch.ones(2).is_cuda
torch.ones(2).device
torch.strided
torch.channels_last
torch.contiguous_format
torch.Size([1, 2])
torch.Size((1, 2)).numel()
torch.Size([2, 3]) + (1,)
torch.Size([2, 3])[1:]
torch.Size([2, 3]) * 2
torch.Size([2, 3]) == (2, 3)
torch.Size()
torch.Size(['a'])
torch.Size(2)
torch.Size([torch.tensor(2)])
torch.inf
torch.nan != torch.nan
torch.pi
torch.e
torch.newaxis
torch.typename(torch.ones(2))
torch.is_storage(torch.ones(2))
"""


@pytest.mark.parametrize("source", EXPRESSIONS.strip().split("\n"))
def test_as_pytorch(source):
    agree_on(source)


def test_import_is_quick():
    """Nothing heavy is loaded: the optional parts wait until they are asked for."""
    import subprocess
    import sys
    code = "import sys, flambeau; print(sorted(m for m in sys.modules if m.startswith('flambeau.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("flambeau.testing", "flambeau.nn", "flambeau.optim", "flambeau.backends.meta",
                 "flambeau.serialization"):
        assert f"'{name}'" not in loaded, f"{name} is imported at start"
