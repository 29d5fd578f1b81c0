"""The roles of a site: one table of transitions, and the role of a site that starts."""
