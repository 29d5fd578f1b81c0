"""Every streamed answer closes its source: StreamingResponse itself, which leaves that to the collector, has one room."""

from __future__ import annotations

import re

from tools.sources import ROOT, repository_files

LEFT_TO_THE_COLLECTOR = re.compile(r"\bStreamingResponse\(")
ROOM = ROOT / "gateway/api/routes/streams.py"


def test_nobody_streams_by_another_class() -> None:
    sources = [path for path in repository_files(suffix=".py") if "gateway" in path.parts and "tests" not in path.parts]
    assert sources
    found = [str(path) for path in sources if LEFT_TO_THE_COLLECTOR.search(path.read_text()) and path.name != ROOM.name]
    assert found == [], "answer with ClosedStream of gateway/api/routes/streams.py"
    assert "class ClosedStream(StreamingResponse)" in ROOM.read_text()
