"""Checkers that judge rows by the index of a history: what was acknowledged, read, scanned, and in which order."""
