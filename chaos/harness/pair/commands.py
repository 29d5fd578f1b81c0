"""The operator: the real command line, run as a process, with what it said.

What always holds: commands go to the gateways directly, as from the operators' own network; each ends by a deadline; what was
typed, by whose word, how it ended and what it printed is kept for the report. A loss is accepted only as the count that the
command line shows, and what was accepted is kept.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gateway.demo.servers import child_environ
from switchover.preflight.loss import at_risk

COMMAND_S = 150.0  # longer than a request for a role change is good for
TOLD_MAX = 400
UNKNOWN_COUNT = "--accept-data-loss --count unknown"
READINGS_MAX = 3
BY_PLAN = "the plan"


class Typed(msgspec.Struct, frozen=True):
    """A command that was typed. `why`: whose word it was; `code` None: it did not end, and was killed."""

    command: str
    why: str
    at_s: float
    ended_s: float
    code: int | None
    output: str

    @property
    def told(self) -> str:
        """Returns how it ended, in a few words."""
        if self.code == 0:
            return "done"
        ended = {None: "did not end in time", -signal.SIGKILL: "was killed"}.get(self.code, f"ended with {self.code}")
        return f"{ended}: {' '.join(self.output.split())[:TOLD_MAX]}"


class Accepted(msgspec.Struct, frozen=True):
    """A loss that was accepted by a failover to `site`, which succeeded. `manifest`: the document that the command line showed
    right before, at `at_s`; `wall_ms` is that moment by the machine's clock."""

    site: str
    manifest: dict[str, Any]
    typed: str
    at_s: float
    wall_ms: int


class Commands:
    """`config`: the pair, as `twinlog --config` takes it. `now_s`: the clock of the run."""

    def __init__(self, config: Path | str, now_s: Callable[[], float], note: Callable[[str], None]) -> None:
        self._config, self._now_s, self._note = config, now_s, note
        self.typed: list[Typed] = []
        self.accepted: list[Accepted] = []

    async def run(self, verb: str, *words: str, why: str = BY_PLAN, killed_after_s: float | None = None) -> Typed:
        """A command that changes something. `killed_after_s`: if it has not ended by then, it is killed."""
        self._note(f"$ twinlog {' '.join((verb, *words))}   ({why})")
        typed = await self._execute([verb, *words, "--yes"], why, killed_after_s)
        self.typed.append(typed)
        self._note(f"  twinlog {verb}: {typed.told}")
        return typed

    async def ask(self, verb: str, *words: str) -> Typed:
        """A command that looks only: it is not kept."""
        return await self._execute([verb, *words, "--json"], "a look")

    async def fail_over_with_loss(self, site: str) -> Typed:
        """Reads the loss manifest and types its count, as an operator does who cannot bring the active back. When the count
        has changed meanwhile, the failover is refused, and the operator reads anew."""
        for _ in range(READINGS_MAX):
            manifest = msgspec.json.decode((await self.ask("validate", "--for", "failover", "--to", site)).output).get("loss")
            if manifest is None:
                done = await self.run("failover", "--to", site)
                if done.code != 0 and UNKNOWN_COUNT in done.output:  # the register that would know was lost
                    done = await self.run("failover", "--to", site, *UNKNOWN_COUNT.split())
                return done
            at_s, wall_ms = self._now_s(), time.time_ns() // 1_000_000
            count = str(at_risk(manifest))
            done = await self.run("failover", "--to", site, "--accept-data-loss", "--count", count)
            if done.code == 0:
                self.accepted.append(Accepted(site, manifest, count, at_s, wall_ms))
                break
        return done

    async def _execute(self, words: list[str], why: str, killed_after_s: float | None = None) -> Typed:
        at_s = self._now_s()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "twinlog", *words, "--config", str(self._config), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=child_environ(),
        )
        code: int | None = None
        try:
            async with asyncio.timeout(killed_after_s or COMMAND_S):
                said, _ = await process.communicate()
            code = process.returncode
        except TimeoutError:
            process.kill()
            said, _ = await process.communicate()
            code = process.returncode if killed_after_s else None
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return Typed(f"twinlog {' '.join(words)}", why, at_s, self._now_s(), code, said.decode(errors="replace"))
