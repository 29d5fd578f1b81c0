"""What the API asks of a site: rows, tables, barriers, audits, receipts, and what admits a request."""
