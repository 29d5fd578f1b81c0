"""The writes of a repair, over HTTP at the active.

What always holds: each is sent under a key of its own, and again under the same one after an answer that does not say what
became of it, so none takes effect twice; what is still not known at the end is called unknown; nothing is written elsewhere
when the active has moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import httpx
import tenacity

from spark_jobs.audit.gateways import CALL_TIMEOUT, who
from spark_jobs.repair.planning import Write

State = Literal["to write", "written", "changed since", "refused", "unknown"]
ATTEMPTS = 5
WAIT = tenacity.wait_exponential(multiplier=0.1, max=2.0)
_AGAIN = (429, 503)  # nothing was applied, or it is not known; both say: try again
_CHANGED = "the row is not what the audit saw: a newer write has been there, or an earlier repair; run compare again"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one write. `version`, `receipt`: of a row that was written. `ends`: no further one makes sense now."""

    state: State
    reason: str = ""
    version: int | None = None
    receipt: str | None = None
    ends: bool = False


class RowsAtActive:
    """`url`: of the active's gateway, without a final slash."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url
        self._http = httpx.Client(timeout=CALL_TIMEOUT, trust_env=False, transport=transport)

    def close(self) -> None:
        self._http.close()

    def look(self, write: Write) -> Done:
        """Whether it would be written now; nothing is."""
        try:
            response = self._ask("GET", write, {})
        except httpx.HTTPError as error:
            return Done("to write", f"not looked at: {_why(error)}", ends=True)
        if response.status_code not in (200, 404):
            return _not_done(response)
        found = response.json()["version"] if response.status_code == 200 else None
        seen = None if write.expected is None else write.expected & (1 << 64) - 1
        return Done("to write") if found == seen else Done("changed since", _CHANGED)

    def write(self, write: Write, key: str) -> Done:
        """`key`: of idempotency."""
        header, condition = write.condition
        headers = {header: condition, "Idempotency-Key": key, "Content-Type": "application/json"}
        try:
            response = self._ask(write.method, write, headers)
        except httpx.HTTPError as error:
            return Done("unknown", f"{_why(error)}: whether it was written is not known", ends=True)
        if not response.is_success:
            return _not_done(response)
        answer = response.json()
        return Done("written", version=answer["version"], receipt=answer["receipt"])

    def _ask(self, method: str, write: Write, headers: dict[str, str]) -> httpx.Response:
        """Raises httpx.HTTPError when no attempt was answered."""
        url = f"{self._url}/v1/tables/{quote(write.table, safe='')}/rows/{write.key_text}"
        body = write.body if method == "PUT" else None
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS), wait=WAIT, retry_error_callback=_last,
            retry=tenacity.retry_if_exception_type(httpx.HTTPError) | tenacity.retry_if_result(_says_again),
        )
        return attempts(
            self._http.request, method, url, content=body, headers={**headers, "Twinlog-Actor": who()}
        )


def _says_again(response: httpx.Response) -> bool:
    return response.status_code in _AGAIN


def _last(state: tenacity.RetryCallState) -> Any:
    """What the last attempt gave: its answer, or its error raised."""
    assert state.outcome is not None
    return state.outcome.result()


def _not_done(response: httpx.Response) -> Done:
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    said = f"HTTP {response.status_code}: {problem.get('detail') or problem.get('title') or response.reason_phrase}"
    if response.status_code == 412:
        return Done("changed since", _CHANGED)
    if response.status_code in (421, *_AGAIN) and problem.get("outcome") != "unknown":
        return Done("to write", said, ends=True)
    if response.status_code >= 500:
        return Done("unknown", said, ends=True)
    return Done("refused", said)


def _why(error: httpx.HTTPError) -> str:
    return f"the active does not answer ({error or type(error).__name__})"
