"""Benchmarks of barriers and of the audits on Spark."""
