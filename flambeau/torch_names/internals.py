"""Private modules of PyTorch's that programs and its own tests import: `torch._refs`, `torch.utils._mode_utils`, ...

Each becomes a stand-in when it is first imported. A name in it is looked up in the module of flambeau that does the same
work; what flambeau has nothing for can be imported by name and derived from, and says so when it is called. Modules that
PyTorch does not have stay missing, so programs that try an import to learn the version get the right answer.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import typing
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from .missing import refused

_OWN = __package__ or "flambeau"
_REASON = "it is an internal module of PyTorch's"

# Stand-in -> the modules of flambeau whose names it shows ("." is the top level; none: only placeholders).
HOMES: dict[str, str] = {
    "_refs": ".", "_refs.nn": "nn", "_refs.nn.functional": "nn.functional", "_refs.linalg": "linalg",
    "_refs.special": "special", "_refs.fft": "fft", "_refs._conversions": ".", "_prims": ".",
    "_prims.context": "", "_prims_common": "", "_prims_common.wrappers": "",
    "_decomp.decompositions": "_decomp", "_meta_registrations": "", "_logging": "",
    "_logging._internal": "", "_logging.scribe": "", "_guards": "", "_higher_order_ops": "func.control_flow func.associative",
    "_higher_order_ops.cond": "func.control_flow", "_higher_order_ops.scan": "func.control_flow",
    "_higher_order_ops.associative_scan": "func.associative",
    "_higher_order_ops.while_loop": "func.control_flow", "_lazy": "", "_classes": "", "_numpy": "", "_library": "library",
    "_library.custom_ops": "library", "_custom_ops": "library", "_custom_op": "", "_custom_op.impl": "library",
    "_ops": "library", "_vmap_internals": "func.batching", "_linalg_utils": ". linalg", "_lowrank": ".",
    "_lobpcg": ".", "_sources": "", "_torch_docs": "", "_tensor_docs": "", "_storage_docs": "", "_compile": "compiler",
    "_appdirs": "", "_awaits": "", "_streambase": "", "_jit_internal": "jit", "_weights_only_unpickler": "serialization",
    "_subclasses.meta_utils": "", "_utils_internal": "", "_native": "",
    "_native.dsl_registry": "", "_functorch": "func", "_functorch.apis": "func", "_functorch.vmap": "func",
    "_functorch.eager_transforms": "func", "_functorch.functional_call": "func", "_functorch.make_functional": "func.stateless",
    "_functorch.deprecated": "func func.stateless", "_functorch.pyfunctorch": "",
    "_functorch.autograd_function": "", "_functorch.utils": "", "_higher_order_ops.out_dtype": "",
    "_functorch.python_key": "", "_functorch.batch_norm_replacement": "func", "_functorch.aot_autograd": "",
    "_functorch.einops": "func", "_functorch.compilers": "", "_functorch.fx_minifier": "", "_functorch.partitioners": "",
    "_higher_order_ops.map": "func.control_flow", "_functorch.config": "", "_export": "", "_export.wrappers": "",
    "_dynamo._trace_wrapped_higher_order_op": "", "_dynamo.testing": "", "_dynamo.compiled_autograd": "",
    "_dynamo.utils": "", "_dynamo.test_case": "", "_dynamo.eval_frame": "_dynamo",
    "_dynamo.trace_rules": "", "_dynamo.decorators": "_dynamo", "_dynamo.backends": "", "_dynamo.backends.common": "",
    "_inductor.test_case": "", "_inductor.utils": "", "_inductor.compile_fx": "",
    "_C._autograd": "autograd.grad_mode autograd.saved_tensors",
    "_C._profiler": "", "_C._functorch": "", "_C._distributed_c10d": "distributed",
    "_C._distributed_rpc": "",
    "autograd._functions": "autograd.function", "autograd.profiler_util": "autograd.profiler",
    "autograd.profiler_legacy": "autograd.profiler",
    "cuda._utils": "_utils", "cuda.sparse": "", "cuda.amp.common": "", "backends.xeon": "",
    "fx.experimental.symbolic_shapes": "", "fx.operator_schemas": "",
    "fx.passes.graph_drawer": "", "jit.frontend": "", "jit.quantized": "", "jit._logging": "", "jit.annotations": "jit",
    "jit._recursive": "jit", "jit._script": "jit", "jit._trace": "jit", "jit.mobile": "",
    "masked._ops": "masked", "masked.maskedtensor.unary": "masked", "masked.maskedtensor.binary": "masked",
    "masked.maskedtensor.reductions": "masked",
    "nested._internal": "", "nested._internal.nested_tensor": "", "nested._internal.ops": "",
    "nn.utils._expanded_weights": "", "nn.utils._per_sample_grad": "", "optim._functional": "", "optim._multi_tensor": "optim",
    **dict.fromkeys(("onnx.errors", "onnx.operators", "onnx.ops", "onnx.symbolic_helper", "onnx.utils", "onnx.verification",
                     *(f"onnx.symbolic_opset{version}" for version in range(7, 21))), ""),
    "profiler._pattern_matcher": "", "profiler._utils": "", "profiler.profiler": "profiler", "sparse._triton_ops": "",
    "testing._comparison": "testing", "testing._creation": "testing", "testing._utils": "",
    "utils._config_module": "", "utils._content_store": "", "utils._contextlib": "", "utils._cpp_extension_versioner": "",
    "utils._device": "", "utils._dtype_abbrs": "", "utils._freeze": "", "utils._import_utils": "",
    "utils._mode_utils": "", "utils._ordered_set": "", "utils._stats": "", "utils._sympy": "", "utils._sympy.functions": "",
    "utils._traceback": "", "utils._typing_utils": "", "utils._zip": "", "utils.file_baton": "", "utils.mkldnn": "",
    "utils.serialization": "", "utils.show_pickle": "", "utils.viz": "", "utils.viz._cycles": "", "utils.hipify": "",
    "utils.serialization.config": "", "utils.backcompat": "",
    **dict.fromkeys("""
        _dispatch _dispatch.python _dynamo.symbolic_convert _environment _export.utils _export.verifier
        _higher_order_ops.effects _higher_order_ops.flex_attention _higher_order_ops.inline_asm_elementwise
        _higher_order_ops.invoke_subgraph _higher_order_ops.register_hook _higher_order_ops.schema
        _higher_order_ops.torchbind _higher_order_ops.wrap _inductor.async_compile _inductor.codecache _inductor.codegen
        _inductor.codegen.common _inductor.codegen.wrapper _inductor.custom_graph_pass _inductor.exc _inductor.graph
        _lazy.metrics _library.fake_class_registry _library.simple_registry _library.triton _library.utils _numpy.testing
        _prims.debug_prims _python_dispatcher _strobelight _subclasses.fake_utils _subclasses.functional_tensor
        _subclasses.schema_check_mode backends._nnapi cuda._memory_viz cuda._sanitizer
        fx._compatibility
        fx.experimental.accelerator_partitioner fx.experimental.const_fold fx.experimental.graph_gradual_typechecker
        fx.experimental.merge_matmul fx.experimental.meta_tracer fx.experimental.migrate_gradual_types
        fx.experimental.migrate_gradual_types.constraint fx.experimental.normalize fx.experimental.partitioner_utils
        fx.experimental.refinement_types fx.experimental.schema_type_annotation fx.experimental.sym_node
        fx.experimental.unification fx.passes.annotate_getitem_nodes fx.passes.backends fx.passes.backends.cudagraphs
        fx.passes.dialect fx.passes.dialect.common fx.passes.dialect.common.cse_pass fx.passes.fake_tensor_prop
        fx.passes.graph_manipulation fx.passes.graph_transform_observer fx.passes.infra fx.passes.infra.partitioner
        fx.passes.infra.pass_base fx.passes.infra.pass_manager fx.passes.operator_support fx.passes.param_fetch
        fx.passes.pass_manager fx.passes.reinplace fx.passes.runtime_assert fx.passes.split_module fx.passes.split_utils
        fx.passes.splitter_base fx.passes.tools_common fx.passes.utils fx.passes.utils.fuser_utils
        fx.passes.utils.matcher_utils fx.passes.utils.matcher_with_name_node_map_utils
        fx.passes.utils.source_matcher_utils fx.tensor_type jit._monkeytype_config nn.attention._utils
        nn.utils._expanded_weights.expanded_weights_utils profiler._memory_profiler sparse.semi_structured
        utils._debug_mode utils._filelock utils._helion utils._pallas utils._sympy.value_ranges utils._thunk
        utils.data.datapipes.utils utils.data.datapipes.utils.decoder utils.data.datapipes.utils.snapshot utils.data.graph
        utils.data.graph_settings""".split(), ""),
    "_library.infer_schema": "library",
}


def dtype_to_type(dtype: Any) -> type:
    """The Python type of a dtype's elements."""
    name = dtype.name
    return bool if name == "bool" else complex if dtype.is_complex else float if dtype.is_floating_point else int


