"""Crash states of real files: what a power loss may leave of what a program did."""
