"""The bytes of a RocksDB storage are a format: known writes leave, entry by entry, the bytes in golden_entries.txt.

An engine of another release opens the same folder, and a replay makes one, so a change of these bytes needs a new FORMAT.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.rocks.view import RocksView
from tests.storage.engines.engine_rig import (
    SECOND,
    Log,
    delete,
    drop_table,
    put_table,
    request,
    schema_of,
    start_epoch,
    update,
    upsert,
    value,
)

GOLDEN = Path(__file__).with_name("golden_entries.txt")


def outcome(seq: int) -> RequestOutcome:
    return RequestOutcome(b"digest", 3, seq, seq * SECOND, 2, was_async=seq % 2 == 1)


async def known_writes(engine: RocksEngine) -> AsyncIterator[str]:
    """Writes of every sort, each with a name."""
    log = Log()
    await engine.apply([log.frame(start_epoch(1), put_table(7), put_table(8, 100, "history"), put_table(1 << 40, 5, "wide"))])
    yield "tables and an epoch"
    await engine.apply([
        log.frame(upsert(b"a\x00b", value(c1=1, c2="x"), request=request("first")), upsert(b"", value(c1=2), table=8)),
        log.frame(update(b"a\x00b", value(c2="y", c3=None)), update(b"", value(c2=b"z"), table=8), delete(b"", table=8)),
        log.frame(upsert(b"\xff", b"\x80", table=8), upsert(b"w", value(c1=1.5), table=1 << 40)),
    ])
    yield "rows, versions and a request"
    log.epoch = 2
    await engine.apply([
        log.frame(start_epoch(2, "b", "takeover")), log.frame(update(b"missing", value(c1=1)), delete(b"missing", table=8)),
        log.frame(
            upsert(b"\xff", b"\x81", table=8, request=request("again")), upsert(b"one", b"\x80", request=request("again", 2))
        ),
    ])
    yield "an epoch, and a key that two requests used"
    await engine.apply([
        log.frame(upsert(b"gone", b"\x80", table=1 << 40), drop_table(1 << 40), put_table(8, 0, "plain")),
        log.frame(upsert(b"\xff", b"\x82", table=8), put_table(8, 100, "history"), upsert(b"\xff", b"\x83", table=8)),
    ])
    yield "a table dropped, a history begun anew"
    await engine.replace_rows(
        [(8, b"\xff", StoredRow(b"\xff", b"\x84", 77)), (7, b"one", None)], log.seq - 4, 1, 2000 * SECOND
    )
    yield "cut back"
    await engine.purge((2000 * SECOND >> 16) + 24 * 3600 * 1000)
    yield "purged"
    rows = [(7, StoredRow(b"k%d" % n, value(c1=n), n)) for n in range(3)] + [(9, StoredRow(b"", b"\x80", 1 << 60))]
    await engine.load_base(rows, [("r", outcome(5))], b"at k2", first=True, schemas={7: schema_of(7), 9: schema_of(9, 50)})
    yield "the first part of a base"
    named = {7: schema_of(7, 3), 10: schema_of(10)}
    await engine.load_base(rows[:1], [("s", outcome(6))], b"at the end", first=False, schemas=named)
    yield "another part, without one of the tables"
    epochs = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(3, 30, 29, "b", "failover")]
    await engine.finish_base(40, 3, 500 * SECOND, epochs)
    yield "the end of a base"
    log.seq, log.epoch, log.timestamp = 40, 3, 500 * SECOND
    await engine.apply([log.frame(upsert(b"k0", value(c1=9)))])
    yield "a frame behind a base"


async def test_the_bytes_of_known_writes_stay_as_they_are(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    moments = [("", dict[bytes, bytes]())]
    async for name in known_writes(engine):
        moments.append((name, dict(RocksView(engine._database).walk((b"", b"\xff" * 64)))))
    await engine.close()
    lines = []
    for (_, before), (name, after) in pairwise(moments):
        lines.append(f"# {name}")
        lines += [f"{key.hex()} {after[key].hex() or '-'}" for key in sorted(after) if before.get(key) != after[key]]
        lines += [f"{key.hex()} gone" for key in sorted(before) if key not in after]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()
