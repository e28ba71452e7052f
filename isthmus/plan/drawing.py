"""Drawing of a mesh as SVG, without Graphviz, and as text for Graphviz."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from isthmus.plan.layout import SpotPlace, laid_out
from isthmus.plan.picture import Picture, Spot, Stroke

_CHARACTER = 7.2
"""Width (pixels) of a label's character, at most."""
_MARGIN = 24.0
_CROWDED = 24
"""Spots on a ring from which labels stand like spokes."""
_STYLE = """\
  text { font: 12px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #222;
    paint-order: stroke; stroke: white; stroke-width: 3px; }
  .title { font-weight: bold; font-size: 14px; }
  .note { fill: #555; }
  line { stroke: #7a8793; stroke-width: 1.5; }
  line.only { stroke: #c0392b; stroke-width: 2.5; }
  circle, rect.crowd { fill: #dbe7f3; stroke: #2c5f8a; stroke-width: 1.5; }
  circle.member, rect.member { fill: #d5ecd4; }
  circle.only, rect.only { stroke: #c0392b; stroke-width: 3.5; }
  circle.meeting { fill: #333; stroke: none; }
"""
_THIN = """\
  line { stroke-width: 0.6; }
  line.only { stroke-width: 0.8; }
"""
_MANY = 150
"""Number of lines from which lines are thin."""
_LEGEND = (
    "red: its loss alone separates sites that an exchange joins",
    "dot: both ends meet at that end's broker, the other dials; no dot: the sender of each way "
    "dials, or a third site's broker",
    "arrow: one way only; a line without arrows goes both ways",
)


def as_svg(picture: Picture) -> str:
    """Render an SVG file."""
    legend = _legend(picture)
    places = laid_out(
        [spot.name for spot in picture.spots],
        [(stroke.sender, stroke.receiver) for stroke in picture.strokes],
    )
    rings = [place.ring for place in places.values()]
    spokes = {ring for ring in rings if rings.count(ring) > _CROWDED}
    left, top, right, bottom = _bounds(picture, places, spokes)
    legend_top = bottom + 10
    height = legend_top + 18 * len(legend) - top
    style = _STYLE + (_THIN if len(picture.strokes) >= _MANY else "")
    edge = f'x="{left + 10:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} '
        f'{right - left:.0f} {height:.0f}" width="{right - left:.0f}" height="{height:.0f}">',
        f"<title>{escape(picture.title)}</title>",
        f"<style>\n{style}</style>",
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" '
        'markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>',
        f'<rect x="{left:.0f}" y="{top:.0f}" width="100%" height="100%" fill="white"/>',
        f'<text class="title" {edge} y="{top + 22:.0f}">{escape(picture.title)}</text>',
    ]
    for stroke in picture.strokes:
        lines += _stroke(stroke, places)
    for spot in picture.spots:
        lines += _spot(spot, places[spot.name], spokes=places[spot.name].ring in spokes)
    lines += (
        f'<text class="note" {edge} y="{legend_top + 18 * n:.0f}">{escape(note)}</text>'
        for n, note in enumerate(legend)
    )
    return "\n".join([*lines, "</svg>"])


def _legend(picture: Picture) -> tuple[str, ...]:
    if not picture.group:
        return _LEGEND
    return (*_LEGEND, f"green: hears the multicast group {picture.group} as well")


def _stroke(stroke: Stroke, places: dict[str, SpotPlace]) -> Iterator[str]:
    start, end = places[stroke.sender], places[stroke.receiver]
    length = math.hypot(end.x - start.x, end.y - start.y) or 1.0
    across, down = (end.x - start.x) / length, (end.y - start.y) / length
    # From rim to rim, so that the arrow's tip is visible.
    x1, y1 = start.x + 11 * across, start.y + 11 * down
    x2, y2 = end.x - 11 * across, end.y - 11 * down
    kind = ' class="only"' if stroke.is_single_point else ""
    arrow = "" if stroke.both_ways else ' marker-end="url(#arrow)"'
    yield (
        f'<line{kind} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{arrow}>'
        f"<title>{escape(stroke.about)}</title></line>"
    )
    if stroke.meeting in (stroke.sender, stroke.receiver):
        sign, near = (1, start) if stroke.meeting == stroke.sender else (-1, end)
        far = 20 if stroke.both_ways else 27  # beyond the arrow
        x, y = near.x + sign * far * across, near.y + sign * far * down
        yield f'<circle class="meeting" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def _spot(spot: Spot, place: SpotPlace, *, spokes: bool) -> Iterator[str]:
    kinds = {"only": spot.is_single_point, "member": spot.in_group}
    kind = " ".join(name for name, is_so in kinds.items() if is_so)
    title = f"<title>{escape(spot.about)}</title>"
    if spot.sites > 1:
        # A pile of cards.
        for shift in (6, 3, 0):
            x, y = place.x - 12 + shift, place.y - 8 - shift
            yield (
                f'<rect class="crowd {kind}" x="{x:.1f}" y="{y:.1f}" width="24" height="16" '
                f'rx="3">{title}</rect>'
            )
    else:
        yield f'<circle class="{kind}" cx="{place.x:.1f}" cy="{place.y:.1f}" r="9">{title}</circle>'
    yield _label(spot, place, spokes=spokes)


