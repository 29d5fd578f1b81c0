"""The client's side of the protocol: which site to ask, when to ask again, when to stop, and what is then known.

`call` is a generator: it yields `Send` (requests to make at the same time) or `Pause`, and is resumed with `Resumed` (the
time, and one `Reply` or `Broken` for each request). Drivers in client.py and async_client.py perform that over http.py and
async_http.py.

What always holds:
- a request is sent again only when it is a read or carries an idempotency key; the key is the same each time;
- every call ends by its deadline: with the reply, with the error that the site answered, with `Unavailable` when nothing
  was applied, or with `OutcomeUnknown` once one attempt at a write may have been applied and no reply has settled it;
- the view of the pair never goes back to an older epoch, unless both sites answer and neither knows the newer one.
Source: protocol.md section 8 (client switch), product.md section 2.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from twinlog.decoding import OBJECT, or_none
from twinlog.errors import Fenced, InvalidInput, OutcomeUnknown, TwinlogError, Unavailable
from twinlog.problem_documents import error_from_problem
from twinlog.wire.exchange import Broken, Reply, SiteRequest

DEADLINE_HEADER = "Twinlog-Deadline-S"
ANSWER_SHARE = 0.9  # of an attempt's time is the site's, so that its own account of a delay arrives before we hang up


class Call(msgspec.Struct, frozen=True, gc=False):
    """One logical request. `path` begins with `/` and includes the query. `key`: the idempotency key of a write.

    `anywhere`: when no site is active, whichever answers will do. `site`: this one is asked, whatever it is.
    """

    method: str
    path: str
    headers: Mapping[str, str] = {}
    content: bytes = b""
    key: str | None = None
    anywhere: bool = False
    site: str | None = None


class Send(msgspec.Struct, frozen=True, gc=False):
    requests: tuple[SiteRequest, ...]


class Pause(msgspec.Struct, frozen=True, gc=False):
    duration_s: float


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """`now_s` on the driver's monotonic clock, and an answer for each request of the `Send` (none after a `Pause`)."""

    now_s: float
    answers: tuple[Reply | Broken, ...] = ()


Flow = Generator[Send | Pause, Resumed, Reply]


@dataclass(frozen=True, slots=True)
class Patience:
    """Times of one call. Back-off doubles from `retry_first_s` to `retry_max_s`, less up to half by jitter."""

    deadline_s: float = 30.0
    attempt_timeout_s: float = 5.0
    probe_timeout_s: float = 1.0
    retry_first_s: float = 0.05
    retry_max_s: float = 1.0


