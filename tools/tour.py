"""The tours of the README and of docs/, as a program: their ```sh blocks, run in order against a real pair on its own ports.

A comment before a block says what is special about it: `tour: pair` (the command that starts the pair; the tour starts one
in its place), `tour: shown` (not run), `tour: exits N` (its exit code must be N, instead of 0); `tour: tls` before these, or
alone: the block is of the tour on a pair with TLS, and of no other. `tour: file NAME` before a ```python block: the reader
saves it under this name, and a later block runs it. What always holds: the blocks run as they stand, in one shell, in a folder
of their own, with only the two ports replaced; whatever was started is stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from tools.sources import ROOT

README_PORTS = ("8401", "8402")
STARTED = "Ctrl-C stops both sites"
START_S, GO_S, STOP_S = 120.0, 720.0, 30.0  # generous: a busy machine is no fault of the page
_BLOCK = re.compile(
    r"(?:<!-- tour: (?P<note>(?!file )[^>]*?) -->\n)?```sh\n(?P<code>.*?)\n```$"
    r"|<!-- tour: (?P<saved>file [\w.]+) -->\n```python\n(?P<text>.*?)\n```$",
    re.DOTALL | re.MULTILINE,
)


class TourError(Exception):
    """The tour could not be gone to its end; the message says where and why, and then what was said until then."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `note` is empty, `pair`, `shown`, `exits N`, or `file NAME`; `tls`: it is of the tour with TLS."""

    line: int
    note: str
    code: str
    tls: bool = False

    @property
    def expected(self) -> int:
        return int(self.note.removeprefix("exits ")) if self.note.startswith("exits ") else 0


def blocks(text: str) -> list[Block]:
    """Every ```sh block of a Markdown page, and every file that the reader saves. Raises TourError for an unknown note."""
    found = []
    for match in _BLOCK.finditer(text):
        note = match["note"] or match["saved"] or ""
        part = "text" if match["saved"] else "code"
        rest = note.removeprefix("tls").strip()
        found.append(Block(text.count("\n", 0, match.start(part)) + 1, rest, match[part], note.startswith("tls")))
    for block in found:
        if not re.fullmatch(r"|pair|shown|exits \d+|file [\w.]+", block.note):
            raise TourError(f"line {block.line}: the note {block.note!r} is none of pair, shown, exits N, file NAME, tls")
    return found


def script(found: list[Block], ports: tuple[int, int], *, tls: bool = False) -> str:
    """One bash script of all blocks that are run. It ends at the first block with another exit code than expected."""
    lines = ["set -uo pipefail"]
    for block in found:
        if block.note in ("pair", "shown") or block.tls != tls:
            continue
        code = block.code
        for written, port in zip(README_PORTS, ports, strict=True):
            code = code.replace(written, str(port))
        if block.note.startswith("file "):
            lines.append(f"cat > {block.note.removeprefix('file ')} <<'SAVED'\n{code}\nSAVED")
            continue
        lines.append("cat <<'SHOWN'\n\n" + "\n".join(f"$ {line}" for line in code.splitlines()) + "\nSHOWN")
        wrong = f'{{ echo "line {block.line}: exit code $code, expected {block.expected}"; exit 1; }}'
        if block.expected:
            lines.append(f"( set -e\n{code}\n); code=$?; [ $code = {block.expected} ] || {wrong}")
        else:
            lines.append(f"trap 'code=$?; [ $code = 0 ] || {wrong}' EXIT; set -e\n{code}\nset +e; trap - EXIT; echo")
    return "\n".join(lines) + "\n"


@contextmanager
def running_pair(folder: Path, ports: tuple[int, int], *, tls: bool = False) -> Iterator[None]:
    """Starts what `make run` starts, in `folder`/demo. Raises TourError when it does not come up."""
    command = [sys.executable, "-m", "twinlog", "demo", "--dir", str(folder / "demo")]
    if tls:
        between = free_ports(2)
        command += ["--tls", "--peer-port-a", str(between[0]), "--peer-port-b", str(between[1])]
    log = folder / "demo.log"
    with log.open("wb") as opened:
        process = start_child(
            [*command, "--port-a", str(ports[0]), "--port-b", str(ports[1])], opened, folder=ROOT, left=signal.SIGTERM
        )
    try:
        until_s = time.monotonic() + START_S
        while STARTED not in (said := log.read_text(errors="replace")):
            if (code := process.poll()) is not None:
                raise TourError(f"the pair ended with {code} at its start:\n{said}")
            if time.monotonic() > until_s:
                raise TourError(f"the pair did not start within {START_S:g} s:\n{said}")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def shell_folder(folder: Path) -> None:
    """Give `folder` the `.venv/bin/twinlog` and the `.venv/bin/python` that a checkout has after `make setup`."""
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name, called in (("twinlog", "-m twinlog "), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {called}"$@"\n')
        (commands / name).chmod(0o755)


def go(text: str, folder: Path, deadline_s: float = GO_S, *, tls: bool = False) -> str:
    """Run the tour of the page `text` in the empty `folder`, or that with TLS; what it said. Raises TourError."""
    first, second = free_ports(2)
    found = blocks(text)
    shell_folder(folder)
    said = folder / "tour.log"
    with running_pair(folder, (first, second), tls=tls), said.open("wb") as opened:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLOG_")}
        shell = subprocess.Popen(
            ["bash", "-c", script(found, (first, second), tls=tls)], cwd=folder, stdin=subprocess.DEVNULL, stdout=opened,
            stderr=opened, start_new_session=True, env=environment,
        )
        try:
            code: int | None = shell.wait(deadline_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(shell)
    output = said.read_text(errors="replace")
    if code != 0:
        raise TourError(stopped(output, code, deadline_s))
    return output


def stopped(output: str, code: int | None, deadline_s: float) -> str:
    """Returns why and where the tour ended, in the first line, since reports of tests show only that; and then its output."""
    shown = [line for line in output.splitlines() if line.startswith("$ ")]
    place = f"in the block that ends with `{shown[-1][2:]}`" if shown else "before its first block"
    why = f"did not end within {deadline_s:g} s" if code is None else f"ended with exit code {code}"
    return f"the tour {why}, {place}:\n{output}"


def _end_group(shell: subprocess.Popen[bytes]) -> None:
    """Whatever the tour put into the background goes too."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="twinlog-tour-") as folder:
        try:
            print(go((ROOT / "README.md").read_text(), Path(folder)))
        except TourError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
