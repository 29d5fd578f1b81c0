"""The program that breaks the pair on purpose, and finds out whether its promises held.

simulate/ is the deterministic simulator of the whole pair; workloads/ is what its clients do, history/ what is recorded of
a run, checkers/ what holds that against the promises of docs/protocol.md. Nothing imports this package.
"""
