"""Draws requests from the OpenAPI document by Schemathesis, asks the pair, and lets Schemathesis judge the answers.

What always holds: the same seed draws the same requests and gets the same answers; half of the requests of an operation obey
the document and half do not; names that the pair has take the place of most of those that were drawn, or almost every request
would end with "there is no such table". A fault is kept once for its operation and kind: an answer with 5xx that is not
expected, a status, content type, header or body that the document does not have, an error that the product does not know.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlsplit

import hypothesis
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.transport import Response

from chaos.fuzz.groups import rows
from chaos.fuzz.pair import CALLERS, Answered, Asked, Pair, write_token_file

_CHECKS = ("status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance")
FRESH_AFTER = 400  # requests, or once the site serves no rows any more
UNSERVED_MAX = 15
KNOWN = 0.8  # share of the requests in which a name that exists takes the place of one that was drawn
LIMITED = 0.02
_OF_PEER = "POST /internal/v1/peer/{method}"  # passes on errors of any class, which the other site turns back into the same
PATH_OF_ROWS = "/v1/tables/{table}/rows"


@schemathesis.serializer("application/x-msgpack")
def _as_msgpack(context: Any, value: Any) -> bytes:
    """The peer's calls are bytes to the document; rows are objects."""
    return value if isinstance(value, bytes) else msgspec.msgpack.encode(value, enc_hook=repr)


