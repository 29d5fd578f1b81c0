"""The room for who is active and how that changes: the table of roles, the plans, their journal and executor, the coordinator.

Every role change is a list of idempotent, journaled steps that a crash can interrupt anywhere. It stands on remote_log
and storage, and is driven by the gateway.
"""
