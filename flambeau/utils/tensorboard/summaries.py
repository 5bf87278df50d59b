"""Values as summaries, the messages that TensorBoard's plugins read: numbers, histograms, tensors, text, curves, meshes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Value
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from ...creation.factories import as_tensor
from ...tensors import dtypes
from ...tensors.tensor import Tensor

_MOST_THRESHOLDS = 127  # more do not fit into the plugin's message


def array_of(value: Any) -> Any:
    """A tensor, a number or a NumPy array as a NumPy array."""
    if hasattr(value, "__array_namespace__") and not isinstance(value, Tensor):
        return value
    if isinstance(value, (int, float)) or (hasattr(value, "dtype") and not isinstance(value, Tensor)):
        return as_tensor([value], dtype=dtypes.float64 if isinstance(value, float) else None).numpy()
    if not isinstance(value, Tensor):
        raise NotImplementedError(f"Got {type(value)}, but numpy array or torch tensor are expected.")
    value = value.detach().cpu()
    return (value.float() if value.dtype is dtypes.bfloat16 else value.resolve_conj().resolve_neg()).numpy()


def _one(tag: str, **content: Any) -> Summary:
    return Summary(value=[Summary.Value(tag=tag, **content)])


def _for_plugin(name: str, content: bytes = b"") -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


def _sizes(shape: Iterable[int]) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=int(n)) for n in shape])


# -------------------------------------------------------------------------------------------------------- numbers
def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Summary:
    """new_style: as a tensor, which TensorBoard loads faster, in 64 bits if double_precision says so."""
    array = array_of(value).squeeze()
    if array.ndim:
        raise AssertionError(f"add_scalar: the value must be one number, got {array.size} in {array.ndim} dimensions")
    number = float(array)
    if not new_style:
        return _one(tag, simple_value=number)
    tensor = TensorProto(double_val=[number], dtype="DT_DOUBLE") if double_precision else (
        TensorProto(float_val=[number], dtype="DT_FLOAT"))
    return _one(tag, tensor=tensor, metadata=_for_plugin("scalars"))


def histogram_raw(tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Any,
                  bucket_counts: Any) -> Summary:
    return _one(tag, histo=HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
                                          bucket_limit=bucket_limits, bucket=bucket_counts))


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Summary:
    """How many values lie in each bin. bins: edges, a number of bins, or the name of one of NumPy's rules."""
    values = array_of(values).astype("float64").reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = values.__array_namespace__().histogram(values, bins=bins)
    counts, limits = counts.tolist(), limits.tolist()
    if max_bins is not None and len(counts) > max_bins:
        together = len(counts) // max_bins
        limits = [*limits[:-1:together], limits[-1]]
        counts = [sum(counts[i:i + together]) for i in range(0, len(counts), together)]
    used = [i for i, n in enumerate(counts) if n]
    if not used:
        raise ValueError("The histogram is empty: no value lies in any of the bins.")
    first, last = used[0], used[-1] + 1
    # A bucket is told by its right end alone: an empty one in front says where the first begins.
    buckets = counts[first - 1:last] if first else [0, *counts[:last]]
    return histogram_raw(tag, values.min(), values.max(), len(values), values.sum(), values.dot(values),
                         limits[first:last + 1], buckets)


def _half(t: Tensor) -> list[int]:
    """The bits of the numbers in 32 bits: so PyTorch writes half precision."""
    return [struct.unpack("i", struct.pack("f", v))[0] for v in _flat(t)]


def _complex(t: Tensor) -> list[float]:
    return [part for v in _flat(t) for part in (v.real, v.imag)]


def _flat(t: Tensor) -> list[Any]:
    return t.flatten().tolist()


_TENSORS = {  # dtype -> TensorBoard's name of it, the field that holds the elements, and how they are written
    dtypes.float16: ("DT_HALF", "half_val", _half), dtypes.bfloat16: ("DT_BFLOAT16", "half_val", _half),
    dtypes.float32: ("DT_FLOAT", "float_val", _flat), dtypes.float64: ("DT_DOUBLE", "double_val", _flat),
    dtypes.int8: ("DT_INT8", "int_val", _flat), dtypes.uint8: ("DT_UINT8", "uint32_val", _flat),
    dtypes.int16: ("DT_INT16", "int_val", _flat), dtypes.int32: ("DT_INT32", "int_val", _flat),
    dtypes.int64: ("DT_INT64", "int64_val", _flat), dtypes.bool_: ("DT_BOOL", "bool_val", _flat),
    dtypes.complex64: ("DT_COMPLEX64", "scomplex_val", _complex),
    dtypes.complex128: ("DT_COMPLEX128", "dcomplex_val", _complex)}


def tensor_proto(tag: str, tensor: Tensor) -> Summary:
    if tensor.numel() * tensor.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    if tensor.dtype not in _TENSORS:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    kind, field, written = _TENSORS[tensor.dtype]
    made = TensorProto(dtype=kind, tensor_shape=_sizes(tensor.shape), **{field: written(tensor.detach())})
    return _one(tag, metadata=_for_plugin("tensor"), tensor=made)


# ------------------------------------------------------------------------------------------------- text and layouts
def text(tag: str, content: str) -> Summary:
    tensor = TensorProto(dtype="DT_STRING", string_val=[content.encode()], tensor_shape=_sizes([1]))
    return _one(f"{tag}/text_summary", tensor=tensor,
                metadata=_for_plugin("text", TextPluginData(version=0).SerializeToString()))


