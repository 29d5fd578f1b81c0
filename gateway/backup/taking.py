"""Takes a backup of a running pair: all its rows once, and at each further call the log since then.

What always holds: everything is checked before it is named: the messages' checksums, the frames' and their links; a manifest is
published when all that it names is durable, so a backup that ends half-way leaves the one before as it was; a target holds
one pair, by its identity; the pair's clear text is written only where its site does not encrypt its logs, or by command.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.backup.progress import BackupProgress, amount
from gateway.backup.pruning import sweep
from gateway.backup.screens import unfinished_text
from gateway.backup.target import PartWriter, Target
from storage.backup.manifest import ENCRYPTED_FORMAT, FORMAT, Base, LogPart, Manifest
from storage.backup.sealing import sealed_schemas
from storage.backup.stream import BackupHead, Continuation, End, Frames, Message, MessageReader, RowsMessage, frames_in
from twinlog.errors import (
    Conflict,
    DamagedLog,
    DfsError,
    NotActive,
    NotFound,
    PeerError,
    Refused,
    TwinlogError,
    Unavailable,
)
from twinlog.sites import Sites

_AGAIN = "run the backup again once `twinlog status` shows an active; what was there before is whole"


@dataclass(frozen=True, slots=True)
class Taken:
    """The backup as a call has left it. `log_bytes`: of the frames that it added."""

    manifest: Manifest
    is_new_base: bool
    log_bytes: int


class BackupTaker:
    def __init__(self, sites: Sites, target: Target, progress: BackupProgress, *, in_the_clear: bool) -> None:
        self._sites, self._target, self._progress, self._in_the_clear = sites, target, progress, in_the_clear

    async def take(self, *, new_base: bool) -> Taken:
        """Raises Unavailable without an active, Conflict where a new base is needed, Refused for another pair's target."""
        held = await self._target.manifests()
        if unfinished := await self._target.unfinished(held):
            self._progress.say(unfinished_text(unfinished, self._target.place))
        active = await asyncio.to_thread(active_of, self._sites)
        manifest = held[-1] if held and not new_base else None
        is_new_base = manifest is None
        if manifest is not None:
            self._check_key(manifest)
        if manifest is None:
            self._progress.begin(f"reading all rows from site {active}")
            manifest = await self._base(active, held[-1] if held else None)
            try:
                await self._publish_base(manifest)
            except Conflict:
                if not held:
                    await self._release(active, manifest.target)
                raise
            for site in self._sites.urls:  # now, for the active may move before the log is read
                with suppress(TwinlogError):  # the end of the call reports it again
                    await asyncio.to_thread(self._complete_at, site, manifest)
            self._progress.say(f"all rows are in: sequence {manifest.end.seq:,} can be restored, whatever happens now")
        grown = await self._grown(active, manifest)
        if len(grown.log) > len(manifest.log):
            await self._target.publish(grown)
            await self._target.forget([one for one in held[:-1] if one.base.id == grown.base.id])
        else:
            grown = manifest
        await asyncio.to_thread(self._complete, grown)
        await self._sweep([*held, manifest, grown])
        log_bytes = sum(each.part.length_bytes for each in grown.log[len(manifest.log) :])
        return Taken(grown, is_new_base, log_bytes)

    async def _grown(self, active: str, manifest: Manifest) -> Manifest:
        """`manifest` with the next number and what is new in the log. What the active does not hold, each site may have kept of
        an earlier time as the active. Raises Conflict where none has."""
        grown = replace(manifest, number=manifest.number + 1, made_ms=time.time_ns() // 1_000_000)
        while True:
            self._progress.begin(f"reading the log behind sequence {grown.end.seq:,} from site {active}")
            try:
                return await self._log(active, "log", grown)
            except Refused as error:
                raise Refused(f"{self._target.place} is no place for this pair: {error.message}") from error
            except Conflict as missing:
                grown = await self._from_what_was_kept(grown, missing)

    async def _from_what_was_kept(self, manifest: Manifest, missing: Conflict) -> Manifest:
        """`manifest` with what one of the sites kept behind its end. Raises Conflict, which says what each answered."""
        answers: list[str] = []
        for site in self._sites.urls:
            try:
                kept = await self._log(site, "kept", manifest)
            except (Conflict, NotFound, PeerError, Unavailable) as error:
                silent = error.__cause__ if isinstance(error.__cause__, PeerError) else None
                answers.append(error.message if silent is None else f"{silent.message} (once it follows, run the backup again)")
                continue
            self._progress.say(f"site {site} kept the log up to sequence {kept.end.seq:,} of an earlier time as the active")
            return kept
        raise Conflict(f"{missing.message}; no site has kept it: {'; '.join(answers)}", **missing.fields)

    def _complete(self, manifest: Manifest) -> None:
        """Reports to both sites, so that the one that becomes the active keeps its log as well. Blocking."""
        for site in self._sites.urls:
            try:
                self._complete_at(site, manifest)
            except TwinlogError as error:
                self._progress.say(
                    f"site {site} does not know yet how far this backup leads, and the next call says it again: {error.message}"
                )

    def _complete_at(self, site: str, manifest: Manifest) -> None:
        self._sites.ask(site, "POST", f"/v1/backups/{manifest.target}:complete", _point(manifest))

    async def _publish_base(self, manifest: Manifest) -> None:
        """Raises Conflict for a base that somebody gave up meanwhile: its files may be gone."""
        base_id = manifest.base.id
        await self._target.publish(manifest)
        if await self._target.is_given_up(base_id):  # behind the manifest: who gives it up looks at the manifests then
            await self._target.mark(base_id, manifest.number)
            await self._target.forget([manifest])
            raise Conflict(
                f"somebody removed what this backup wrote to {self._target.place} (`twinlog backup prune --unfinished`):"
                " run it again, and no prune beside it"
            )
        await self._target.unmark(base_id)

    async def _give_back(self, active: str, base_id: str, target: str) -> None:
        """Undoes what a base that was not ended has begun. `target`: of a first base."""
        if target:
            await self._release(active, target)
        await self._target.remove_rows(base_id)

    async def _release(self, active: str, target: str) -> None:
        """Nobody continues `target`: the active keeps no log for it. One that does not answer keeps none behind a restart."""
        with suppress(TwinlogError):
            await asyncio.to_thread(self._sites.ask, active, "DELETE", f"/v1/backups/{target}")

    async def _sweep(self, manifests: list[Manifest]) -> None:
        """Removes what other calls left over. It can wait for the next call, so an error here is no failure of this one."""
        try:
            await self._target.unmark(manifests[-1].base.id)  # also for a call that was killed before it did
            await sweep(self._target, manifests)
        except DfsError as error:
            self._progress.say(f"what earlier calls left in {self._target.place} is still there: {error.message}")

    async def _base(self, active: str, before: Manifest | None) -> Manifest:
        target = before.target if before is not None else secrets.token_hex(8)
        async with aclosing(self._messages(active, f"/v1/backups/{target}:base", {})) as messages:
            head = await self._head(messages, before)
            base_id = f"{head.point.epoch}-{head.point.seq}-{secrets.token_hex(4)}"
            number = before.number + 1 if before is not None else 1
            await self._target.mark(base_id, number)
            writer, rows = PartWriter(self._target, f"base-{base_id}/rows"), 0
            async with self._removed_unless_whole(partial(self._give_back, active, base_id, target if before is None else "")):
                async for message, data in messages:
                    if not isinstance(message, RowsMessage):
                        raise _strange(message)
                    await writer.add(data)
                    rows += len(message.rows)
                    self._progress.reached(rows, head.rows_about, amount(writer.added_bytes, rows, head.rows_about))
                await writer.end()
        keys = self._target.keys
        schemas = sealed_schemas(keys, base_id, head.schemas)
        return Manifest(
            ENCRYPTED_FORMAT if keys.writes else FORMAT, number, target, head.pair, head.identity,
            time.time_ns() // 1_000_000, in_the_clear=head.encrypted and not keys.writes, key_id=keys.writes,
            base=Base(base_id, head.site, head.point, schemas, head.epochs, rows, writer.parts),
        )

    def _check_key(self, manifest: Manifest) -> None:
        """A base and its log have one key, by which its manifests are proven. Raises Conflict, KeyUnavailable, DamagedLog."""
        place, writes = self._target.place, self._target.keys.writes
        if manifest.key_id:
            self._target.check(manifest)
        if manifest.key_id == writes:
            return
        had = f"encrypted with the key {manifest.key_id!r}" if manifest.key_id else "not encrypted"
        raise Conflict(
            f"the last base of {place} is {had}, and the first --key is {writes!r}: a base keeps its key to its end; begin a"
            " new base (--new-base)"
        )

    async def _log(self, site: str, what: str, manifest: Manifest) -> Manifest:
        """`manifest` with what `site` has of the log behind its end. `what`: "log" of the active, or "kept"."""
        begin = manifest.end
        path = f"/v1/backups/{manifest.target}:{what}"
        prefix = f"base-{manifest.base.id}/log-{begin.seq}-{secrets.token_hex(4)}"
        writer, chain, log = PartWriter(self._target, prefix), Continuation(begin, f"the log of site {site}"), list[LogPart]()

        def ended() -> None:
            after = log[-1].end if log else begin
            log.append(LogPart(writer.parts[-1], after.seq, chain.at))

        async with aclosing(self._messages(site, path, _point(manifest))) as messages:
            head = await self._head(messages, manifest)
            async with self._removed_unless_whole(writer.discard):
                async for message, _ in messages:
                    if not isinstance(message, Frames):
                        raise _strange(message)
                    chain.take(frames_in(message.data, f"the log of site {site}"))
                    if await writer.add(message.data):
                        ended()
                    self._progress.reached(chain.at.seq - begin.seq, head.point.seq - begin.seq, amount(writer.added_bytes))
                if await writer.end():
                    ended()
        return replace(manifest, log=[*manifest.log, *log])

    @asynccontextmanager
    async def _removed_unless_whole(self, remove: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Around what is written before a manifest names it: by then nobody else can have come to need it."""
        try:
            yield
        except BaseException as error:  # a stop as well
            is_removed = False
            with suppress(DfsError):
                await remove()
                is_removed = True
            if not isinstance(error, DfsError):
                raise
            left = "what this call wrote is removed again" if is_removed else "what this call wrote belongs to no backup"
            raise DfsError(
                f"{error.message}; {left}, and what was there before is whole; run the backup again then", **error.fields
            ) from error

    async def _head(self, messages: AsyncIterator[tuple[Message, bytes]], before: Manifest | None) -> BackupHead:
        head, _ = await anext(messages)
        if not isinstance(head, BackupHead):
            raise _strange(head)
        if before is not None and (head.pair, head.identity) != (before.pair, before.identity):
            raise Refused(
                f"{self._target.place} holds a backup of pair {before.pair} ({before.identity}), and this is pair {head.pair} "
                f"({head.identity}): give this one a place of its own"
            )
        if head.encrypted and not self._in_the_clear and not self._target.keys.writes:
            raise Refused(
                f"site {head.site} encrypts its logs, and this backup would not be encrypted: give --key ID=file:PATH; or"
                " choose a place that encrypts what it holds, and give --in-the-clear"
            )
        return head

    async def _messages(self, active: str, path: str, body: dict[str, Any]) -> AsyncGenerator[tuple[Message, bytes], None]:
        """Yields what the active sends, up to its end, which must come."""
        pieces: Generator[bytes, None, None] = self._sites.stream(active, path, body)
        reader, parts = MessageReader(f"the answer of site {active}"), -1
        try:
            while piece := await asyncio.to_thread(next, pieces, b""):
                for message, data in reader.take(piece):
                    if isinstance(message, End):
                        if message.parts != parts:
                            raise _strange(message)
                        return
                    parts += 1
                    yield message, data
        except NotActive as error:
            raise Unavailable(f"the active moved during the backup: {_AGAIN}") from error
        except PeerError as error:
            raise Unavailable(f"site {active} broke off: {error.message}; {_AGAIN}") from error
        finally:
            with suppress(ValueError):  # cancelled while a thread waits for the next piece: the silence ends that one
                await asyncio.to_thread(pieces.close)  # else the site goes on reading for nobody, and refuses the next backup
        raise DamagedLog(f"the answer of site {active} ended before its end: run the backup again", file=path, offset=0)


def _point(manifest: Manifest) -> dict[str, Any]:
    return {"identity": manifest.identity, "epoch": manifest.end.epoch, "seq": manifest.end.seq}


def active_of(sites: Sites) -> str:
    """The site that is active now. Raises Unavailable. Blocking."""
    answers = sites.ask_all("/v1/cluster")
    for site, answer in answers.items():
        if isinstance(answer, dict) and str(answer.get("role")).endswith("ACTIVE"):
            return site
    seen = "; ".join(
        f"{answer.message if isinstance(answer, TwinlogError) else answer}" if isinstance(answer, Exception)
        else f"site {site} is {answer.get('role')}" for site, answer in answers.items()
    )
    raise Unavailable(f"a backup reads the active, and none answers: {seen}; run it again once `twinlog status` shows one")


def _strange(message: Message) -> DamagedLog:
    return DamagedLog(f"the site sent {type(message).__name__} where it has no place: run the backup again", file="", offset=0)
