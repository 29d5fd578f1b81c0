"""The meaning of each kind of finding, and the way out: for the page and the terminal; docs/audits.md has all kinds too."""

from __future__ import annotations

from collections.abc import Iterable

ADVICE = {
    "compare": {
        "missing": (
            "The standby lacks rows that the active has. Do not let it take over; look at its log around their versions, "
            "and repair them, or fill the site anew."
        ),
        "extra": (
            "The standby has rows that the active does not: a delete was not applied there, or somebody wrote past the "
            "gateway."
        ),
        "stale": "The standby has another version of the row: a write was not applied there. Treat it as missing.",
        "damaged": (
            "The same version has other bytes: they changed below the storage. Look at the disks of both sites first; if "
            "the active's copy is the bad one, switch over before you repair anything."
        ),
        "missing table": "The standby lacks a whole table: a change of tables was not applied there. Fill the site anew.",
        "extra table": (
            "The standby has a table that the active does not: its removal was not applied there. Fill the site anew."
        ),
    },
    "log-audit": {
        "gap": (
            "Frames are missing between two that are there. The other log of the pair may hold them: `twinlog log cat` "
            "shows what stands around the place. Let no site replay this log before that is clear."
        ),
        "broken-link": "A frame names another predecessor than the one that stands before it. Treat it as a gap.",
        "duplicate": (
            "Two different frames stand for the same sequences: two writers, or a file that was put back. Compare both "
            "with the other log before either site restarts."
        ),
        "damaged": (
            "Bytes changed below the log, and sound frames follow. Look at the disk, and keep the file. The other log of "
            "the pair holds the same frames as long as they are not trimmed."
        ),
        "misplaced": "A frame stands in a file where it does not belong: files were moved or renamed by hand.",
        "out-of-order": (
            "A frame stands behind one that was made after it: no writer leaves that. The file was changed; compare it with "
            "the other log."
        ),
        "repeated": (
            "The same frame stands twice where no writer repeats one. It changes nothing that a reader finds; the file was "
            "changed, so compare it with the other log."
        ),
        "time-went-back": (
            "A frame's time is not above that of the frame before it, so one of the two was changed: a row's version is its "
            "frame's time. Compare both with the other log, and run `compare`."
        ),
        "unreadable": "A file of the log cannot be read: look at its rights and at the disk.",
        "epoch-without-start": (
            "An epoch does not begin with its own record: its first frames are missing. Treat it as a gap."
        ),
        "cut-committed": (
            "A later epoch cuts off frames that were committed: acknowledged writes may be gone. Read the takeover in `twinlog "
            "history`."
        ),
        "not-in-remote-log": (
            "The active's log has frames, acknowledged as synchronous, that the other site's copy lacks: a failover now "
            "would lose them. `twinlog status` shows whether the active knows."
        ),
        "logs-differ": (
            "Both logs have the frame, with other bytes. Look at the disks of both; the storage of each site has applied "
            "its own."
        ),
        "behind-storage": "A log ends before what its storage has applied: the end of the log was lost.",
        "trimmed-early": (
            "Frames are gone from a log that the other site does not hold durably. Do not fail over to it before it has "
            "caught up; if it does not, give it an empty data directory."
        ),
        "quarantined": (
            "A rejoin put aside records that the other site never had. `twinlog audit run reconcile --set tail=FILE` shows "
            "which records nothing has replaced; `twinlog rejoin --merge` puts back those that are newer. Remove settled files."
        ),
    },
    "reconcile": {
        "lost": (
            "Neither this version of the row nor a later one stands. `twinlog rejoin --merge` puts back what nothing newer "
            "replaced; a row that the active does not have only with --put-absent, for it may have been deleted since."
        ),
    },
}


def advice_for(job: str, kinds: Iterable[str]) -> dict[str, str]:
    """Kind -> sentences, of those that there is something to say of."""
    known = ADVICE.get(job, {})
    return {kind: known[kind] for kind in kinds if kind in known}
