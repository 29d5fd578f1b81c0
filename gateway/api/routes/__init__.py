"""The plain FastAPI routes, one file per resource; the single-row hot path is a raw ASGI route beside them.

A route decodes a request, calls one method of a port (gateway/service/port.py), and encodes the answer. It decides nothing.
"""
