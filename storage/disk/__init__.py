"""The local disk: the port, its real implementation, the data directory's lock, sealed notes, and a pool."""
