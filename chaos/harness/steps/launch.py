"""`python -m chaos.harness.steps.launch TABLE BUG serve --config FILE`: the product's command, with the traps of a table in its
process, and a planted bug where BUG is not empty."""

from __future__ import annotations

import sys
from pathlib import Path

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.steps.inside import attach
from twinlog.cli.main import main

table, bug = sys.argv.pop(1), sys.argv.pop(1)
if bug:
    BUGS[bug].plant()
attach(Path(table))
main()
