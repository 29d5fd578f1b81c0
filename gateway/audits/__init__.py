"""The audits that a site knows of: notes of runs, their reports, and those that run now."""
