"""Clocks of one process that jump and drift, by a library that stands between it and libc."""
