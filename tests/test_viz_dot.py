"""viz.make_dot: torchviz's boxes and edges, and pictures without Graphviz."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
import torch

import flambeau
from flambeau.viz import draw, layout, make_dot

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")  # torchviz's
LABEL = re.compile(r'^\t(\d+) \[label=("(?:[^"\\]|\\.)*"|\w+)(?: fillcolor=(\w+))?\]$', re.MULTILINE)
EDGE = re.compile(r"^\t(\d+) -> (\d+)(?: \[(\w+=\w+)\])?$", re.MULTILINE)


def read(source: str) -> tuple[Counter, Counter]:
    """The boxes (label, colour) and the edges between them, however they are numbered."""
    source = re.sub(r'"[^"]*"', lambda text: text[0].replace("\n", r"\n"), source)
    assert len(LABEL.findall(source)) + len(EDGE.findall(source)) == len(source.splitlines()) - 4, "a line was not understood"
    boxes = {number: (label.strip('"'), color) for number, label, color in LABEL.findall(source)}
    return Counter(boxes.values()), Counter((boxes[a], boxes[b], kind) for a, b, kind in EDGE.findall(source))


def leaf(mod, *shape):
    return mod.ones(*shape, requires_grad=True)


def tree(mod):
    w, b = leaf(mod, 3, 4), leaf(mod, 4)
    return ((mod.ones(2, 3) @ w + b).tanh() * 2).sum(), {"w": w, "b": b}


def diamond(mod):
    x = leaf(mod, 5)
    y = x * x
    return (y.exp() + y.sin() * y).mean(), {"x": x}


def module(mod):
    net = mod.nn.Sequential(mod.nn.Linear(4, 8), mod.nn.ReLU(), mod.nn.Linear(8, 1))
    return net(mod.ones(2, 4)).mean(), dict(net.named_parameters())


def two_outputs(mod):
    x = leaf(mod, 4)
    y = x * 3
    return (y.sum(), y.exp()), {"x": x}


def a_view(mod):
    x = leaf(mod, 4, 2)
    return (x * 2).view(8), {"x": x}


def nameless(mod):
    return (leaf(mod, 2) / leaf(mod, 2)).sum(), None


def custom(mod):
    class Square(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    x = leaf(mod, 3)
    return Square.apply(x * 1).sum(), {"x": x}


PROGRAMS = [tree, diamond, module, two_outputs, a_view, nameless, custom]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_boxes_and_edges_are_torchvizs(program):
    torchviz = pytest.importorskip("torchviz", reason="torchviz, the oracle, is not installed")
    outputs, params = program(torch)
    expected = read(torchviz.make_dot(outputs, params=params).source)
    outputs, params = program(flambeau)
    assert read(make_dot(outputs, params=params).source) == expected


def test_saved_tensors_are_torchvizs():
    torchviz = pytest.importorskip("torchviz", reason="torchviz, the oracle, is not installed")

    def program(mod):
        x = leaf(mod, 3)
        y = x.sin()
        return (y.exp() * y).sum(), {"x": x}

    pictures = []
    for mod, draws in ((torch, torchviz.make_dot), (flambeau, make_dot)):
        outputs, params = program(mod)
        pictures.append(read(draws(outputs, params=params, show_saved=True).source))
    orange = [{b: n for b, n in boxes.items() if b[1] == "orange"} for boxes, _ in pictures]
    assert orange[0] == orange[1] and sum(orange[0].values()) == 3  # sin's x is the leaf itself, and blue
    assert pictures[0] == pictures[1]


def test_what_nodes_keep_is_shown_as_text():
    x = leaf(flambeau, 2, 3)
    source = make_dot(x.exp().sum(), show_attrs=True, max_attr_chars=8).source
    assert r"ExpBackward0\n----------------\nresult: [save..." in source
    assert r"SumBackward0\n------------------\nself_shape: (2, 3)" in source


def test_a_view_is_tied_to_its_base():
    boxes, edges = read(make_dot(a_view(flambeau)[0]).source)
    assert boxes[r"\n (8)", "darkolivegreen1"] == boxes[r"\n (4, 2)", "darkolivegreen3"] == 1
    assert edges[(r"\n (4, 2)", "darkolivegreen3"), (r"\n (8)", "darkolivegreen1"), "style=dotted"] == 1


def test_a_graph_that_was_freed_or_changed_can_still_be_drawn():
    output, params = custom(flambeau)
    before = read(make_dot(output, params=params).source)
    output.backward()
    boxes, _ = read(make_dot(output, params=params, show_saved=True).source)
    assert before[0] - boxes == {(r"\n (3)", "orange"): 1}  # what was kept is gone
    x = leaf(flambeau, 3)
    y = x.exp()
    z = y.sum()
    y.detach().zero_()
    assert ("ExpBackward0", "") in read(make_dot(z).source)[0]


def test_reading_takes_nothing_away():
    class Once(flambeau.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    x = leaf(flambeau, 3)
    y = Once.apply(x).sum()
    make_dot(y, show_saved=True)
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_names_may_come_as_pairs():
    net = flambeau.nn.Linear(2, 3)
    source = make_dot(net(flambeau.ones(1, 2)), params=net.named_parameters()).source
    assert r'"weight\n (3, 2)" fillcolor=lightblue' in source and r'"bias\n (3)" fillcolor=lightblue' in source


@pytest.mark.parametrize("bad, text", [(dict(var=3), "expected a tensor"),
                                       (dict(var=flambeau.ones(1), params={"w": 1}), "'w' is a int")])
def test_wrong_arguments(bad, text):
    with pytest.raises(TypeError, match=text):
        make_dot(**bad)


def test_deep_graphs_are_no_problem():
    y = leaf(flambeau, 1)
    for _ in range(3000):
        y = y * 1.5
    boxes, _ = read(make_dot(y).source)
    assert boxes["MulBackward0", ""] == 3000


# ------------------------------------------------------------------------------------------------------------- pictures
@pytest.fixture
def no_graphviz(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_a_notebook_shows_it(no_graphviz):
    dot = make_dot(diamond(flambeau)[0])
    root = ElementTree.fromstring(dot._repr_svg_())
    nodes = [g for g in root.iter() if g.get("class") == "node"]
    edges = [p for p in root.iter() if p.get("class") == "edge"]
    boxes, lines = read(dot.source)
    assert (len(nodes), len(edges)) == (boxes.total(), lines.total())
    assert dot._repr_mimebundle_()["image/svg+xml"] == dot._repr_svg_()
    assert set(dot._repr_mimebundle_(exclude=["image/svg+xml"])) == {"text/plain"}


@pytest.mark.parametrize("name, format, written", [
    ("g.svg", None, "g.svg"), ("g", "svg", "g.svg"), ("g", None, "g.svg"), ("g.png", None, "g.png"),
    ("deep/g", "png", "deep/g.png"), ("g", "dot", "g.dot"), ("v1.2", "svg", "v1.2.svg")])
def test_files(no_graphviz, tmp_path, name, format, written):
    if written.endswith("png"):
        pytest.importorskip("PIL", reason="Pillow is not installed")
    made = make_dot(tree(flambeau)[0]).render(tmp_path / name, format=format)
    assert made == str(tmp_path / written)
    start = {"svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph"}[written.rpartition(".")[2]]
    assert (tmp_path / written).read_bytes().startswith(start)


def test_a_format_can_be_set_once(no_graphviz, tmp_path):
    dot = make_dot(tree(flambeau)[0])
    dot.format = "dot"
    assert dot.render(tmp_path / "g") == str(tmp_path / "g.dot")


def test_a_huge_picture_is_drawn_smaller(no_graphviz, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    made = make_dot(tree(flambeau)[0])
    monkeypatch.setattr(draw, "MOST_PIXELS", 10_000)
    width, height = image.open(io.BytesIO(made.pipe("png"))).size
    assert width * height == pytest.approx(10_000, rel=0.05)


def test_save_goes_by_the_ending(no_graphviz, tmp_path):
    dot = make_dot(tree(flambeau)[0])
    dot.save(tmp_path / "a.svg"), dot.save(tmp_path / "a.gv"), dot.save("b.dot", tmp_path)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.gv").read_text() == (tmp_path / "b.dot").read_text() == dot.source
    dot.render(tmp_path / "c", format="svg", cleanup=False)
    assert (tmp_path / "c").read_text() == dot.source


def test_a_png_has_the_colours(no_graphviz, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    make_dot(tree(flambeau)[0], show_saved=True).render(tmp_path / "g.png")
    colors = {color for _, color in image.open(tmp_path / "g.png").convert("RGB").getcolors(1 << 20)}
    for name in ("lightblue", "orange", "darkolivegreen1", "lightgrey"):
        assert tuple(bytes.fromhex(draw.COLORS[name][1:])) in colors, name


def test_other_formats_need_graphviz(no_graphviz):
    with pytest.raises(ValueError, match="without Graphviz .* svg, png, dot, gv; got 'pdf'"):
        make_dot(tree(flambeau)[0]).pipe("pdf")


def test_without_pillow_a_png_says_what_to_install(no_graphviz, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pillow"):
        make_dot(tree(flambeau)[0]).pipe("png")


def test_graphviz_draws_where_it_is(tmp_path, monkeypatch):
    fake = tmp_path / "dot"
    fake.write_text('#!/bin/sh\necho "drawn as $1 from $(head -1)"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert make_dot(tree(flambeau)[0]).pipe("pdf") == b"drawn as -Tpdf from digraph {\n"


# --------------------------------------------------------------------------------------------------------------- layout
def test_boxes_do_not_overlap():
    x = leaf(flambeau, 4)
    parts = [(x * i).sin() + x for i in range(1, 12)]
    made = make_dot(sum(parts[1:], parts[0]).sum(), show_saved=True)._picture()
    for i, a in enumerate(made.boxes):
        for b in made.boxes[:i]:
            assert a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_arrows_point_down():
    made = make_dot(diamond(flambeau)[0])._picture()
    assert all(line.points[0][1] < line.points[-1][1] for line in made.lines)


def test_rows_keep_to_edges_and_survive_a_circle():
    assert layout.rank(4, [(0, 1), (1, 2), (3, 2)]) == [0, 1, 2, 1]  # a source stands right above its reader
    ranks = layout.rank(3, [(0, 1), (1, 2), (2, 1)])
    assert ranks[0] < ranks[1] < ranks[2]
    rows = layout.arrange(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [("lane", 0, r) in rows.rows[r] for r in range(4)] == [False, True, True, False]


def test_crossings_are_undone():
    rows = layout.arrange(6, [(0, 5), (1, 4), (2, 3)])
    assert [[rows.rows[1].index({0: 5, 1: 4, 2: 3}[i]) for i in rows.rows[0]]] == [[0, 1, 2]]


def test_places_are_the_nearest_without_overlap():
    assert layout.spread([0, 0, 10], [2, 2, 2], [1, 1, 1], 1) == [-1.5, 1.5, 10]