def make_contiguous_strides_for(shape: Any, row_major: bool = True) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for length in reversed(tuple(shape)):
        strides.append(step)
        step *= max(int(length), 1)
    strides.reverse()
    if not row_major and len(strides) > 1:
        strides[-2:] = 1, max(int(shape[-2]), 1)
    return tuple(strides)


def _is_integer(dtype: Any) -> bool:
    return dtype.name != "bool" and not dtype.is_floating_point and not dtype.is_complex


def _module_exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _writable(path: str) -> str:
    """The path itself, or a fresh folder where it cannot be written."""
    if os.access(path, os.W_OK):
        return path
    import tempfile
    return tempfile.mkdtemp(suffix=os.path.basename(path))


def _abbreviations() -> dict[Any, str]:
    import flambeau
    letters = {"float": "f", "complex": "c", "int": "i", "uint": "u", "bfloat": "bf"}
    names = "bfloat16 float64 float32 float16 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
    short = {getattr(flambeau, name): letters[name.rstrip("0123456789")] + name.lstrip("abcdefghijklmnopqrstuvwxyz")
             for name in names}
    return {**short, flambeau.bool: "b8"}


_ANNOTATIONS = {**{name: lambda name=name: getattr(typing, name) for name in "List Optional Dict Tuple Any Union".split()},
                **{f"BroadcastingList{n}": lambda: list for n in range(1, 7)}}  # a number, or a list of them

