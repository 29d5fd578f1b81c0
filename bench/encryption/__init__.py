"""Measures the cost of encrypted logs to a running pair."""
