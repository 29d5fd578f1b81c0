"""The list of every event in the log of a gateway: its name, level and fields, what it means, and what to do.

What always holds: an event is known by its logger and its text, and both are stable: whoever alerts on one finds it after an
upgrade, or a line in CHANGELOG.md. docs/events.md is drawn from this list, and a test compares it with every call that logs
(tools/watching/event_list.py). No field holds a value of a row. Source: product.md section 8.
This module is pure.
"""

from __future__ import annotations

from typing import NamedTuple

NOTHING = "Nothing."
REPORT = "Report it with the traceback: it is a fault of twinlog."


class LogEvent(NamedTuple):
    """One event. `fields`: always there. `more`: which others may be there; empty: none."""

    name: str
    levels: tuple[str, ...]
    fields: tuple[str, ...]
    meaning: str
    do: str
    more: str = ""


_INFO, _WARNING, _ERROR, _DEBUG = ("info",), ("warning",), ("error",), ("debug",)
_INTERNAL = "A background work failed in a way that nobody foresaw. It is tried again."

EVENTS: dict[str, list[LogEvent]] = {
    "twinlog.app": [
        LogEvent("serving", _INFO, ("url",), "The listeners are open.", NOTHING),
        LogEvent("notice", _WARNING, ("text",), "A listener is not protected, or a certificate ends soon: `text` says which.",
                 "Follow the text; `twinlog status` shows it, too."),
        LogEvent("SIGHUP is ignored: the site does not serve yet; SIGTERM stops it", _WARNING, (),
                 "SIGHUP came before the configuration could be read again.", "Send it again once the site serves."),
        LogEvent("stopping", _INFO, (), "SIGTERM or SIGINT came, and the open epoch is ended cleanly.", NOTHING),
    ],
    "twinlog.site": [
        LogEvent("role", _INFO, ("cause", "epoch", "reason", "role"),
                 "The site has another role now. `cause` is the line of the table of roles ([roles.md](roles.md)).", NOTHING,
                 "`why`: more than the table says"),
        LogEvent("epoch ended", _WARNING, ("code", "detail", "epoch"),
                 "The site stopped being the writer without a command: it is fenced, or a fault ended its epoch.",
                 "Run `twinlog status`, then `twinlog advise`."),
        LogEvent("the end of an epoch failed", _ERROR, ("traceback",), "The parts of an epoch could not be closed in order.",
                 REPORT),
        LogEvent("a barrier's snapshot is not kept", _WARNING, ("barrier", "why"),
                 "A barrier has passed, and this site keeps no snapshot for it, so no audit can use it.",
                 "Make room for kept snapshots, then ask for another barrier."),
    ],
    "twinlog.supervisor": [
        LogEvent("serves", ("info", "warning"), (), "What the site serves has changed. It is a warning where it served before, "
                 "or had opened to serve.",
                 "Where `do` holds a command, run it.", "`reads`, `writes`, `follows`, `why`, `do`"),
        LogEvent("trouble", _WARNING, (), "Something keeps the site from being whole.", "Follow `do`, which names the command.",
                 "`about`, `seen`, `do`, `error`"),
        LogEvent("trouble is over", _INFO, ("about",), "What a `trouble` with this `about` said holds no more.", NOTHING),
        LogEvent("waiting", _INFO, ("code", "role", "waiting_for"), "The site waits until this answers.",
                 "Look at what it waits for, if that lasts."),
        LogEvent("the storage was opened anew", _INFO, ("applied_seq",),
                 "A storage that had failed is open again, and may hold less; what it lacks comes from the log.",
                 "Look at the disk that it is on."),
        LogEvent("the other site says nothing of the register", _DEBUG, ("detail",),
                 "The other site was asked for the newest value of the register, and did not answer.", NOTHING),
        LogEvent("housekeeping failed", _ERROR, ("code", "detail", "work"),
                 "A work that runs from time to time failed. It is tried again.", "Look at `detail`, if it repeats."),
        LogEvent("housekeeping failed by an internal error", _ERROR, ("traceback", "work"), _INTERNAL, REPORT),
        LogEvent("internal error", _ERROR, ("traceback",), _INTERNAL, REPORT),
    ],
    "twinlog.active": [
        LogEvent("internal error", _ERROR, ("traceback", "work"), _INTERNAL, REPORT),
        LogEvent("the log is too long to be kept for a backup: its next one needs a new base", _WARNING, ("holder",),
                 "The WAL became longer than `wal.backup_bytes_max`, and what it kept for that backup is deleted.",
                 "Run `twinlog backup --new-base`, and run backups more often or raise the bound."),
    ],
    "twinlog.commit": [
        LogEvent("internal error", _ERROR, ("traceback",),
 
                                "The write path failed in a way that nobody foresaw."
                 " Its requests are answered, and the epoch ends if it must.",
                 REPORT),
    ],
    "twinlog.tables": [
        LogEvent("a change of a table cannot be tried", _WARNING, ("detail", "table"),
                 "The storage could not say whether it would take a change of a table; the change is refused.",
                 "Look at `detail`, then change the table again."),
        LogEvent("a table is changed without the other site's word", _WARNING, ("code", "detail", "peer", "table"),
                 "The other site was asked whether its storage would take the change, and did not answer.",
                 "Look at the other site once it follows again: it may stop at this change."),
    ],
    "twinlog.trail": [
        LogEvent("trail", _INFO, ("number", "sha256"),
                 "One line of the audit trail ([security.md](security.md)): each step of a role change is one, as "
                 "`operation.step`. It is logged at every level.", NOTHING,
                 "the members of the line: `act`, `outcome`, `who`, `kind`, `at_ms`, `operation`, `what`, `address`"),
        LogEvent("trail unwritten", _ERROR, ("why",), "A line of the audit trail that the disk did not take.",
                 "Keep the log: it is the only place of this line.", "the members of the line, as in `trail`"),
        LogEvent("the trail cannot be written; role changes continue without it", _ERROR, ("number", "why"),
                 "The disk takes no lines of the audit trail, so tables are not changed.",
                 "Repair the disk of the data directory."),
        LogEvent("the trail is written again", _WARNING, ("number", "waiting"), "The disk takes the lines again.", NOTHING),
        LogEvent("the trail is broken", _ERROR, ("file", "line", "why"), "A line is not what the chain says that it is.",
                 "Run `twinlog trail --verify`, and keep the files as they are."),
        LogEvent("the other site's trail went back", _WARNING, ("had", "has", "other"),
                 "The other site's trail has fewer lines than this site has seen of it.",
                 "Find out who changed it: lines of it are in this site's trail."),
        LogEvent("the other site says nothing of its trail", _DEBUG, ("detail",), "The other site did not answer.", NOTHING),
        LogEvent("internal error", _ERROR, ("traceback",), _INTERNAL, REPORT),
    ],
    "twinlog.traces": [
        LogEvent("spans were dropped: the receiver took none", _WARNING, ("answer", "endpoint", "spans"),
                 "The receiver of traces refused these spans, or did not answer. They are lost, and no write waited for them.",
                 "404: give `traces.endpoint` its path, mostly `/v1/traces`. Else look at the receiver."),
    ],
    "twinlog.ui": [
        LogEvent("the page cannot look", _ERROR, ("traceback",), "The operator's page could not be drawn anew.", REPORT),
    ],
    "gateway.config": [
        LogEvent("a setting was changed", _INFO, ("after", "before", "key"), "A setting has another value from now on.",
                 NOTHING),
        LogEvent("SIGHUP: the configuration was read again", _INFO, ("changed", "needs_restart"),
                 "The file was read again; `needs_restart` counts settings that wait for a restart.",
                 "Restart the gateway, if that is not 0."),
        LogEvent("SIGHUP: the file cannot be used, and nothing has changed", _ERROR, ("why",), "The file has faults.",
                 "Run `twinlog config check`, correct the file, and send SIGHUP again.", "`faults`: each with key and problem"),
    ],
    "gateway.access": [
        LogEvent("a request was refused", _WARNING, ("address", "caller", "kind", "method", "path", "why"),
                 "Who asked is not known, or may not do this. Lines are limited to some each minute.",
                 "Look who asks, if it repeats.", "`grant`: the one that is missing"),
        LogEvent("identities could not be read again; those that were read last stay valid", _ERROR, ("error",),
                 "A file or a server of identities failed in a way that nobody foresaw.", "Look at `error`."),
    ],
    "gateway.access.oidc": [
        LogEvent("the keys of an issuer were read", _INFO, ("issuer",
                 "keys"), "Tokens of this issuer are checked by these keys.",
                 NOTHING),
        LogEvent("the keys of an issuer cannot be read; those that were read last stay valid", _ERROR, ("fault", "issuer"),
                 "The issuer's keys are as old as the last read.", "Look at `fault` and at the issuer."),
    ],
    "gateway.access.log_in": [
        LogEvent("an issuer does not say where its log-in is", _WARNING, ("fault", "issuer"),
                 "Its discovery document cannot be read or followed: nobody can log in by it at the page. It is asked "
                 "again until it can.", "Look at `fault` and at the issuer; people log in with tokens meanwhile."),
        LogEvent("an issuer did not complete a log-in", _WARNING, ("fault", "issuer"),
                 "The issuer gave no ID token for a code: it did not answer, refused this gateway, or answered something else.",
                 "Look at `fault`; for `invalid_client`, at `client_id` and `client_secret` in `[access.oidc.login]`."),
    ],
    "gateway.access.tokens": [
        LogEvent("the tokens were read again", _INFO, ("file", "tokens"), "The file of tokens has changed, and is in use.",
                 NOTHING),
        LogEvent("the tokens cannot be read again; those that were read last stay valid", _ERROR, ("fault", "file"),
                 "The file of tokens has a fault. A token that was revoked in it still is valid.", "Correct the file."),
        LogEvent("others than the owner may read the file of tokens: chmod 600", _WARNING, ("file", "mode"),
                 "The digests of tokens can be read by others.", "Run `chmod 600` on the file."),
    ],
    "gateway.api.backups": [
        LogEvent("a backup ended early", _WARNING, ("error",),
                 "A backup broke off while its rows or its log were read. What its place held before is whole.",
                 "Run `twinlog backup` again; look at `error`, if it repeats."),
    ],
    "gateway.api.problems": [
        LogEvent("unexpected error in a request", _ERROR, ("incident", "traceback"),
                 "A request was answered with 500; its answer names the same `incident`.", REPORT),
        LogEvent("the storage failed in a request", _WARNING, ("detail", "incident"),
                 "A read reached a storage that has failed; the answer names the same `incident`.",
                 "Run `twinlog status`: the storage is opened anew by itself where that helps.",
                 "what the storage's error names"),
    ],
    "gateway.api.scans": [
        LogEvent("a scan ended early", _WARNING, ("error", "table"),
                 "An answer broke off in the middle, and its client sees that it is not whole.",
                 "Look at `error`, if it repeats."),
    ],
    "gateway.http": [
        LogEvent("a client speaks TLS to a plain port", _WARNING, ("address",), "The port has no TLS.",
                 "Correct the client's address, or give the listener a certificate."),
    ],
    "gateway.http.descriptors": [
        LogEvent("fewer connections than configured: the limit of open files is low", _WARNING,
                 ("configured", "connections_max", "open_files", "wanted"),
                 "The process may open fewer files than its connections need.",
                 "Raise the limit of open files (`LimitNOFILE`)."),
    ],
    "gateway.tls": [
        LogEvent("new TLS files are in use", _INFO, ("changed", "section"), "New connections are made by the new files.",
                 NOTHING),
        LogEvent("the new TLS files cannot be used; the old ones stay in use", _ERROR, ("section", "why"),
                 "A certificate, key or CA file has changed, and has a fault.", "Correct the files before the old ones end."),
        LogEvent("nobody comes in by certificate: the list of revoked ones cannot be used", _ERROR, ("why",),
                 "The list of revoked certificates is over, or cannot be read.", "Put a new list in its place."),
        LogEvent("a TLS handshake failed", _WARNING, ("address", "listener", "why"), "A connection came to no session.",
                 "Look at who calls, if it repeats."),
        LogEvent("an address makes more TLS handshakes than it may, and was refused", _WARNING, ("address", "listener"),
                 "A limit of handshakes was reached.", "Have the client keep its connections open."),
        LogEvent("a client speaks plain HTTP to a TLS port", _WARNING, ("address", "listener"), "The port has TLS alone.",
                 "Correct the client's address: it begins with https."),
        LogEvent("a caller is not the other site, and was refused", _WARNING, ("address", "listener", "why"),
                 "Who called at the other site's listener has no certificate of the other site.", "Find out who calls."),
    ],
}
LEFT_OUT = LogEvent(
    "more warnings of this kind were left out", _WARNING, ("count",),
    "A logger whose warnings strangers can cause wrote some in a minute, and left `count` more out.", NOTHING,
)
