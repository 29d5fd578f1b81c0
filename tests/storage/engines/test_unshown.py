"""The place of a schema change in the log, by which alone one is left out of sight."""

from __future__ import annotations

from storage.engines.unshown import schema_changes
from tests.storage.engines.engine_rig import Log, drop_table, noop, put_table


def test_a_change_is_named_by_its_own_sequence_also_within_a_frame() -> None:
    log = Log()
    frames = [log.frame(noop(), put_table(3), noop(), put_table(4)), log.frame(noop(), noop(), drop_table(4))]
    assert schema_changes(frames) == {3: (1, 2), 4: (1, 7)}
    assert schema_changes([log.frame(noop())]) == {}
