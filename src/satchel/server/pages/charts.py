"""Charts as SVG, drawn by the server: pure functions of their data.

They are readable without colour (outline, hatch, solid). For screen readers there are a title, a description and, on
the page, the same figures as a table or a list. Wide ones have no viewBox: positions across are percentages, so that
bars stretch with the page and text doesn't.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

_FILLS: Final = ("cached", "fresh", "out")
"""The style sheet's names for outline, hatch and solid, in the order in which parts are stacked."""
_LEFT: Final = 9.0
"""Percent of the width that the labels of the rules take."""
_MOST_PLACE: Final = 12.0
"""Percent of the width that a column and its gap take where there are few: they begin at the left."""
_GAP: Final = 0.38
"""The part of a column's place that stays empty."""
_UP: Final = 150.0
_DOWN: Final = 90.0
_HEAD: Final = 18.0
_LABELS: Final = 26.0
_MOST_LABELS: Final = 13
"""Labels under the columns: twelve months fit on a phone."""


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """One column of a chart.

    Attributes:
        label: Below it, a few characters.
        up: What grows upwards, part by part.
        down: What grows downwards, in dollars.
        is_now: Its label is set bolder.
    """

    label: str
    up: tuple[float, ...] = ()
    down: float = 0.0
    is_now: bool = False


def nice_step(most: float) -> float:
    """The distance between about three rules up to `most`: 1, 2 or 5 times a power of ten; 1 up to 0."""
    if not most > 0 or math.isinf(most):
        return 1.0
    rough = most / 3
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def column_chart(
    columns: Sequence[ChartColumn],
    *,
    title: str,
    description: str,
    says_up: str = "{:,.0f}",
    up_scale: float = 1.0,
    id: str,
) -> Markup:
    """Columns that grow upwards in up to three parts, counts, and, where there is money, downwards in one.

    Args:
        columns: From left to right.
        title: What it shows.
        description: What the chart shows, in a sentence or two.
        says_up: The format of a value at a rule, after division by `up_scale`.
        up_scale: Such as 1,000 where the format ends in "k".
        id: Of the drawing, unique on its page.
    """
    has_down = any(column.down > 0 for column in columns)
    most = max((sum(column.up) for column in columns), default=0.0)
    step = max(1.0, nice_step(most))
    top = max(step, math.ceil(most / step - 1e-9) * step)
    axis = _HEAD + _UP
    scale = _UP / top
    below = axis + _LABELS
    height = below + (_DOWN + 14 if has_down else 4)
    place = min((100 - _LEFT) / max(1, len(columns)), _MOST_PLACE)
    parts = [_head(id, height, title, description)]
    for number in range(1, round(top / step) + 1):
        value = number * step
        y = axis - value * scale
        parts.append(_rule(y, says_up.format(value / up_scale)))
    deepest = max((column.down for column in columns), default=0.0)
    down_step = nice_step(deepest)
    lowest = max(down_step, math.ceil(deepest / down_step - 1e-9) * down_step) if has_down else 1.0
    if has_down:
        for number in range(1, round(lowest / down_step) + 1):
            y = below + number * down_step * _DOWN / lowest
            parts.append(_rule(y, f"${number * down_step:,.2f}"))
    every = math.ceil(len(columns) / _MOST_LABELS) if columns else 1
    for number, column in enumerate(columns):
        left, width = _LEFT + place * (number + _GAP / 2), place * (1 - _GAP)
        y = axis
        for fill, value in zip(_FILLS, column.up, strict=False):
            if value <= 0:
                continue
            tall = max(1.0, value * scale)
            y -= tall
            parts.append(_bar(fill, left, width, y, tall, id))
        if column.down > 0:
            parts.append(_bar("cost", left, width, below, max(1.0, column.down * _DOWN / lowest), id))
        # From the right, so that the newest column always has its label.
        if (len(columns) - 1 - number) % every == 0:
            strong = ' class="strong"' if column.is_now else ""
            parts.append(
                f'<text{strong} x="{left + width / 2:.2f}%" y="{axis + 17:.1f}" text-anchor="middle">'
                f"{escape(column.label)}</text>"
            )
    parts.append(f'<line class="axis" x1="0" x2="100%" y1="{axis:.1f}" y2="{axis:.1f}"/>')
    if has_down:
        parts.append(f'<line class="axis" x1="0" x2="100%" y1="{below:.1f}" y2="{below:.1f}"/>')
    return Markup("".join([*parts, "</svg>"]))


def _head(id: str, height: float, title: str, description: str) -> str:
    name = escape(id)
    return (
        f'<svg height="{height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
        f'<defs><pattern id="{name}-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line class="hatch" x1="0" x2="0" y1="0" y2="5"/></pattern></defs>'
    )


def _rule(y: float, words: str) -> str:
    return (
        f'<line class="rule" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="0" y="{y - 4:.1f}">{escape(words)}</text>'
    )


def _bar(fill: str, left: float, width: float, y: float, tall: float, id: str) -> str:
    hatch = f' fill="url(#{escape(id)}-hatch)"' if fill == "fresh" else ""
    return (
        f'<rect class="{fill}"{hatch} x="{left:.2f}%" width="{width:.2f}%" y="{y:.1f}" height="{tall:.1f}"/>'
    )


