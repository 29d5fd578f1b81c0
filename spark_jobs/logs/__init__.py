"""Logs as Spark reads them: segments of a WAL or a remote log, walked, divided and folded into runs."""
