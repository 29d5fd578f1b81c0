"""The readers of bytes that are fuzzed, by what they read."""
