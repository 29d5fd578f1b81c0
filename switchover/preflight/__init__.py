"""The preflight: the checks before a role change, and the loss that it would accept."""
