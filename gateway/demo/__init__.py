"""`twinlog demo`: two sites on this machine, each a process of its own."""
