"""The sections [http.tls] and [peer_http] of a site: what its listeners show, and whom they let in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from storage.settings import RESTART, Within

HANDSHAKES_PER_S = 100.0  # a twentieth of the event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTlsSettings:
    """The public listener. `client_ca`: client certificates that it signed are taken; nobody must show one. `client_crl` names
    those that are revoked; while it cannot be read, or is over, nobody comes in by certificate."""

    certificate: Annotated[Path, RESTART]
    key: Annotated[Path, RESTART]
    client_ca: Annotated[Path | None, RESTART] = None
    client_crl: Annotated[Path | None, RESTART] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerHttpSettings:
    """The listener of the other site. `certificate` is also what this site shows when it calls the other one; `ca` signed the
    certificates of both; `crl` names those that are revoked."""

    host: Annotated[str, RESTART] = "127.0.0.1"
    port: Annotated[int, Within(1, 65535), RESTART] = 9401
    certificate: Annotated[Path, RESTART]
    key: Annotated[Path, RESTART]
    ca: Annotated[Path, RESTART]
    crl: Annotated[Path | None, RESTART] = None
