"""The figures of tables: how much each holds, and how its schema stands at the other site."""
