"""The plans themselves: a takeover, and how a standby follows a new epoch."""
