"""Identities of callers, their roles and grants, and the limits of each identity."""
