"""The configuration of a site and of an operator, its checks, and what is opened from it."""
