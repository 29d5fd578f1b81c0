"""The laws of the code that other tools do not know, each run by `make check`."""
