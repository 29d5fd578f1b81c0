"""Inputs that once were findings of the fuzzers: each is refused as documented, or read, and never anything else.

A finding becomes a line here: the group and the target that it came from, and its bytes, as short as they do it.
"""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress
from datetime import UTC, datetime

import crc32c
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from chaos.fuzz.cli import targets_of
from chaos.fuzz.target import Target

_VIEWS = (  # an Arrow stream whose buffer of views has a length that is no multiple of four
    "c-"
    "pN}u}Z{15S_gwmmrIz5V^u41j|FBAc&R7l@=CP2x1ZC^bX=3gcFPNIzPZqusr|3^57cF{Ek?}x0{IxtFaI#yq$eBZzr?E=6Rk+g2*RjYb2>n4t"
    "dzYgbhw$9#)%ILY^oC9)U9;;&>mmaL7@$IvgYR<H>ZO_C07G3Z1QV8#SE;r13osk$?WB*6k$KwVt4PD|9WT3u?MHaGi{9hEvtQ1YF&}x|P!T__"
    "GI<t8eJ@{Y6Llty&!yxQf$sG)NJ%zv8*-"
    "Q55|vleEc`le!{Vwyu*=Y3txVPf>#5uQ<O=#q2GrOfagG&34Q_GU82KvOhBNCHL8%vhTBB82W{wf33}3+0xK24Sn{*T^wT$^iRA;Cyl%XtX?Yp"
    "hkj2)@9c@+!vW7?7RKRWaK76OX5l4v<GUo8cZ0p1{fqfubM;>Aa)v^G-z?|8J^|X{UZ("
)


def _header_of_no_name() -> bytes:
    bare = b"TLS1\x02\x00\x00\x00" + bytes(8) + bytes(8) + b"000000000003-000000\xe9\xff".ljust(28, b"\0") + bytes(8)
    return bare + crc32c.crc32c(bare).to_bytes(4, "little")


def _certificate(*, is_version_4: bool = False) -> bytes:
    """A certificate of a form that the library does not take: twice the same extension, or of a version that is none."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    builder = builder.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("a")]), critical=False)
    data = builder.sign(key, None).public_bytes(Encoding.DER)
    if is_version_4:
        return data.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03", 1)
    return data.replace(b"\x06\x03\x55\x1d\x11", b"\x06\x03\x55\x1d\x13", 1)  # the second becomes another of the first


FOUND: list[tuple[str, str, bytes]] = [
    ("logs", "segment header", _header_of_no_name()),
    ("logs", "segment", _header_of_no_name()),
    ("rows", "batch as Arrow", zlib.decompress(base64.b85decode("".join(_VIEWS)))),
    (
        "rows",
        "check as application/json",
        b'{"conditions":[{"version":18446744073709551616}],"mutations":[{"op":"delete","key":{"carrier":"UA","flight":1}}]}',
    ),
    ("files", "configuration of a site", b"pair = " + b"[" * 5000),
    ("files", "configuration of an operator", b"pair = " + b"9" * 5000),
    ("files", "address of a pair", b"twinlog://shop?a=http://[&b=http://b"),
    ("files", "address of a pair", b"http://[x,http://b"),
    ("files", "address of a pair", b"~nobody-of-this-name/operator.toml"),
    ("files", "watermark of RocksDB", bytes(23)),
    ("files", "names in a log", "000000000003-00000007.00000\u0661".encode()),  # a digit, but none of ours
    (
        "identities",
        "JWT, its parts",
        b'{"alg":"EdDSA","kid":"k1"}\n{"iss":"https://id.example","aud":"twinlog","sub":"ann","exp":1' + b"0" * 400 + b"}",
    ),
    ("identities", "client certificate", _certificate()),
    ("identities", "client certificate", _certificate(is_version_4=True)),
]


IDS = [f"{name} {sum(other == name for _, other, _ in FOUND[:place]) + 1}" for place, (_, name, _) in enumerate(FOUND)]


@pytest.mark.filterwarnings("ignore:Parsed a")
@pytest.mark.parametrize(
    ("group", "name", "data"), FOUND, ids=IDS
)
def test_what_was_found_stays_mended(group: str, name: str, data: bytes) -> None:
    target = _target(group, name)
    with suppress(*target.refusals):
        target.read(data)


def _target(group: str, name: str) -> Target:
    return next(target for target in targets_of(group) if target.name == name)