class PairView:
    """A client's belief about the pair. It asks only the addresses that it was given: an answer names the active by its site,
    and an address in it is never taken up, or one answer could send every later write anywhere."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        if not urls:
            raise InvalidInput("the logical address names no site: write twinlog://PAIR?a=http://HOST:PORT&b=http://HOST:PORT")
        self.urls = {site: url.rstrip("/") for site, url in urls.items()}
        self.active: str | None = None
        self.epoch = 0

    @property
    def active_url(self) -> str | None:
        return self.urls[self.active] if self.active is not None else None

    def learn(self, active: Any) -> bool:
        """Take in {"site", "url", "epoch"}, unless it is older than what is known. True when it was taken."""
        if not isinstance(active, dict) or not isinstance(active.get("site"), str):
            return False
        site, epoch = active["site"], _epoch(active)
        if epoch < self.epoch or site not in self.urls:
            return False
        self.active, self.epoch = site, epoch
        return True

    def stranger(self, active: Any) -> str:
        """Returns what is wrong with an active that is none of the given sites, and what to do; else an empty text."""
        site = active.get("site") if isinstance(active, dict) else None
        if not isinstance(site, str) or site in self.urls:
            return ""
        return (
            f"; it names {site[:40]!r} the active, at {str(active.get('url'))[:100]}, which is none of the sites that this "
            f"client was given ({', '.join(self.urls)}), and so it is not asked: if it is yours, give its address"
        )

    def learn_all(self, documents: list[dict[str, Any]]) -> None:
        """Take in the cluster documents of one round; when every site answered, an older epoch counts too."""
        known = [d["active"] for d in documents if isinstance(d.get("active"), dict)]
        newest = max(known, key=_epoch, default=None)
        if len(documents) == len(self.urls):
            self.epoch = min(self.epoch, _epoch(newest or {}))
        if not self.learn(newest):
            self.active = None


def call(view: PairView, request: Call, patience: Patience, now_s: float, jitter: Callable[[], float]) -> Flow:
    """The reply (2xx) to `request` by whichever site is active. `jitter` returns numbers in [0, 1).

    Raises the error that the site answered, Unavailable, or OutcomeUnknown (fields: `idempotency_key`).
    """
    if request.site is not None and request.site not in view.urls:
        raise InvalidInput(f"there is no site {request.site!r}: it is one of {', '.join(view.urls)}")
    attempt = _Attempt(view, request, patience, now_s, jitter)
    while True:
        if request.site is None and view.active_url is None:
            yield from attempt.resolve()
        url = view.active_url if request.site is None else view.urls[request.site]
        if url is None and request.anywhere:
            url = attempt.answering_url
        if url is not None:
            reply = yield from attempt.send(url)
            if reply is not None:
                return reply
            if request.site is None and view.active_url not in (None, url) and attempt.may_hop():
                continue
        yield from attempt.pause()


class _Attempt:
    """The state of one call."""

    def __init__(
        self, view: PairView, request: Call, patience: Patience, now_s: float, jitter: Callable[[], float]
    ) -> None:
        self.view, self.request, self.patience, self.jitter = view, request, patience, jitter
        self.now_s = now_s
        self.until_s = now_s + patience.deadline_s
        self.is_unknown = False  # an attempt at the write may have been, or may yet be, applied
        self.retry_after_s = 0.0
        self.pauses = 0
        self.hopped = False
        self.trouble = "no site was asked yet"
        self.answering_url: str | None = None

    def may_hop(self) -> bool:
        """One hop to another site goes without a pause; two sites that point at each other must not be hammered."""
        first, self.hopped = not self.hopped, True
        return first

    def pause(self) -> Generator[Send | Pause, Resumed, None]:
        """Wait before the next round. Raises when the deadline would pass first."""
        backoff_s = min(self.patience.retry_max_s, self.patience.retry_first_s * 2 ** min(self.pauses, 20))
        duration_s = max(self.retry_after_s, backoff_s * (1 - self.jitter() / 2))
        self.pauses, self.hopped, self.retry_after_s = self.pauses + 1, False, 0.0
        if self.now_s + duration_s >= self.until_s:
            raise self._too_late()
        resumed = yield Pause(duration_s)
        self.now_s = resumed.now_s

    def resolve(self) -> Generator[Send | Pause, Resumed, None]:
        """Ask every site who is active."""
        timeout_s = self._timeout(self.patience.probe_timeout_s)
        accept = {"Accept": "application/json"}
        probes = tuple(SiteRequest(f"{url}/v1/cluster", "GET", accept, b"", timeout_s) for url in self.view.urls.values())
        resumed = yield Send(probes)
        self.now_s = resumed.now_s
        answers = dict(zip(self.view.urls.values(), resumed.answers, strict=True))
        found = {url: document for url, answer in answers.items() if (document := _cluster_document(answer)) is not None}
        documents = list(found.values())
        self.answering_url = next(iter(found), None)
        self.view.learn_all(documents)
        if not documents:
            self._raise_refusal(resumed.answers)
            self.trouble = "no site answers: " + "; ".join(f"{url}: {_described(answer)}" for url, answer in answers.items())
        elif self.view.active is None:
            self.trouble = "no site is active: " + ", ".join(
                f"{document.get('site', '?')} is {document.get('role', 'unknown')}{self.view.stranger(document.get('active'))}"
                for document in documents
            )

    def _raise_refusal(self, answers: tuple[Reply | Broken, ...]) -> None:
        """Raises where no site shows the pair and one said that this caller may not see it: asking again would not help. Not so
        where a write may have been applied: no refusal of a look says what became of it."""
        for answer in answers:
            if isinstance(answer, Reply) and answer.status in (401, 403) and not self.is_unknown:
                raise error_from_problem(answer.status, answer.content)

    def send(self, url: str) -> Generator[Send | Pause, Resumed, Reply | None]:
        """One attempt at `url`. None: to be tried again. Raises what the site answered when that settles the call."""
        timeout_s = self._timeout(self.patience.attempt_timeout_s)
        headers = {**self.request.headers, DEADLINE_HEADER: f"{timeout_s * ANSWER_SHARE:.3f}"}
        if self.request.key is not None:
            headers["Idempotency-Key"] = self.request.key
        attempt = SiteRequest(url + self.request.path, self.request.method, headers, self.request.content, timeout_s)
        resumed = yield Send((attempt,))
        self.now_s = resumed.now_s
        (answer,) = resumed.answers
        if isinstance(answer, Broken):
            self.is_unknown = self.is_unknown or (answer.sent and self.request.key is not None)
            self.trouble = f"{url}: {answer.detail}"
            self.view.active = None
            return None
        if 200 <= answer.status < 300:
            return answer
        self._judge(url, answer)
        return None

    def _judge(self, url: str, reply: Reply) -> None:
        """Take in a reply that is no success. Raises it when trying again would not change it."""
        error = error_from_problem(reply.status, reply.content)
        self.trouble = f"{url}: {error.message}"
        if reply.status == 421 and self.request.site is None:
            named = error.fields.get("active")
            self.trouble += self.view.stranger(named)
            if not self.view.learn(named) or self.view.active_url == url:
                self.view.active = None
        elif reply.status == 429:
            self.retry_after_s = _retry_after_s(reply, error)
        elif self._may_change(reply, error):
            self.retry_after_s = _retry_after_s(reply, error)
            self.view.active = None
        else:
            raise self._settled_by(error)

    def _settled_by(self, error: TwinlogError) -> TwinlogError:
        """The refusal as the whole call's error: an earlier attempt may still be on its way, and be applied."""
        if self.is_unknown and error.fields.get("outcome") == "not_applied":
            error.fields["outcome"] = "unknown"
        return error

    def _may_change(self, reply: Reply, error: TwinlogError) -> bool:
        """True when another attempt can end otherwise. Notes when this one leaves the fate of a write open."""
        assumed = "unknown" if reply.status in (408, 500, 502, 504) else "not_applied"
        if self.request.key is not None and error.fields.get("outcome", assumed) == "unknown":
            self.is_unknown = True
            return True
        return reply.status in (408, 502, 503, 504) or isinstance(error, Fenced)

    def _timeout(self, limit_s: float) -> float:
        left_s = self.until_s - self.now_s
        if left_s <= 0:
            raise self._too_late()
        return min(limit_s, left_s)

    def _too_late(self) -> TwinlogError:
        waited = f"within {self.patience.deadline_s:g} s"
        if self.is_unknown:
            return OutcomeUnknown(
                f"it is not known {waited} whether the write was applied; repeat it with the same idempotency key. "
                f"Last: {self.trouble}", idempotency_key=self.request.key, outcome="unknown",
            )
        nothing = "nothing was applied; " if self.request.key is not None else ""
        return Unavailable(f"no answer {waited}; {nothing}try again later. Last: {self.trouble}", outcome="not_applied")


def _epoch(active: Mapping[str, Any]) -> int:
    epoch = active.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def _cluster_document(answer: Reply | Broken) -> dict[str, Any] | None:
    if isinstance(answer, Broken) or answer.status != 200:
        return None
    return or_none(OBJECT, answer.content)


def _described(answer: Reply | Broken) -> str:
    return answer.detail if isinstance(answer, Broken) else f"HTTP {answer.status}"


def _retry_after_s(reply: Reply, error: TwinlogError) -> float:
    """Seconds: the problem's finer figure, else the header, else 0."""
    exact = error.fields.get("retry_after_s")
    if isinstance(exact, int | float):
        return max(0.0, exact)
    try:
        return max(0.0, float(reply.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
