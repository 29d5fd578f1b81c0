"""A gateway with `[access]` and one token: a PUT without it is 401, with a reader's 403, with a writer's 200."""

from __future__ import annotations

import pytest

from tests.gateway.access.rig import guarded_door
from tests.gateway.door_client import ROWS, problem

ways = pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])


@ways
async def test_a_put_by_nobody_a_reader_and_a_writer(query: str) -> None:
    async with guarded_door() as door:
        url = f"{ROWS}/UA,1{query}"
        refused = await door.http.put(url, json={})
        problem(refused, 401, "unauthenticated", outcome="not_applied")
        assert refused.headers["www-authenticate"] == 'Bearer realm="twinlog"'
        for _ in range(2):  # the second one by what is kept of the first
            wrong = await door.http.put(url, json={}, headers=door.as_("reader"))
            problem(wrong, 403, "missing-grant", grant="writer:flights", outcome="not_applied")
            assert (await door.http.put(url, json={}, headers=door.as_("writer"))).status_code == 200
            assert (await door.http.get(url, headers=door.as_("reader"))).status_code == 200
            problem(await door.http.get(url, headers=door.as_("writer")), 403, "missing-grant", grant="reader:flights")
            problem(await door.http.put(url, json={}, headers={"Authorization": "Bearer twinlog_x"}), 401, "unauthenticated")
