"""Measurements of a running pair: throughput, latency and memory, synchronous against asynchronous in one run.

`make bench` runs `bench.run`, which starts a pair of its own, drives it with `bench.load_generator` as a separate
process, and writes `out/bench.json` and a plot. Figures are only compared within one run: rounds alternate.
"""
