"""SummaryWriter: what TensorBoard's own reader finds in our files is what it finds in PyTorch's."""

from __future__ import annotations

import datetime
import io
import socket
import time

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter as TorchWriter

import flambeau
from flambeau.utils.tensorboard import FileWriter, SummaryWriter

ALL = dict.fromkeys(("scalars", "histograms", "images", "audio", "tensors", "compressedHistograms"), 0)
NUMBERS = np.random.default_rng(0)
SMALL, MANY = NUMBERS.random((3, 6, 5), np.float32), NUMBERS.random((11, 1, 4, 3), np.float32)
VALUES, LABELS = NUMBERS.standard_normal(200).astype(np.float32), NUMBERS.integers(0, 2, 50)
POINTS = NUMBERS.random((1, 4, 3), np.float32)


def read(folder):
    reader = EventAccumulator(str(folder), size_guidance=ALL)
    reader.Reload()
    return reader


def written(tmp_path, write):
    """What the program leaves behind, written by us and by PyTorch."""
    found = []
    for name, library, writer in (("ours", flambeau, SummaryWriter), ("theirs", torch, TorchWriter)):
        with writer(str(tmp_path / name)) as w:
            write(w, library)
        found.append(read(tmp_path / name))
    return found


def picture(event):
    return np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB"))


def same(ours, theirs):
    assert ours.Tags() == theirs.Tags()
    for tag in ours.Tags()["scalars"]:
        assert [(e.step, e.value) for e in ours.Scalars(tag)] == [(e.step, e.value) for e in theirs.Scalars(tag)]
    for tag in ours.Tags()["histograms"]:
        assert [(e.step, e.histogram_value) for e in ours.Histograms(tag)] == [
            (e.step, e.histogram_value) for e in theirs.Histograms(tag)]
    for tag in ours.Tags()["images"]:
        for a, b in zip(ours.Images(tag), theirs.Images(tag), strict=True):
            assert (a.step, a.width, a.height) == (b.step, b.width, b.height)
            np.testing.assert_array_equal(picture(a), picture(b))
    for tag in ours.Tags()["audio"]:
        for a, b in zip(ours.Audio(tag), theirs.Audio(tag), strict=True):
            assert vars(a) | {"wall_time": 0} == vars(b) | {"wall_time": 0}
    for tag in ours.Tags()["tensors"]:
        for a, b in zip(ours.Tensors(tag), theirs.Tensors(tag), strict=True):
            assert (a.step, a.tensor_proto) == (b.step, b.tensor_proto)
        assert ours.SummaryMetadata(tag) == theirs.SummaryMetadata(tag)


def scalars(w, t):
    w.add_scalar("loss", t.tensor(0.25), 3)
    w.add_scalar("loss", 1.5, 4)
    w.add_scalar("loss", np.float64(0.1), np.int64(5))
    w.add_scalar("new", 0.1, 1, new_style=True)
    w.add_scalar("double", 0.1, 1, new_style=True, double_precision=True)
    w.add_scalar("bf16", t.tensor(0.5, dtype=t.bfloat16), 1)


def histograms(w, t):
    w.add_histogram("default", t.from_numpy(VALUES), 1)
    w.add_histogram("array", VALUES * 1e-3, 2)
    w.add_histogram("few", t.tensor([0.0, -1.0, 3.0]), 2, max_bins=5)
    for bins in ("auto", "fd", 10, [-1.0, 0.0, 0.5, 2.0]):
        w.add_histogram(f"bins {bins}", t.from_numpy(VALUES), 3, bins=bins)
    w.add_histogram("some", t.from_numpy(VALUES), 3, bins=50, max_bins=7)
    w.add_histogram("ints", t.arange(10), 0)
    w.add_histogram_raw("raw", 0.0, 3.0, 3, 4.0, 10.0, [1.0, 2.0, 3.0], [1, 1, 1], 1)


