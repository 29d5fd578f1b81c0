"""Encryption of a backup's files: a bit that turned anywhere is found, and a key that does not fit is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.backup.manifest import Manifest, decode_manifest, encode_manifest
from storage.backup.sealing import check_proof, open_file, opened_schemas, proven, seal_file, sealed_schemas
from storage.log.encryption import NO_KEYS, PLAIN, Keyring, LogKey
from tests.storage.backup.test_manifest import manifest
from twinlog.errors import DamagedLog, KeyUnavailable


def ring(*ids: str) -> Keyring:
    """Keys whose secret is their id; random bytes that differ at each call."""
    count = iter(range(1 << 20))
    keys = [LogKey(one, b"" if one == PLAIN else one.encode().ljust(32, b".")) for one in ids]
    return Keyring("--key", keys, lambda length: next(count).to_bytes(length, "big"))


KEYS = ring("2026-11")


@given(st.binary(max_size=300), st.data())
def test_a_bit_that_turned_is_found(content: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal_file(KEYS, "base-1/rows-000001", content))
    assert open_file(KEYS, "2026-11", "base-1/rows-000001", bytes(sealed), "here") == content
    assert len(content) < 12 or content not in sealed
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((DamagedLog, KeyUnavailable), match=r"here|rows-000001"):
        open_file(KEYS, "2026-11", "base-1/rows-000001", bytes(sealed), "here")


@given(st.binary(max_size=40), st.data())
def test_what_is_shorter_or_stands_elsewhere_is_found(content: bytes, data: st.DataObject) -> None:
    sealed = seal_file(KEYS, "base-1/rows-000001", content)
    with pytest.raises((DamagedLog, KeyUnavailable)):
        open_file(KEYS, "2026-11", "base-1/rows-000001", sealed[: data.draw(st.integers(0, len(sealed) - 1))], "here")
    with pytest.raises(KeyUnavailable):
        open_file(KEYS, "2026-11", "base-1/rows-000002", sealed, "here")


def an_encrypted_one() -> Manifest:
    made = manifest(7, 10, 20)
    base = replace(made.base, schemas=sealed_schemas(KEYS, made.base.id, made.base.schemas))
    return proven(KEYS, replace(made, base=base, format=2, key_id="2026-11"))


def test_who_has_no_key_makes_no_manifest_and_changes_none() -> None:
    made = an_encrypted_one()
    again = decode_manifest(encode_manifest(made), "here")
    check_proof(KEYS, again, "here")
    assert opened_schemas(KEYS, again, "here") == {7: b"schema"}
    other = replace(made.base, parts=[])
    for forged in (replace(made, base=other), replace(made, log=[]), replace(made, made_ms=6), replace(made, proof=b"")):
        with pytest.raises(DamagedLog, match="here"):
            check_proof(KEYS, forged, "here")
    with pytest.raises(KeyUnavailable):
        check_proof(KEYS, replace(made, number=8), "here")


def test_a_key_that_does_not_fit_is_named() -> None:
    made = an_encrypted_one()
    for keys, said in (
        (NO_KEYS, "'2026-11', which .* does not have"), (ring("2027-01"), "'2026-11', which --key does not have"),
        (Keyring("--key", [LogKey("2026-11", b"?" * 32)]), "key of that id in --key does not open it"),
    ):
        with pytest.raises(KeyUnavailable, match=said) as raised:
            check_proof(keys, made, "here")
        assert raised.value.fields["key_id"] == "2026-11"
    check_proof(ring("2027-01", "2026-11"), made, "here")


def test_what_is_plain_is_read_with_keys_only_where_they_say_so() -> None:
    plain = manifest(7, 10)
    check_proof(NO_KEYS, plain, "here")
    check_proof(ring("2026-11", PLAIN), plain, "here")
    assert seal_file(NO_KEYS, "x", b"rows") == b"rows"
    with pytest.raises(KeyUnavailable, match=r"not encrypted.*may be forged"):
        check_proof(KEYS, plain, "here")


def test_no_two_files_have_one_key() -> None:
    assert seal_file(KEYS, "x", b"rows")[40:] != seal_file(KEYS, "x", b"rows")[40:]