def custom_scalars(layout: dict[str, dict[str, Sequence[Any]]]) -> Summary:
    """Which curves share a chart: {category: {chart: ["Multiline", tags] or ["Margin", [value, lower, upper]]}}."""
    def chart(title: str, kind: str, tags: Sequence[str]) -> layout_pb2.Chart:
        if kind == "Multiline":
            return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
        if kind != "Margin" or len(tags) != 3:
            raise AssertionError(f"add_custom_scalars: the chart {title!r} must be ['Multiline', tags] or ['Margin', three "
                                 f"tags], got {[kind, tags]}")
        series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
        return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))

    categories = [layout_pb2.Category(title=category, chart=[chart(title, *told) for title, told in charts.items()])
                  for category, charts in layout.items()]
    serialized = layout_pb2.Layout(category=categories).SerializeToString()
    tensor = TensorProto(dtype="DT_STRING", string_val=[serialized], tensor_shape=_sizes([]))
    return _one("custom_scalars__config__", tensor=tensor, metadata=_for_plugin("custom_scalars"))


# ---------------------------------------------------------------------------------------------------------- curves
def pr_curve_raw(tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int) -> Summary:
    rows = [array_of(r).reshape(-1).tolist() for r in (tp, fp, tn, fn, precision, recall)]
    tensor = TensorProto(dtype="DT_FLOAT", float_val=[v for r in rows for v in r], tensor_shape=_sizes([6, len(rows[0])]))
    about = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, _MOST_THRESHOLDS)).SerializeToString()
    return _one(tag, metadata=_for_plugin("pr_curves", about), tensor=tensor)


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int, weights: Any = None) -> Summary:
    """Precision and recall where the predictions from each threshold on count as positive."""
    count = min(num_thresholds, _MOST_THRESHOLDS)
    labels, predictions = array_of(labels), array_of(predictions)
    weights = 1.0 if weights is None else array_of(weights)
    np = predictions.__array_namespace__()
    truth, bucket = labels.astype("float64"), np.floor(predictions * (count - 1)).astype("int32")
    total = lambda w: np.histogram(bucket, bins=count, range=(0, count - 1), weights=w)[0][::-1].cumsum()[::-1]
    tp, fp = total(truth * weights), total((1.0 - truth) * weights)
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7  # instead of a division by zero
    return pr_curve_raw(tag, tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn), count)


# ------------------------------------------------------------------------------------------------------ parameters
def hparams(values: dict[str, Any], metrics: dict[str, Any], discrete: dict[str, list[Any]] | None) -> list[Summary]:
    """What an experiment varies, which metrics it measures, and that a session with these values has begun and ended."""
    discrete = discrete or {}
    for name, choices in discrete.items():
        if name not in values or not isinstance(choices, list) or not all(isinstance(c, type(values[name])) for c in choices):
            raise TypeError(f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}].")
    start, infos = plugin_data_pb2.SessionStartInfo(), []
    for name, value in values.items():
        if value is None:
            continue
        field, kind, value = _hparam(value)
        setattr(start.hparams[name], field, value)
        choices = ListValue(values=[Value(**{field: c}) for c in discrete[name]]) if name in discrete else None
        infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind), domain_discrete=choices))
    measured = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=k)) for k in metrics]
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=measured)

    def part(tag: str, **content: Any) -> Summary:
        data = plugin_data_pb2.HParamsPluginData(version=hparams_metadata.PLUGIN_DATA_VERSION, **content)
        return _one(tag, metadata=_for_plugin(hparams_metadata.PLUGIN_NAME, data.SerializeToString()))

    return [part(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
            part(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
            part(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=end)]


def _hparam(value: Any) -> tuple[str, str, Any]:
    """The field that holds a value, TensorBoard's name of its type, and the value."""
    if isinstance(value, Tensor):
        value = array_of(value).reshape(-1)[0]
    if isinstance(value, str):
        return "string_value", "DATA_TYPE_STRING", value
    if isinstance(value, (int, float)) or hasattr(value, "dtype"):  # bools too: PyTorch takes them for numbers
        return "number_value", "DATA_TYPE_FLOAT64", float(value)
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


# ---------------------------------------------------------------------------------------------------------- meshes
def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: dict[str, Any] | None) -> Summary:
    """Points in space, with colours and triangles between them where they are given; each is (batch, number, 3)."""
    given = [(t, kind) for t, kind in ((vertices, MeshPluginData.VERTEX), (faces, MeshPluginData.FACE),
                                       (colors, MeshPluginData.COLOR)) if t is not None]
    parts = mesh_metadata.get_components_bitmask([kind for _, kind in given])
    values = []
    for t, kind in given:
        t = as_tensor(t)
        if t.ndim != 3:
            raise ValueError(f"add_mesh: vertices, colors and faces have the shape (batch, number, 3), got {list(t.shape)}")
        about = mesh_metadata.create_summary_metadata(tag, None, kind, parts, t.shape, None,
                                                      json_config=json.dumps(config or {}, sort_keys=True))
        tensor = TensorProto(dtype="DT_FLOAT", float_val=_flat(t), tensor_shape=_sizes(t.shape))
        values.append(Summary.Value(tag=mesh_metadata.get_instance_name(tag, kind), tensor=tensor, metadata=about))
    return Summary(value=values)
