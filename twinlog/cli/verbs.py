"""The verbs of the command `twinlog`: where each is, under which heading it is listed, and its line there.

What always holds: nothing is imported here, so that `twinlog status` does not wait for the modules of the other verbs; a test
compares each line with the verb itself, and this table with the verbs that there are. A distribution that adds verbs has such
a table too, and names it as an entry point of the group `twinlog.verbs` (main.py); the server's is gateway/cli/verbs.py.
This module is pure.
"""

from __future__ import annotations

from typing import NamedTuple

GROUP = "twinlog.verbs"
SERVER = "twinlog-server"
RUN = "Run"
SEE = "See the pair"
DATA = "Work with data"
CHANGE = "Change roles and modes"


class Verb(NamedTuple):
    """`module` has it in `app`; or `app` itself is a group of verbs. `help`: the first paragraph of its help."""

    module: str
    panel: str
    help: str
    app: str = "app"


_DATA = "twinlog.cli.data"
VERBS: dict[str, Verb] = {
    "version": Verb("twinlog.cli.about", RUN, "The versions of this client and, where it is installed, of the server."),
    "status": Verb(
        "twinlog.cli.status", SEE, "Roles, epoch, mode, what is at risk, lag and what stands in the way, on one screen.",
    ),
    "tables": Verb(_DATA, DATA, "List the tables, or show the columns of one."),
    "put": Verb(_DATA, DATA, "Write a whole row: twinlog put flights 2013-01-01T10:00:00Z,UA,1545,EWR dest=IAH"),
    "get": Verb(_DATA, DATA, "Read one row."),
    "scan": Verb(_DATA, DATA, "Read rows in key order."),
    "delete": Verb(_DATA, DATA, "Delete one row."),
    "create-table": Verb(
        "twinlog.cli.tables", DATA, "Create a table: twinlog create-table planes tail:string seats:int32 --key tail",
    ),
    "alter-table": Verb(
        "twinlog.cli.tables", DATA,
        "Add, drop or rename columns; change how long former rows can be read. All that is given, or nothing.",
    ),
    "drop-table": Verb(_DATA, DATA, "Drop a table and all its rows."),
    "restore-table": Verb(_DATA, DATA, "Bring back a dropped table with its rows: the last one that had this name."),
    "receipt": Verb(_DATA, DATA, "Show what became of an acknowledged write: survived, lost or unknown."),
}
