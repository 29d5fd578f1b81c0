"""A soak: legs of faults drawn from a seed, one after the other for hours, and the record of those that have ended."""
