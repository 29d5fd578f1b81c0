"""`python -m twinlog` is `twinlog`, also where the console script is not on the path."""

from twinlog.cli.main import main

main()
