"""Measures the cost of traces: CPU of a write without them and with them."""
