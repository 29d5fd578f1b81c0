"""One gateway's calls of the other over the simulated network: late, lost, doubled, or answered after a crash by nobody.

What always holds: the other gateway's code runs in its own process; what goes over the network is bytes, so that nothing is
shared; an error arrives as it would over HTTP. Source: remote_log/replication/messages.py, gateway/http/peer_transport.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from chaos.simulate.twins.network import CallInFlight, Network
from chaos.simulate.twins.process import Process
from gateway.api.problems import answer_for
from remote_log.replication.messages import decode_reply
from twinlog.errors import PeerError, TwinlogError
from twinlog.problem_documents import error_from_problem


class Served(Protocol):
    """The answering side of a gateway (gateway/site/peer_api.py)."""

    async def call_bytes(self, method: str, body: bytes) -> bytes: ...


class Wire:
    """It hears each call of one gateway by the other. This one does nothing about it."""

    def arrives(self, dst: str, method: str, body: bytes, sent_s: float) -> object:
        """The call is about to be answered at `dst`, and was sent at that moment of the run. Returns what `answered` gets."""
        return None

    def answered(self, arrived: object, dst: str, method: str, body: bytes, answer: bytes | None) -> None:
        """It was; None: by an error."""

    def heard(self, src: str, method: str, answer: object) -> None:
        """The caller at `src` has the answer."""


_T = TypeVar("_T")
Listening = tuple[Process, Served]


class SimTransport:
    """Transport, for one life of a process. `find`: who listens at the other place at this moment; None: nobody."""

    def __init__(
        self, src: str, dst: str, network: Network, find: Callable[[], Listening | None], wire: Wire | None = None
    ) -> None:
        self._src, self._dst, self._network, self._find, self._wire = src, dst, network, find, wire or Wire()

    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        body = msgspec.msgpack.encode(message)
        serve = partial(self._serve, method, body, self._network.loop.now_s)
        failed = partial(_failed, self._dst, method)
        status, answer = await self._network.call(self._src, self._dst, serve, timeout_s, failed, may_repeat=True)
        if status != 200:
            raise error_from_problem(status, answer)
        reply = decode_reply(kind, method, answer)
        self._wire.heard(self._src, method, reply)
        return reply

    async def close(self) -> None:
        """Nothing is held."""

    def _serve(self, method: str, body: bytes, sent_s: float, call: CallInFlight) -> None:
        found = self._find()
        if found is None:
            call.refuse()
        else:
            process, served = found
            call.run_in(process, partial(self._answer, served, method, body, sent_s))

    async def _answer(self, served: Served, method: str, body: bytes, sent_s: float) -> tuple[int, bytes]:
        """In the other gateway's process."""
        arrived = self._wire.arrives(self._dst, method, body, sent_s)
        try:
            answer = await served.call_bytes(method, body)
            self._wire.answered(arrived, self._dst, method, body, answer)
            return 200, answer
        except TwinlogError as error:
            problem = answer_for(error, is_write=False)
        except Exception as error:  # a fault of the product: the run has found something
            self._network.loop.errors.append(error)
            problem = answer_for(TwinlogError("an unexpected error"), is_write=False)
        self._wire.answered(arrived, self._dst, method, body, None)
        return problem.status, problem.body


def _failed(dst: str, method: str, why: str, sent: bool) -> PeerError:
    return PeerError(f"site {dst} does not answer {method}: {why}", sent=sent)