def _label(spot: Spot, place: SpotPlace, *, spokes: bool) -> str:
    text = escape(spot.label)
    across, down = math.cos(place.angle), math.sin(place.angle)
    if _is_in_the_middle(place):
        return f'<text x="{place.x + 16:.1f}" y="{place.y - 14:.1f}">{text}</text>'
    gap = 22 if spot.sites > 1 else 14
    x, y = place.x + gap * across, place.y + gap * down
    anchor = "start" if across >= 0 else "end"
    if spokes:
        turn = math.degrees(place.angle) + (0 if across >= 0 else 180)
        return (
            f'<text text-anchor="{anchor}" dominant-baseline="central" '
            f'transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})">{text}</text>'
        )
    if abs(across) < 0.3:
        anchor = "middle"
        y += 8 * down
    return f'<text text-anchor="{anchor}" x="{x:.1f}" y="{y + 4:.1f}">{text}</text>'


def _is_in_the_middle(place: SpotPlace) -> bool:
    return math.hypot(place.x, place.y) < 1


def _bounds(
    picture: Picture, places: dict[str, SpotPlace], spokes: set[int]
) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of all spots with labels and title."""
    xs, ys = [0.0], [0.0]
    for spot in picture.spots:
        place = places[spot.name]
        long = 24 + len(spot.label) * _CHARACTER
        xs += (place.x - 24, place.x + 24)
        ys += (place.y - 24, place.y + 24)
        across, down = math.cos(place.angle), math.sin(place.angle)
        if _is_in_the_middle(place):
            xs.append(place.x + long)
        elif place.ring in spokes:
            xs.append(place.x + long * across)
            ys.append(place.y + long * down)
        elif abs(across) < 0.3:
            xs += (place.x - long / 2, place.x + long / 2)
        else:
            xs.append(place.x + math.copysign(long, across))
    legend = max(map(len, (*_legend(picture), picture.title))) * _CHARACTER
    left = min(xs) - _MARGIN
    return left, min(ys) - _MARGIN - 24, max(max(xs) + _MARGIN, left + legend), max(ys) + _MARGIN


def as_dot(picture: Picture) -> str:
    """Render the graph for Graphviz's `dot`, `neato` or `twopi`."""
    lines = [f"digraph {_quoted(picture.title)} {{", "  layout=neato; overlap=false; splines=true;"]
    for spot in picture.spots:
        shape = "box3d" if spot.sites > 1 else "ellipse"
        more = ", color=red, penwidth=2" if spot.is_single_point else ""
        more += ", peripheries=2" if spot.in_group else ""
        lines.append(
            f"  {_quoted(spot.name)} [label={_quoted(spot.label)}, shape={shape}, "
            f"tooltip={_quoted(spot.about)}{more}];"
        )
    for stroke in picture.strokes:
        # The dot stands at the end whose broker both connect to.
        tail = "dot" if stroke.meeting == stroke.sender else "none"
        head = "none" if stroke.both_ways else "normal"
        if stroke.meeting == stroke.receiver:
            head = "dot" if stroke.both_ways else "dotnormal"
        red = ", color=red, penwidth=2" if stroke.is_single_point else ""
        lines.append(
            f"  {_quoted(stroke.sender)} -> {_quoted(stroke.receiver)} [dir=both, "
            f"arrowtail={tail}, arrowhead={head}, tooltip={_quoted(stroke.about)}{red}];"
        )
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
