"""The section [http] of a site: where it listens, and what one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from storage.settings import KIB, MIB, Url, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """`advertised_url`: the address that clients and the other site use; empty: made of host and port."""

    host: str = "127.0.0.1"
    port: Annotated[int, Within(1, 65535)] = 8401
    advertised_url: Url = ""
    body_bytes_max: Annotated[int, Within(KIB, 1024 * MIB)] = 32 * MIB
    batch_rows_max: Annotated[int, Within(1, 1_000_000)] = 10_000
    row_bytes_max: Annotated[int, Within(64, 16 * MIB)] = MIB
    key_bytes_max: Annotated[int, Within(16, 64 * KIB)] = KIB
    page_rows_max: Annotated[int, Within(1, 100_000)] = 10_000
    request_deadline_s: Annotated[float, Within(0.05, 3600)] = 10.0
    request_deadline_max_s: Annotated[float, Within(0.05, 3600)] = 60.0

    @property
    def url(self) -> str:
        """The address that others use."""
        return self.advertised_url or f"http://{self.host}:{self.port}"
