"""TLS of the clients: which CA they trust and which certificate they show; and what an error of TLS means, in plain words.

What always holds: without a CA of its own a client trusts those of the system; the name in an address is checked against the
certificate (`verify-full`), and there is no switch that leaves this out.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import NamedTuple

from twinlog.errors import ConfigError, reason, words


class Tls(NamedTuple):
    """Paths of PEM files; an empty text: none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


def client_context(tls: Tls) -> ssl.SSLContext:
    """The context for connections to the sites. Raises ConfigError that names the file."""
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"ca: {tls.ca} is no file of CA certificates (PEM): {reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate:
        try:
            context.load_cert_chain(tls.certificate, tls.key or None, lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"certificate {tls.certificate} and key {tls.key or tls.certificate} cannot be used: {reason(error)}; "
                "give a certificate and the key that belongs to it, without a passphrase (PEM)"
            ) from error
    return context


def tls_words(error: BaseException) -> str:
    """Returns what an error of TLS means and what to do, also where a library wrapped it; for another error its own words."""
    whole, error = error, next((each for each in _causes(error) if isinstance(each, ssl.SSLError)), error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFICATION.get(error.verify_code, f"the certificate of the other end is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        name = getattr(error, "reason", None) or ""  # an error that OpenSSL did not make has none
        return _REASONS.get(name) or f"TLS failed: {(name or words(error)).replace('_', ' ').lower()}"
    return words(whole)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was made of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


_CLOCK = "is the clock right on both machines?"
_VERIFICATION = {  # by OpenSSL's X509_V_ERR_*
    9: f"the certificate of the other end is not valid yet: {_CLOCK}",
    10: f"the certificate of the other end has expired: renew it; or {_CLOCK}",
    3: "there is no list of revoked certificates of the CA that signed the certificate of the other end: give its crl",
    11: f"the list of revoked certificates is not valid yet: {_CLOCK}",
    12: "the list of revoked certificates is over: make a new one",
    18: "the certificate of the other end is self-signed: it must be signed by the CA that is trusted here",
    19: "the certificate of the other end is signed by a CA that is not trusted here: give that CA as `ca`",
    20: "the certificate of the other end is signed by a CA that is not trusted here: give that CA as `ca`",
    21: "the certificate of the other end is signed by a CA that is not trusted here: give that CA as `ca`",
    23: "the certificate of the other end is revoked",
    26: "the certificate of the other end is not made for this use (client or server)",
    62: "the certificate of the other end is for another host name: use the name in it, or add this one to it",
    64: "the certificate of the other end is for another address: use the name in it, or add this address to it",
}
_PLAIN = "the other end does not speak TLS (plain HTTP?): write http:// in the address, or set up TLS there"
_REASONS = {  # by OpenSSL's names; those with ALERT are what the other end says
    "WRONG_VERSION_NUMBER": _PLAIN,
    "RECORD_LAYER_FAILURE": _PLAIN,
    "HTTP_REQUEST": "plain HTTP came where TLS is spoken: write https:// in the address",
    "UNSUPPORTED_PROTOCOL": "the other end speaks no version of TLS that is taken here (1.2 or newer)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other end takes no version of TLS that is spoken here (1.2 or newer)",
    "NO_SHARED_CIPHER": "the two ends have no cipher in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and one is wanted",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other end wants a certificate, and none was shown: give `certificate` and `key`",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"the other end says that the certificate shown here has expired: renew it; or {_CLOCK}",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the other end says that the certificate shown here is revoked",
    "TLSV1_ALERT_UNKNOWN_CA": "the other end does not trust the CA that signed the certificate shown here",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"the other end refuses the certificate shown here; if it is not valid yet, {_CLOCK}",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other end refuses the certificate shown here",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other end takes no certificate such as the one shown here",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other end ended the handshake: the two ends have no version or cipher in common",
    "UNEXPECTED_EOF_WHILE_READING": "the other end closed the connection in the handshake",
}
