"""Text as a terminal may have it: without characters that command the terminal.

This module is pure.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# C0 without tab and line feed, DEL, C1; lone surrogates, which no stream encodes; marks that turn the direction of text round.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """`text` with the replacement character for each that is a command to a terminal. As long as `text`."""
    return _COMMANDS.sub(REPLACEMENT, text)


def plain_json(text: str) -> str:
    """A JSON document that says the same without such characters: those that JSON lets stand in a string are escaped."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
