"""The job `log-audit`: gaps, duplicates and damage within a log, and between two logs."""
