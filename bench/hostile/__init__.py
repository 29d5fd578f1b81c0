"""One hostile client: what it can do to everybody else. `python -m bench.hostile.run` measures it."""
