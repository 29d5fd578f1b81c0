"""The writes of a repair, by the client's flow, all of them to one site.

What always holds: each is sent under a key of its own, and again under the same one after an answer that does not say what
became of it, so none takes effect twice; what is still not known at the end is called unknown; nothing is written elsewhere
when the active has moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from spark_jobs.repair.planning import Write
from twinlog import Client, Patience
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import (
    NotActive,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PeerError,
    PreconditionFailed,
    TwinlogError,
    Unavailable,
)
from twinlog.flow import Call
from twinlog.sites import ACTOR_HEADER, who
from twinlog.wire.exchange import Reply

State = Literal["to write", "written", "changed since", "refused", "unknown"]
PATIENCE = Patience(deadline_s=30.0, attempt_timeout_s=10.0, retry_first_s=0.1, retry_max_s=2.0)
_CHANGED = "the row is not what the audit saw: a newer write has been there, or an earlier repair; run compare again"


@dataclass(frozen=True, slots=True)
class Done:
    """The end of one write. A row that was written has `version` and `receipt`; `ends`: no further write makes sense now."""

    state: State
    reason: str = ""
    version: int | None = None
    receipt: str | None = None
    ends: bool = False


class RowsAtActive:
    """`site`: the active; `client` knows its address, and is closed by whoever made it."""

    def __init__(self, client: Client, site: str) -> None:
        self._client, self._site = client, site

    def look(self, write: Write) -> Done:
        """Says whether `write` would take place now, and writes nothing."""
        try:
            found = _version(self._ask("GET", write, {}, None))
        except NotFound:
            found = None
        except TwinlogError as error:
            return Done("to write", f"not looked at: {error.message}", ends=True) if _ends(error) else _not_done(error)
        seen = None if write.expected is None else write.expected & (1 << 64) - 1
        return Done("to write") if found == seen else Done("changed since", _CHANGED)

    def write(self, write: Write, key: str) -> Done:
        """Sends `write` under the idempotency key `key`."""
        header, condition = write.condition
        try:
            answer = self._ask(write.method, write, {header: condition}, key)
        except TwinlogError as error:
            return _not_done(error)
        return Done("written", version=_version(answer), receipt=answer["receipt"])

    def _ask(self, method: str, write: Write, headers: dict[str, str], key: str | None) -> dict[str, Any]:
        path = f"/v1/tables/{quote(write.table, safe='')}/rows/{write.key_text}"
        content = (write.body or "").encode() if method == "PUT" else b""
        known = {"Content-Type": "application/json", "Accept": "application/json", ACTOR_HEADER: who(), **headers}
        reply: Reply = self._client.send(Call(method, path, known, content, key, site=self._site))
        return decoded(OBJECT, reply.content, lambda what: PeerError(f"the site's answer cannot be read: {what}", sent=True))


def _version(answer: dict[str, Any]) -> int:
    try:
        return int(answer["version"])  # decimal text
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError("the site's answer has no version: is it a twinlog gateway?", sent=True) from error


def _ends(error: TwinlogError) -> bool:
    """True when the site takes no writes now, or cannot say what became of this one."""
    return isinstance(error, NotActive | Unavailable | Overloaded | OutcomeUnknown)


def _not_done(error: TwinlogError) -> Done:
    if isinstance(error, PreconditionFailed):
        return Done("changed since", _CHANGED)
    if isinstance(error, OutcomeUnknown) or error.fields.get("outcome") == "unknown":
        return Done("unknown", error.message, ends=True)
    return Done("to write" if _ends(error) else "refused", error.message, ends=_ends(error))
