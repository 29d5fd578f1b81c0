"""The simulated twins of the ports, on virtual time: loop, process, clock, disk, DFS, network, engine, register."""
