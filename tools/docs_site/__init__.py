"""The documentation site: `make docs` builds it from docs/, the pages of the root, and references made from the code."""
