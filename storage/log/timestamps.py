"""The form of hybrid timestamps: 48 bits of wall milliseconds above 16 bits of counter, as one int. Pure.

They are made by storage/clock.py. Source: protocol.md section 3.
"""

from __future__ import annotations

COUNTER_BITS = 16
