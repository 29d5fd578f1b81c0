"""The one error tree. Lower layers raise these; the edge (gateway/api/problems.py, gateway/cli) maps them, nothing else does.

    TwinlogError
    |- InvalidInput            the caller's input is wrong; nothing was logged            422
    |  |- MalformedBody        the body cannot be parsed at all                           400
    |  |- TooLarge             a limit of size or count                                   413
    |  |- HistoryNotHeld       `as_of` lies before what this site kept of the table       410
    |- Unauthenticated         who asks is not proven                                     401
    |- Forbidden               a grant is missing; says which                             403
    |- NotFound                table, row, operation, receipt                             404
    |- Conflict                a row or table exists already, another operation runs      409
    |- PreconditionFailed      If-Match, a condition that does not hold                   412
    |- NotActive               this site does not serve that; carries the active          421
    |- Overloaded              a bounded queue is full; nothing was logged                429
    |- Unavailable             closed, draining, lease expired, peer away; nothing logged 503
    |  |- NoThread             the process cannot start another thread now; an OSError as well
    |- OutcomeUnknown          the write may or may not appear later                      504
    |- LogError                                                                           500
    |  |- DamagedLog           damage with good frames behind it: file and offset
    |  |- LogGap               frames are missing between what is held and what is offered
    |  |- SyncFailed           an fsync or write failed; the descriptor must be sealed
    |  |- BrokenFrame          no whole, sound frame begins here: a torn tail, or damage
    |  |- BrokenHeader         no sound segment header begins here
    |  |- KeyUnavailable       a file of a log or a backup needs a key that is missing here, or is another one; no damage
    |- DfsError                the other site's (or one's own) DFS
    |  |- DfsExists            exclusive create lost
    |  |- DfsNotFound
    |  |- LeaseLost            the file was closed under the writer by lease recovery
    |  |- LeaseNotRecovered    the deadline passed before the file was proven closed: stop
    |- Fenced                  a higher epoch was claimed: stop, acknowledge nothing
    |  |- RegisterWentBack     the register is older than what this site has met: stop; a command gets past it
    |- ClaimLost               another plan took the epoch
    |- PlanSuperseded          the coordinator's value changed under a plan
    |- Refused                 a role change would break a promise; says which and what to do
    |  |- IllegalTransition    the table of roles has no such step; nothing changed
    |  |- Diverged             a site holds what the active continues without, and nothing else has it
    |  |- Incompatible         two releases, or a release and the files of another one, do not understand one another
    |- PeerError               the other gateway: unreachable, timed out, answered nonsense
    |- ConfigError             every fault of a configuration at once
    |- DataDirectoryError      a data directory that is not this site's, or in use
    |- EngineFailed            the database behind a storage engine failed; the log keeps everything      500

What always holds: the message names the thing and says what to do; `fields` are JSON values for machines.
This module is pure.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

_ENDED = "the connection ended before the whole answer was there"
_FAILED = "the exchange with what answers there failed"
_WITHOUT_TEXT = {  # by the name of a class: to import http.client, asyncio or httpx for it takes long
    "TimeoutError": "no answer in time", "TimeoutException": "no answer in time", "ConnectTimeout": "no connection in time",
    "PoolTimeout": "no connection in time", "CancelledError": "it was cancelled",
    "ConnectionResetError": "connection reset",
    "ConnectionRefusedError": "connection refused", "BrokenPipeError": "the connection is closed",
    "ConnectError": "no connection",
    "ConnectionError": "the connection broke", "NetworkError": "the connection broke", "EOFError": _ENDED,
    "ConnectionNotAvailable": "no connection", "HTTPException": _FAILED, "ProtocolError": _FAILED, "TransportError": _FAILED,
    "ProxyError": _FAILED, "UnsupportedProtocol": _FAILED, "OSError": "the system gave no reason",
}
_WHATEVER_TEXT = {  # what these say is made for programmers
    "IncompleteRead": _ENDED, "IncompleteReadError": _ENDED, "RemoteDisconnected": _ENDED,
    "BadStatusLine": "what answers there does not speak HTTP", "LineTooLong": "what answers there does not speak HTTP",
}
_ON_THE_WAY = {  # what the system calls them; each library adds addresses and numbers in its own way
    errno.ECONNREFUSED: "connection refused", errno.ECONNRESET: "connection reset by peer", errno.EPIPE: "broken pipe",
    errno.ECONNABORTED: "the connection was given up", errno.ETIMEDOUT: "connection timed out",
    errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "network is unreachable", errno.EHOSTDOWN: "host is down",
    errno.ENETDOWN: "network is down", errno.EADDRNOTAVAIL: "cannot assign requested address",
}
_OF_REQUESTS = {"ConnectionError", "Timeout", "ChunkedEncodingError"}  # whose texts say how its pool has failed
_NUMBER = re.compile(r"\[Errno -?\d+\] ")


def words(error: BaseException) -> str:
    """Returns the text of an error of any library, in plain words. Of the network and of the system, no name of a class and no
    number is shown; of another error without a text, its type is what there is to say."""
    above = [kind.__name__ for kind in type(error).__mro__]
    plain = next((_WHATEVER_TEXT[name] for name in above if name in _WHATEVER_TEXT), "")
    if plain:
        return plain
    if "RequestException" in above and _OF_REQUESTS.intersection(above):
        known = (words(each) for each in _behind(error) if each.errno in _ON_THE_WAY)
        return next(known, "no answer in time" if "Timeout" in above else _FAILED)
    if isinstance(error, OSError) and error.errno in _ON_THE_WAY:
        return _ON_THE_WAY[error.errno]
    if "gaierror" in above and isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    text = _NUMBER.sub("", str(error)).strip()
    if text not in ("", above[0], f"{above[0]}()"):
        return text
    if error.__cause__ is not None:
        return words(error.__cause__)
    return next((_WITHOUT_TEXT[name] for name in above if name in _WITHOUT_TEXT), above[0])


def _behind(error: BaseException) -> Iterator[OSError]:
    """The errors of the system behind one that a library raised."""
    found = error.__cause__ or error.__context__
    while found is not None:
        if isinstance(found, OSError):
            yield found
        found = found.__cause__ or found.__context__


def named(error: BaseException, text: str = "") -> str:
    """Returns the words of an error that nobody foresaw, behind its type: whoever repairs the program looks for that. An error
    of the network or of the system is none of the program, and has its words alone. `text`: they were made already."""
    said = text or words(error)
    is_plain = isinstance(error, OSError) or any(
        kind.__name__ in _WITHOUT_TEXT or kind.__name__ in _WHATEVER_TEXT for kind in type(error).__mro__
    )
    return said if is_plain or said == type(error).__name__ else f"{type(error).__name__}: {said}"


def reason(error: OSError) -> str:
    """Returns why the system refused a call, without its path, which the message names in its own way."""
    return error.strerror or words(error)


class TwinlogError(Exception):
    """Root. `code` is the stable machine name; `fields` are JSON-ready facts (column, file, offset, ...)."""

    code = "internal"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class InvalidInput(TwinlogError):
    code = "invalid-input"


class MalformedBody(InvalidInput):
    code = "malformed-body"


class TooLarge(InvalidInput):
    code = "too-large"


class HistoryNotHeld(InvalidInput):
    """Fields: `held_from`, the oldest version that can be asked for."""

    code = "history-not-held"


class Unauthenticated(TwinlogError):
    """`refusal` says why, and `is_unknown` that it may be known by now, for the site alone: they are no fields, and nobody is
    answered with them."""

    code = "unauthenticated"
    refusal = ""
    is_unknown = False


class Forbidden(TwinlogError):
    """Fields: `grant`, the one that is missing."""

    code = "missing-grant"


class NotFound(TwinlogError):
    code = "not-found"


class Conflict(TwinlogError):
    code = "conflict"


class PreconditionFailed(TwinlogError):
    code = "precondition-failed"


class NotActive(TwinlogError):
    """Fields: `active` = {"site", "url", "epoch"} or None when unknown."""

    code = "not-active"


class Overloaded(TwinlogError):
    """Fields: `retry_after_s`."""

    code = "overloaded"


class Unavailable(TwinlogError):
    """Fields: `retry_after_s`, `waiting_for`."""

    code = "unavailable"


class NoThread(Unavailable, OSError):
    """Nothing was begun. To whoever asks a disk or a DFS it is an error of the system like any other; to everybody else it says
    by itself what it is, so that none of them has to know it."""

    code = "no-thread"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message, **fields)
        self.errno, self.strerror = errno.EAGAIN, message


class OutcomeUnknown(TwinlogError):
    code = "outcome-unknown"


class LogError(TwinlogError):
    code = "log-error"


class DamagedLog(LogError):
    """Fields: `file`, `offset`."""

    code = "damaged-log"


class LogGap(LogError):
    """Fields: `held_seq`, `offered_previous`."""

    code = "log-gap"


class SyncFailed(LogError):
    code = "sync-failed"


class BrokenFrame(LogError):
    """The bytes at a place are no whole, sound frame: torn, zeroed or damaged; who reads the log finds out which."""

    code = "broken-frame"


class BrokenHeader(LogError):
    """The bytes are no sound segment header: torn, zeroed or damaged; who reads the log finds out which."""

    code = "broken-header"


class KeyUnavailable(LogError):
    """Fields: `file`, `key_id` ("plain": it is not encrypted, and has to be), `setting`."""

    code = "key-unavailable"


class DfsError(TwinlogError):
    code = "dfs-error"


class DfsExists(DfsError):
    code = "dfs-exists"


class DfsNotFound(DfsError):
    code = "dfs-not-found"


class LeaseLost(DfsError):
    code = "lease-lost"


class LeaseNotRecovered(DfsError):
    """Fields: `file`."""

    code = "lease-not-recovered"


class Fenced(TwinlogError):
    """Fields: `epoch`, `by_epoch`."""

    code = "fenced"


class RegisterWentBack(Fenced):
    """Fields: `epoch`, of the value that the register has."""

    code = "register-went-back"


class ClaimLost(TwinlogError):
    """Fields: `epoch`, `winner`."""

    code = "claim-lost"


class PlanSuperseded(TwinlogError):
    code = "plan-superseded"


class Refused(TwinlogError):
    code = "refused"


class IllegalTransition(Refused):
    """Fields: `role`, `event`."""

    code = "illegal-transition"


class Diverged(Refused):
    """Fields: `held_seq`, `end_seq` (of what the active has of that), `at_risk` (a count of sequences, or "unknown")."""

    code = "diverged"


class Incompatible(Refused):
    """Fields: `release`, the other one, or the one that is needed; `file`, where a file says so."""

    code = "incompatible"


class PeerError(TwinlogError):
    code = "peer-error"


class ConfigError(TwinlogError):
    """Fields: `faults` = list of {"file", "key", "problem", "allowed"}."""

    code = "config-error"


class DataDirectoryError(TwinlogError):
    code = "data-directory"


class EngineFailed(TwinlogError):
    code = "engine-failed"
