"""Threads under a schedule: every order in which the threads of a small program may take their steps, up to a bound."""
