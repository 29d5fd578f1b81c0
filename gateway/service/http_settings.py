"""The section [http] of a site: where it listens, and what one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gateway.tls.settings import HANDSHAKES_PER_S, HttpTlsSettings
from storage.settings import KIB, MIB, RESTART, Matches, Url, Within

HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
ORIGIN = rf"https?://({HOST_NAME}|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """`advertised_url`: the address that clients and the other site use; empty: made of host and port. `allowed_hosts`: names
    of this site besides that of its address. `cors_origins`: the origins whose pages may call it. `body_bytes_max` bounds the
    body of a batch and what it becomes, `bodies_bytes_max` all bodies together that are under way.
    `handshakes_per_address_per_s`: of TLS, here and on [peer_http]."""

    host: Annotated[str, RESTART] = "127.0.0.1"
    port: Annotated[int, Within(1, 65535), RESTART] = 8401
    advertised_url: Annotated[Url, RESTART] = ""
    allowed_hosts: Annotated[tuple[str, ...], Matches(HOST_NAME), RESTART] = ()
    cors_origins: Annotated[tuple[str, ...], Matches(ORIGIN), RESTART] = ()
    body_bytes_max: Annotated[int, Within(KIB, 1024 * MIB), RESTART] = 32 * MIB
    bodies_bytes_max: Annotated[int, Within(MIB, 4096 * MIB), RESTART] = 96 * MIB
    batch_rows_max: Annotated[int, Within(1, 1_000_000), RESTART] = 10_000
    row_bytes_max: Annotated[int, Within(64, 16 * MIB), RESTART] = MIB
    key_bytes_max: Annotated[int, Within(16, 64 * KIB), RESTART] = KIB
    page_rows_max: Annotated[int, Within(1, 100_000), RESTART] = 10_000
    connections_max: Annotated[int, Within(16, 100_000), RESTART] = 2000
    handshakes_per_address_per_s: Annotated[float, Within(1, 100_000), RESTART] = HANDSHAKES_PER_S
    connections_per_address_max: Annotated[int, Within(1, 100_000), RESTART] = 500
    request_deadline_s: Annotated[float, Within(0.05, 3600), RESTART] = 10.0
    request_deadline_max_s: Annotated[float, Within(0.05, 3600), RESTART] = 60.0
    tls: HttpTlsSettings | None = None

    @property
    def row_body_bytes_max(self) -> int:
        """The bound of a body that holds one row, or a document: texts and bytes are longer in JSON than in the row."""
        return min(2 * self.row_bytes_max + 64 * KIB, self.body_bytes_max)

    @property
    def url(self) -> str:
        """The address that others use."""
        return self.advertised_url or f"{'http' if self.tls is None else 'https'}://{self.host}:{self.port}"
