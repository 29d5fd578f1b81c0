"""The fault matrix: which scenarios show which case, how often each has run, and what came of it."""
