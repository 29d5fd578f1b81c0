"""The PySpark jobs prove that both sites are equal, find what differs, and repair it.

They import only the pure modules of storage and remote_log, and run as processes of their own (run.py): no gateway
imports Spark. Source: product.md section 6, docs/decisions/2026-11-21-audits-at-a-barrier.md.
"""
