"""The job `compare`: digests of key ranges at both sites, then the rows of ranges that differ."""
