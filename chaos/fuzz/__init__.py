"""Fuzzers: inputs drawn from a seed, made of what the product itself writes, for everything that reads bytes from outside."""
