"""The faults and commands of a plan, one room for each kind of thing that is broken, and `registry.py` over them."""
