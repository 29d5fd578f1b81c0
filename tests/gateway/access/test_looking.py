"""A token that was made a moment ago is taken at once; what is unknown makes few looks, and what is known makes none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.access import token_file as token_files
from gateway.access.authenticator import Authenticator, Presented, Proof, unknown
from gateway.access.caller import CALLER, Caller
from gateway.access.gate import Gate
from gateway.access.grants import parse_grants
from gateway.access.limits import LimitSettings
from gateway.access.looking import LOOK_DEADLINE_S, SPACING_S
from gateway.access.needs import IDENTITY
from gateway.access.token_file import TokenFile, changing, new_token
from gateway.access.tokens import without_token
from tests.gateway.access.rig import Clock, guarded_door, token_file
from tests.gateway.door_client import ROWS, problem
from twinlog.errors import Unauthenticated, Unavailable


class Keeper:
    """Knows who stands in `known`, as its last look found `written`. A look waits for `free`, where there is one."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.known: set[str] = set()
        self.looks = 0
        self.free: asyncio.Event | None = None
        self.fails = False

    async def authenticate(self, presented: Presented) -> Proof | None:
        if presented.bearer not in self.known:
            raise unknown("it is not known")
        return Proof(Caller(presented.bearer, "test", parse_grants(["reader:*"])))

    async def refresh(self) -> bool:
        self.looks += 1
        found = set(self.written)
        if self.free is not None:
            await self.free.wait()
        if self.fails:
            raise ValueError("a look that fails")
        changed, self.known = found != self.known, found
        return changed

    async def close(self) -> None: ...


class Rig:
    """A gate over one keeper; its sleep is over at once, and moves the clock."""

    def __init__(self) -> None:
        self.keeper, self.clock = Keeper(), Clock()
        self.gate = Gate([self.keeper], LimitSettings(), wall_s=self.clock, now_s=self.clock, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.clock.s += seconds
        await asyncio.sleep(0)

    async def admitted(self, token: str) -> str:
        """The name of the caller. Raises what the gate raises."""
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": "/v1/cluster", "headers": [(b"authorization", f"Bearer {token}".encode())],
            "client": ("192.0.2.7", 1),
        }
        budget = await self.gate.admit(scope, IDENTITY, "/v1/cluster", "")
        assert budget is not None
        budget.leave()
        caller: Caller = scope[CALLER]
        return caller.name


async def until(is_so: Any) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


# ---- a new token
@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
async def test_a_token_is_taken_as_soon_as_it_stands_in_the_file(query: str) -> None:
    """Nobody refreshes the gate here: the request makes it look."""
    async with guarded_door() as door:
        for name in ("first", "second"):
            made = token_file(door.file, {name: ["writer:*"]})[name]
            shown = {"Authorization": f"Bearer {made}"}
            answers = [await door.http.put(f"{ROWS}/UA,1{query}", json={}, headers=shown) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200]
        problem(await door.http.put(f"{ROWS}/UA,1{query}", json={}, headers={
            "Authorization": f"Bearer {new_token()}"
        }), 401, "unauthenticated")


async def test_what_was_revoked_meanwhile_goes_with_the_same_look() -> None:
    async with guarded_door() as door:
        url = f"{ROWS}/UA,1"
        assert (await door.http.put(url, json={}, headers=door.as_("writer"))).status_code == 200
        with changing(door.file) as (tokens, store):
            store(without_token(tokens, "writer"))
        problem(await door.http.put(url, json={}, headers={"Authorization": f"Bearer {new_token()}"}), 401, "unauthenticated")
        problem(await door.http.put(url, json={}, headers=door.as_("writer")), 401, "unauthenticated")


async def test_the_look_begins_after_the_request() -> None:
    """One that began before may have seen the file as it was before the token."""
    rig = Rig()
    rig.keeper.free = asyncio.Event()
    early = asyncio.create_task(rig.admitted("nobody"))
    await until(lambda: rig.keeper.looks == 1)
    rig.keeper.written.add("late")
    late = asyncio.create_task(rig.admitted("late"))
    for _ in range(10):
        await asyncio.sleep(0)
    rig.keeper.free.set()
    assert await late == "late"
    with pytest.raises(Unauthenticated):
        await early
    assert rig.keeper.looks == 2


