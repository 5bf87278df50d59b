"""Pictures of a small directed graph without Graphviz: SVG as text, PNG through Pillow."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

from . import layout

CHARACTER, LINE, PAD = 6.1, 13, 8  # of the 10-point fixed-width font that torchviz's pictures have
GAP, ROW_GAP, MARGIN = 18, 26, 12
MOST_PIXELS = 20_000_000  # of a PNG: a larger picture is drawn smaller
COLORS = {"lightblue": "#add8e6", "orange": "#ffa500", "darkolivegreen1": "#caff70", "darkolivegreen3": "#a2cd5a",
          "lightgrey": "#d3d3d3"}


class Box(NamedTuple):
    """A node as it is drawn."""

    x: float
    y: float
    width: float
    height: float
    lines: list[str]
    color: str


class Line(NamedTuple):
    """An edge as it is drawn: through these points."""

    points: list[tuple[float, float]]
    arrow: bool
    dotted: bool


class Picture(NamedTuple):
    width: float
    height: float
    boxes: list[Box]
    lines: list[Line]


def picture(labels: list[str], colors: list[str], edges: list[tuple[int, int, dict[str, str]]]) -> Picture:
    """The boxes and lines of a graph. edges: (tail, head, attributes), of which dir="none" and style="dotted" are known."""
    lines = [label.split("\n") for label in labels]
    sizes = [(max(len(text) for text in label) * CHARACTER + 2 * PAD, len(label) * LINE + PAD) for label in lines]
    edges = [(b, a, attributes) if attributes.get("dir") == "none" and colors[a] == "lightgrey" else (a, b, attributes)
             for a, b, attributes in edges]  # a saved tensor stands above the node that keeps it: a leaf may be one
    rows = layout.arrange(len(labels), [(a, b) for a, b, _ in edges])
    widths = [[6.0 if item.__class__ is tuple else sizes[item][0] for item in row] for row in rows.rows]
    x = layout.place(rows, widths, GAP)
    at: dict[Any, tuple[float, float]] = {}
    heights, top = [], float(MARGIN)
    for r, row in enumerate(rows.rows):
        height = max([sizes[item][1] for item in row if item.__class__ is int], default=LINE)
        for item, middle in zip(row, x[r]):
            at[item] = middle + MARGIN, top + height / 2
        heights.append((top, top + height))
        top += height + ROW_GAP
    boxes = [Box(at[i][0] - w / 2, at[i][1] - h / 2, w, h, lines[i], colors[i]) for i, (w, h) in enumerate(sizes)]
    drawn = [Line(_route(a, b, at, boxes, rows.ranks, heights), attributes.get("dir") != "none",
                  attributes.get("style") == "dotted") for a, b, attributes in edges]
    width = max([m + w / 2 for line, row in zip(x, widths) for m, w in zip(line, row)], default=0)
    return Picture(width + 2 * MARGIN, top - ROW_GAP + MARGIN, boxes, drawn)


def _route(a: int, b: int, at: dict[Any, tuple[float, float]], boxes: list[Box], ranks: list[int],
           heights: list[tuple[float, float]]) -> list[tuple[float, float]]:
    start, end = boxes[a], boxes[b]
    points = [(at[a][0], start.y + start.height)]
    for row in range(ranks[a] + 1, ranks[b]):
        lane = at.get(("lane", a, row))
        if lane is not None:
            points += [(lane[0], heights[row][0]), (lane[0], heights[row][1])]
    return [*points, (at[b][0], end.y)]


# ------------------------------------------------------------------------------------------------------------- SVG
def svg(made: Picture) -> str:
    """The picture as the text of an SVG file."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{made.width:.0f}" height="{made.height:.0f}" '
           f'viewBox="0 0 {made.width:.1f} {made.height:.1f}" font-family="monospace" font-size="10" text-anchor="middle">',
           '<defs><marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
           '<path d="M0 0.8L8 4L0 7.2z"/></marker></defs>',
           f'<rect width="{made.width:.1f}" height="{made.height:.1f}" fill="white"/>']
    for line in made.lines:
        kind = (' marker-end="url(#head)"' if line.arrow else "") + (' stroke-dasharray="2 3"' if line.dotted else "")
        out.append(f'<path class="edge" d="{_curve(line.points)}" fill="none" stroke="black" stroke-width="0.8"{kind}/>')
    for box in made.boxes:
        out.append(f'<g class="node"><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
                   f'fill="{COLORS[box.color]}" stroke="black" stroke-width="0.8"/>')
        for i, text in enumerate(box.lines):
            y = box.y + box.height / 2 + (i - (len(box.lines) - 1) / 2) * LINE + 3.4
            out.append(f'<text x="{box.x + box.width / 2:.1f}" y="{y:.1f}" xml:space="preserve">{escape(text)}</text>')
        out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _cubics(points: list[tuple[float, float]]) -> Iterable[tuple[tuple[float, float], ...]]:
    """A route as cubic curves (start, two control points, end) that leave and arrive vertically."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        yield (x0, y0), (x0, middle), (x1, middle), (x1, y1)


def _curve(points: list[tuple[float, float]]) -> str:
    text = "M{:.1f} {:.1f}".format(*points[0])
    for _, c, d, end in _cubics(points):
        text += "C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(*c, *d, *end)
    return text


# ------------------------------------------------------------------------------------------------------------- PNG
def png(made: Picture, scale: float = 1.5) -> bytes:
    """The picture as the bytes of a PNG file."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ModuleNotFoundError("a PNG without Graphviz needs Pillow: pip install pillow (or install Graphviz; .svg and .dot "
                                  "need neither)", name="PIL") from None
    scale = min(scale, (MOST_PIXELS / (made.width * made.height)) ** 0.5)
    fine = 2 * scale  # drawn at twice the size: Pillow's lines have no soft edges
    image = Image.new("RGB", (round(made.width * fine), round(made.height * fine)), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(round(10 * fine))
    for line in made.lines:
        points = [p for piece in _cubics(line.points) for p in _along(*piece)]
        points = [(x * fine, y * fine) for x, y in points]
        step = 3 if line.dotted else 1
        for i in range(0, len(points) - 1, step):
            draw.line([points[i], points[i + 1]], fill="black", width=max(round(0.8 * fine), 1))
        if line.arrow:
            (x, y), (u, v) = points[-1], points[-3]
            size = max(((x - u) ** 2 + (y - v) ** 2) ** 0.5, 1e-9)
            dx, dy = (x - u) / size * 6 * fine, (y - v) / size * 6 * fine
            draw.polygon([(x, y), (x - dx - dy * 0.4, y - dy + dx * 0.4), (x - dx + dy * 0.4, y - dy - dx * 0.4)], fill="black")
    for box in made.boxes:
        draw.rectangle([box.x * fine, box.y * fine, (box.x + box.width) * fine, (box.y + box.height) * fine],
                       fill=COLORS[box.color], outline="black", width=max(round(0.8 * fine), 1))
        for i, text in enumerate(box.lines):
            y = box.y + box.height / 2 + (i - (len(box.lines) - 1) / 2) * LINE
            draw.text(((box.x + box.width / 2) * fine, y * fine), text, fill="black", font=font, anchor="mm")
    image = image.resize((round(made.width * scale), round(made.height * scale)), Image.LANCZOS)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _along(a: Any, b: Any, c: Any, d: Any, steps: int = 24) -> list[tuple[float, float]]:
    points = []
    for i in range(steps + 1):
        t = i / steps
        k = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3)
        points.append(tuple([sum([w * p[axis] for w, p in zip(k, (a, b, c, d))]) for axis in (0, 1)]))
    return points
