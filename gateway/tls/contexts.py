"""The TLS contexts of a site, made from its files: what its listeners show, what they ask for, and how it calls the other site.

What always holds: TLS 1.2 or newer; between the sites 1.3 alone, without session tickets, so that each connection proves anew
who it is; a context is whole or there is none: each fault names its file; a key with a passphrase is a fault, and nobody is
asked for one.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from gateway.tls.settings import HttpTlsSettings, PeerHttpSettings
from twinlog.errors import ConfigError, reason

_HTTP = ["http/1.1"]
UNREADABLE = (  # what the library says of certificates that are none, or of a form that it does not know
    ValueError, TypeError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm,
)


class TlsFault(NamedTuple):
    """One wrong file: the key of its section, what is wrong, and what is wanted."""

    key: str
    problem: str
    allowed: str


def _unusable(found: list[TlsFault]) -> ConfigError:
    """Files from which no context can be made."""
    faults = [{"file": "", **fault._asdict()} for fault in found]
    return ConfigError("; ".join(f"{fault.key} {fault.problem}" for fault in found), faults=faults)


def faults_of(error: ConfigError) -> list[TlsFault]:
    """The faults of an error that was raised here."""
    faults = error.fields["faults"]
    assert isinstance(faults, list)
    return [TlsFault(each["key"], each["problem"], each["allowed"]) for each in faults]


def public_context(settings: HttpTlsSettings, now: datetime | None = None) -> ssl.SSLContext:
    """Makes that of the public listener: it asks for client certificates where there is a CA for them. Raises ConfigError."""
    found = _faults(settings, ("client_ca", "client_crl"), now)
    if settings.client_crl is not None and settings.client_ca is None:
        found.append(TlsFault("client_crl", "is given without a client_ca: it would be read for nobody", "client_ca with it"))
    return _public(settings, found, is_crl_sound=True)


def without_crl(settings: HttpTlsSettings, now: datetime | None = None) -> ssl.SSLContext:
    """Makes that of the public listener whose list of revoked certificates is unusable: whoever shows a certificate is refused,
    and whoever shows none comes in as ever. Raises ConfigError."""
    return _public(settings, _faults(settings, ("client_ca",), now), is_crl_sound=False)


def _public(settings: HttpTlsSettings, found: list[TlsFault], *, is_crl_sound: bool) -> ssl.SSLContext:
    context = _server(settings.certificate, settings.key, found)
    if settings.client_ca is not None:
        context.load_verify_locations(settings.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    if settings.client_crl is not None:
        if is_crl_sound:
            context.load_verify_locations(settings.client_crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF  # OpenSSL refuses a certificate whose CA has no list here
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # a session that 1.2 resumes by its id would outlive a revocation
        context.num_tickets = 0  # and so would one of 1.3
    return context


def peer_listener_context(settings: PeerHttpSettings, now: datetime | None = None) -> ssl.SSLContext:
    """Makes that of the listener of the other site: nobody comes in without a certificate of the CA. Raises ConfigError."""
    context = _server(settings.certificate, settings.key, _faults(settings, ("ca", "crl"), now))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    _trust(context, settings)
    return context


def peer_caller_context(settings: PeerHttpSettings, now: datetime | None = None) -> ssl.SSLContext:
    """Makes that of calls to the other site, known by its URI (identity.py) and by no host name. Raises ConfigError."""
    found = _faults(settings, ("ca", "crl"), now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _own(context, settings.certificate, settings.key, found)
    _trust(context, settings)
    return context


def files_of(settings: HttpTlsSettings | PeerHttpSettings) -> dict[str, Path]:
    """Key of the section -> the file that it names."""
    named = {key: getattr(settings, key, None) for key in ("certificate", "key", "client_ca", "client_crl", "ca", "crl")}
    return {key: path for key, path in named.items() if path is not None}


def not_after(certificate: Path) -> datetime:
    """The moment at which a certificate is over. Raises OSError, ValueError."""
    return x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc


def crl_ends(crl: Path | None) -> datetime | None:
    """The moment at which a list of revoked certificates is over; None: it has none, or there is no list. Raises OSError,
    ValueError."""
    return None if crl is None else x509.load_pem_x509_crl(crl.read_bytes()).next_update_utc


def _server(certificate: Path, key: Path, found: list[TlsFault]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_HTTP)
    _own(context, certificate, key, found)
    return context


def _own(context: ssl.SSLContext, certificate: Path, key: Path, found: list[TlsFault]) -> None:
    """Raises ConfigError with all that was found, also where only the two do not fit."""
    asked = []

    def passphrase() -> str:
        asked.append(key)
        return ""

    if not {"certificate", "key"} & {fault.key for fault in found}:
        try:
            context.load_cert_chain(certificate, key, passphrase)
        except (ssl.SSLError, OSError) as error:
            found.append(_unfit(certificate, key, error, is_encrypted=bool(asked)))
    if found:
        raise _unusable(found)


def _unfit(certificate: Path, key: Path, error: OSError, *, is_encrypted: bool) -> TlsFault:
    if is_encrypted:
        return TlsFault("key", f"is {key}, which is encrypted: nobody is there to give a passphrase", "a key without one, in a "
                        "file that only its user reads")
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return TlsFault("key", f"is {key}, which does not fit {certificate}", "the key of that certificate")
    return TlsFault("key", f"is {key}, which is no private key: {reason(error)}", "a private key (PEM)")


def _trust(context: ssl.SSLContext, settings: PeerHttpSettings) -> None:
    context.load_verify_locations(settings.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.crl is not None:
        context.load_verify_locations(settings.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _faults(
    settings: HttpTlsSettings | PeerHttpSettings, trusted: tuple[str, ...], now: datetime | None
) -> list[TlsFault]:
    """Returns what is wrong with each file by itself. `now`: the clock's, unless it is given."""
    now, found, files = now or datetime.now(UTC), [], files_of(settings)
    for key in ("certificate", "key", *trusted):
        if key not in files:
            continue
        path = files[key]
        try:
            content = path.read_bytes()
            problem = "" if key == "key" else _content_problem(key, content, now)
        except OSError as error:
            problem = f"cannot be read: {reason(error)}"
        if problem:
            found.append(TlsFault(key, f"is {path}, which {problem}", _WANTED[key]))
    return found


