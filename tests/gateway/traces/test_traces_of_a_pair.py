"""Traces of a real pair at a real receiver: one write is one trace over both sites, and one role change is one trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import opentelemetry.sdk.trace.export  # noqa: F401  its import adds a filter to its logger: before a test, not in one
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.gateway.metrics.live_sites import LiveSites, live_sites
from tests.gateway.traces.receiver import Received, Receiver, receiver, shown

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
WITH_STATE = {"traceparent": CALLER, "tracestate": STATE}
TRACE, PARENT = CALLER.split("-")[1:3]
SECRET = "a-value-that-no-trace-holds"
PUT = "PUT /v1/tables/{table}/rows/{key}"


async def spans_of(found: Receiver, trace: str, *names: str) -> list[Received]:
    """The spans of a trace, once those are there."""
    spans = await asyncio.to_thread(
        found.until, lambda spans: set(names) <= {span.name for span in spans if span.trace == trace}
    )
    return [span for span in spans if span.trace == trace]


async def until_followed(sites: LiveSites, active: str) -> None:
    await sites.until(active, lambda page: "twinlog_mode_sync 1.0" in page and "twinlog_replication_lag_records 0.0" in page)


async def switchover(http: httpx.AsyncClient, **headers: str) -> dict[str, object]:
    ask = {"kind": "switchover", "to": "b"}
    while (begun := await http.post("/v1/operations", json=ask, headers=headers)).status_code == 409:
        assert "running" in begun.json()  # site b still ends the plan by which it follows
    assert begun.status_code == 202, begun.text
    operation: dict[str, object] = begun.json()
    while operation["state"] == "running":  # each look is a request, which lets the sites work
        operation = (await http.get(f"/v1/operations/{operation['id']}")).json()
    return operation


async def the_buckets_have_exemplars(sites: LiveSites) -> None:
    """Whoever asks for OpenMetrics gets the trace of a duration beside its bucket; whoever does not gets the page as ever."""
    assert (await sites.http["a"].get("/v1/tables/t/rows/1", headers={"traceparent": CALLER})).is_success
    page = await sites.http["a"].get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    found = {
        sample.name for metric in text_string_to_metric_families(page.text) for sample in metric.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": TRACE}
    }
    names = ("ack", "read", "local_append", "remote_append", "apply")
    assert found == {f"twinlog_{name}_seconds_bucket" for name in names}
    plain = await sites.http["a"].get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert TRACE not in plain.text


async def test_a_put_is_one_trace_over_both_sites_and_so_is_a_switchover(tmp_path: Path) -> None:
    with receiver() as found:
        async with live_sites(tmp_path, more=f'[traces]\nendpoint = "{found.url}"\nratio = 0.0\n') as sites:
            put = await sites.http["a"].put("/v1/tables/t/rows/7777123", json={"v": SECRET}, headers=WITH_STATE)
            assert put.status_code == 200
            spans = await spans_of(found, TRACE, PUT, "apply at the standby", "ship to the other site")
            by_name = {span.name: span for span in spans}
            request = by_name[PUT]
            assert (request.site, request.parent) == ("a", PARENT)
            for name in ("wal append and sync", "remote log append and sync", "apply", "ship to the other site"):
                assert (by_name[name].site, by_name[name].parent) == ("a", request.span)
            standby = by_name["apply at the standby"]
            assert (standby.site, standby.parent) == ("b", by_name["ship to the other site"].span)
            assert {span.state for span in spans} == {STATE}
            assert request.attributes["http.response.status_code"] == 200
            assert request.attributes["http.route"] == "/v1/tables/{table}/rows/{key}"
            assert not any(span.error for span in spans)
            (tmp_path / "put.txt").write_text(shown(spans, TRACE))  # docs/traces.md shows such a one

            await the_buckets_have_exemplars(sites)
            assert (await sites.http["b"].put("/v1/tables/t/rows/1", json={"v": "y"}, headers={"traceparent": CALLER})).is_error
            operation = await switchover(sites.http["b"])
            assert operation["state"] == "succeeded", operation
            done = await asyncio.to_thread(found.until, lambda spans: any(s.name == "role change switchover" for s in spans))
            [change] = [span for span in done if span.name == "role change switchover"]
            steps = [str(step["name"]) for step in operation["steps"]]  # type: ignore[index, attr-defined]
            spans = await spans_of(found, change.trace, *(f"step {name}" for name in steps), "POST /internal/v1/peer/{method}")
            assert {span.site for span in spans} == {"a", "b"}
            assert {span.parent for span in spans if span.name.startswith("step ")} == {change.span}
            asked = [span for span in spans if span.site == "a"]
            assert {span.name for span in asked} == {"POST /internal/v1/peer/{method}"}
            assert {span.parent for span in asked} <= {span.span for span in spans if span.site == "b"}
            assert change.attributes["twinlog.operation"] == operation["id"]
            (tmp_path / "switchover.txt").write_text(shown(spans, change.trace))
        sent = b"".join(found.bodies)
        assert SECRET.encode() not in sent
        assert b"7777123" not in sent


async def test_a_role_change_is_in_the_trace_of_who_asks_for_it(tmp_path: Path) -> None:
    with receiver() as found:
        async with live_sites(tmp_path, more=f'[traces]\nendpoint = "{found.url}"\nratio = 0.0\n') as sites:
            await until_followed(sites, "a")
            assert (await switchover(sites.http["b"], **WITH_STATE))["state"] == "succeeded"
            spans = await spans_of(found, TRACE, "role change switchover", "POST /v1/operations", "step open")
            [asked] = [span for span in spans if span.attributes.get("http.response.status_code") == 202]
            [change] = [span for span in spans if span.name == "role change switchover"]
            assert (asked.parent, change.parent) == (PARENT, asked.span)
            assert {(span.site, span.state) for span in spans} == {("a", STATE), ("b", STATE)}
