"""The plain FastAPI routes, one file per resource; gateway/http/hot_path.py serves PUT and GET of one row before them.

A route decodes a request, calls one method of a port (gateway/service/port.py), and encodes the answer. It decides nothing.
"""
