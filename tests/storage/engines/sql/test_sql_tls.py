"""sslmode=verify-full against a real server: a certificate of another CA, or of another host, is refused in clear words."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from chaos.servers.janitor import own_prefix
from storage.clock import SystemClock
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from switchover.register.sql import SqlCoordinator
from tests.storage.engines.sql.rig import new_server
from twinlog.errors import ConfigError, Unavailable

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def made(folder: Path, name: str, hosts: list[x509.GeneralName], signed_by: Signed | None = None) -> Signed:
    """A certificate in `name`.pem, with its key in `name`.key; without `signed_by` a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (subject, key) if signed_by is None else (signed_by[0].subject, signed_by[1])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))
    (folder / f"{name}.key").chmod(0o600)
    return certificate, key


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    """A folder that PostgreSQL's own user can reach, too."""
    folder = Path(tempfile.mkdtemp(prefix=own_prefix("certificates")))
    folder.chmod(0o755)
    ca = made(folder, "ca", [])
    made(folder, "another-ca", [])
    made(folder, "here", [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))], ca)
    made(folder, "elsewhere", [x509.DNSName("elsewhere.example")], ca)
    if os.geteuid() == 0:
        for path in folder.glob("*.key"):
            shutil.chown(path, "postgres", "postgres")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("shown", "trusted", "problem"), [
    ("here", "ca", None),
    ("here", "another-ca", "certificate verify failed"),
    ("elsewhere", "ca", "does not match host name"),
])
async def test_a_server_is_believed_by_its_ca_and_its_name(
    certificates: Path, shown: str, trusted: str, problem: str | None
) -> None:
    tls = (f"ssl_cert_file={certificates / shown}.pem", f"ssl_key_file={certificates / shown}.key", "ssl=on", "fsync=off")
    with new_server(tls) as server:
        server.create_database("rows")
        url = f"{server.url('rows')}?sslmode=verify-full&sslrootcert={certificates / trusted}.pem"
        coordinator = SqlCoordinator(url, "test", SystemClock())
        if problem is None:
            await (await SqlEngine.open(SqlSettings(url, "test", "a"))).close()
            assert await coordinator.read() is None
        else:
            with pytest.raises(ConfigError, match=problem) as refused:
                await SqlEngine.open(SqlSettings(url, "test", "a"))
            assert "engine.url" in refused.value.message
            assert "sslrootcert" in refused.value.message
            with pytest.raises(Unavailable, match=problem) as silent:
                await coordinator.read()
            assert "sslrootcert" in silent.value.message.partition(problem)[2]
            for told in (refused.value.message, silent.value.message):
                assert server.password not in told
        await coordinator.close()
