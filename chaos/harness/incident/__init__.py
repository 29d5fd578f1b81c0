"""A real incident as a plan: both sites' journals and structured logs are read, and become commands and faults with times."""