_WANTED = {
    "certificate": "a certificate that is valid now, and those between it and its CA (PEM)", "key": "a private key (PEM)",
    "client_ca": "the certificates of CAs (PEM)", "ca": "the certificates of CAs (PEM)",
    "crl": "a list of revoked certificates that is valid now (PEM)",
    "client_crl": "a list of revoked certificates that is valid now (PEM)",
}


def _content_problem(key: str, content: bytes, now: datetime) -> str:
    if key in ("crl", "client_crl"):
        return _crl_problem(content, now)
    try:
        problems = [_date_problem(each, now) for each in x509.load_pem_x509_certificates(content)]
    except UNREADABLE:
        return "holds no certificate (PEM)"
    if key != "certificate" and "" in problems:
        return ""  # of a bundle some may be over: OpenSSL judges each
    return next(filter(None, problems), "")


def _date_problem(certificate: x509.Certificate, now: datetime) -> str:
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {_moment(certificate.not_valid_before_utc)}: is this machine's clock right?"
    if now > certificate.not_valid_after_utc:
        return f"expired at {_moment(certificate.not_valid_after_utc)}"
    return ""


def _crl_problem(content: bytes, now: datetime) -> str:
    try:
        crl = x509.load_pem_x509_crl(content)
    except UNREADABLE:
        return "holds no list of revoked certificates (PEM)"
    if crl.next_update_utc is not None and now > crl.next_update_utc:
        return f"is over since {_moment(crl.next_update_utc)}: with it every certificate would be refused"
    return ""


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
