"""The configuration that a gateway runs by, beside its file: read again when somebody asks, and compared with it meanwhile.

What always holds: a file with a fault changes nothing, and neither does one whose changes do not fit what only a restart
changes; what is in effect is always a configuration that passed every check; files are read in a thread.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from gateway.config.changes import Difference, differences, with_changes
from gateway.config.loading import check_site_config, load_site_config
from gateway.config.model import SiteConfig
from gateway.logs import LEVELS
from gateway.service.documents import ReloadDocument, SettingChange
from gateway.trail.entry import Who, cut_text
from gateway.trail.events import RELOAD
from gateway.trail.trail import Trail
from storage.cancellation import ended
from twinlog.errors import ConfigError, InvalidInput

LOOK_S = 5.0
NAMED_MAX = 12  # settings that a notice names
log = structlog.get_logger("gateway.config")


class RunningConfiguration:
    """`apply` puts a configuration into effect; `read` gets that of the file. Implements Configuration."""

    def __init__(
        self, running: SiteConfig, file: Path, apply: Callable[[SiteConfig], None],
        read: Callable[[Path], SiteConfig] = load_site_config,
    ) -> None:
        self.running, self._file, self._apply, self._read = running, file, apply, read
        self._notices: list[str] = []
        self._stamp: tuple[int, ...] | None = ()
        self._lock = asyncio.Lock()

    async def reload(self) -> ReloadDocument:
        async with self._lock:
            wanted = await asyncio.to_thread(self._read, self._file)
            found = list(differences(self.running, wanted))
            changed = [each.change for each in found if each.at_run_time]
            if changed:
                merged = with_changes(self.running, wanted)
                await asyncio.to_thread(check_site_config, merged, self._file)
                self._take(merged)
            self._compared(list(differences(self.running, wanted)))
            return self._document(changed, [each.change for each in found if not each.at_run_time])

    def log_level(self, level: str) -> ReloadDocument:
        if level not in LEVELS:
            raise InvalidInput(f"there is no log level {level[:40]!r}: it is one of {', '.join(LEVELS)}")
        before = self.running.log.level
        if level == before:
            return self._document([], [])
        self._take(replace(self.running, log=replace(self.running.log, level=level)))
        self._stamp = ()  # the file may say another one now
        return self._document([SettingChange("log.level", before, level)], [])

    def _take(self, config: SiteConfig) -> None:
        self._apply(config)
        self.running = config

    def _document(self, changed: list[SettingChange], needs_restart: list[SettingChange]) -> ReloadDocument:
        for change in changed:
            log.info("a setting was changed", key=change.key, before=change.before, after=change.after)
        return ReloadDocument(self.running.site, changed, needs_restart)

    # ---- the file beside what runs
    def notices(self) -> list[str]:
        """Returns what an operator is to know of the file."""
        return self._notices

    async def run(self) -> None:
        """Compares for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Compares if the file has changed."""
        stamp = await asyncio.to_thread(self._stamped)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            wanted = await asyncio.to_thread(self._read, self._file)
        except ConfigError as error:
            self._notices = [f"the next start would fail: {error.message}; {_first_fault(error)}"]
            return
        self._compared(list(differences(self.running, wanted)))

    def _compared(self, found: list[Difference]) -> None:
        self._notices = []
        for at_run_time, what in ((False, "a restart"), (True, "`twinlog config reload`")):
            named = [each.change.key for each in found if each.at_run_time is at_run_time]
            if named:
                more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
                self._notices.append(
                    f"{self._file} differs from what runs here in {', '.join(named[:NAMED_MAX])}{more}: {what} makes it so"
                )

    def _stamped(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _first_fault(error: ConfigError) -> str:
    """Returns the first of its faults in a few words."""
    faults = error.fields.get("faults")
    first = faults[0] if isinstance(faults, list) and faults else {}
    return f"the first: {first.get('key', '')} {first.get('problem', '')}".replace(":  ", ": ").strip()


@asynccontextmanager
async def reload_on_hangup(configuration: RunningConfiguration | None, trail: Trail) -> AsyncIterator[None]:
    """Inside the block SIGHUP has the file read again, and the file is compared with what runs. The terminal of whoever started
    the site may end meanwhile: that is no harm."""
    if configuration is None:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def hung_up() -> None:
        task = loop.create_task(_reload(configuration, trail), name="reload")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    looking = loop.create_task(configuration.run(), name="configuration")
    try:
        yield
    finally:
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        for task in (looking, *tasks):
            task.cancel()
        await ended((looking, *tasks))


async def _reload(configuration: RunningConfiguration, trail: Trail) -> None:
    """As by command, by whoever can send the process a signal: the line of its beginning is asked for, and not needed."""
    who = Who(trail.this_site.name, "site", says="SIGHUP")
    begun = await trail.write(RELOAD, who, "begun")
    try:
        done = await configuration.reload()
    except ConfigError as error:
        log.error("SIGHUP: the file cannot be used, and nothing has changed", why=error.message, **error.fields)
        trail.put(RELOAD, who, "refused", {"code": error.code, "why": cut_text(error.message)}, of=begun)
        return
    log.info("SIGHUP: the configuration was read again", changed=len(done.changed), needs_restart=len(done.needs_restart))
    trail.put(RELOAD, who, "done", done.told(), of=begun)
