"""Fencing: claims of an epoch, lease recovery, the read lease, and reading a remote log that nobody writes any more."""
