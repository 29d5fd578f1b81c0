"""The write path of an active, as long as its epoch lives: the commit log, the commit rule, the changes of mode."""
