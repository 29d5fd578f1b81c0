"""The register, the pair's one compare-and-set value: its transitions, and its homes in SQL and on the DFSs."""
