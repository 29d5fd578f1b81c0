"""`python -m chaos`: simulate the pair from seeds, break a pair of real processes (`run`, `matrix`, `soak`, `list`), replay one
run of either from a file, give inputs from a seed to all that reads bytes (`fuzz`), judge a history by a second checker
(`porcupine`), or run a real HDFS (`hdfs`) or PostgreSQL (`postgres`).

What always holds: the exit code is 1 when a promise breaks. `replay` of a report.json is of real processes, of any other file
of the simulator. What one command alone needs is imported for that one.
"""

from __future__ import annotations

import sys

_HARNESS = ("run", "matrix", "soak", "planted", "list")


def _main(given: list[str]) -> int:
    command, first = given[:1], given[1:2]
    if command == ["hdfs"]:
        from chaos.servers import hdfs_cli

        return hdfs_cli.main(given[1:])
    if command == ["postgres"]:
        from chaos.servers import postgres

        return postgres.main(given[1:])
    if command == ["toxiproxy"]:
        from chaos.servers import toxiproxy

        return toxiproxy.main(given[1:])
    if command == ["attach"]:
        from chaos.harness.attach import cli as attach

        return attach.main(given[1:])
    if command == ["from-journal"]:
        from chaos.harness.incident import cli as incident

        return incident.main(given[1:])
    if command == ["fuzz"]:
        from chaos.fuzz import cli as fuzz

        return fuzz.main(given[1:])
    if command == ["porcupine"]:
        from chaos.porcupine import cli as porcupine

        return porcupine.main(given[1:])
    if (command and command[0] in _HARNESS) or (command == ["replay"] and first and first[0].endswith(".json")):
        from chaos.harness import cli as harness

        return harness.main(given)
    from chaos.simulate import cli as simulator

    return simulator.main(given)


sys.exit(_main(sys.argv[1:]))