# What a stand-in has of its own: module -> name -> how to make it.
VALUES: dict[str, dict[str, Any]] = {
    # Methods that are functions there; the tables of PyTorch's own tests name them.
    "_refs": {name: lambda name=name: refused("_refs", _REASON, name)[name] for name in """T cauchy contiguous expand expand_as
        exponential geometric item log_normal new_empty new_empty_strided new_full new_ones new_zeros normal_ repeat reshape_as
        sum_to_size to unfold view view_as""".split()},
    "_refs._conversions": {name: lambda name=name: refused("_refs._conversions", _REASON, name)[name]
                           for name in ("byte", "char")},
    "_compile": {"_disable_dynamo": lambda: lambda fn=None, recursive=True: fn if fn is not None else lambda f: f},
    "_utils_internal": {"get_writable_path": lambda: _writable,
                        "get_file_path": lambda: os.path.join, "get_file_path_2": lambda: os.path.join},
    "_inductor.utils": {"GPU_TYPES": lambda: ["cuda", "mps", "xpu", "mtia"], "get_gpu_type": lambda: lambda: "cuda"},
    **{f"{name}.test_case": {"TestCase": lambda: _member("unittest", "TestCase")} for name in ("_inductor", "_dynamo")},
    # Under it PyTorch's vmap takes tensors without dimensions as indices, which flambeau's always does.
    "_dynamo._trace_wrapped_higher_order_op": {"TransformGetItemToIndex": lambda: contextlib.nullcontext},
    "_dynamo.utils": {"counters": lambda: {},
                      "is_compile_supported": lambda: lambda device_type: str(device_type).startswith("cpu")},
    "_jit_internal": _ANNOTATIONS, "jit.annotations": _ANNOTATIONS,
    "_native.dsl_registry": {"dsl_registry": lambda: SimpleNamespace(is_dsl_available=lambda *names: False)},
    "_export.wrappers": {"mark_subclass_constructor_exportable_experimental": lambda: lambda constructor: constructor},
    "_prims": {"utils": lambda: importlib.import_module(f"{_OWN}._prims_common")},
    "_prims_common": {**{name: lambda name=name: _member(f"{_OWN}.promotion_kinds", name)
                         for name in ("ELEMENTWISE_TYPE_PROMOTION_KIND", "elementwise_dtypes")},
                      "dtype_to_type": lambda: dtype_to_type, "is_integer_dtype": lambda: _is_integer,
                      "is_float_dtype": lambda: lambda d: d.is_floating_point,
                      "is_complex_dtype": lambda: lambda d: d.is_complex,
                      "is_boolean_dtype": lambda: lambda d: d.name == "bool",
                      "make_contiguous_strides_for": lambda: make_contiguous_strides_for},
    "_subclasses.meta_utils": {"assert_metadata_eq": lambda: _same_metadata},
    "_functorch.utils": {"enable_single_level_autograd_function": lambda: contextlib.nullcontext,
                         "argnums_t": lambda: int | tuple[int, ...]},
    "utils.backcompat": {name: lambda: SimpleNamespace(enabled=False) for name in ("broadcast_warning", "keepdim_warning")},
    "_C._functorch": {"is_batchedtensor": lambda: lambda tensor: False, "is_gradtrackingtensor": lambda: lambda tensor: False,
                      "is_legacy_batchedtensor": lambda: lambda tensor: False, "get_unwrapped": lambda: lambda tensor: tensor},
    "_guards": {"active_fake_mode": lambda: lambda: None},
    # Rules for exporting are written with these; nothing is exported, so no rule is ever asked.
    "onnx.symbolic_helper": {"parse_args": lambda: lambda *kinds: lambda rule: rule,
                             "quantized_args": lambda: lambda *kinds, **options: lambda rule: rule},
    "onnx.operators": {"shape_as_tensor": lambda: _shape_as_tensor,
                       "reshape_from_tensor_shape": lambda: lambda x, shape: x.reshape(shape.tolist())},
    "_ops": {"HigherOrderOperator": lambda: refused("_ops", _REASON, "HigherOrderOperator")["HigherOrderOperator"],
             **{name: lambda name=name: _member(f"{_OWN}.ops.aten", name) for name in ("OpOverload", "OpOverloadPacket")},
             "ops": lambda: importlib.import_module(f"{_OWN}.ops")},
    "_subclasses.fake_utils": {name: lambda name=name: _member(f"{_OWN}._subclasses.aliasing", name)
                               for name in ("outputs_alias_inputs", "outputs_are_inputs", "output_alias_each_other")},
    "_inductor.exc": {name: lambda name=name: type(name, (RuntimeError,), {}) for name in ("CppCompileError",
                                                                                       "InvalidCxxCompiler")},
    "nested._internal.ops": {"_outer_to_inner_dim": lambda: _member(f"{_OWN}.nested.tensor", "inner_dim")},
    "_inductor.codecache": {"CppCodeCache": lambda: _Uncompiled},
    "_higher_order_ops": {"InvokeQuant": lambda: lambda *args, **options: lambda function, *inputs, **more: function(*inputs)},
    "_environment": {"is_fbcode": lambda: lambda: False},
    "_dispatch.python": {name: lambda: contextlib.nullcontext for name in ("enable_python_dispatcher", "no_python_dispatcher")},
    "_higher_order_ops.invoke_subgraph": {"mark_compile_region": lambda: lambda function=None: function or (lambda f: f)},
    "jit._monkeytype_config": {"_IS_MONKEYTYPE_INSTALLED": lambda: False},
    "fx._compatibility": {"compatibility": lambda: lambda is_backward_compatible: lambda made: made,
                          "_BACK_COMPAT_OBJECTS": dict, "_MARKED_WITH_COMPATIBILITY": dict},
    "utils._helion": {"has_helion": lambda: lambda: False},
    "utils._pallas": {name: lambda: lambda: False for name in ("has_pallas_package", "has_tpu_pallas", "has_jax_package")},
    "utils._dtype_abbrs": {"dtype_abbrs": _abbreviations},
    "utils._import_utils": {"import_dill": lambda: lambda: None, "_check_module_exists": lambda: _module_exists},
    "utils._mode_utils": {"no_dispatch": lambda: _member(f"{_OWN}.ops.dispatch.calls", "no_dispatch"),
                          "all_same_mode": lambda: lambda modes: all(m is modes[0] for m in modes)},
    "utils._typing_utils": {"not_none": lambda: lambda x: x}, "utils._stats": {"count": lambda: lambda fn: fn},
    "utils._contextlib": {"_DecoratorContextManager": lambda: contextlib.ContextDecorator},
    "fx.experimental.symbolic_shapes": {"is_nested_int": lambda: lambda x: False},
    "cuda.amp.common": {"amp_definitely_not_available": lambda: lambda: True},
    "testing._utils": {"freeze_rng_state": lambda: freeze_rng_state, "wrapper_set_seed": lambda: _seeded},
    "testing._creation": {"_INTEGRAL_TYPES": lambda: _dtypes("uint8 int8 int16 int32 int64 uint16 uint32 uint64"),
                          "_FLOATING_TYPES": lambda: _dtypes("float16 bfloat16 float32 float64"),
                          "_COMPLEX_TYPES": lambda: _dtypes("complex32 complex64 complex128")},
}


