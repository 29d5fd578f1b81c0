"""`make audit`: a whole pair on ports of its own with a real table in it, compared by Spark while it is being written to.

The audits stay in DIR/audits; the pair is stopped at the end, its data kept. Exit code: the audit's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from tools.tour import TourError, running_pair

WRITES_A_SECOND = 2000
TWINLOG = [sys.executable, "-m", "twinlog"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tools.audit_demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("demo-audit"), help="kept: the next run continues with it")
    parser.add_argument("audit", nargs="*", help="more of `twinlog audit run`, after --")
    options = parser.parse_args(arguments)
    folder = options.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    first, second = free_ports(2)
    print("starting a pair with 50,000 flights in it")
    try:
        with running_pair(folder, (first, second)):
            config = str(folder / "demo" / "demo.json")
            load = [*TWINLOG, "load", "flights", "--table", "again", "--config", config, "--rate", str(WRITES_A_SECOND)]
            with (folder / "load.log").open("wb") as log:
                writing = start_child(load, log, folder=Path.cwd())
            try:
                command = [*TWINLOG, "audit", "run", "compare", "--config", config, "--audits", str(folder / "audits")]
                return subprocess.run([*command, *options.audit], check=False).returncode
            finally:
                writing.terminate()
                writing.wait()
    except TourError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
