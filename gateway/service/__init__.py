"""The ports between the API and a site, and what answers them: rows, tables, barriers, audits, receipts, admission."""
