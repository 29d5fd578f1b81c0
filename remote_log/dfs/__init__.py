"""The DFS: the port with its leases, retries, the queue of an open file, and plain directories as one implementation."""
