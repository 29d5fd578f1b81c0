"""Planted bugs of what a site says of itself, of what it takes to be a table's schema, and of scans that change midway."""

from __future__ import annotations

import base64

import msgspec

import gateway.api.scans
import gateway.site.cluster_document
import gateway.site.metrics
import gateway.site.serving_facts
from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.service.documents import ReplicationLag, ServingDocument
from gateway.site.serving_judgement import ServingFacts, judge_serving
from gateway.site.site import Site
from storage.rows.codec import RowCodec, RowCodecs
from storage.rows.schema import TableSchema


def _lag_by_the_last_word(site: Site) -> ReplicationLag | None:
    epoch = site.active_epoch
    if epoch is None or epoch.shipper.view.applied_seq is None:
        return None
    return ReplicationLag(max(0, epoch.core.committed - epoch.shipper.view.applied_seq), 0.0)


def _proves_itself(site: Site) -> bool:
    return True


def _proved_for_ever(facts: ServingFacts) -> ServingDocument:
    return judge_serving(facts if facts.proof_age_s is None else msgspec.structs.replace(facts, proof_age_s=0.0))


def _token_of_any_scan(text: str, digest: bytes) -> tuple[bytes, str, bytes, float | None]:
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    _, _, last, snapshot, schema, vouched_s = msgspec.msgpack.decode(packed)
    return last, snapshot, schema, vouched_s


def _first_codec(self: RowCodecs, schema: TableSchema) -> RowCodec:
    return self._codecs.setdefault(schema.id, RowCodec(schema, **self._limits))


_LAG = (gateway.site.metrics, "replication_lag", _lag_by_the_last_word)
_LAG_SHOWN = (gateway.site.cluster_document, "replication_lag", _lag_by_the_last_word)

BUGS = (
    Bug(
        "lag-by-the-last-word", "The lag counts what a site had applied that was not heard of since.", "P8", ("at_risk",),
        128, 4, (_LAG, _LAG_SHOWN), drawn=draw,
    ),
    Bug(
        "no-risk-without-a-log", "Nothing is at risk while the remote log does not answer.", "P8", ("at_risk",), 86, 3,
        ((gateway.site.cluster_document, "_has_remote_log", _proves_itself),), ("isolate", "cut", "hang-dfs"),
    ),
    Bug(
        "healthy-for-ever", "A site that was fenced says that it serves.", "P2", ("inside",), 0, 5,
        ((gateway.site.serving_facts, "judge_serving", _proved_for_ever),), ("isolate", "failover"),
    ),
    Bug(
        "codec-of-an-old-schema", "Rows are read and written by the first schema that their table had.", "P3", ("allowed",),
        0, 12, ((RowCodecs, "get", _first_codec),), drawn=draw,
    ),
    Bug(
        "token-of-any-scan", "A page token continues whatever scan it is sent with.", "P3", ("tokens",), 16, 4,
        ((gateway.api.scans, "_read_token", _token_of_any_scan),), drawn=draw,
    ),
)
