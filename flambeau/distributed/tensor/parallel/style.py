"""Styles: how a layer's parameters lie over a mesh, and in which placements its inputs come and its outputs go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ....nn.embedding import Embedding
from ....nn.linear import Linear
from ....nn.parameter import Parameter
from ....tensors.tensor import Tensor
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor, distribute_module, distribute_tensor
from ..placement_types import Placement, Replicate, Shard

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
           "RowwiseParallel", "SequenceParallel"]


class ParallelStyle(ABC):
    """What is done to a module; subclasses say it in `_apply`."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        """Spreads the module."""


def _placed(value: Any, mesh: DeviceMesh, layout: Placement | None, desired: Placement | None) -> Any:
    """A tensor that comes in one placement, in another."""
    if layout is None or not isinstance(value, Tensor):
        return value
    made = value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, (layout,))
    if desired is not None and made.placements != _at((desired,), made.ndim):
        made = made.redistribute(placements=(desired,))
    return made


def _at(placements: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    return tuple([Shard(p.dim % ndim) if isinstance(p, Shard) else p for p in placements])


def _leaving(value: Any, layout: Placement, local: bool) -> Any:
    """A module's output in the placement that is wanted, as a local tensor if asked."""
    if not isinstance(value, DTensor):
        return value
    if value.placements != _at((layout,), value.ndim):
        value = value.redistribute(placements=(layout,))
    return value.to_local() if local else value


class _Layer(ParallelStyle):
    """A Linear or Embedding whose parameters are cut."""

    _cuts: dict[type, dict[str, Placement]]  # class of the layer -> parameter -> its placement

    def __init__(self, input_layouts: Placement, output_layouts: Placement, use_local_output: bool):
        self.input_layouts, self.output_layouts, self.use_local_output = input_layouts, output_layouts, use_local_output

    def _desired(self, module: Any) -> Placement:
        return Replicate()

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        cuts = next((cuts for kind, cuts in self._cuts.items() if isinstance(module, kind)), None)
        if cuts is None:
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding, got "
                                      f"{type(module).__name__}!")
        for name, placement in cuts.items():
            p = module._parameters.get(name)
            if p is not None:
                made = distribute_tensor(p.detach(), device_mesh, [placement], src_data_rank=self.src_data_rank)
                module.register_parameter(name, Parameter(made, p.requires_grad))
        desired = self._desired(module)
        module.register_forward_pre_hook(
            lambda mod, inputs: (_placed(inputs[0], device_mesh, self.input_layouts, desired), *inputs[1:]))
        module.register_forward_hook(lambda mod, inputs, output: _leaving(output, self.output_layouts, self.use_local_output))
        return module


class ColwiseParallel(_Layer):
    """Each process computes some of a layer's outputs: a Linear's rows of the weight, an Embedding's columns."""

    _cuts = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True):
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)


class RowwiseParallel(_Layer):
    """Each process has some of a layer's inputs, and the outputs are summed: a Linear's columns of the weight, an Embedding's
    rows."""

    _cuts = {Linear: {"weight": Shard(1), "bias": Replicate()}, Embedding: {"weight": Shard(0)}}

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True):
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)

    def _desired(self, module: Any) -> Placement:
        return Replicate() if isinstance(module, Embedding) else Shard(-1)


class SequenceParallel(ParallelStyle):
    """Norms and dropout on pieces of the sequence: parameters are everywhere, inputs are cut along sequence_dim."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.sequence_sharding, self.use_local_output = Shard(sequence_dim), use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def coming(mod: Any, inputs: Any, mesh: DeviceMesh) -> Any:
            return (_placed(inputs[0], mesh, self.sequence_sharding, self.sequence_sharding), *inputs[1:])

        def going(mod: Any, outputs: Any, mesh: DeviceMesh) -> Any:
            return outputs.to_local() if self.use_local_output and isinstance(outputs, DTensor) else outputs

        return distribute_module(module, device_mesh, None, coming, going)


def _tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value) if isinstance(value, (tuple, list)) else (value,)


class PrepareModuleInput(ParallelStyle):
    """A module's inputs as DTensors: from the placements in which they come to those that are desired."""

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: Any = None,
                 desired_input_kwarg_layouts: Any = None, use_local_output: bool = False):
        self.input_layouts, self.desired_input_layouts = _tuple(input_layouts), _tuple(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _one(self, value: Any, layout: Any, desired: Any, mesh: DeviceMesh) -> Any:
        made = _placed(value, mesh, layout, desired)
        return made.to_local() if self.use_local_output and isinstance(made, DTensor) and layout is not None else made

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def coming(mod: Any, inputs: Any, kwargs: Any) -> Any:
            if self.input_layouts is not None:
                if len(inputs) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                inputs = tuple([self._one(v, a, b, device_mesh)
                                for v, a, b in zip(inputs, self.input_layouts, self.desired_input_layouts)])
            kwargs = {k: self._one(v, self.input_kwarg_layouts.get(k), self.desired_input_kwarg_layouts.get(k), device_mesh)
                      for k, v in kwargs.items()}
            return inputs, kwargs

        module.register_forward_pre_hook(coming, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """A module's outputs, from the placements in which they come to those that are desired."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True):
        self.output_layouts, self.desired_output_layouts = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def going(mod: Any, inputs: Any, outputs: Any) -> Any:
            several = isinstance(outputs, tuple)
            values = outputs if several else (outputs,)
            if len(values) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            made = []
            for value, layout, desired in zip(values, self.output_layouts, self.desired_output_layouts):
                value = _placed(value, device_mesh, layout, desired)
                made.append(value.to_local() if self.use_local_output and isinstance(value, DTensor) else value)
            return tuple(made) if several else made[0]

        module.register_forward_hook(going)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput."""

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: Any = None,
                 desired_input_kwarg_layouts: Any = None, use_local_input: bool = False, output_layouts: Any,
                 desired_output_layouts: Any, use_local_output: bool = True):
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