def images(w, t):
    w.add_image("chw", t.from_numpy(SMALL), 0)
    w.add_image("hwc", SMALL.transpose(1, 2, 0), 1, dataformats="HWC")
    w.add_image("hw", SMALL[0] * 2 - 0.5, 1, dataformats="HW")  # out of range on both sides
    w.add_image("grey", t.from_numpy(SMALL[:1].copy()), 2)
    w.add_image("bytes", t.from_numpy((SMALL * 255).astype(np.uint8)), 2)
    w.add_images("many", t.from_numpy(MANY), 2)
    w.add_images("nhwc", t.from_numpy(MANY.transpose(0, 2, 3, 1).copy()), 2, dataformats="NHWC")
    boxes = np.array([[1, 1, 3, 4], [0, 2, 4, 5]], np.float32)
    w.add_image_with_boxes("boxes", t.from_numpy(SMALL), t.from_numpy(boxes), 2, labels=["a", "b"])
    w.add_image_with_boxes("larger", t.from_numpy(SMALL), t.from_numpy(boxes), 2, rescale=2)


def sounds(w, t):
    w.add_audio("sound", t.from_numpy(np.sin(np.arange(100, dtype=np.float32))), 1, sample_rate=8000)
    w.add_audio("loud", t.tensor([[0.5, 2.0, -3.0]]), 1)


def tensors(w, t):
    for name in "float32 float64 int8 uint8 int16 int32 int64 bool float16 bfloat16 complex64 complex128".split():
        w.add_tensor(name, t.tensor([[0, 1], [2, 3]]).to(getattr(t, name)), 1)


