"""Room for the programme that breaks the pair on purpose; empty so far.

What will live here: the deterministic simulator of the whole pair, fault injection against real processes, workloads,
and the checkers that hold their histories against the promises of docs/protocol.md. Nothing imports this package.
"""
