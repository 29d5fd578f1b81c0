"""`python -m chaos`: simulate the pair from seeds, replay one run from a file, or run a real HDFS (`hdfs`) or
PostgreSQL (`postgres`).

Exit code 1 when a promise breaks.
"""

from __future__ import annotations

import sys

from chaos.servers import hdfs_cli
from chaos.servers import postgres as postgres_server
from chaos.simulate import cli

if sys.argv[1:2] == ["hdfs"]:
    sys.exit(hdfs_cli.main(sys.argv[2:]))
if sys.argv[1:2] == ["postgres"]:
    sys.exit(postgres_server.main(sys.argv[2:]))
sys.exit(cli.main(sys.argv[1:]))