class _Uncompiled:
    """PyTorch's C++ compiler of generated code: there is none, which its tests find out by trying."""

    @staticmethod
    def load(source: str) -> None:
        raise OSError("flambeau compiles no C++")


def _same_metadata(assert_eq: Any, first: Any, second: Any, *, skip_symbolic: bool = False, skip_leaf: bool = False) -> None:
    """Asserts that two tensors differ in nothing but device and values, and neither do their gradients and bases."""
    names = "dtype requires_grad is_sparse layout is_inference is_conj is_neg".split()
    names += [] if skip_leaf else ["is_leaf"]
    if not first.is_sparse:
        names += ["_is_view"] if skip_symbolic else "shape stride storage_offset _is_view".split()
    for name in names:
        values = [getattr(t, name) for t in (first, second)]
        assert_eq(*[value() if callable(value) else value for value in values])
    for name in ("grad", "_base") if first.is_leaf else ("_base",):
        values = [getattr(t, name) for t in (first, second)]
        assert_eq(*[value is None for value in values])
        if values[0] is not None:
            _same_metadata(assert_eq, *values, skip_symbolic=skip_symbolic, skip_leaf=skip_leaf)


@contextlib.contextmanager
def freeze_rng_state():
    """What is drawn inside changes nothing outside."""
    import flambeau
    with flambeau.random.fork_rng():
        yield


