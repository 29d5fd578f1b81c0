"""`python -m chaos.harness.bugs.launch BUG serve --config FILE`: the product's command, with a planted bug in its process."""

from __future__ import annotations

import sys

from chaos.harness.bugs.bugs import BUGS
from twinlog.cli.main import main

BUGS[sys.argv.pop(1)].plant()
main()
