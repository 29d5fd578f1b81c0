"""Kept snapshots as Spark reads them, whatever engine made them."""
