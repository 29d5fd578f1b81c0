"""Every verb of the command `twinlog`: where it is, under which heading it is listed, and its line there.

What always holds: nothing is imported here, so that `twinlog failover` does not wait for the modules of the other verbs; a test
compares each line with the verb itself, and this table with the verbs that there are.
This module is pure.
"""

from __future__ import annotations

from typing import NamedTuple

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

    @property
    def distribution(self) -> str:
        return SERVER if self.module.startswith("gateway.") else "twinlog"


_DATA, _STATUS, _OPERATOR = "twinlog.cli.data", "twinlog.cli.status", "gateway.cli.operator"
VERBS: dict[str, Verb] = {
    "serve": Verb("gateway.cli.main", RUN, "Run one site until SIGINT or SIGTERM. Logs go to standard error."),
    "demo": Verb(
        "gateway.cli.main", RUN, "Run a whole pair on this machine: two sites, real logs, a real table. Ctrl-C stops both.",
    ),
    "config": Verb("gateway.cli.main", RUN, "Check a configuration, or show what it comes to.", app="config_app"),
    "version": Verb("twinlog.cli.about", RUN, "The versions of this client and, where it is installed, of the server."),
    "status": Verb(_STATUS, SEE, "Roles, epoch, mode, what is at risk, lag and what stands in the way, on one screen."),
    "validate": Verb(
        _OPERATOR, SEE,
        "Would a role change work now? Looks at both sites, changes nothing, and leaves nothing in the "
        "history.",
    ),
    "advise": Verb(
        _OPERATOR, SEE,
        "Advise what to do now, why, and on whose word: one look from here at both sites, which changes "
        "nothing.",
    ),
    "monitor": Verb(
        _OPERATOR, SEE,
        "Watch both sites until Ctrl-C, and report each change of the advice. Best run where the coordinator "
        "runs.",
    ),
    "history": Verb(_OPERATOR, SEE, "Every role change: who, why, how long and how it ended. With an id: follow that one."),
    "log": Verb("gateway.cli.log", SEE, "Look into a site's logs on disk; works with the gateway dead."),
    "audit": Verb("gateway.cli.audit", SEE, "Prove that both sites are equal, with Spark; find what differs."),
    "switchover": Verb(
        _OPERATOR, CHANGE,
        "Hand over to the other site, planned: both sites alive, nothing lost, writes pause for about a "
        "second.",
    ),
    "failover": Verb(
        _OPERATOR, CHANGE,
        "Take over from a site that is lost, without asking it. Refuses when acknowledged writes could be "
        "lost.",
    ),
    "rejoin": Verb(
        _OPERATOR, CHANGE,
        "Bring a site back as the standby. What only it holds is put into quarantine, never dropped "
        "silently.",
    ),
    "degrade": Verb(
        _OPERATOR, CHANGE,
        "Acknowledge with the local log alone, while the other site is away. Recorded before the first such "
        "write.",
    ),
    "resync": Verb(
        _OPERATOR, CHANGE, "Go back to synchronous: remote log on, catch up, then declare it. Writes continue meanwhile.",
    ),
    "resume": Verb(_OPERATOR, CHANGE, "Resume an operation that failed or was interrupted, from the state of the pair now."),
    "abort": Verb(_OPERATOR, CHANGE, "Undo an operation that has not passed its point of no return."),
    "tables": Verb(_DATA, DATA, "List the tables, or show the columns of one."),
    "put": Verb(_DATA, DATA, "Write a whole row: twinlog put flights 2013-01-01T10:00:00Z,UA,1545,EWR dest=IAH"),
    "get": Verb(_DATA, DATA, "Read one row."),
    "scan": Verb(_DATA, DATA, "Read rows in key order."),
    "delete": Verb(_DATA, DATA, "Delete one row."),
    "load": Verb(
        "gateway.cli.load", DATA, "Stream a file in, batch by batch: resumable, repeats nothing, survives a failover.",
    ),
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
