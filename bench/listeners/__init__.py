"""Benches of what stands in front of the HTTP protocol."""
