"""The event stream of a page: the parts that changed, as HTML.

What always holds: a stream shows what the caller may see, and ends with the session and with the door; streams that show the
same send the same bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from gateway.access.caller import Caller
from gateway.api.routes.streams import PING, PING_S
from gateway.ui.drawing import Key, frame_between
from gateway.ui.pages import Pages
from gateway.ui.rendering import regions
from gateway.ui.views.audit_values import audit_values, audits_values
from gateway.ui.views.change import change_values
from gateway.ui.views.now import now_page
from gateway.ui.watch import PairSeen
from twinlog.errors import InvalidInput, NotFound

_PATHS = {"now": "/ui", "change": "/ui/change", "audits": "/ui/audits", "audit": "/ui/audits/{audit}"}


class Live:
    """One stream. Raises InvalidInput for a view that has none, NotFound where the caller may not see it."""

    def __init__(self, pages: Pages, caller: Caller, session: str, view: str, operation: str, audit: str = "") -> None:
        if view not in _PATHS:
            raise InvalidInput(f"the view {view[:40]!r} has no stream", parameter="view")
        if view != "now" and not pages.may(caller, "GET", _PATHS[view]):
            raise NotFound(f"the view {view!r} has no stream for this caller")
        self._pages, self._session, self._view, self._operation = pages, session, view, operation
        self._audit, self._grants = audit, caller.grants
        self._whole: Mapping[str, str] = {}
        self._is_advised = pages.may(caller, "GET", "/v1/view")
        self._may_change = pages.may(caller, "POST", "/ui/change")
        self._needs_session = pages.sessions.token_of(session) is not None

    async def follow(self) -> AsyncGenerator[bytes]:
        """Yields a frame for each look at which something has changed; the first has all parts."""
        shown: Mapping[str, str] = {}
        number, sent_s = -1, 0.0
        key: Key = (self._view, self._operation, self._is_advised, self._may_change)
        if self._view == "audit":  # keys of rows are in it
            key = (*key, self._audit, self._grants)
        async for seen in self._pages.watch.follow():
            if self._needs_session and self._pages.sessions.token_of(self._session, is_use=False) is None:
                return  # the page asks for another stream, and is led to the log-in
            drawn = self._pages.shared.draw(key, seen, self._draw)
            frame = drawn.frame if drawn.before == number else frame_between(shown, drawn.parts)
            shown, number = drawn.parts, drawn.number
            if frame or seen.at_s - sent_s >= PING_S:
                sent_s = seen.at_s
                yield frame or PING

    def _draw(self, seen: PairSeen) -> Mapping[str, str]:
        if self._view == "now":
            return regions("now.html", {"page": now_page(seen, is_advised=self._is_advised), "is_advised": self._is_advised})
        if self._view == "audits":
            return regions("audits.html", audits_values(self._pages.service))
        if self._view == "audit":
            return self._drawn_audit()
        return regions("change.html", change_values(seen, self._operation, may_change=self._may_change))

    def _drawn_audit(self) -> Mapping[str, str]:
        """A result with its report is drawn once: it does not change, and may be large."""
        if self._whole:
            return self._whole
        try:
            values = audit_values(self._pages.service, self._audit, self._grants)
        except NotFound:  # a restart of this site forgot its progress, and it has not reported again
            return {}
        parts = regions("audit.html", values)
        if values["result"] is not None and values["result"].report is not None:
            self._whole = parts
        return parts
