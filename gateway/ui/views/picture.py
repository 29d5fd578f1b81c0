"""Places the parts of the write path in their picture, wide and narrow, and draws the curve of the last minutes.

What always holds: site a stands on the left and site b on the right, whichever is active, so that nothing jumps in a role
change except the way of a write; sizes never depend on figures, so that nothing moves when one changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.ui import words
from gateway.ui.views.write_path import Node
from gateway.ui.watch import Point

CURVE_WIDTH, CURVE_HEIGHT = 300, 40
OVER_MIN_S = 30.0
BEGINS = "the curve begins in two seconds"  # with the third look: a rate lies between two


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A part with its place. `is_line`: it is written on a line, without a box."""

    name: str
    node: Node
    x: int
    y: int
    w: int
    h: int

    @property
    def middle(self) -> int:
        return self.x + self.w // 2

    @property
    def is_long(self) -> bool:
        """Returns whether its word needs smaller letters to stay inside."""
        return 40 + 8.5 * len(self.node.word) > self.w


@dataclass(frozen=True, slots=True)
class PathLine:
    """A way of bytes. `d` is an SVG path; `level` is that of the part where it ends."""

    d: str
    level: str


@dataclass(frozen=True, slots=True)
class Box:
    """A site."""

    site: str
    x: int
    y: int
    w: int
    h: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class Picture:
    w: int
    h: int
    boxes: tuple[Box, ...]
    nodes: tuple[PlacedNode, ...]
    lines: tuple[PathLine, ...]


_WIDE = {  # with site a active; mirrored with site b
    "client": (0, 118, 150, 76), "gateway": (212, 118, 168, 76), "wal": (416, 38, 168, 76), "storage": (416, 184, 168, 76),
    "remote": (762, 38, 226, 76), "shipping": (612, 184, 126, 76), "copy": (762, 184, 226, 76), "register": (612, 92, 126, 58),
}
_NARROW = {
    "client": (6, 0, 158, 64), "gateway": (6, 96, 158, 64), "wal": (6, 184, 158, 64), "remote": (182, 184, 158, 64),
    "storage": (6, 360, 158, 64), "copy": (182, 360, 158, 64), "shipping": (182, 272, 158, 64), "register": (182, 0, 158, 64),
}


def picture(nodes: Mapping[str, Node], active: str | None, *, is_wide: bool) -> Picture:
    places, (width, height) = (_WIDE, (1000, 296)) if is_wide else (_NARROW, (346, 438))
    is_mirrored = active == "b"
    placed = []
    for name, (x, y, w, h) in places.items():
        place = width - x - w if is_mirrored else x
        placed.append(PlacedNode(name, nodes[name], place, y, w, h))
    at = {one.name: one for one in placed}
    lines = _wide_lines(at) if is_wide else _narrow_lines(at)
    first, second = ("b", "a") if active == "b" else ("a", "b")
    boxes = _boxes(first, second, active, is_mirrored=is_mirrored, is_wide=is_wide, width=width)
    return Picture(width, height, boxes, tuple(placed), lines)


def _boxes(first: str, second: str, active: str | None, *, is_mirrored: bool, is_wide: bool, width: int) -> tuple[Box, ...]:
    """`first`: the site on whose side the write begins."""
    sizes = ((196, 4, 404, 290), (750, 4, 250, 290)) if is_wide else ((0, 72, 170, 364), (176, 72, 170, 364))
    return tuple(
        Box(site, width - x - w if is_mirrored else x, y, w, h, site == active)
        for site, (x, y, w, h) in zip((first, second), sizes, strict=True)
    )


def _side(one: PlacedNode, other: PlacedNode) -> tuple[int, int]:
    """The x of the sides of two boxes that look at each other."""
    return (one.x + one.w, other.x) if one.x < other.x else (one.x, other.x + other.w)


def _wide_lines(at: Mapping[str, PlacedNode]) -> tuple[PathLine, ...]:
    def across(one: str, other: str, y: int) -> str:
        begin, end = _side(at[one], at[other])
        return f"M{begin} {y}H{end}"

    def bent(one: str, other: str) -> str:
        begin, end = _side(at[one], at[other])
        half = (begin + end) // 2
        return f"M{begin} {at[one].y + at[one].h // 2}H{half}V{at[other].y + at[other].h // 2}H{end}"

    gateway, middle = at["gateway"], at["gateway"].middle
    begin_y, top = gateway.y, 22
    over = f"M{middle} {begin_y}V{top}H{at['remote'].middle}V{at['remote'].y}"
    return (
        PathLine(across("client", "gateway", gateway.y + gateway.h // 2), at["client"].node.level),
        PathLine(bent("gateway", "wal"), at["wal"].node.level), PathLine(over, at["remote"].node.level),
        PathLine(bent("gateway", "storage"), at["storage"].node.level),
        PathLine(across("storage", "shipping", 222), at["shipping"].node.level),
        PathLine(across("shipping", "copy", 222), at["shipping"].node.level),
    )


def _narrow_lines(at: Mapping[str, PlacedNode]) -> tuple[PathLine, ...]:
    def down(one: str, other: str) -> str:
        return f"M{at[one].middle} {at[one].y + at[one].h}V{at[other].y}"

    gateway, remote = at["gateway"], at["remote"]
    begin = _side(gateway, remote)[0]
    return (
        PathLine(down("client", "gateway"), at["client"].node.level), PathLine(down("gateway", "wal"), at["wal"].node.level),
        PathLine(f"M{begin} {gateway.y + gateway.h // 2}H{remote.middle}V{remote.y}", remote.node.level),
        PathLine(down("wal", "storage"), at["storage"].node.level),
        PathLine(
            f"M{at['wal'].middle} {at['shipping'].y + 32}H{_side(at['wal'], at['shipping'])[1]}", at["shipping"].node.level
        ),
        PathLine(down("shipping", "copy"), at["shipping"].node.level),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Writes a second over the last minutes. `gaps`: places and widths where no site took any; `note`: the figures in words."""

    line: str
    note: str
    gaps: tuple[tuple[float, float], ...]
    over: str


def curve(points: Sequence[Point]) -> Curve:
    known = [point for point in points if point.writes is not None]
    if len(known) < 2:
        return Curve("", BEGINS if len(points) < 3 else "no active reports its writes", (), _over(OVER_MIN_S))
    end_s, over_s = points[-1].at_s, max(OVER_MIN_S, points[-1].at_s - points[0].at_s)
    most = max(1.0, *(point.writes or 0.0 for point in known))

    def x(at_s: float) -> float:
        return round(CURVE_WIDTH * (1 - (end_s - at_s) / over_s), 1)

    line = " ".join(f"{x(point.at_s)},{round(CURVE_HEIGHT * (1 - (point.writes or 0.0) / most), 1)}" for point in known)
    gaps = tuple(
        (x(before.at_s), round(x(point.at_s) - x(before.at_s), 1))
        for before, point in pairwise(known) if False in (before.is_taken, point.is_taken)
    )
    note = f"{words.rate(known[-1].writes)} now, {words.rate(max(point.writes or 0.0 for point in known))} at most"
    return Curve(line, note, gaps, _over(over_s))


def _over(over_s: float) -> str:
    return words.duration(round(over_s)).replace(".0 s", " s")
