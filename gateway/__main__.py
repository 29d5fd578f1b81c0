"""`python -m gateway` is `twinlog`, also where the console script is not installed."""

from gateway.cli.main import app

app(prog_name="twinlog")
