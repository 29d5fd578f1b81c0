"""The recorded history of a run, which checkers judge."""