async def test_what_a_look_found_is_kept_and_noted() -> None:
    changes: list[Authenticator] = []
    rig = Rig()
    rig.gate.on_changed = changes.append
    rig.keeper.written.add("ann")
    assert await rig.admitted("ann") == "ann"
    assert changes == [rig.keeper]
    assert rig.gate.hot(b"Bearer ann", (), False, b"flights") is not None


# ---- what it costs
async def test_a_flood_of_unknown_tokens_makes_few_looks_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, path, counted = Rig(), tmp_path / "tokens.json", {"looks": 0, "reads": 0}
    token_file(path, {"ann": ["reader:*"]})
    file = TokenFile(path, rig.clock)
    rig.gate = Gate([file], LimitSettings(), wall_s=rig.clock, now_s=rig.clock, sleep=rig._sleep)
    look, read = TokenFile._changed, token_files._read

    def looked(self: TokenFile) -> Any:
        counted["looks"] += 1
        return look(self)

    def read_whole(path: Path) -> Any:
        counted["reads"] += 1
        return read(path)

    monkeypatch.setattr(TokenFile, "_changed", looked)
    monkeypatch.setattr(token_files, "_read", read_whole)
    began_s, senders = rig.clock.s, 20

    async def sender() -> None:
        for _ in range(10):
            with pytest.raises(Unauthenticated):
                await rig.admitted(new_token())

    await asyncio.gather(*(sender() for _ in range(senders)))
    assert counted["reads"] == 0
    assert counted["looks"] <= (rig.clock.s - began_s) / SPACING_S + 1.001  # by the clock that only the looks move
    assert counted["looks"] <= 2 * 10, "those who wait together share a look"


async def test_what_is_known_makes_no_look() -> None:
    rig = Rig()
    rig.keeper.known.add("ann")
    for _ in range(3):
        assert await rig.admitted("ann") == "ann"
        rig.gate._forget()
    assert rig.keeper.looks == 0


# ---- what hangs or fails
async def test_a_look_that_hangs_holds_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.access.looking.LOOK_DEADLINE_S", 0.01)
    rig = Rig()
    rig.keeper.free = asyncio.Event()
    rig.keeper.known.add("ann")
    with pytest.raises(Unavailable, match="cannot look at its identities"):
        await rig.admitted("nobody")
    monkeypatch.setattr("gateway.access.looking.LOOK_DEADLINE_S", LOOK_DEADLINE_S)
    rig.clock.s += LOOK_DEADLINE_S
    refused = asyncio.create_task(rig.admitted("nobody"))
    for _ in range(3):  # without any wait
        await asyncio.sleep(0)
    assert isinstance(refused.exception(), Unavailable)
    assert await rig.admitted("ann") == "ann"
    assert rig.keeper.looks == 1
    rig.keeper.written |= {"ann", "late"}
    rig.keeper.free.set()
    await until(lambda: rig.gate._looks[0]._running is None)
    assert await rig.admitted("late") == "late", "it is looked again when the disk answers again"
    await rig.gate.close()


async def test_a_gate_closes_while_a_look_hangs() -> None:
    rig = Rig()
    rig.keeper.free = asyncio.Event()
    waiting = asyncio.create_task(rig.admitted("nobody"))
    await until(lambda: rig.keeper.looks == 1)
    await rig.gate.close()
    await asyncio.wait((waiting,))


async def test_a_look_that_fails_changes_nothing_and_is_said() -> None:
    structlog.reset_defaults()
    rig = Rig()
    rig.keeper.known.add("ann")
    rig.keeper.fails = True
    with capture_logs() as logged, pytest.raises(Unauthenticated):
        await rig.admitted("nobody")
    assert [entry["error"] for entry in logged if entry["log_level"] == "error"] == ["ValueError: a look that fails"]
    assert await rig.admitted("ann") == "ann"
