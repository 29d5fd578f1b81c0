"""The liar: posts forged messages to a site's door for the other site, as anybody who reaches that door can, and answers in a
site's place.

What always holds: it knows all that its victim holds, sends one message, and waits for nothing; its victim's code runs in the
victim's own process. Whether a lie had an effect is for the checkers to find. Source: protocol.md section 7, lies.py,
false_answers.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chaos.fault_lines import Fault
from chaos.simulate.actors.false_answers import FALSE_ANSWERS
from chaos.simulate.actors.lies import LIES, Victim
from chaos.simulate.twins.transport import Served
from chaos.simulate.world import OTHER, Life, World
from remote_log.replication.messages import pack_history
from storage.rows.schema import decode_schema
from twinlog.errors import TwinlogError


class _FalseAnswers:
    """The answering side of a site, whose answers to some methods are false until `end`."""

    def __init__(self, honest: Served, fault: Fault, note: Callable[[str], None]) -> None:
        self.honest, self._fault, self._note = honest, fault, note
        self._methods, self._change = FALSE_ANSWERS[fault.how]

    def end(self) -> None:
        self._methods = ()

    async def call_bytes(self, method: str, body: bytes) -> bytes:
        answer = await self.honest.call_bytes(method, body)
        if method not in self._methods:
            return answer
        said = msgspec.msgpack.decode(answer)
        self._note(f"{self._fault.kind} {self._fault.how} of its answer to {method}")
        return msgspec.msgpack.encode({**said, **self._change(said)})


class Liar:
    """`note` is called with what its victims answered."""

    def __init__(self, world: World, note: Callable[[str], None]) -> None:
        self._world, self._note = world, note

    def lie(self, site: str, fault: Fault) -> None:
        life = self._world.alive(site)
        if life is None:
            self._note(f"{fault.kind} {fault.how} does not happen: site {site} does not run")
        else:
            life.process.spawn(self._tell(site, life, fault), "lie")

    def answer_falsely(self, site: str, fault: Fault) -> Callable[[], None] | None:
        """From here on until the returned call, the answers of `site` to some methods are false."""
        life = self._world.alive(site)
        if life is None or life.peer_api is None:
            self._note(f"{fault.kind} {fault.how} does not happen: site {site} does not run")
            return None
        before = life.peer_api  # a lie is made of the truth, so a later one takes the place of an earlier one
        answers = _FalseAnswers(before.honest if isinstance(before, _FalseAnswers) else before, fault, self._note)
        life.peer_api = answers
        return answers.end

    async def _tell(self, site: str, life: Life, fault: Fault) -> None:
        victim = await self._victim(site, life)
        if victim is None or life.peer_api is None or life.site is None:
            self._note(f"{fault.kind} {fault.how} does not happen: site {site} holds no row yet")
            return
        method, message = LIES[fault.how](victim)
        message = {"pair": life.site.parts.coordinator.met_pair, **message}  # no lie needs a wrong one, but for its own sake
        try:
            await life.peer_api.call_bytes(method, msgspec.msgpack.encode(message))
            said = "no error"
        except TwinlogError as error:
            said = error.code
        self._note(f"{fault.kind} {fault.how} to {site}: {said}")

    async def _victim(self, name: str, life: Life) -> Victim | None:
        site = life.site
        assert site is not None
        engine = self._world.machines[name].engine
        for number, schema in sorted(engine.applied.schemas().items()):
            rows = await engine.scan(number, None, None, reverse=False, limit=1)
            if rows:
                history = pack_history(engine.applied.epochs)
                row = (number, rows[0].key, rows[0].value)
                return Victim(
                    site.sink.followed_epoch, name, OTHER[name], site.sink.point, decode_schema(schema), row, history,
                    self._world.machines[name].clock.wall_ms(),
                )
        return None
