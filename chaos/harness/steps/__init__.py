"""Named steps of a gateway's process: the harness says at which of them it dies, stops, waits or is refused.

What always holds: the steps have the simulator's names (chaos/simulate/aims.py), and its wrapper of ports passes them; the
product knows nothing of this: a gateway has such steps only when it is started by launch.py.
"""