def texts(w, t):
    w.add_text("note", "# Höhe\n\n| a | b |", 2)
    w.add_custom_scalars({"one": {"lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["a", "b", "c"]]}})


def layouts(w, t):
    w.add_custom_scalars_multilinechart(["a", "b"], "category", "title")


def margins(w, t):
    w.add_custom_scalars_marginchart(["a", "b", "c"])


def curves(w, t):
    labels, predictions = t.from_numpy(LABELS), t.from_numpy(NUMBERS_OF_CURVE)
    w.add_pr_curve("curve", labels, predictions, 1)
    w.add_pr_curve("weighted", LABELS, NUMBERS_OF_CURVE, 1, num_thresholds=10, weights=np.linspace(0, 1, 50))
    w.add_pr_curve_raw("raw", *[t.tensor([1.0, 2.0, i]) for i in range(6)], 1, num_thresholds=3)


NUMBERS_OF_CURVE = NUMBERS.random(50)


def meshes(w, t):
    w.add_mesh("points", t.from_numpy(POINTS), global_step=1)
    w.add_mesh("solid", t.from_numpy(POINTS), t.tensor([[[255, 0, 0]] * 4]), t.tensor([[[0, 1, 2], [1, 2, 3]]]),
               config_dict={"camera": {"cls": "PerspectiveCamera", "fov": 75}}, global_step=1)


@pytest.mark.parametrize("write", [scalars, histograms, images, sounds, tensors, texts, layouts, margins, curves, meshes],
                         ids=lambda f: f.__name__)
def test_read_back_as_pytorchs(tmp_path, write):
    same(*written(tmp_path, write))


def test_add_scalars_write_a_folder_each(tmp_path):
    def write(w, t):
        w.add_scalars("group/all", {"sin": t.tensor(0.5), "cos": 0.25}, 7)

    written(tmp_path, write)
    folders = [sorted(p.name for p in (tmp_path / name).iterdir() if p.is_dir()) for name in ("ours", "theirs")]
    assert folders[0] == folders[1] == ["group_all_cos", "group_all_sin"]
    for folder in folders[0]:
        same(read(tmp_path / "ours" / folder), read(tmp_path / "theirs" / folder))


def test_hparams(tmp_path):
    def write(w, t):
        w.add_hparams({"lr": 0.1, "layers": 3, "name": "adam", "amp": True, "none": None, "t": t.tensor([2.0])},
                      {"accuracy": 0.5, "loss": 1.0}, {"name": ["adam", "sgd"], "layers": [1, 3]}, run_name="run",
                      global_step=2)

    written(tmp_path, write)
    ours, theirs = read(tmp_path / "ours" / "run"), read(tmp_path / "theirs" / "run")
    same(ours, theirs)
    found = [{tag: plugin_data_pb2.HParamsPluginData.FromString(content) for tag, content in
              r.PluginTagToContent("hparams").items()} for r in (ours, theirs)]
    assert found[0] == found[1] and len(found[0]) == 3
    with pytest.raises(ValueError, match="value should be one of"):
        SummaryWriter(tmp_path / "x").add_hparams({"a": [1]}, {})
    with pytest.raises(TypeError, match="hparam_domain_discrete"):
        SummaryWriter(tmp_path / "x").add_hparams({"a": 1}, {}, {"a": ["one"]})


def test_embeddings(tmp_path):
    def write(w, t):
        points, pictures = t.from_numpy(SMALL[0]), t.from_numpy(MANY[:6])
        w.add_embedding(points, ["a", "b", "c", "d", "e", "f"], pictures, 3, "first/tag")
        w.add_embedding(SMALL[1], [[i, i * i] for i in range(6)], metadata_header=["n", "square"])

    written(tmp_path, write)
    files = [{p.relative_to(tmp_path / n): p for p in (tmp_path / n).rglob("*") if p.is_file() and "tfevents" not in p.name}
             for n in ("ours", "theirs")]
    assert files[0].keys() == files[1].keys() and len(files[0]) == 6
    for name, path in files[0].items():
        if path.suffix == ".png":
            np.testing.assert_array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(files[1][name])))
        elif path.name == "tensors.tsv":
            np.testing.assert_array_equal(np.loadtxt(path, np.float32), np.loadtxt(files[1][name], np.float32))
        else:
            assert path.read_text() == files[1][name].read_text()
    with SummaryWriter(tmp_path / "x") as w, pytest.raises(AssertionError, match="#labels"):
        w.add_embedding(SMALL[0], ["a"])


def test_figures(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    import matplotlib
    matplotlib.use("Agg")

    def write(w, t):
        figure = pyplot.figure(figsize=(2, 1))
        figure.gca().plot([1, 2, 3])
        w.add_figure("several", [figure, figure], 1, close=False)
        w.add_figure("one", figure, 1)

    same(*written(tmp_path, write))
    assert not pyplot.get_fignums()


def test_videos_move(tmp_path):
    """PyTorch needs moviepy for it: the frames are compared with what was written."""
    frames = (NUMBERS.random((3, 4, 3, 5, 6)) > 0.5).astype(np.float32)
    with SummaryWriter(tmp_path) as w:
        w.add_video("v", flambeau.from_numpy(frames), 1, fps=5)
        w.add_video("grey", (frames[:1, :, :1] * 255).astype(np.uint8), 1)
    event = read(tmp_path).Images("v")[0]
    shown = Image.open(io.BytesIO(event.encoded_image_string))
    assert (shown.n_frames, shown.info["duration"], event.width, event.height) == (4, 200, 24, 5)
    for n in range(4):
        shown.seek(n)
        seen = np.asarray(shown.convert("RGB"))
        np.testing.assert_array_equal(seen[:, :6], frames[0, n].transpose(1, 2, 0) * 255)
        np.testing.assert_array_equal(seen[:, 12:18], frames[2, n].transpose(1, 2, 0) * 255)


class Net(flambeau.nn.Module):
    def __init__(self, t):
        super().__init__()
        self.body = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU())
        self.head = t.nn.Linear(8, 3)

    def forward(self, x, y):
        return self.head(self.body(x)) + y * 2


def test_graphs(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_graph(Net(flambeau), (flambeau.randn(2, 4), flambeau.randn(3)))
    graph = read(tmp_path).Graph()
    nodes = {n.name: n for n in graph.node}
    assert len(nodes) == len(graph.node) and graph.versions.producer == 22
    assert [n.op for n in graph.node if n.op.startswith("aten::")] == [
        "aten::linear", "aten::relu", "aten::linear", "aten::mul", "aten::add"]
    assert all(source in nodes for n in graph.node for source in n.input)
    assert list(nodes["Net/Sequential[body]/ReLU[1]/relu.1"].input) == ["Net/Sequential[body]/Linear[0]/linear.1"]
    assert list(nodes["Net/add.1"].input) == ["Net/Linear[head]/linear.1", "Net/mul.1"]
    assert list(nodes["Net/Sequential[body]/Linear[0]/linear.1"].input) == [
        "input/input.1", "Net/Sequential[body]/Linear[0]/weight", "Net/Sequential[body]/Linear[0]/bias"]
    assert [d.size for d in nodes["output/output.1"].attr["_output_shapes"].list.shape[0].dim] == [2, 3]


def test_names_of_folders_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_mine", filename_suffix=".end") as w:
        date, _, rest = w.get_logdir().removeprefix("runs/").partition(f"_{socket.gethostname()}")
        time.strptime(date, "%b%d_%H-%M-%S")
        assert rest == "_mine" and w.log_dir == w.get_logdir()
        files = [p.name for p in (tmp_path / w.log_dir).iterdir()]
    assert len(files) == 1 and files[0].startswith("events.out.tfevents.") and files[0].endswith(".end")


def test_purged_steps_go_away(tmp_path):
    def write(w, t):
        for step in range(5):
            w.add_scalar("loss", float(step), step)

    def again(name, writer):
        with writer(str(tmp_path / name), purge_step=3, filename_suffix=".second") as w:
            w.add_scalar("loss", 30.0, 3)

    written(tmp_path, write)
    time.sleep(1.1)  # files are read in the order of their names, which hold the second
    again("ours", SummaryWriter)
    again("theirs", TorchWriter)
    ours, theirs = read(tmp_path / "ours"), read(tmp_path / "theirs")
    same(ours, theirs)
    assert [(e.step, e.value) for e in ours.Scalars("loss")] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0)]


