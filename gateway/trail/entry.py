"""The lines of the audit trail: one JSON object each, sealed with a SHA-256 over the line before it and its own content.

`{"sha256":"...","entry":{...}}`, where `sha256` is of the 32 bytes of the line before (of the first line: 32 zeros) and of the
bytes of `entry` as they stand there.

What always holds: a line is at most LINE_BYTES_MAX long; whatever text a caller sent stands in it as JSON, so that no text ends
a line; an entry names an act and never holds a secret, for those who write it put in names and settings alone.
This module is pure.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Literal

import msgspec

from twinlog.decoding import or_none

Outcome = Literal["begun", "done", "refused", "failed", "undone", "unknown", "noted"]
NO_LINE = bytes(32)
WHAT_BYTES_MAX = 4 << 10
LINE_BYTES_MAX = 16 << 10
TEXT_LENGTH_MAX = 300
_SHOWN_MAX = 6  # members of what is too long
_SHOWN_LENGTH_MAX = 100
_HEAD = b'{"sha256":"%s","entry":'
_HEAD_BYTES = len(_HEAD % (b"0" * 64))
_LINE = re.compile(rb'\{"sha256":"([0-9a-f]{64})","entry":(\{.*\})\}', re.DOTALL)


class Who(msgspec.Struct, frozen=True, omit_defaults=True):
    """`name` and `kind` are proven, as far as anything is at this site; `says` is what whoever asks calls himself."""

    name: str
    kind: str
    address: str = ""
    says: str = ""


class TrailEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act or fact. `number`: 1 and upward, without a gap. `begun`: an entry with its end follows, whose `of` is this
    number; where none follows, the gateway died in between and the outcome is unknown. `late_ms`: how much later than
    `time_ms` the line could be written."""

    number: int
    time_ms: int
    event: str
    who: Who
    outcome: Outcome = "noted"
    what: dict[str, Any] = {}
    operation: str = ""
    of: int = 0
    late_ms: int = 0


class TrailHead(msgspec.Struct, frozen=True):
    """Says how far a trail has come: the number and the hash of its last line."""

    number: int = 0
    sha256: str = NO_LINE.hex()

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.sha256)


_decode = msgspec.json.Decoder(TrailEntry).decode


def digest_of(before: bytes, content: bytes) -> bytes:
    return sha256(before + content).digest()


def line_of(entry: TrailEntry, before: bytes) -> tuple[bytes, TrailHead]:
    """Returns the line with its newline, and where the trail stands behind it. `before`: the hash of the line before."""
    content = msgspec.json.encode(entry)
    digest = digest_of(before, content)
    return _HEAD % digest.hex().encode() + content + b"}\n", TrailHead(entry.number, digest.hex())


class Line(msgspec.Struct, frozen=True):
    """A line as it was found."""

    entry: TrailEntry
    content: bytes
    sha256: str

    @property
    def head(self) -> TrailHead:
        return TrailHead(self.entry.number, self.sha256)

    def follows(self, before: bytes) -> bool:
        return digest_of(before, self.content).hex() == self.sha256


def read_line(data: bytes) -> Line | None:
    """Returns a line without its newline as what it is; None where it is none, or not whole."""
    found = _LINE.fullmatch(data)
    entry = None if found is None else or_none(_decode, found[2])
    return None if found is None or entry is None else Line(entry, found[2], found[1].decode())


def bounded(what: dict[str, Any]) -> dict[str, Any]:
    """Returns `what` as JSON can keep it, with long texts cut; what is too long as a whole is named by its hash and size."""
    built = msgspec.to_builtins(what, str_keys=True, enc_hook=str)
    encoded = msgspec.json.encode(built)
    if len(encoded) <= WHAT_BYTES_MAX:
        return dict(built)
    texts = [(name, value) for name, value in built.items() if isinstance(value, str)][:_SHOWN_MAX]
    shown = {name[:_SHOWN_LENGTH_MAX]: value[:_SHOWN_LENGTH_MAX] for name, value in texts}
    return {**shown, "cut": {"bytes": len(encoded), "sha256": sha256(encoded).hexdigest()}}


def cut_text(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
