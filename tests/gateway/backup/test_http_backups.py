"""Rows and log for a backup over HTTP come as messages to an end, or as a problem before the first one."""

from __future__ import annotations

import httpx
import pytest

from storage.backup.stream import BackupHead, End, Message, MessageReader
from tests.gateway.door_client import DoorClient
from tests.gateway.two_sites import TwoSites
from twinlog.errors import Conflict, PeerError
from twinlog.sites import Sites

TARGET = "0123456789abcdef"
PAIR = {"identity": "1" * 16}


def messages(answer: httpx.Response) -> list[Message]:
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"] == "no-store"
    reader = MessageReader("the answer")
    found = [message for message, _ in reader.take(answer.content)]
    reader.close()
    return found


async def test_rows_and_log_come_as_messages(door: DoorClient) -> None:
    base = await door.http.post(f"/v1/backups/{TARGET}:base")
    log = await door.http.post(f"/v1/backups/{TARGET}:log", json={**PAIR, "epoch": 1, "seq": 7})
    kept = await door.http.post(f"/v1/backups/{TARGET}:kept", json={**PAIR, "epoch": 1, "seq": 7})
    for answer in (base, log, kept):
        head, end = messages(answer)
        assert isinstance(head, BackupHead)
        assert end == End(0)


async def test_a_backup_is_noted_and_let_go(door: DoorClient) -> None:
    noted = await door.http.post(f"/v1/backups/{TARGET}:complete", json={**PAIR, "epoch": 1, "seq": 7})
    of_another = await door.http.delete(f"/v1/backups/{TARGET}?pair={'2' * 16}")
    of_none = await door.http.delete(f"/v1/backups/{TARGET}?pair=mine")
    released = [await door.http.delete(f"/v1/backups/{TARGET}{pair}") for pair in ("", f"?pair={PAIR['identity']}")]
    assert [one.status_code for one in (noted, of_another, of_none, *released)] == [204, 409, 422, 204, 204]


async def test_what_is_refused_is_a_problem_before_the_first_message(door: DoorClient) -> None:
    for path, body, status in (
        (TARGET, {**PAIR, "epoch": 1, "seq": 8}, 409), (TARGET, {"epoch": 1, "seq": 7}, 422),
        (TARGET, {**PAIR, "epoch": 0, "seq": 8}, 422), (TARGET, {**PAIR, "epoch": 1}, 422),
        ("none", {**PAIR, "epoch": 1, "seq": 7}, 422),
    ):
        answer = await door.http.post(f"/v1/backups/{path}:log", json=body)
        assert answer.status_code == status, (path, body)
        assert answer.headers["content-type"] == "application/problem+json"
    door.service.role_now = "STANDBY"
    assert (await door.http.post(f"/v1/backups/{TARGET}:base")).status_code == 421


def test_the_client_reads_a_long_answer_in_pieces_and_raises_its_problem() -> None:
    with TwoSites() as pair:
        sites = Sites(pair.urls)
        reader = MessageReader("the answer")
        pieces = sites.stream("a", f"/v1/backups/{TARGET}:base", {})
        assert isinstance([message for piece in pieces for message, _ in reader.take(piece)][-1], End)
        with pytest.raises(Conflict, match="does not hold sequence 8"):
            next(sites.stream("a", f"/v1/backups/{TARGET}:log", {**PAIR, "epoch": 1, "seq": 8}))
        pair.stop("a")
        with pytest.raises(PeerError, match="the answer broke"):
            next(sites.stream("a", f"/v1/backups/{TARGET}:base", {}))
        sites.close()
