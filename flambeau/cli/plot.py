"""A curve as an SVG picture, in a few lines: axes with round numbers, the values, and their running mean."""

from __future__ import annotations

import math

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 44
_STYLE = """svg{background:#fff;color:#222;font:13px system-ui,sans-serif} polyline{fill:none} text{fill:currentColor}
.grid{stroke:#ddd} .raw{stroke:#9bb8d3;stroke-width:1} .mean{stroke:#c2410c;stroke-width:2}
@media (prefers-color-scheme: dark){svg{background:#16181d;color:#e6e6e6}
.grid{stroke:#333} .raw{stroke:#44607c} .mean{stroke:#fb923c}}"""


def curve(values: list[float], title: str) -> str:
    """The picture of a list of numbers, by their position; what is not finite is left out."""
    points = [(i, v) for i, v in enumerate(values, 1) if math.isfinite(v)]
    low, high = (min(v for _, v in points), max(v for _, v in points)) if points else (0.0, 1.0)
    if high == low:
        low, high = low - 0.5, high + 0.5
    last = max(2, len(values))

    def x(step: float) -> float:
        return LEFT + (step - 1) / (last - 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="24" font-weight="600">{_safe(title)}</text>']
    for tick in round_numbers(low, high):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    for tick in round_numbers(1, last):
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    for name, line in (("raw", points), ("mean", running_mean(points))):
        parts.append(f'<polyline class="{name}" points="{" ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in line)}"/>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="{_safe(title)}"><style>{_STYLE}</style>{"".join(parts)}</svg>\n')


def running_mean(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """An average that follows within a twentieth of the curve."""
    share, mean, made = min(1.0, 20 / max(1, len(points))), 0.0, []
    for n, (i, v) in enumerate(points):
        mean += (v - mean) * max(share, 1 / (n + 1))
        made.append((i, mean))
    return made


def round_numbers(low: float, high: float, about: int = 5) -> list[float]:
    """Some 1, 2 or 5 times a power of ten between two numbers."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
