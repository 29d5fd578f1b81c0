"""Estimates of how many rows a table has, for engines that keep no count."""
