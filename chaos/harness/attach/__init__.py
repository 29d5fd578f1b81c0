"""Attaching to a running pair that somebody else started: traffic, checks, an operator's commands, and faults of links."""