def _seeded(op: Any, *args: Any, **kwargs: Any) -> Any:
    """A call that starts from a fixed seed and leaves the generator as it was."""
    import flambeau
    with freeze_rng_state():
        flambeau.manual_seed(42)
        return op(*args, **kwargs)


def _dtypes(names: str) -> list[Any]:
    import flambeau
    return [getattr(flambeau, name) for name in names.split()]


def _shape_as_tensor(x: Any) -> Any:
    """The sizes of a tensor as a tensor."""
    import flambeau
    return flambeau.tensor(x.shape, dtype=flambeau.int64)


def _member(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class StandIn(ModuleType):
    """One of the modules in HOMES."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        inner = self.__name__[len(_OWN) + 1:]
        if f"{inner}.{name}" in HOMES:
            function = _found(HOMES[inner], name)
            if not callable(function):
                return importlib.import_module(f"{self.__name__}.{name}")
            setattr(self, name, function)  # the next time Python finds it by itself
            return function
        made = VALUES.get(inner, {}).get(name)
        value = made() if made else _found(HOMES[inner], name)
        if value is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}: {_REASON}")
        setattr(self, name, value)
        return value


    def __setattr__(self, name: str, value: Any) -> None:
        # Importing `map` of _higher_order_ops must not hide the function of that name.
        if not isinstance(value, StandIn) or not callable(_found(HOMES[self.__name__[len(_OWN) + 1:]], name)):
            super().__setattr__(name, value)


def _found(homes: str, name: str) -> Any:
    for home in homes.split():
        value = getattr(importlib.import_module(_OWN if home == "." else f"{_OWN}.{home}"), name, None)
        if value is not None:
            return value
    return None


def _is_from_import() -> bool:
    """Whether `from module import name` asks, rather than `import module.name`."""
    frame = sys._getframe(3)  # beyond `spec` and the finder that called it
    while frame is not None and "importlib" in frame.f_code.co_filename + str(frame.f_globals.get("__name__")):
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


def spec(name: str) -> ModuleSpec | None:
    """How to import a stand-in, by its full name; None for names that are not in HOMES.

    `from stand_in import name` may name what flambeau has nothing for: it gets something that raises when it is used, so that
    files import which use it in one place of many. `hasattr` keeps saying no to all others.
    """
    parent, _, child = name.rpartition(".")
    inner = parent[len(_OWN) + 1:]
    if inner in HOMES and name[len(_OWN) + 1:] not in HOMES and _is_from_import():
        setattr(sys.modules[parent], child, refused(inner, _REASON, child)[child])
        return None  # found as an attribute
    return ModuleSpec(name, _Maker(), is_package=True) if name[len(_OWN) + 1:] in HOMES else None


class _Maker:
    """Makes the stand-ins for the import system."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name, f"Not available as such: {_REASON}.")

    def exec_module(self, module: ModuleType) -> None:
        """There is no code to run."""