def share(part: float) -> Markup:
    """A bar that is filled to a share (0 to 1). The page shows the number beside it."""
    filled = f'<rect class="part" width="{min(1.0, max(0.0, part)):.1%}" height="6"/>' if part > 0 else ""
    return Markup(
        f'<svg class="share" aria-hidden="true"><rect class="all" width="100%" height="6"/>{filled}</svg>'
    )


_MOST_RUNS: Final = 30


def spark(runs: Iterable[bool], *, label: str) -> Markup:
    """The last runs, the newest at the right: good ones above the line and filled, failed ones below it and hollow.

    Args:
        runs: Whether each was good, the oldest first; the last 30 are drawn.
        label: The same in words.
    """
    shown = list(runs)[-_MOST_RUNS:]
    bars = []
    for number, good in enumerate(shown):
        x = 144 - 4.8 * (len(shown) - number) + 0.8
        place = f'x="{x:.1f}" width="2.6"'
        bars.append(
            f'<rect class="ok" {place} y="4" height="10"/>'
            if good
            else f'<rect class="no" {place} y="15" height="6"/>'
        )
    return Markup(
        f'<svg class="spark" viewBox="0 0 144 24" role="img" aria-label="{escape(label)}">'
        f'<line class="base" x1="0" x2="144" y1="14.5" y2="14.5"/>{"".join(bars)}</svg>'
    )


# ---- The graph around a memory

_NODE_WIDTH: Final = 140
_NODE_HEIGHT: Final = 54
_SOURCE_WIDTH: Final = 84
_MOST_SOURCES: Final = 3
_MOST_NEIGHBOURS: Final = 8
_MOST_CHARS: Final = 400
"""Of a memory: more than two lines show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A memory beside the one that a graph is about.

    Attributes:
        words: Its own.
        href: Where it is shown.
        relation: How the memory in the middle is related to it, in a word or two.
        is_thread: One of the two is a source of the other.
        is_past: It no longer holds.
    """

    words: str
    href: str
    relation: str
    is_thread: bool = False
    is_past: bool = False


def graph(
    words: str,
    *,
    sources: Sequence[Neighbour],
    others: Sequence[Neighbour],
    label: str,
    is_past: bool = False,
) -> Markup:
    """A memory, its sources above it, and the memories that it is linked to below it.

    Drawn 320 wide, for phone and margin alike, and scaled as a whole. At most 3 sources and 8 others are drawn: the
    page lists all of them.

    Args:
        words: Of the memory in the middle.
        sources: What it rests on; `relation` is the label above, such as a date.
        others: What it is linked to.
        label: The same in words.
        is_past: The one in the middle no longer holds.
    """
    top, below = sources[:_MOST_SOURCES], others[:_MOST_NEIGHBOURS]
    here = 118 if top else 8
    parts: list[str] = []
    lines: list[str] = []
    for x, source in zip(_across(len(top)), top, strict=True):
        lines.append(f'<path class="thread" d="M{x} 58 V78 C{x} 100 160 92 160 {here}"/>')
        left = x - _SOURCE_WIDTH // 2
        parts.append(_label(left, 2, _SOURCE_WIDTH, source.relation, "lab middle"))
        parts.append(_node(source, left, 26, _SOURCE_WIDTH, 32))
    bottom = here + _NODE_HEIGHT
    # Two lines down the middle: what is stitched is a thread to a source, also where both go the same way.
    for number, other in enumerate(below):
        x, y = (4, 176)[number % 2], bottom + 46 + (number // 2) * (_NODE_HEIGHT + 34)
        side = x + _NODE_WIDTH if number % 2 == 0 else x
        trunk, kind = (157, "thread") if other.is_thread else (163, "edge")
        lines.append(f'<path class="{kind}" d="M{trunk} {bottom} V{y + _NODE_HEIGHT // 2} H{side}"/>')
        parts.append(_label(x, y - 20, _NODE_WIDTH, other.relation, "lab"))
        parts.append(_node(other, x, y, _NODE_WIDTH, _NODE_HEIGHT))
    middle = _box("here", words, 70, here, 180, _NODE_HEIGHT, is_past=is_past)
    rows = (len(below) + 1) // 2
    height = bottom + (46 + rows * (_NODE_HEIGHT + 34) - 34 if rows else 0) + 8
    return Markup(
        f'<svg viewBox="0 0 320 {height}" role="group" aria-label="{escape(label)}">'
        f"{''.join(lines)}{middle}{''.join(parts)}</svg>"
    )


def _node(one: Neighbour, x: int, y: int, width: int, height: int) -> str:
    box = _box("node", one.words, x, y, width, height, is_past=one.is_past)
    return f'<a href="{escape(one.href)}">{box}</a>'


def _box(kind: str, words: str, x: int, y: int, width: int, height: int, *, is_past: bool) -> str:
    past = " past" if is_past else ""
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    # SVG doesn't wrap text; HTML in it does, and is cut by the style sheet.
    return (
        f'<rect class="{kind}{past}" {place} rx="4"/><foreignObject {place}>'
        f'<div class="words{past}"><p>{escape(words[:_MOST_CHARS])}</p></div></foreignObject>'
    )


def _label(x: int, y: int, width: int, words: str, kind: str) -> str:
    return (
        f'<foreignObject x="{x}" y="{y}" width="{width}" height="16">'
        f'<div class="{kind}">{escape(words)}</div></foreignObject>'
    )


def _across(count: int) -> list[int]:
    return {0: [], 1: [160], 2: [104, 216]}.get(count, [62, 160, 258])
