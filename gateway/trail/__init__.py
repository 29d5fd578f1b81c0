"""The audit trail: who did what at this site, when, and with which outcome, in a file that is only added to."""
