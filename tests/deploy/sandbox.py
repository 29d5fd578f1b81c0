"""Runs a command within what a unit of docs/deploy/systemd allows, where no systemd runs: by libseccomp and a mount namespace.

What always holds: the system calls are those of the unit's SystemCallFilter=, groups expanded by systemd-analyze; a refused
call fails with EPERM, as there. MemoryDenyWriteExecute=, CapabilityBoundingSet= and ProtectSystem=strict are as systemd.exec(5)
describes them. Nothing else of the unit is in force.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
MASKED_EQ = 7
PROT_WRITE, PROT_EXEC = 2, 4


def directives(unit: str, name: str) -> list[str]:
    """Every value that the unit gives to `name`, in order."""
    return re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)


def expanded(analyze: str, group: str) -> set[str]:
    """The system calls of a group such as @system-service, or of a single name."""
    if not group.startswith("@"):
        return {group}
    shown = subprocess.run([analyze, "syscall-filter", group], capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in shown.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for name in names for call in expanded(analyze, name)}


def allowed_calls(analyze: str, unit: str) -> set[str]:
    """Returns what the unit's filter lets through: groups in order, those behind `~` taken away again."""
    allowed = expanded(analyze, "@default")
    for value in directives(unit, "SystemCallFilter"):
        calls = {call for group in value.removeprefix("~").split() for call in expanded(analyze, group)}
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed | expanded(analyze, "@default")


def command_of(calls: Sequence[str], writable: Path, command: Sequence[str]) -> list[str]:
    """The command that runs `command` with everything read-only but `writable`, without a capability, behind the filter."""
    mounts = 'mount --bind "$1" "$1" && mount -o remount,bind,ro / && shift && exec "$@"'
    return [
        "unshare", "--mount", "sh", "-c", mounts, "sh", str(writable), "setpriv", "--bounding-set=-all", "--inh-caps=-all",
        "--no-new-privs", sys.executable, __file__, ",".join(sorted(calls)), *command,
    ]


class _Compared(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def _deny_write_execute(library: ctypes.CDLL) -> None:
    rules = library.seccomp_init(ALLOW)
    both = PROT_WRITE | PROT_EXEC
    for call, mask in ((b"mmap", both), (b"mprotect", PROT_EXEC), (b"pkey_mprotect", PROT_EXEC)):
        compared = (_Compared * 1)(_Compared(2, MASKED_EQ, mask, mask))
        number = library.seccomp_syscall_resolve_name(call)
        assert library.seccomp_rule_add_array(rules, REFUSE, number, 1, compared) == 0
    assert library.seccomp_load(rules) == 0


def _allow_only(library: ctypes.CDLL, calls: Sequence[str]) -> None:
    rules = library.seccomp_init(REFUSE)
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # others are of other machines
            assert library.seccomp_rule_add_array(rules, ALLOW, number, 0, None) == 0
    assert library.seccomp_load(rules) == 0


def main(given: list[str]) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Compared)
    ]
    _deny_write_execute(library)
    _allow_only(library, given[0].split(","))
    os.execvp(given[1], given[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
