"""The base of every line of a history, and the lines about barriers and about a site's looks at the register.

What always holds: as for all of history.py, which puts them together.
"""

from __future__ import annotations

import msgspec


class Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", gc=False):
    """One line of a recorded history; `is` says which."""


class BarrierLine(Line, tag="barrier", frozen=True, omit_defaults=True):
    """The active reported that it took this barrier: its frame ends at `seq`."""

    name: str
    epoch: int
    seq: int
    at_s: float


class Kept(Line, tag="kept", frozen=True, omit_defaults=True):
    """A site was seen to keep a snapshot. `digest`: of all rows with their versions, all schemas and epochs in it."""

    site: str
    name: str
    epoch: int
    seq: int
    digest: str
    at_s: float


class StaleLook(Line, tag="stale_look", frozen=True, omit_defaults=True):
    """A standby at (`epoch`, `seq`) would have labelled a stale read with `age_s` at `at_s`."""

    site: str
    epoch: int
    seq: int
    age_s: float
    at_s: float


class Unheard(Line, tag="unheard", frozen=True, omit_defaults=True):
    """A site asked the register in vain from `from_s` to `to_s`: a change that it asked for may be recorded, and it does not
    know."""

    site: str
    from_s: float
    to_s: float


class Blind(Line, tag="blind", frozen=True, omit_defaults=True):
    """A site without a coordinator asked for a change that it had decided without a look at the other site's DFS. The change
    itself looks once more, in the time from `from_s` to `to_s`, and is refused when it sees that DFS."""

    site: str
    from_s: float
    to_s: float


class Repeat(Line, tag="repeat", frozen=True, omit_defaults=True):
    """The request of `call`, sent again under its idempotency key at `from_s`, once that call had ended. `result`, `error`: as
    of an outcome; `version`, `epoch`, `seq`: of the acknowledgement, 0 without one. `other`: it was another request, which
    updates a row that is never there."""

    call: int
    from_s: float
    to_s: float
    result: str
    error: str = ""
    version: int = 0
    epoch: int = 0
    seq: int = 0
    other: bool = False


class ReceiptLine(Line, tag="receipt", frozen=True, omit_defaults=True):
    """`site` said at `at_s` what became of the write of `call`, by its receipt: survived, lost or unknown. `last`: nothing was
    under way any more. `held_seq`: the most that its storage had applied around the answer; None: nobody looked."""

    call: int
    site: str
    said: str
    at_s: float
    last: bool = False
    held_seq: int | None = None


class Served(Line, tag="served", frozen=True, omit_defaults=True):
    """An answer about rows left `site` in `epoch` at `at_s` (or its process was stopped then, and sent it when it was resumed),
    and the newest proof that this was the active was asked for at `proved_s`. Only answers whose proof was old are recorded."""

    site: str
    epoch: int
    at_s: float
    proved_s: float


class RiskLook(Line, tag="risk_look", frozen=True, omit_defaults=True):
    """An open epoch at `at_s`: the records at risk and the lag that `site` shows (None: unknown), and what is so: `lacking`,
    the committed records that the other site could not have if this one were lost now; `behind`, those that its storage lacks.
    `heard`: it has just heard the other one, and reaches it."""

    site: str
    epoch: int
    at_s: float
    records: int | None
    lag: int | None
    lacking: int
    behind: int
    heard: bool


class Misled(Line, tag="misled", frozen=True, omit_defaults=True):
    """The page token of a scan was sent to `site` at `at_s` with another question than its own; `question` names what was
    other, and `status` is that of the answer."""

    site: str
    at_s: float
    question: str
    status: int


class Stood(Line, tag="stood", frozen=True, omit_defaults=True):
    """The clients' own event loop stood between these times: no answer that came meanwhile was seen before the end."""

    from_s: float
    until_s: float
