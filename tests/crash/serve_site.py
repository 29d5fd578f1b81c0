"""One site as a process that dies (as by SIGKILL, nothing is closed) at the n-th hit of a named failpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvloop

from gateway.app import serve
from gateway.config_load import load_site_config
from switchover.failpoints import ArmedFailpoints, Failpoints


def main() -> None:
    config, name, nth = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    armed = ArmedFailpoints(name, nth, die=lambda _: os._exit(86)) if name != "-" else Failpoints()
    uvloop.run(serve(load_site_config(config), armed))


if __name__ == "__main__":
    main()
