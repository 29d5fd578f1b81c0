"""Faults of links: toxics of Toxiproxy, and a link that is down.

What always holds: one toxic of a kind lies on a link at a time, so that healing one fault does not heal another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import LINK_TARGETS, Kind, Stage
from chaos.harness.pair.links import STREAMS
from chaos.harness.pair.parts import SEVERAL
from twinlog.errors import InvalidInput


@dataclass
class Toxics:
    """Toxics on some links. What a black hole has swallowed does not arrive when it is healed: the connection is closed."""

    stage: Stage
    links: tuple[str, ...]
    toxic: str
    streams: tuple[str, ...]
    attributes: Mapping[str, int]

    def _all(self) -> list[tuple[str, str, str]]:
        return [(link, self.toxic, stream) for link in self.links for stream in self.streams]

    async def why_not(self) -> str:
        there = [each for each in self._all() if each in self.stage.toxics]
        return f"{there[0][0]} has a toxic {there[0][1]} already" if there else ""

    async def inject(self) -> str:
        for link, toxic, stream in self._all():
            self.stage.toxics.add((link, toxic, stream))
            await self.stage.links.add(link, toxic, stream, self.attributes)
        return ""

    async def heal(self) -> str:
        for link, toxic, stream in self._all():
            await self.stage.links.remove(link, toxic, stream)
            self.stage.toxics.discard((link, toxic, stream))
        return ""


@dataclass
class Down:
    stage: Stage
    links: tuple[str, ...]

    async def why_not(self) -> str:
        there = [link for link in self.links if (link, "down", "") in self.stage.toxics]
        return f"{there[0]} is down already" if there else ""

    async def inject(self) -> str:
        for link in self.links:
            self.stage.toxics.add((link, "down", ""))
            await self.stage.links.switch(link, on=False)
        return ""

    async def heal(self) -> str:
        for link in self.links:
            await self.stage.links.switch(link, on=True)
            self.stage.toxics.discard((link, "down", ""))
        return ""


def links_of(fault: Fault) -> tuple[str, ...]:
    return SEVERAL.get(fault.target, (fault.target,))


def _with_figures(name: str, sentence: str, toxic: str, attributes: tuple[str, ...], default: str) -> Kind:
    """`attributes` of the toxic are the numbers of its `how`, by slashes; `default` without one."""

    def figures(fault: Fault) -> list[int]:
        found = [int(part) for part in (fault.how or default).split("/")]
        if len(found) > len(attributes) or min(found) < 0:
            raise InvalidInput(f"`how` of {name} has at most {len(attributes)} numbers, none below 0")
        return found

    def effect(fault: Fault, stage: Stage) -> Toxics:
        return Toxics(stage, links_of(fault), toxic, STREAMS, dict(zip(attributes, figures(fault), strict=False)))

    return Kind(name, LINK_TARGETS, sentence, effect, check=figures)


def _black_hole(fault: Fault, stage: Stage) -> Toxics:
    streams = {"": STREAMS, "up": ("upstream",), "down": ("downstream",)}[fault.how]
    return Toxics(stage, links_of(fault), "timeout", streams, {"timeout": 0})


def _down(fault: Fault, stage: Stage) -> Down:
    return Down(stage, links_of(fault))


KINDS = (
    _with_figures("latency", "each way is longer by MS, or MS/JITTER", "latency", ("latency", "jitter"), "100"),
    _with_figures("bandwidth", "each way passes so many KB a second", "bandwidth", ("rate",), "16"),
    _with_figures("slow-close", "closing takes so many ms", "slow_close", ("delay",), "1000"),
    _with_figures("slice", "what is sent arrives in pieces of so many bytes", "slicer", ("average_size",), "64"),
    _with_figures("reset", "each connection is reset after so many ms", "reset_peer", ("timeout",), "0"),
    Kind("black-hole", LINK_TARGETS, "connections stay open, and nothing passes", _black_hole),
    Kind("one-way", LINK_TARGETS, "nothing passes `up` (to the one who is called), or `down`", _black_hole, how=("up", "down")),
    Kind("down", LINK_TARGETS, "connections are closed and refused", _down),
)
LINGERING = ("latency", "bandwidth", "black-hole", "one-way", "slice")  # answers may lie in the proxy for as long
CUTTING = ("down", "black-hole", "one-way")
