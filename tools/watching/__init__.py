"""The files that an operator copies to watch pairs, alert rules with their tests and dashboards, drawn from tables."""
