"""A pair of real processes, broken on purpose: workloads and checkers of the simulator, real faults, a report."""
