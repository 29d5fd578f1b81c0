"""The command `twinlog`: its own verbs, and those that other distributions add."""
