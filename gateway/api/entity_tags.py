"""Entity tags of rows, and the conditions that name them.

What always holds: a tag is the version of the row; behind it stands a mark for every representation but one, the whole row as
JSON by the columns that the table was created with, so that two representations never share a tag. If-Match compares versions
alone, since each representation of a version is of the same row. A weak tag and a foreign one match nothing; what is no tag at
all is an InvalidInput that names the header.
"""

from __future__ import annotations

import hashlib
import re

from gateway.api.content_coding import accepted_coding, coded_tag
from gateway.api.request import JSON, Head
from gateway.service.port import Condition
from storage.rows.codec import RowCodec
from twinlog.errors import InvalidInput

VERSION_LAST = (1 << 64) - 1
_TAG = re.compile(r'[ \t]*(?:(W/)?"([!\x23-\x7e\x80-\xff]*)"[ \t]*)?(,|$)')
_OWN = re.compile(r"(0|[1-9][0-9]{0,19})(?:\.[0-9a-f]{12})?(?:-(?:gzip|zstd))?")
_FIRST_REVISION = 1


def etag(version: int, mark: bytes = b"") -> bytes:
    return b'"%d%b"' % (version, mark)


def representation(codec: RowCodec, answer_type: str, *shape: object) -> bytes:
    """Returns the mark of a representation. `shape`: what else the request says about it, each falsy where it says nothing."""
    if answer_type == JSON and codec.schema.revision == _FIRST_REVISION and not any(shape):
        return b""
    digest = hashlib.blake2b(repr((codec.fingerprint, answer_type, shape)).encode(), digest_size=6)
    return b"." + digest.hexdigest().encode()


def opaque_tags(text: str, header: str) -> list[str] | None:
    """Returns what stands in the quotes of the strong tags; None for `*`. Raises InvalidInput that names `header`."""
    if text.strip() == "*":
        return None
    found, at, count = [], 0, 0
    while at < len(text):
        match = _TAG.match(text, at)
        if match is None:
            raise _no_tag(text[at:], header)
        at = match.end()
        if match[2] is not None:
            count += 1
            if match[1] is None:
                found.append(match[2])
    if not count:
        raise _no_tag(text, header)
    return found


def _no_tag(text: str, header: str) -> InvalidInput:
    return InvalidInput(
        f'{header} holds {text.strip()[:40]!r}: it must be * or tags in quotes, as the ETag of an answer shows them, "123"'
    )


def versions_of(tags: list[str]) -> tuple[int, ...]:
    """Returns the versions that these tags name; those of somebody else name none."""
    numbers = (int(own[1]) for own in map(_OWN.fullmatch, tags) if own is not None)
    return tuple(number for number in numbers if number <= VERSION_LAST)


def row_conditions(head: Head, key: bytes) -> tuple[Condition, ...]:
    """Returns If-Match and If-None-Match of a write as checks on the row's version."""
    if head.if_match is None and head.if_none_match is None:
        return ()
    conditions = []
    if head.if_match is not None:
        tags = opaque_tags(head.if_match, "If-Match")
        if tags is None:
            conditions.append(Condition(key, exists=True, problem="If-Match is *, but there is no such row"))
        else:
            conditions.append(_at_one_of(versions_of(tags), key, unmatched(head.if_match)))
    if head.if_none_match is not None:
        tags = opaque_tags(head.if_none_match, "If-None-Match")
        if tags is None:
            conditions.append(Condition(key, exists=False, problem="If-None-Match is *, but the row exists"))
        elif versions := versions_of(tags):
            text = f"the row is at a version that If-None-Match excludes ({head.if_none_match[:80]})"
            conditions.append(Condition(key, other_versions=versions, problem=text))
    return tuple(conditions)


def _at_one_of(versions: tuple[int, ...], key: bytes, problem: str) -> Condition:
    if len(versions) == 1:
        return Condition(key, version=versions[0], problem=problem)
    return Condition(key, versions=versions, problem=problem)


def unmatched(if_match: str) -> str:
    """Returns the problem of a row that is at another version than If-Match names."""
    return f"the row is not at the version that If-Match names ({if_match[:80]}): read it again and decide anew"


def is_matched(head: Head, version: int) -> bool:
    """True if the row at `version` is what If-Match of a read asks for. Raises InvalidInput."""
    tags = None if head.if_match is None else opaque_tags(head.if_match, "If-Match")
    return tags is None or version in versions_of(tags)


def known_tag(head: Head, tag: bytes) -> bytes | None:
    """Returns the tag that the client has by If-None-Match of a read: `tag`, or the one in the coding that the request accepts.

    Raises InvalidInput.
    """
    if head.if_none_match is None:
        return None
    tags = opaque_tags(head.if_none_match, "If-None-Match")
    if tags is None or tag[1:-1].decode() in tags:
        return tag
    coding = accepted_coding(head.accept_encoding)
    in_coding = coded_tag(tag, coding)
    return in_coding if coding and in_coding[1:-1].decode() in tags else None
