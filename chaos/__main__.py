"""`python -m chaos`: simulate the pair from seeds, or replay one run from a file. Exit code 1 when a promise breaks."""

from __future__ import annotations

import sys

from chaos.simulate.cli import main

sys.exit(main(sys.argv[1:]))
