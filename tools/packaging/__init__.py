"""Holds what `make wheels` and `make man` run: both distributions, and the manual pages of the command."""
