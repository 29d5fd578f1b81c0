"""Room for the PySpark jobs; empty so far.

What will live here: a Spark data source over WAL and remote-log segments, a snapshot reader, and the jobs compare,
log-audit, repair, replay and reconcile. They will import only the pure modules of storage and remote_log.
"""
