"""Backups of a pair, and new pairs from them."""
