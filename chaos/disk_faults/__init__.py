"""Faults of files, caused inside a process by a library that stands between it and libc."""