def test_written_after_close_goes_to_a_new_file(tmp_path):
    w = SummaryWriter(tmp_path)
    w.add_scalar("a", 1, 1, walltime=12.5)
    w.flush()
    assert read(tmp_path).Scalars("a")[0].wall_time == 12.5
    w.close()
    w.add_scalar("a", 2, 2)
    w.close()
    assert w.file_writer is None


def test_the_file_writer_alone(tmp_path):
    w = FileWriter(tmp_path, max_queue=1, flush_secs=1)
    from flambeau.utils.tensorboard import summaries
    w.add_summary(summaries.scalar("a", 1.0), 3)
    w.close()
    assert w.get_logdir() == str(tmp_path) and read(tmp_path).Scalars("a")[0].step == 3
    w.reopen()
    w.add_summary(summaries.scalar("a", 2.0), 4)
    w.close()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("call, error", [
    (lambda w: w.add_onnx_graph("x"), "add_onnx_graph is missing"),
    (lambda w: w.add_pr_curve_raw("t", 1, 1, 1, 1, 1, 1, weights=2), "weights"),
    (lambda w: w.add_scalar("t", "text"), "numpy array or torch tensor are expected")])
def test_what_is_not_there_says_so(tmp_path, call, error):
    with SummaryWriter(tmp_path) as w, pytest.raises(NotImplementedError, match=error):
        call(w)


@pytest.mark.parametrize("call, kind", [
    (lambda w: w.add_scalar("t", flambeau.ones(2)), AssertionError),
    (lambda w: w.add_histogram("t", flambeau.ones(0)), ValueError),
    (lambda w: w.add_image("t", flambeau.ones(2, 2)), AssertionError),
    (lambda w: w.add_audio("t", flambeau.ones(2, 2)), AssertionError),
    (lambda w: w.add_custom_scalars_marginchart(["a"]), AssertionError),
    (lambda w: w.add_graph(Net(flambeau)), ValueError),
    (lambda w: w.add_video("t", flambeau.ones(2)), ValueError),
    (lambda w: w.add_mesh("t", flambeau.ones(2, 3)), ValueError),
    (lambda w: w.add_histogram_raw("t", 0, 1, 1, 1, 1, [1.0], [1, 2]), ValueError)])
def test_what_is_wrong_is_told(tmp_path, call, kind):
    with SummaryWriter(tmp_path) as w, pytest.raises(kind):
        call(w)


def test_tensors_hold_what_was_written(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_tensor("t", flambeau.arange(6.0).reshape(2, 3), 1)
    made = tensor_util.make_ndarray(read(tmp_path).Tensors("t")[0].tensor_proto)
    np.testing.assert_array_equal(made, np.arange(6.0).reshape(2, 3))


def test_statistics_of_a_monitor_are_scalars(tmp_path):
    monitor = flambeau.monitor
    with SummaryWriter(tmp_path) as writer:
        handle = monitor.register_event_handler(monitor.TensorboardEventHandler(writer))
        stat = monitor.Stat("loss", [monitor.Aggregation.SUM, monitor.Aggregation.COUNT], datetime.timedelta(seconds=100), 2)
        stat.add(1.5)
        stat.add(2.0)
        monitor.log_event(monitor.Event("something else", datetime.datetime.now(), {"x": 1}))
        monitor.unregister_event_handler(handle)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: [event.value for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]} == {
        "loss.sum": [3.5], "loss.count": [2.0]}