@schemathesis.serializer("application/x-ndjson")
def _as_lines(context: Any, value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value, default=repr).encode()


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def _as_arrow(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode()


@dataclass(slots=True)
class Findings:
    """`seen`: how often each operation answered each status. `faults`: by operation and kind, with the request that showed it
    first."""

    seen: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    requests: int = 0

    def note(self, operation: str, kind: str, what: str) -> None:
        self.faults.setdefault((operation, kind), what)


class Asking:
    """`examples`: requests for each operation and mode."""

    def __init__(self, seed: int, examples: int) -> None:
        self.seed, self.examples = seed, examples
        self.findings = Findings()
        self._pair: Pair | None = None
        self._asked = self._unserved = self._pairs = 0

    def run(self, only: str = "", each: Callable[[str], None] = lambda label: None) -> Findings:
        """Asks all operations with `only` in their label, such as `GET /v1/tables`."""
        with TemporaryDirectory(prefix="twinlog-fuzz-") as folder:
            self._folder = Path(folder)
            write_token_file(self._folder / "tokens.json")
            try:
                document = self._fresh().document()
                schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
                operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
                for operation in operations:
                    if only in operation.label:
                        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                            self._ask_all(operation, mode)
                        each(operation.label)
            finally:
                self._let_go()
        return self.findings

    def _fresh(self) -> Pair:
        self._let_go()
        self._pairs += 1
        self._asked = self._unserved = 0
        self._pair = Pair(self.seed + self._pairs, self._folder)
        return self._pair.__enter__()

    def _let_go(self) -> None:
        if self._pair is not None:
            self._pair.__exit__(None, None, None)
            self._pair = None

    def _ask_all(self, operation: Any, mode: GenerationMode) -> None:
        chance = Random(f"{self.seed} {operation.label} {mode}")
        first: list[Any] = []

        @hypothesis.seed(self.seed)
        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            if not first:
                first.append(case)
            self._ask(operation, case, chance)

        with suppress(hypothesis.errors.Unsatisfiable):  # nothing about the request can be wrong
            ask()
        if first and mode is GenerationMode.POSITIVE:
            for caller in (*CALLERS, "limited", "limited"):  # of a request without parameters there is one alone
                self._ask(operation, first[0], chance, caller)

    def _ask(self, operation: Any, case: Any, chance: Random, caller: str = "") -> None:
        pair = self._pair
        assert pair is not None
        if self._asked >= FRESH_AFTER or self._unserved >= UNSERVED_MAX:
            pair = self._fresh()
        self._asked += 1
        self._unserved = 0 if pair.is_serving else self._unserved + 1
        self.findings.requests += 1
        _make_known(case, pair.known, chance)
        caller = caller or _caller(chance)
        prepared = requests.Request(**case.as_transport_kwargs(base_url="http://a")).prepare()
        sent = _as_asked(prepared)
        if chance.random() < 0.15:
            _make_odd(sent, chance)
        answered = pair.ask(caller, sent)
        self._judge(operation, case, prepared, answered, f"as {caller}: {sent.method} {sent.path} {sent.body[:300]!r}")
        if pair.internal:
            self.findings.note(
                operation.label, "internal", f"{pair.internal[0][:600]} {sent.method} {sent.path} {sent.body[:200]!r}"
            )
            pair.internal.clear()

    def _judge(self, operation: Any, case: Any, prepared: Any, answered: Answered, what: str) -> None:
        label, found = operation.label, self.findings
        found.seen[label, answered.status] += 1
        if answered.broke:
            found.note(label, "broke", f"{answered.broke} {what}")
            return
        if answered.status >= 500 and answered.status not in ((502, 503, 504) if label == _OF_PEER else (503,)):
            found.note(label, f"status {answered.status}", f"{answered.body[:300]!r} {what}")
        headers: dict[str, list[str]] = {}
        for name, value in answered.headers:
            headers.setdefault(name, []).append(value)
        response = Response(
            answered.status, headers, _plain(answered), prepared, elapsed=0.0, verify=False, message="", http_version="1.1"
        )
        try:
            case.validate_response(response, checks=CHECKS.get_by_names(list(_CHECKS)))
        except FailureGroup as group:
            for failure in group.exceptions:
                found.note(label, type(failure).__name__, f"{_short(failure)} {answered.body[:300]!r} {what}")
        except Failure as failure:
            found.note(label, type(failure).__name__, f"{_short(failure)} {answered.body[:300]!r} {what}")


def _plain(answered: Answered) -> bytes:
    """The body without its content coding."""
    coding = dict(answered.headers).get("content-encoding")
    if coding == "gzip":
        return gzip.decompress(answered.body)
    if coding == "zstd":
        return pa.CompressedInputStream(pa.BufferReader(answered.body), "zstd").read()  # type: ignore[no-any-return]
    return answered.body


def _caller(chance: Random) -> str:
    return "limited" if chance.random() < LIMITED else "all" if chance.random() < 0.4 else chance.choice(CALLERS)


def _short(failure: BaseException) -> str:
    return " ".join(str(failure).split())[:400]


def _make_known(case: Any, known: dict[str, list[str]], chance: Random) -> None:
    """Puts names that exist, and rows that the table takes, in the place of most that were drawn."""
    if chance.random() >= KNOWN:
        return
    for name in list(case.path_parameters or ()):
        if name in known:
            case.path_parameters[name] = chance.choice(known[name])
    if case.operation.path.startswith(PATH_OF_ROWS) and isinstance(case.body, dict) and chance.random() < 0.5:
        case.body = _body(case, chance)


def _body(case: Any, chance: Random) -> Any:
    """A body of the shape that the route takes, with rows that the table takes, and now and then something wrong in it."""
    row = rows.drawn_row(chance)
    if case.operation.path.endswith(("rows:mutate", ":check")):
        made: dict[str, Any] = {"mutations": rows.drawn_mutations(chance)}
        if case.operation.path.endswith(":check"):
            made["conditions"] = rows.drawn_conditions(chance)
        return made
    row = {name: value for name, value in row.items() if name not in ("carrier", "flight")}
    if chance.random() < 0.2:
        row[chance.choice(("nope", "flight", "note", "big"))] = chance.choice((None, 1 << 64, "x", [1], {}))
    return row


def _as_asked(prepared: Any) -> Asked:
    parts = urlsplit(prepared.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = prepared.body or b""
    headers = {"host": "a", **{name: _latin(value) for name, value in prepared.headers.items()}}
    return Asked(
        prepared.method, quote(path, safe="/:?&=%,+~!$'()*;@[]#"), headers, body.encode() if isinstance(body, str) else body
    )


def _latin(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value.encode("utf-8", "replace").decode("latin-1")


def _make_odd(sent: Asked, chance: Random) -> None:
    """Adds a header that the document may not have, or a form that is not taken."""
    name, value = chance.choice(
        (
            ("accept", "application/x-msgpack"),
            ("accept", "text/html"),
            ("accept", "application/x-ndjson"),
            ("accept", "*/*;q=0"),
            ("content-encoding", "gzip"),
            ("content-encoding", "br"),
            ("content-type", "text/plain"),
            ("content-type", "application/x-msgpack"),
            ("accept-encoding", "zstd"),
            ("if-match", "*"),
            ("if-none-match", '"1"'),
            ("idempotency-key", "one"),
            ("idempotency-key", "é"),
            ("origin", "https://evil.example"),
            ("host", "evil.example"),
            ("twinlog-deadline-s", "0.001"),
            ("twinlog-expires-ms", "1"),
            ("twinlog-actor", "a\x01b"),
            ("range", "bytes=0-5"),
            ("accept", "application/vnd.apache.arrow.stream"),
        )
    )
    sent.headers[name] = value
