"""The way back from an RFC 9457 problem document to the error that it stands for. gateway/api/problems.py is the way
there.

What always holds: every code of the error tree comes back as its class, with message and members, `status` included; what is
no problem of ours (a proxy's page, a broken gateway) is a PeerError that says that the request was sent: except for a 421,
nothing is known of what became of it.
This module is pure.
"""

from __future__ import annotations

from twinlog import errors
from twinlog.wire.json_objects import json_object

TYPE_PREFIX = "urn:twinlog:problem:"
VERSION_FIELDS = frozenset({"version", "held_from"})  # numbers in an error, decimal text in JSON


def error_from_problem(status: int, body: bytes) -> errors.TwinlogError:
    """The error on the caller's side. Members of the document are its fields, without `type`, `title` and `detail`."""
    try:
        problem = json_object(body)
    except ValueError:
        problem = {}
    kind = _BY_CODE.get(str(problem.pop("type", "")).removeprefix(TYPE_PREFIX))
    title = problem.pop("title", None)
    message = str(problem.pop("detail", None) or title or f"HTTP {status} without saying why")
    problem["status"] = status
    for name in VERSION_FIELDS & problem.keys():
        problem[name] = _version(problem[name])
    if kind is None and status == 421:
        kind = errors.NotActive
    if kind is None:
        return errors.PeerError(message, **{**problem, "sent": True})
    return kind(message, **problem)


def _version(sent: object) -> object:
    if isinstance(sent, str) and sent.isascii() and sent.isdigit() and len(sent) <= 20:
        return int(sent)
    return sent


def classes_of(root: type[errors.TwinlogError] = errors.TwinlogError) -> list[type[errors.TwinlogError]]:
    """`root` and every class below it."""
    return [root, *(kind for child in root.__subclasses__() for kind in classes_of(child))]


_BY_CODE = {kind.code: kind for kind in classes_of()}
