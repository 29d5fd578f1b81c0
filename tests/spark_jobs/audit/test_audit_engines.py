"""The audits of a real pair whose rows lie in PostgreSQL, at one site or at both: found exactly, mended, equal again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_jobs.audit.pair_rig import AuditedPair, audited_pair
from tests.storage.engines.sql.rig import a_database, postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [{"id": number, "n": number, "text": f"row {number}"} for number in range(300)]

pytestmark = [pytest.mark.pair, pytest.mark.long]


@pytest.fixture(params=["ab", "b"], ids=["both in PostgreSQL", "a in RocksDB"])
def pair(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[AuditedPair]:
    with ExitStack() as stack:
        databases = {site: postgres().url(stack.enter_context(a_database())) for site in request.param}
        opened = stack.enter_context(audited_pair(spark, tmp_path, databases=databases))
        opened.put(ROWS)
        yield opened


def test_what_was_planted_is_found_and_mended(pair: AuditedPair) -> None:
    pair.drain()
    pair.stop("b")
    planted = pair.plant("b", first=120)
    pair.back("b", "STANDBY")
    compared = pair.audit("compare", expected=1)
    assert pair.found(compared) == planted
    assert compared["counters"]["GOODROWS"] == len(ROWS) - 3
    mend = ("--set", f"audit={compared['path']}", "--set", "write=yes")
    left = pair.audit("repair", *mend, expected=1)
    assert pair.found(left) == {"122": "damaged"}, "nobody has said which site is right"
    assert left["counters"] == {"ROWS": 4, "REFUSED": 1, "WRITTEN": 3}
    again = pair.audit("repair", *mend, "--set", "truth=a", expected=1)
    assert again["counters"] == {"ROWS": 4, "CHANGED_SINCE": 2, "WRITTEN": 2}, "only what is not there is deleted twice"
    equal = pair.audit("compare", expected=0)
    assert equal["counters"]["GOODROWS"] == len(ROWS)
    assert pair.held() == []
    last = pair.http.get(f"{pair.urls['b']}/v1/audits/last").json()
    assert last["last_good_compare"]["id"] == equal["id"]
    assert last["last"]["repair"]["differences"] == 2
