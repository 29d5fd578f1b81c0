"""The verbs that the server adds to the command `twinlog`, by the entry point `server` of the group `twinlog.verbs`.

What always holds: no verb's module is imported here; a test compares each line with the verb itself. Source:
twinlog/cli/verbs.py.
This module is pure.
"""

from __future__ import annotations

from twinlog.cli.verbs import CHANGE, DATA, RUN, SEE, Verb

_OPERATOR = "gateway.cli.operator"
VERBS: dict[str, Verb] = {
    "serve": Verb("gateway.cli.main", RUN, "Run one site until SIGINT or SIGTERM. Logs go to standard error."),
    "demo": Verb(
        "gateway.cli.main", RUN, "Run a whole pair on this machine: two sites, real logs, a real table. Ctrl-C stops both.",
    ),
    "config": Verb(
        "gateway.cli.main", RUN, "Check a configuration, show what it comes to, or have sites read theirs again.",
        app="config_app",
    ),
    "log-level": Verb(
        "gateway.cli.main", RUN,
        "Log more or less at sites that run, until their next reload or start. Needs the grant operator.",
    ),
    "token": Verb(
        "gateway.cli.token", RUN, "Make, revoke and list the tokens by which clients say who they are.",
    ),
    "certs": Verb(
        "gateway.cli.certs", RUN, "Make a CA and certificates for a pair: init, site, client, revoke.", app="app",
    ),
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
    "trail": Verb(
        "gateway.cli.trail", SEE,
        "Show who did what at a site, when, and how it ended; with --verify prove that nothing was changed.",
    ),
    "backup": Verb(
        "gateway.backup.commands", SEE,
        "Back a running pair up into a folder: all rows once, then the log. Needs auditor and reader:*.", app="app",
    ),
    "restore": Verb(
        "gateway.backup.commands", RUN,
        "Make a new pair from a backup: its first active gets the rows of one moment. Refuses all that is not empty.",
        app="restore_app",
    ),
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
    "load": Verb(
        "gateway.cli.load", DATA, "Stream a file in, batch by batch: resumable, repeats nothing, survives a failover.",
    ),
}
