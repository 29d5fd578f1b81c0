"""Mistakes that are planted in the processes of the gateways, to see whether the harness finds them.

What always holds: the product knows nothing of them; a gateway has one only when it is started by launch.py with its name.
"""
